"""Pods that must use a reservation, and which ones they accept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from placement.kubernetes.manifest import Field
from placement.kubernetes.node_selection import NodeAttributes, Term, read_term

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True, slots=True)
class ReservationAffinity:
    """The reservations that a pod accepts: the one of this name, else those to which all the rest applies."""

    name: str = ""
    selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[Term, ...] | None = None

    def accepts(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether a reservation will do. Source: koordinator.md, "Reservations"."""
        if self.name:
            return self.name == name
        if any(labels.get(key) != text for key, text in self.selector):
            return False
        attributes = NodeAttributes(name, labels)
        return self.terms is None or any(term.holds(attributes) for term in self.terms)


def read_reservation_affinity(annotation: Field) -> ReservationAffinity | None:
    """The affinity of a reservation-affinity annotation, None if there is none.

    With one the pod must use a reservation. What does not parse is reported.
    Source: koordinator.md, "Keys on the pod".
    """
    parsed = annotation.json()
    if parsed.value is None:
        return None
    selector = parsed.member("reservationSelector").members()
    required = parsed.member(_REQUIRED)
    terms = required.member("reservationSelectorTerms").elements()
    return ReservationAffinity(
        name=parsed.member("name").text() or "",
        selector=tuple(sorted((key, text.text() or "") for key, text in selector.items())),
        terms=None if required.value is None else tuple(map(read_term, terms)),
    )
