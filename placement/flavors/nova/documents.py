"""Translation requests and answers as JSON values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, NamedTuple, cast

from placement.engine.domain.errors import BadRequest
from placement.engine.domain.groups import MemberRule, Per, RuleKind
from placement.engine.domain.identifiers import normalize_uuid
from placement.flavors.nova.errors import Code, Problems, shown
from placement.flavors.nova.flavor import Flavor, ImageProperties, Options
from placement.flavors.nova.translation import Translation, translate

_REQUIRED_FLAVOR_FIELDS = ("vcpus", "memory_mb")
_CODE_BY_PART: Mapping[str, Code] = {
    "flavor": "flavor_invalid",
    "image": "image_invalid",
    "options": "options_invalid",
}


def translate_document(document: object) -> Translation:
    """Translate `{"flavor": {...}, "image": {...}, "options": {...}}`; image and options may be absent.

    Flavor and Options define the fields; image maps property names to texts. Raises FlavorRefused.
    """
    flavor, image, options = read_document(document)
    return translate(flavor, image, options)


def read_document(document: object) -> tuple[Flavor, ImageProperties, Options]:
    """Return the parts of a translation request; raises FlavorRefused for a missing or unknown field.

    Types and ranges of the values are checked by the translation.
    """
    problems = Problems()
    parts = _object(document, "request", "flavor_invalid", problems)
    for name in parts:
        if name not in _CODE_BY_PART:
            problems.add("flavor_invalid", f"{shown(name)}: is no part of a translation request")
    flavor, image, options = (
        _object({} if parts.get(name) is None else parts[name], name, code, problems)
        for name, code in _CODE_BY_PART.items()
    )
    for part, name, shape in ((flavor, "flavor", Flavor), (options, "options", Options)):
        known = sorted(field.name for field in fields(shape))
        for field_name in part:
            if field_name not in known:
                message = f"{name}: {shown(field_name)} is none of its fields {', '.join(known)}"
                problems.add(_CODE_BY_PART[name], message)
    for name in _REQUIRED_FLAVOR_FIELDS:
        if name not in flavor:
            problems.add("flavor_invalid", f"flavor.{name}: is missing")
    problems.raise_if_any()
    return Flavor(**flavor), image, Options(**options)


def translation_document(translation: Translation) -> dict[str, object]:
    """Return the answer as JSON values: lists for tuples, empty parts of groups left out."""
    cells = translation.cells
    groups: dict[str, dict[str, object]] = {}
    for suffix, group in translation.groups.items():
        parts = {
            "resources": dict(group.resources),
            "required": sorted(group.required),
            "forbidden": sorted(group.forbidden),
        }
        groups[suffix] = {name: part for name, part in parts.items() if part}
    return {
        "groups": groups,
        "group_policy": translation.group_policy,
        "root_required": list(translation.root_required),
        "same_subtree": [list(suffixes) for suffixes in translation.same_subtree],
        "querystring": translation.querystring,
        "fallback_querystring": translation.fallback_querystring,
        "microversion": translation.microversion,
        "cpu_policy": translation.cpu_policy,
        "thread_policy": translation.thread_policy,
        "cells": None
        if cells is None
        else [
            {
                "id": cell.id,
                "cpuset": list(cell.cpuset),
                "pcpuset": list(cell.pcpuset),
                "memory": cell.memory_mb,
            }
            for cell in cells
        ],
        "dedicated_cpus": translation.dedicated_cpus,
        "warnings": list(translation.warnings),
    }


def _object(value: object, name: str, code: Code, problems: Problems) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return cast(Mapping[str, Any], value)
    problems.add(code, f"{name}: must be an object")
    return {}


# Server groups of nova as rules between members: its policies, and how many servers may be on a host.
#
# Source: nova-flavors.md, "Server groups".


_WEIGHT = 1.0
_POLICIES: dict[str, tuple[RuleKind, float | None]] = {
    "affinity": (RuleKind.TOGETHER, None),
    "anti-affinity": (RuleKind.AT_MOST, None),
    "soft-affinity": (RuleKind.TOGETHER, _WEIGHT),
    "soft-anti-affinity": (RuleKind.AT_MOST, _WEIGHT),
}
_MEMBERS = {"id", "name", "policy", "policies", "rules", "members", "metadata", "project_id", "user_id"}
_MOST = "max_server_per_host"


class ServerGroup(NamedTuple):
    """The rule of a server group, and the group that its servers are claimed into, by its id."""

    rule: MemberRule
    group: str | None


def server_group(document: object) -> ServerGroup:
    """Read a server group as nova's API shows it. Raises BadRequest naming the member."""
    if not isinstance(document, Mapping):
        raise BadRequest("server_group: must be an object")
    unknown = sorted(str(name) for name in document.keys() - _MEMBERS)
    if unknown:
        raise BadRequest(f"server_group: {', '.join(unknown)} is no member of a server group")
    policy, policies = document.get("policy"), document.get("policies")
    if policy is None and isinstance(policies, list) and len(policies) == 1:
        # Before microversion 2.64 of nova the policy is the only one of a list.
        policy = policies[0]
    if not isinstance(policy, str) or policy not in _POLICIES:
        raise BadRequest(f"server_group.policy: must be one of {', '.join(_POLICIES)}")
    group = document.get("id")
    if group is not None and (not isinstance(group, str) or not 0 < len(group) <= 255):
        raise BadRequest("server_group.id: must be a text of 1 to 255 characters")
    most = _most_per_host(document.get("rules"), policy)
    members = document.get("members", [])
    if not isinstance(members, list):
        raise BadRequest("server_group.members: must be a list of uuids")
    servers = []
    for at, each in enumerate(members):
        uuid = normalize_uuid(each) if isinstance(each, str) else None
        if uuid is None:
            raise BadRequest(f"server_group.members[{at}]: must be a uuid")
        servers.append(uuid)
    kind, weight = _POLICIES[policy]
    rule = MemberRule(
        kind,
        Per.HOST,
        count=most,
        consumers=tuple(servers),
        groups=() if group is None else (group,),
        weight=weight,
        place="server_group",
    )
    return ServerGroup(rule, group)


def _most_per_host(rules: object, policy: str) -> int:
    if not rules:
        return 1
    if not isinstance(rules, Mapping) or set(rules) != {_MOST}:
        raise BadRequest(f"server_group.rules: the only rule of server groups is {_MOST}")
    most = rules[_MOST]
    if isinstance(most, str) and most.isdecimal():
        most = int(most)
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        raise BadRequest(f"server_group.rules.{_MOST}: must be an integer above 0")
    if policy != "anti-affinity":
        raise BadRequest(f"server_group.rules.{_MOST}: is for the policy anti-affinity")
    return most
