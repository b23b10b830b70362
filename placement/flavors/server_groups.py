"""Server groups of nova as rules between members: their policies, and how many servers may be on a host.

Source: nova-flavors.md, "Server groups".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from placement.common.texts import disturbing
from placement.engine.domain.errors import BODY, BadRequest
from placement.engine.domain.identifiers import normalize_uuid
from placement.engine.domain.member_rules import MemberRule, Per, RuleKind

_WEIGHT = 1.0
_POLICIES: dict[str, tuple[RuleKind, float | None]] = {
    "affinity": (RuleKind.TOGETHER, None),
    "anti-affinity": (RuleKind.AT_MOST, None),
    "soft-affinity": (RuleKind.TOGETHER, _WEIGHT),
    "soft-anti-affinity": (RuleKind.AT_MOST, _WEIGHT),
}
_MEMBERS = {"id", "name", "policy", "policies", "rules", "members", "metadata", "project_id", "user_id"}
_MOST = "max_server_per_host"


def server_group(document: object) -> MemberRule:
    """Return the rule of a server group, as nova's API shows it; its servers are claimed into its group.

    Raises BadRequest naming the member.
    """
    if not isinstance(document, Mapping):
        raise BadRequest("must be an object", place=BODY / "server_group")
    unknown = sorted(str(name) for name in document.keys() - _MEMBERS)
    if unknown:
        raise BadRequest(
            f"{', '.join(unknown)} is not a member of a server group", place=BODY / "server_group"
        )
    policy = _policy(document)
    group = _group(document)
    most = _most_per_host(document.get("rules"), policy)
    servers = _servers(document)
    kind, weight = _POLICIES[policy]
    return MemberRule(
        kind,
        Per.HOST,
        count=most,
        consumers=servers,
        groups=() if group is None else (group,),
        weight=weight,
        place=BODY / "server_group",
    )


def _policy(document: Mapping[str, Any]) -> str:
    policy, policies = document.get("policy"), document.get("policies")
    if policy is None and isinstance(policies, list) and len(policies) == 1:
        # Before microversion 2.64 of nova the policy is the only one of a list.
        policy = policies[0]
    if not isinstance(policy, str) or policy not in _POLICIES:
        raise BadRequest(f"must be one of {', '.join(_POLICIES)}", place=BODY / "server_group" / "policy")
    return policy


def _group(document: Mapping[str, Any]) -> str | None:
    group = document.get("id")
    if group is not None and (not isinstance(group, str) or not 0 < len(group) <= 255):
        raise BadRequest("must be a text of 1 to 255 characters", place=BODY / "server_group" / "id")
    if found := disturbing(group or ""):
        raise BadRequest(f"has {found}, which no name may have", place=BODY / "server_group" / "id")
    return group


def _servers(document: Mapping[str, Any]) -> tuple[str, ...]:
    members = document.get("members", [])
    if not isinstance(members, list):
        raise BadRequest("must be a list of uuids", place=BODY / "server_group" / "members")
    servers = []
    for at, each in enumerate(members):
        uuid = normalize_uuid(each) if isinstance(each, str) else None
        if uuid is None:
            raise BadRequest("must be a uuid", place=BODY / "server_group" / "members" / at)
        servers.append(uuid)
    return tuple(servers)


def _most_per_host(rules: object, policy: str) -> int:
    if not rules:
        return 1
    if not isinstance(rules, Mapping) or set(rules) != {_MOST}:
        raise BadRequest(f"the only rule of server groups is {_MOST}", place=BODY / "server_group" / "rules")
    most = rules[_MOST]
    if isinstance(most, str) and most.isdecimal():
        most = int(most)
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        raise BadRequest("must be an integer above 0", place=BODY / "server_group" / "rules" / _MOST)
    if policy != "anti-affinity":
        raise BadRequest("is for the policy anti-affinity", place=BODY / "server_group" / "rules" / _MOST)
    return most
