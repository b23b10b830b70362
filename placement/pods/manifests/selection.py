"""The selection of nodes for a pod: by their names, their labels, and their taints."""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from placement.common.manifest import CLOSED, Field, ManifestReport
from placement.pods.manifests.ports import HostPorts, read_host_ports

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_REFUSING = frozenset({"NoSchedule", "NoExecute"})
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
# The value of a label has no sign, and kube-scheduler takes no bound that is none.
_INTEGER = re.compile(r"0*([0-9]{1,19})")
_LARGEST = 2**63 - 1


class Taint(NamedTuple):
    """A taint: pods that do not tolerate it are kept off the node."""

    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        """Return the taint as `kubectl taint` writes it."""
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


CORDONED = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")


class Toleration(NamedTuple):
    """A toleration of taints; no key tolerates every key, no effect every effect."""

    key: str
    exists: bool
    value: str
    effect: str

    def covers(self, taint: Taint) -> bool:
        """Return whether the taint is tolerated (Kubernetes: taints and tolerations)."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        return self.exists or self.value == taint.value


def _read_toleration(entry: Field) -> Toleration:
    operator, key, effect = (_text(entry, name) for name in ("operator", "key", "effect"))
    if operator not in ("", "Equal", "Exists"):
        entry.member("operator").refuse(f"must be Equal or Exists, not {operator!r}")
    elif not key and operator != "Exists":
        entry.member("operator").refuse("must be Exists when the key is empty")
    if effect and effect not in _EFFECTS:
        entry.member("effect").refuse(f"{effect!r} is not one of {', '.join(_EFFECTS)}")
    return Toleration(key, operator == "Exists", _text(entry, "value"), effect)


def _text(entry: Field, key: str) -> str:
    return entry.member(key).text() or ""


def untolerated(taints: Iterable[Taint], tolerations: Sequence[Toleration]) -> Iterator[Taint]:
    """Yield the taints that keep a pod off a node; PreferNoSchedule never does."""
    for taint in taints:
        if taint.effect in _REFUSING and not any(toleration.covers(taint) for toleration in tolerations):
            yield taint


@dataclass(frozen=True, slots=True)
class NodeAttributes:
    """The properties by which pods choose nodes."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    closed: str | None = None
    """Why no new pod goes there, whatever it tolerates; None where the node is open."""


def read_attributes(document: Mapping[str, Any], report: ManifestReport | None = None) -> NodeAttributes:
    """Return the attributes of a Node; what is not of the expected type counts as absent, and is reported."""
    node = Field("Node", document, report or ManifestReport(), soft=True)
    metadata, spec = node.member("metadata"), node.member("spec")
    labels = metadata.member("labels").texts()
    return NodeAttributes(
        name=metadata.member("name").text() or "",
        labels=labels,
        taints=tuple(
            Taint(_text(entry, "key"), _text(entry, "value"), _text(entry, "effect"))
            for entry in spec.member("taints").elements()
        ),
        unschedulable=spec.member("unschedulable").flag(default=False) is True,
        closed=metadata.member("annotations").member(CLOSED).text(),
    )


class Requirement(NamedTuple):
    """One expression about a label, or about the name of the node."""

    key: str
    operator: str
    values: tuple[str, ...]

    def __str__(self) -> str:
        """Return the expression in readable form."""
        return " ".join(filter(None, (self.key, self.operator, ", ".join(self.values))))

    def holds(self, texts: Mapping[str, str]) -> bool:
        """Return whether it holds for these labels (Kubernetes: node affinity)."""
        text = texts.get(self.key)
        if self.operator == "Exists":
            return text is not None
        if self.operator == "DoesNotExist":
            return text is None
        if self.operator == "In":
            return text in self.values
        if self.operator == "NotIn":
            return text not in self.values
        number, bound = _integer(text or ""), _integer(self.values[0])
        if number is None or bound is None:
            return False
        return number > bound if self.operator == "Gt" else number < bound


