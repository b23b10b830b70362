"""Rules of pods about each other: podAffinity and podAntiAffinity, required and preferred, and spread."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from placement.common.manifest import Field, ManifestReport
from placement.pods.manifests.selection import LabelSelector, Requirement, read_label_selector

LabelPairs = tuple[tuple[str, str], ...]
"""Labels in the order of their keys."""
Bearer = tuple[str, LabelPairs]
"""The namespace and the labels of a pod: all that others choose it by."""

# Every namespace has this label, and it is the only one that follows from its name.
_NAMESPACE_NAME = "kubernetes.io/metadata.name"
_MOST_WEIGHT = 100
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


class PodSelector(NamedTuple):
    """Pods by their labels and namespaces; without `labels` there are none.

    They are in one of `namespaces`, or in a namespace that `namespace_selector` selects by the label with its
    name.
    """

    labels: LabelSelector | None
    namespaces: tuple[str, ...]
    namespace_selector: LabelSelector | None = None

    def __str__(self) -> str:
        """Return the pods in readable form."""
        if self.labels is None:
            return "no pods"
        where = [f"namespace {name}" for name in self.namespaces]
        if self.namespace_selector is not None:
            where.append(
                f"namespaces with {self.namespace_selector}"
                if self.namespace_selector.requirements
                else "any namespace"
            )
        return f"pods with {str(self.labels) or 'any labels'} in {' or '.join(where)}"

    def selects(self, bearer: Bearer) -> bool:
        """Return whether a pod is one of them (Kubernetes: label selectors, namespaces)."""
        namespace, labels = bearer
        covers = namespace in self.namespaces or (
            self.namespace_selector is not None
            and self.namespace_selector.holds({_NAMESPACE_NAME: namespace})
        )
        return self.labels is not None and covers and self.labels.holds(dict(labels))


class PodTerm(NamedTuple):
    """Pods, and the key of a label: nodes with the same value of it count as one place."""

    pods: PodSelector
    topology_key: str

    def __str__(self) -> str:
        """Return the term in readable form."""
        return f"{self.pods}, by {self.topology_key}"

    def document(self) -> dict[str, Any]:
        """Return the term as Kubernetes writes it."""
        pods = self.pods
        members = {
            "labelSelector": None if pods.labels is None else pods.labels.document(),
            "namespaces": list(pods.namespaces),
            "namespaceSelector": None
            if pods.namespace_selector is None
            else pods.namespace_selector.document(),
            "topologyKey": self.topology_key,
        }
        return {key: member for key, member in members.items() if member not in (None, [])}


class WeightedTerm(NamedTuple):
    """A term that is preferred with a weight."""

    weight: int
    term: PodTerm


@dataclass(frozen=True, slots=True)
class PodAffinity:
    """The terms of a pod for and against other pods, required ones and preferred ones."""

    near_terms: tuple[PodTerm, ...] = ()
    apart_terms: tuple[PodTerm, ...] = ()
    preferred_near_terms: tuple[WeightedTerm, ...] = ()
    preferred_apart_terms: tuple[WeightedTerm, ...] = ()

    def document(self) -> dict[str, Any]:
        """Return the affinity as Kubernetes writes it, with namespaces and labels filled in."""
        sides = (
            ("podAffinity", self.near_terms, self.preferred_near_terms),
            ("podAntiAffinity", self.apart_terms, self.preferred_apart_terms),
        )
        return {
            side: {
                _REQUIRED: [term.document() for term in required],
                _PREFERRED: [
                    {"weight": each.weight, "podAffinityTerm": each.term.document()} for each in preferred
                ],
            }
            for side, required, preferred in sides
            if required or preferred
        }


NO_AFFINITY = PodAffinity()


def pod_labels(metadata: Field) -> LabelPairs:
    """Return the labels in the metadata of a pod; labels must be texts, or are left out."""
    labels = metadata.member("labels").members()
    texts = ((key, label.value) for key, label in sorted(labels.items()))
    return tuple((key, text) for key, text in texts if isinstance(text, str))


def stored_affinity(document: Mapping[str, Any] | None, bearer: Bearer) -> PodAffinity:
    """Return the terms of a stored pod; terms that cannot be read have no effect."""
    if not document:
        return NO_AFFINITY
    return _read_affinity(Field("affinity", document, ManifestReport(), soft=True), bearer)


def _read_affinity(affinity: Field, bearer: Bearer) -> PodAffinity:
    """Return the terms in `Pod.spec.affinity` of the pod with this namespace and these labels.

    Breaches of the schema are reported, and selectors of namespaces by labels other than their name:
    these are not known here. Source: Kubernetes podAffinity, podAntiAffinity.
    """
    if affinity.value is None:
        return NO_AFFINITY
    near, apart = affinity.member("podAffinity"), affinity.member("podAntiAffinity")
    pod_affinity = PodAffinity(
        tuple(each.term for each in _read_terms(near.member(_REQUIRED), bearer)),
        tuple(each.term for each in _read_terms(apart.member(_REQUIRED), bearer)),
        tuple(_read_terms(near.member(_PREFERRED), bearer, are_weighted=True)),
        tuple(_read_terms(apart.member(_PREFERRED), bearer, are_weighted=True)),
    )
    return NO_AFFINITY if pod_affinity == NO_AFFINITY else pod_affinity


def _read_terms(terms: Field, bearer: Bearer, *, are_weighted: bool = False) -> Iterator[WeightedTerm]:
    for each in terms.elements():
        weight: int | None = 0
        term = each
        if are_weighted:
            weight, term = each.member("weight").integer(), each.member("podAffinityTerm")
            if weight is not None and not 1 <= weight <= _MOST_WEIGHT:
                each.member("weight").complain(f"must be from 1 to {_MOST_WEIGHT}, not {weight}")
                weight = None
        key, pods = _read_topology_key(term), _read_pods(term, bearer)
        if key and weight is not None and pods is not None:
            yield WeightedTerm(weight, PodTerm(pods, key))


def _read_topology_key(term: Field) -> str:
    key = term.member("topologyKey").text()
    if not key:
        term.member("topologyKey").complain("is missing")
    return key or ""


def _read_pods(term: Field, bearer: Bearer) -> PodSelector | None:
    """Return the pods of a term; None if what cannot be read of it would narrow them."""
    namespace, own = bearer
    # A part of a selector means more pods than all of it.
    own_report = ManifestReport()
    read, labels = term.reported_to(own_report), None
    if read.member("labelSelector").value is not None:
        requirements = (
            *read_label_selector(read.member("labelSelector")).requirements,
            *_same_labels(read.member("matchLabelKeys"), own),
            *_same_labels(read.member("mismatchLabelKeys"), own, "NotIn"),
        )
        labels = LabelSelector(tuple(dict.fromkeys(requirements)))
    is_clear = not term.report.include(own_report)
    namespaces, selector = term.member("namespaces"), term.member("namespaceSelector")
    named = tuple(name.text() or "" for name in namespaces.elements())
    by_name = _read_namespaces(selector)
    if not named and by_name is None:
        is_clear = is_clear and namespaces.value in (None, []) and selector.value is None
        named = (namespace,)
    return PodSelector(labels, named, by_name) if is_clear else None


def _read_namespaces(selector: Field) -> LabelSelector | None:
    """Return the namespaces that a selector means; None if there is none that can be read."""
    if selector.value is None:
        return None
    own_report = ManifestReport()
    read = read_label_selector(selector.reported_to(own_report))
    is_clear = not selector.report.include(own_report)
    unknown = _unknown_labels(read)
    if unknown:
        selector.complain(
            f"labels of namespaces are not known here, but for {_NAMESPACE_NAME}: {', '.join(unknown)}"
        )
    return read if is_clear and not unknown else None


def _unknown_labels(selector: LabelSelector) -> list[str]:
    return sorted({each.key for each in selector.requirements} - {_NAMESPACE_NAME})


def _same_labels(keys: Field, own_labels: LabelPairs, operator: str = "In") -> Iterator[Requirement]:
    """Yield requirements to have the pod's own labels at these keys, or not to; keys it lacks are skipped."""
    labels = dict(own_labels)
    for key in keys.elements():
        text = key.text() or ""
        if text in labels:
            yield Requirement(text, operator, (labels[text],))


