"""Answers about reservations."""

from placement.api.schemas.answers.base import Answer, texts
from placement.api.schemas.fields import (
    Boolean,
    Choice,
    Given,
    Integer,
    Mapping,
    NullableUuid,
    Object,
    Sequence,
    String,
    Uuid,
)

# Owners as their manifest has them.
_OWNERS = Given({"type": "array", "items": {"type": "object"}})
_QUANTITIES = Mapping("", String(), shown_pattern="^.*$")


class NumaAmounts(Answer):
    """Amounts on a NUMA node, as annotations of Koordinator have them."""

    node = Integer()
    resources = _QUANTITIES


class Holding(Answer):
    """What is held: CPUs, amounts on NUMA nodes, and of the host as a whole."""

    cpuset = String()
    numaNodeResources = Sequence(Object(NumaAmounts))
    resources = _QUANTITIES


class PodReference(Answer):
    """A pod that uses a reservation."""

    namespace = String()
    name = String()
    uid = String()


class Reservation(Answer):
    """A place kept for pods to come."""

    cluster = String()
    name = String()
    uid = String()
    consumer_uuid = Uuid()
    node = String(nullable=True)
    resource_provider = NullableUuid()
    phase = String()
    allocate_once = Boolean()
    allocate_policy = Choice(["Default", "Aligned", "Restricted"])
    expires_at = String(nullable=True)
    owners = _OWNERS
    held = Object(Holding)
    left = Object(Holding, nullable=True)
    current_owners = Sequence(Object(PodReference))
    score = Integer(nullable=True)
    warnings = texts()
    remarks = texts()
    unreadable = texts()


class Reservations(Answer):
    """Reservations in the order in which they were made; `next` is the `marker` of the following page."""

    reservations = Sequence(Object(Reservation))
    next = Integer(nullable=True)