def _integer(text: str) -> int | None:
    """Return the integer of 64 bits without a sign that a text is, None if it is another text."""
    match = _INTEGER.fullmatch(text)
    number = int(match[1]) if match else None
    return number if number is not None and number <= _LARGEST else None


class Term(NamedTuple):
    """A term of requirements that must all hold; without any it holds nowhere."""

    label_requirements: tuple[Requirement, ...]
    field_requirements: tuple[Requirement, ...]

    def __str__(self) -> str:
        """Return the term in readable form."""
        return " and ".join(map(str, (*self.label_requirements, *self.field_requirements)))

    @property
    def says_anything(self) -> bool:
        """Return whether there is any requirement."""
        return bool(self.label_requirements or self.field_requirements)

    def holds(self, attributes: NodeAttributes) -> bool:
        """Return whether it holds for the node."""
        if not self.says_anything:
            return False
        name = {"metadata.name": attributes.name}
        return all(each.holds(attributes.labels) for each in self.label_requirements) and all(
            each.holds(name) for each in self.field_requirements
        )


@dataclass(frozen=True, slots=True)
class NodeSelection:
    """The rules of a pod about its nodes; `terms` is None if it has no required affinity.

    `host_ports` have to be free there. `own` has what rules read of the pod themselves, by rule.
    """

    selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[Term, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()
    host_ports: HostPorts = ()
    own: tuple[tuple[object, Hashable], ...] = ()


def read_node_selection(spec: Field) -> NodeSelection:
    """Return the selection in `Pod.spec`; whatever breaks its schema is reported.

    Source: Kubernetes nodeSelector, required node affinity, tolerations, host ports.
    """
    selector = [(key, value.text() or "") for key, value in spec.member("nodeSelector").members().items()]
    affinity = spec.member("affinity").member("nodeAffinity")
    required = affinity.member("requiredDuringSchedulingIgnoredDuringExecution")
    terms = None
    if required.value is not None:
        terms = tuple(read_term(term) for term in required.member("nodeSelectorTerms").elements())
    tolerations = tuple(_read_toleration(entry) for entry in spec.member("tolerations").elements())
    return NodeSelection(tuple(sorted(selector)), terms, tolerations, read_host_ports(spec))


def read_term(term: Field) -> Term:
    """Return a term in a list of terms; whatever breaks its schema is reported."""
    labels = tuple(read_requirement(each) for each in term.member("matchExpressions").elements())
    fields = tuple(read_requirement(each) for each in term.member("matchFields").elements())
    return Term(labels, fields)


def read_requirement(each: Field, operators: Collection[str] = _OPERATORS) -> Requirement:
    """Return one expression that may have these operators; whatever breaks its schema is reported."""
    operator = each.member("operator").text() or ""
    values = tuple(value.text() or "" for value in each.member("values").elements())
    if operator not in operators:
        each.member("operator").refuse(f"{operator!r} is not one of {', '.join(operators)}")
    elif operator in ("Gt", "Lt") and len(values) != 1:
        each.member("values").refuse(f"{operator} takes one integer")
    elif operator in ("Gt", "Lt") and _integer(values[0]) is None:
        each.member("values").warn(
            f"{values[0][:60]!r} is not an integer of 64 bits without a sign, so it holds nowhere"
        )
    elif operator in ("In", "NotIn") and not values:
        each.member("values").refuse(f"{operator} takes at least one value")
    return Requirement(each.member("key").text() or "", operator, values)


# Label selectors: which objects are meant, by their labels.


_LABEL_SELECTOR_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


class LabelSelector(NamedTuple):
    """A selector of requirements that must all hold; without any it selects everything."""

    requirements: tuple[Requirement, ...] = ()

    def __str__(self) -> str:
        """Return the selector in readable form."""
        return " and ".join(map(str, self.requirements))

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Return whether the selector selects these labels (Kubernetes: label selectors)."""
        return all(each.holds(labels) for each in self.requirements)

    def document(self) -> dict[str, Any]:
        """Return the selector as JSON."""
        return {
            "matchExpressions": [
                {"key": each.key, "operator": each.operator, "values": list(each.values)}
                for each in self.requirements
            ]
        }


def read_label_selector(selector: Field) -> LabelSelector:
    """Return the selector in a field; whatever breaks its schema is reported."""
    labels = selector.member("matchLabels").members().items()
    return LabelSelector(
        (
            *(Requirement(key, "In", (value.text() or "",)) for key, value in labels),
            *(
                read_requirement(each, _LABEL_SELECTOR_OPERATORS)
                for each in selector.member("matchExpressions").elements()
            ),
        )
    )


# Owners of something, as pods: one pod, the pods of a controller, or pods with certain labels.


_OBJECT = ("uid", "name", "namespace", "apiVersion")

_REFERENCE = ("uid", "name", "kind", "apiVersion")

_CONDITIONS = ("object", "controller", "labelSelector")

TextPairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Controller:
    """A reference to the owner of a pod: texts that must be equal, and whether it must be its controller."""

    texts: TextPairs
    namespace: str = ""
    controller: bool | None = None

    def owns(self, pod: Field, namespace: str) -> bool:
        """Return whether a pod in that namespace names such an owner."""
        if self.namespace not in ("", namespace):
            return False
        return any(
            (self.controller is None or each.member("controller").value is self.controller)
            and all(each.member(name).value == text for name, text in self.texts)
            for each in pod.member("ownerReferences").elements()
        )

    def document(self) -> dict[str, Any]:
        """Return the reference as JSON."""
        found: dict[str, Any] = dict(self.texts)
        if self.namespace:
            found["namespace"] = self.namespace
        return found if self.controller is None else {**found, "controller": self.controller}


@dataclass(frozen=True, slots=True)
class ReservationOwner:
    """One kind of pods that own a reservation; all that is given must hold."""

    pod: TextPairs | None = None
    controller: Controller | None = None
    selector: LabelSelector | None = None

    def matches(self, pod: Mapping[str, Any]) -> bool:
        """Return whether a pod with this manifest is an owner. Source: koordinator.md, "Reservations"."""
        metadata = Field("Pod", pod, ManifestReport(), soft=True).member("metadata")
        namespace = metadata.member("namespace").text() or ""
        if self.pod is not None:
            found = {**metadata.mapping(), "apiVersion": pod.get("apiVersion")}
            if any(found.get(name) != text for name, text in self.pod):
                return False
        if self.controller is not None and not self.controller.owns(metadata, namespace):
            return False
        labels = metadata.member("labels").mapping()
        return self.selector is None or self.selector.holds(labels)

    def document(self) -> dict[str, Any]:
        """Return the owner as JSON."""
        members = {
            "object": None if self.pod is None else dict(self.pod),
            "controller": None if self.controller is None else self.controller.document(),
            "labelSelector": None if self.selector is None else self.selector.document(),
        }
        return {key: member for key, member in members.items() if member is not None}


def read_owners(owners: Field) -> tuple[ReservationOwner, ...]:
    """Return the owners in `Reservation.spec.owners`; at least one, and each says something.

    Source: koordinator.md, "Reservations".
    """
    found = []
    for owner in owners.elements():
        pod, controller_field, selector = (owner.member(name) for name in _CONDITIONS)
        if pod.value is None and controller_field.value is None and selector.value is None:
            owner.refuse(f"needs one of {', '.join(_CONDITIONS)}")
        texts = None if pod.value is None else _texts(pod, _OBJECT)
        controller = None
        if controller_field.value is not None:
            own, flag = _texts(controller_field, _REFERENCE), controller_field.member("controller")
            namespace = controller_field.member("namespace").text() or ""
            controller = Controller(own, namespace, None if flag.value is None else flag.flag(default=False))
        labels = None if selector.value is None else read_label_selector(selector)
        found.append(ReservationOwner(texts, controller, labels))
    if not found:
        owners.refuse("a reservation needs at least one owner")
    return tuple(found)


def _texts(reference: Field, names: tuple[str, ...]) -> TextPairs:
    texts = ((name, reference.member(name).text()) for name in names)
    return tuple((name, text) for name, text in texts if text)