_REFUSES, _PREFERS = "DoNotSchedule", "ScheduleAnyway"
_HONOR, _IGNORE = "Honor", "Ignore"


class SpreadConstraint(NamedTuple):
    """A constraint that no place has over `max_skew` more of these pods than the place with fewest.

    Nodes with one value at `topology_key` are one place. While there are fewer than `min_domains` places, the
    lowest count is taken as 0. Nodes count only if the pod's node affinity holds there (`honors_affinity`),
    and if it tolerates their taints (`honors_taints`). An empty selector counts no placed pod
    (`counts_placed`), as in kube-scheduler 1.36, though it selects every pod; 1.20 counted all.
    """

    pods: PodSelector
    topology_key: str
    max_skew: int
    is_required: bool
    min_domains: int = 1
    honors_affinity: bool = True
    honors_taints: bool = False
    counts_placed: bool = True

    def __str__(self) -> str:
        """Return the constraint in readable form."""
        return f"{self.pods}, at most {self.max_skew} more by {self.topology_key}"


def _read_constraint(each: Field, bearer: Bearer) -> SpreadConstraint:
    """Return a constraint of the pod with this namespace and labels; what breaks the schema is reported.

    Source: Kubernetes topologySpreadConstraints.
    """
    namespace, own = bearer
    skew = each.member("maxSkew").integer()
    if skew is not None and skew < 1:
        each.member("maxSkew").complain(f"must be 1 or more, not {skew}")
    when = _choice(each.member("whenUnsatisfiable"), (_REFUSES, _PREFERS), "")
    domains = each.member("minDomains")
    least = 1 if domains.value is None else domains.integer()
    if least is not None and least < 1:
        domains.complain(f"must be 1 or more, not {least}")
    if domains.value is not None and when == _PREFERS:
        domains.complain(f"goes with {_REFUSES} only")
    selector, labels = each.member("labelSelector"), None
    if selector.value is not None:
        added = _same_labels(each.member("matchLabelKeys"), own)
        labels = LabelSelector((*read_label_selector(selector).requirements, *added))
    return SpreadConstraint(
        PodSelector(labels, (namespace,)),
        _read_topology_key(each),
        skew or 1,
        when == _REFUSES,
        least or 1,
        _choice(each.member("nodeAffinityPolicy"), (_HONOR, _IGNORE), _HONOR) == _HONOR,
        _choice(each.member("nodeTaintsPolicy"), (_HONOR, _IGNORE), _IGNORE) == _HONOR,
        labels is None or bool(labels.requirements),
    )


