"""Rules of pods about each other: podAffinity and podAntiAffinity, required and preferred, and spread."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from placement.common.manifest import Field, ManifestReport
from placement.pods.manifests.selection import LabelSelector, Requirement, read_label_selector

Labels = tuple[tuple[str, str], ...]
"""Labels in the order of their keys."""
Bearer = tuple[str, Labels]
"""The namespace and the labels of a pod: all that others choose it by."""

# Every namespace has this label, and it is the only one that follows from its name.
_NAMESPACE_NAME = "kubernetes.io/metadata.name"
_MOST_WEIGHT = 100
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


class PodSelector(NamedTuple):
    """Pods by their labels and namespaces; without `labels` there are none.

    They are in one of `namespaces`, or in a namespace that `by_name` selects by the label with its name.
    """

    labels: LabelSelector | None
    namespaces: tuple[str, ...]
    by_name: LabelSelector | None = None

    def __str__(self) -> str:
        """Return the pods in readable form."""
        if self.labels is None:
            return "no pods"
        where = [f"namespace {name}" for name in self.namespaces]
        if self.by_name is not None:
            where.append(f"namespaces with {self.by_name}" if self.by_name.requirements else "any namespace")
        return f"pods with {str(self.labels) or 'any labels'} in {' or '.join(where)}"

    def selects(self, bearer: Bearer) -> bool:
        """Return whether a pod is one of them (Kubernetes: label selectors, namespaces)."""
        namespace, labels = bearer
        if self.labels is None or not self._covers(namespace):
            return False
        return self.labels.holds(dict(labels))

    def _covers(self, namespace: str) -> bool:
        if namespace in self.namespaces:
            return True
        return self.by_name is not None and self.by_name.holds({_NAMESPACE_NAME: namespace})


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
            "namespaceSelector": None if pods.by_name is None else pods.by_name.document(),
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

    near: tuple[PodTerm, ...] = ()
    apart: tuple[PodTerm, ...] = ()
    rather_near: tuple[WeightedTerm, ...] = ()
    rather_apart: tuple[WeightedTerm, ...] = ()

    def __bool__(self) -> bool:
        """Return whether there are any terms."""
        return bool(self.near or self.apart or self.rather_near or self.rather_apart)

    def document(self) -> dict[str, Any]:
        """Return the affinity as Kubernetes writes it, with namespaces and labels filled in."""
        sides = (
            ("podAffinity", self.near, self.rather_near),
            ("podAntiAffinity", self.apart, self.rather_apart),
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


def pod_labels(metadata: Field) -> Labels:
    """Return the labels in the metadata of a pod; labels that are no texts are left out."""
    labels = metadata.member("labels").members()
    texts = ((key, label.value) for key, label in sorted(labels.items()))
    return tuple((key, text) for key, text in texts if isinstance(text, str))


def read_pod_affinity(affinity: Field, bearer: Bearer) -> PodAffinity:
    """Return the terms in `Pod.spec.affinity` of the pod with this namespace and these labels.

    What breaks the schema is reported, and so are selectors of namespaces by labels other than their name:
    these are not known here. Source: Kubernetes podAffinity, podAntiAffinity.
    """
    if affinity.value is None:
        return NO_AFFINITY
    near, apart = affinity.member("podAffinity"), affinity.member("podAntiAffinity")
    found = PodAffinity(
        tuple(_read_terms(near.member(_REQUIRED), bearer)),
        tuple(_read_terms(apart.member(_REQUIRED), bearer)),
        tuple(_read_weighted(near.member(_PREFERRED), bearer)),
        tuple(_read_weighted(apart.member(_PREFERRED), bearer)),
    )
    return found or NO_AFFINITY


def stored_affinity(document: Mapping[str, Any] | None, bearer: Bearer) -> PodAffinity:
    """Return the terms of a stored pod; terms that cannot be read have no effect."""
    if not document:
        return NO_AFFINITY
    return read_pod_affinity(Field("affinity", document, ManifestReport(), soft=True), bearer)


def _read_terms(terms: Field, bearer: Bearer) -> Iterator[PodTerm]:
    for term in terms.elements():
        key, pods = read_topology_key(term), _read_pods(term, bearer)
        if key and pods is not None:
            yield PodTerm(pods, key)


def _read_weighted(terms: Field, bearer: Bearer) -> Iterator[WeightedTerm]:
    for each in terms.elements():
        weight, term = each.member("weight").integer(), each.member("podAffinityTerm")
        if weight is not None and not 1 <= weight <= _MOST_WEIGHT:
            each.member("weight").complain(f"must be from 1 to {_MOST_WEIGHT}, not {weight}")
            weight = None
        key, pods = read_topology_key(term), _read_pods(term, bearer)
        if key and weight is not None and pods is not None:
            yield WeightedTerm(weight, PodTerm(pods, key))


def read_topology_key(term: Field) -> str:
    """Return the `topologyKey` of a term or constraint, which is required."""
    key = term.member("topologyKey").text()
    if not key:
        term.member("topologyKey").complain("is missing")
    return key or ""


def _read_pods(term: Field, bearer: Bearer) -> PodSelector | None:
    """Return the pods of a term; None if what cannot be read of it would narrow them."""
    namespace, own = bearer
    # A part of a selector means more pods than all of it.
    found = ManifestReport()
    labels = _read_labels(term.reported_to(found), own)
    is_clear = not term.report.include(found)
    namespaces, selector = term.member("namespaces"), term.member("namespaceSelector")
    named = tuple(name.text() or "" for name in namespaces.elements())
    by_name = _read_namespaces(selector)
    if not named and by_name is None:
        is_clear = is_clear and namespaces.value in (None, []) and selector.value is None
        named = (namespace,)
    return PodSelector(labels, named, by_name) if is_clear else None


def _read_labels(term: Field, own: Labels) -> LabelSelector | None:
    selector = term.member("labelSelector")
    if selector.value is None:
        return None
    requirements = (
        *read_label_selector(selector).requirements,
        *same_labels(term.member("matchLabelKeys"), own),
        *same_labels(term.member("mismatchLabelKeys"), own, "NotIn"),
    )
    return LabelSelector(tuple(dict.fromkeys(requirements)))


def _read_namespaces(selector: Field) -> LabelSelector | None:
    """Return the namespaces that a selector means; None if there is none that can be read."""
    if selector.value is None:
        return None
    found = ManifestReport()
    read = read_label_selector(selector.reported_to(found))
    is_clear = not selector.report.include(found)
    unknown = _unknown_labels(read)
    if unknown:
        selector.complain(
            f"labels of namespaces are not known here, but for {_NAMESPACE_NAME}: {', '.join(unknown)}"
        )
    return read if is_clear and not unknown else None


def _unknown_labels(namespaces: LabelSelector) -> list[str]:
    return sorted({each.key for each in namespaces.requirements} - {_NAMESPACE_NAME})


def same_labels(keys: Field, own: Labels, operator: str = "In") -> Iterator[Requirement]:
    """Yield requirements to have the pod's own labels at these keys, or not to; keys it lacks are skipped."""
    labels = dict(own)
    for key in keys.elements():
        text = key.text() or ""
        if text in labels:
            yield Requirement(text, operator, (labels[text],))


