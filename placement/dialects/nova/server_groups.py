"""Server groups of nova as rules between members: its policies, and how many servers may be on a host.

Source: nova-flavors.md, "Server groups".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from placement.domain.errors import BadRequest
from placement.domain.identifiers import normalize_uuid
from placement.domain.member_rules import MemberRule, Per, RuleKind

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
    policy = _policy(document)
    kind, weight = _POLICIES[policy]
    group = document.get("id")
    if group is not None and (not isinstance(group, str) or not 0 < len(group) <= 255):
        raise BadRequest("server_group.id: must be a text of 1 to 255 characters")
    rule = MemberRule(
        kind,
        Per.HOST,
        count=_most_per_host(document.get("rules"), policy),
        consumers=_servers(document.get("members", [])),
        groups=() if group is None else (group,),
        weight=weight,
        place="server_group",
    )
    return ServerGroup(rule, group)


def _policy(document: Mapping[str, Any]) -> str:
    """The policy; before microversion 2.64 of nova it is the only one of a list."""
    policies = document.get("policies")
    policy = document.get("policy")
    if policy is None and isinstance(policies, list) and len(policies) == 1:
        policy = policies[0]
    if not isinstance(policy, str) or policy not in _POLICIES:
        raise BadRequest(f"server_group.policy: must be one of {', '.join(_POLICIES)}")
    return policy


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


def _servers(members: object) -> tuple[str, ...]:
    if not isinstance(members, list):
        raise BadRequest("server_group.members: must be a list of uuids")
    found = []
    for at, each in enumerate(members):
        uuid = normalize_uuid(each) if isinstance(each, str) else None
        if uuid is None:
            raise BadRequest(f"server_group.members[{at}]: must be a uuid")
        found.append(uuid)
    return tuple(found)