def _choice(field: Field, words: tuple[str, ...], default: str) -> str:
    word = field.text() or default
    if word not in words:
        field.complain(f"must be {' or '.join(words)}, not {word!r}")
    return word


@dataclass(frozen=True)
class PodRules:
    """The namespace and labels by which others choose a pod, its affinity, and how it is to be spread."""

    bearer: Bearer
    affinity: PodAffinity = NO_AFFINITY
    spread: tuple[SpreadConstraint, ...] = ()

    @cached_property
    def say_anything(self) -> bool:
        """Return whether the pod itself says anything about other pods."""
        return self.affinity != NO_AFFINITY or bool(self.spread)

    @cached_property
    def refuse(self) -> bool:
        """Return whether its own rules may keep this pod off nodes because of placed pods."""
        required = self.affinity.near_terms or self.affinity.apart_terms
        return bool(required) or any(each.is_required for each in self.spread)


def read_pod_rules(pod: Field, namespace: str) -> PodRules:
    """Return the rules of a pod in this namespace; whatever breaks the schema is reported."""
    bearer = (namespace, pod_labels(pod.member("metadata")))
    spec = pod.member("spec")
    affinity = _read_affinity(spec.member("affinity"), bearer)
    constraints = spec.member("topologySpreadConstraints").elements()
    return PodRules(bearer, affinity, tuple(_read_constraint(each, bearer) for each in constraints))


def may_require(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod with an unchecked manifest may require anything of other pods."""
    constraints = _mapping(pod, "spec").get("topologySpreadConstraints")
    if isinstance(constraints, list):
        constraints = [
            each
            for each in constraints
            if not isinstance(each, Mapping) or each.get("whenUnsatisfiable") != _PREFERS
        ]
    return bool(constraints) or any(_has_required(pod, side) for side in ("podAffinity", "podAntiAffinity"))


def may_keep_off(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod with an unchecked manifest may keep other pods off nodes."""
    return _has_required(pod, "podAntiAffinity")


def _has_required(pod: Mapping[str, Any], side: str) -> bool:
    return bool(_mapping(_mapping(_mapping(pod, "spec"), "affinity"), side).get(_REQUIRED))


def _mapping(parent: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    member = parent.get(key)
    return member if isinstance(member, Mapping) else {}


def without_unknown_namespaces(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a pod without the terms that ask for labels of namespaces, which are not known here.

    kube-scheduler knows them, and heeds such terms itself. The manifest may be unchecked.
    """
    spec = _mapping(pod, "spec")
    affinity = _mapping(spec, "affinity")
    known = {}
    for side in ("podAffinity", "podAntiAffinity"):
        terms = _mapping(affinity, side)
        for kind in (_REQUIRED, _PREFERRED):
            listed = terms.get(kind)
            if isinstance(listed, list) and any(map(_asks_for_unknown, listed)):
                kept = [each for each in listed if not _asks_for_unknown(each)]
                terms = known[side] = {**terms, kind: kept}
    return {**pod, "spec": {**spec, "affinity": {**affinity, **known}}} if known else pod


def _asks_for_unknown(term: Any) -> bool:
    """Return whether a term, or what it weighs, names labels of namespaces that are not known."""
    inner = Field("term", term, ManifestReport(), soft=True)
    if inner.member("podAffinityTerm").value is not None:
        inner = inner.member("podAffinityTerm")
    selector = inner.member("namespaceSelector")
    return selector.value is not None and bool(_unknown_labels(read_label_selector(selector)))