def required_terms(spec: Mapping[str, Any], side: str) -> bool:
    """Return whether a pod with an unchecked manifest has required terms on this side of its affinity."""
    affinity = spec.get("affinity")
    terms = affinity.get(side) if isinstance(affinity, Mapping) else None
    return isinstance(terms, Mapping) and bool(terms.get(_REQUIRED))


def without_unknown_namespaces(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a pod without the terms that ask for labels of namespaces, which are not known here.

    kube-scheduler knows them, and heeds such terms itself. The manifest may be unchecked.
    """
    spec = pod.get("spec")
    affinity = spec.get("affinity") if isinstance(spec, Mapping) else None
    if not isinstance(spec, Mapping) or not isinstance(affinity, Mapping):
        return pod
    sides = {side: affinity[side] for side in ("podAffinity", "podAntiAffinity") if affinity.get(side)}
    known = {side: _with_known(terms) for side, terms in sides.items()}
    if known == sides:
        return pod
    return {**pod, "spec": {**spec, "affinity": {**affinity, **known}}}


def _with_known(terms: Any) -> Any:
    if not isinstance(terms, Mapping):
        return terms
    kept = dict(terms)
    for kind in (_REQUIRED, _PREFERRED):
        if isinstance(kept.get(kind), list):
            kept[kind] = [each for each in kept[kind] if not _asks_for_unknown(each)]
    return kept


def _asks_for_unknown(term: Any) -> bool:
    """Return whether a term, or what it weighs, names labels of namespaces that are not known."""
    inner = Field("term", term, ManifestReport(), soft=True)
    if inner.member("podAffinityTerm").value is not None:
        inner = inner.member("podAffinityTerm")
    selector = inner.member("namespaceSelector")
    return selector.value is not None and bool(_unknown_labels(read_label_selector(selector)))


# How pods are to be spread over places: `topologySpreadConstraints` of a pod.


_REFUSES, _PREFERS = "DoNotSchedule", "ScheduleAnyway"
_HONOR, _IGNORE = "Honor", "Ignore"


class SpreadConstraint(NamedTuple):
    """A constraint that no place has over `max_skew` more of these pods than the place with fewest.

    Nodes with one value at `topology_key` are one place. While there are fewer than `min_domains` places, the
    lowest count is taken as 0. Nodes count only if the pod's node affinity holds there (`honors_affinity`),
    and if it tolerates their taints (`honors_taints`).
    """

    pods: PodSelector
    topology_key: str
    max_skew: int
    is_required: bool
    min_domains: int = 1
    honors_affinity: bool = True
    honors_taints: bool = False

    def __str__(self) -> str:
        """Return the constraint in readable form."""
        return f"{self.pods}, at most {self.max_skew} more by {self.topology_key}"


def read_spread_constraints(constraints: Field, bearer: Bearer) -> tuple[SpreadConstraint, ...]:
    """Return the constraints of the pod with this namespace and labels; what breaks the schema is reported.

    Source: Kubernetes topologySpreadConstraints.
    """
    return tuple(_read(each, bearer) for each in constraints.elements())


def may_be_required(constraints: Any) -> bool:
    """Return whether one of these unchecked constraints may refuse nodes."""
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


# What a pod says about placed pods: which it wants near, which apart, and how it is to be spread.


@dataclass(frozen=True, slots=True)
class PodRules:
    """The namespace and labels by which others choose a pod, its affinity, and how it is to be spread."""

    bearer: Bearer
    affinity: PodAffinity = NO_AFFINITY
    spread: tuple[SpreadConstraint, ...] = ()

    def __bool__(self) -> bool:
        """Return whether the pod itself says anything about other pods."""
        return bool(self.affinity or self.spread)

    @property
    def refuse(self) -> bool:
        """Return whether its own rules may keep this pod off nodes because of placed pods."""
        required = self.affinity.near or self.affinity.apart
        return bool(required) or any(each.is_required for each in self.spread)


def read_pod_rules(pod: Field, namespace: str) -> PodRules:
    """Return the rules of a pod in this namespace; whatever breaks the schema is reported."""
    bearer = (namespace, pod_labels(pod.member("metadata")))
    spec = pod.member("spec")
    return PodRules(
        bearer,
        read_pod_affinity(spec.member("affinity"), bearer),
        read_spread_constraints(spec.member("topologySpreadConstraints"), bearer),
    )


def may_require(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod with an unchecked manifest may require anything of other pods."""
    spec = _spec(pod)
    constraints = spec.get("topologySpreadConstraints")
    return (
        required_terms(spec, "podAffinity")
        or required_terms(spec, "podAntiAffinity")
        or may_be_required(constraints)
    )


def may_keep_off(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod with an unchecked manifest may keep other pods off nodes."""
    return required_terms(_spec(pod), "podAntiAffinity")


def _spec(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    spec = pod.get("spec")
    return spec if isinstance(spec, Mapping) else {}
