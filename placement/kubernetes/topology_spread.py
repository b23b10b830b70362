"""How pods are to be spread over places: `topologySpreadConstraints` of a pod."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from placement.kubernetes.label_selector import LabelSelector, read_label_selector
from placement.kubernetes.manifest import Field
from placement.kubernetes.pod_affinity import Bearer, PodSelector, read_topology_key, same_labels

_REFUSES, _PREFERS = "DoNotSchedule", "ScheduleAnyway"
_HONOR, _IGNORE = "Honor", "Ignore"


class SpreadConstraint(NamedTuple):
    """No place has `max_skew` more of these pods than the one with fewest.

    Nodes with one value at `topology_key` are one place. While there are fewer than `min_domains` places, the
    one with fewest counts as empty. Nodes count only if the pod's node affinity holds there
    (`honors_affinity`), and if it tolerates their taints (`honors_taints`).
    """

    pods: PodSelector
    topology_key: str
    max_skew: int
    is_required: bool
    min_domains: int = 1
    honors_affinity: bool = True
    honors_taints: bool = False

    def __str__(self) -> str:
        """The constraint as people write it."""
        return f"{self.pods}, at most {self.max_skew} more by {self.topology_key}"


def read_spread_constraints(constraints: Field, bearer: Bearer) -> tuple[SpreadConstraint, ...]:
    """The constraints of the pod with this namespace and these labels; what breaks the schema is reported.

    Source: Kubernetes topologySpreadConstraints.
    """
    return tuple(_read(each, bearer) for each in constraints.elements())


def may_be_required(constraints: Any) -> bool:
    """Whether among constraints that nobody has checked there may be one that refuses nodes."""
    if not isinstance(constraints, list):
        return bool(constraints)
    return any(
        not isinstance(each, Mapping) or each.get("whenUnsatisfiable") != _PREFERS for each in constraints
    )


def _read(each: Field, bearer: Bearer) -> SpreadConstraint:
    namespace, own = bearer
    skew = each.member("maxSkew").integer()
    if skew is not None and skew < 1:
        each.member("maxSkew").complain(f"must be 1 or more, not {skew}")
    when = _choice(each.member("whenUnsatisfiable"), (_REFUSES, _PREFERS), "")
    least = 1 if each.member("minDomains").value is None else each.member("minDomains").integer()
    if least is not None and least < 1:
        each.member("minDomains").complain(f"must be 1 or more, not {least}")
    if each.member("minDomains").value is not None and when == _PREFERS:
        each.member("minDomains").complain(f"goes with {_REFUSES} only")
    selector = each.member("labelSelector")
    labels = None
    if selector.value is not None:
        added = same_labels(each.member("matchLabelKeys"), own)
        labels = LabelSelector((*read_label_selector(selector).requirements, *added))
    return SpreadConstraint(
        PodSelector(labels, (namespace,)),
        read_topology_key(each),
        skew or 1,
        when == _REFUSES,
        least or 1,
        _choice(each.member("nodeAffinityPolicy"), (_HONOR, _IGNORE), _HONOR) == _HONOR,
        _choice(each.member("nodeTaintsPolicy"), (_HONOR, _IGNORE), _IGNORE) == _HONOR,
    )


def _choice(field: Field, words: tuple[str, ...], default: str) -> str:
    word = field.text() or default
    if word not in words:
        field.complain(f"must be {' or '.join(words)}, not {word!r}")
    return word
