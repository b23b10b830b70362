"""A replacement: the steps by which consumers get the resources of their claims, and lose former ones.

The decision is taken in SQL: rows are locked in ascending order, and `used` of an inventory is only raised
by a conditional update where it still fits.
Source: placement-api.md, "Allocations of a provider", "Allocations of a consumer".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import gcd

from placement.allocations.statements import consumers
from placement.allocations.statements.consumers import (
    Attribute,
    ConsumerAttributes,
    HeldAllocation,
    UsageChange,
)
from placement.engine.domain import errors
from placement.engine.domain.audit import Action, TargetKind
from placement.engine.domain.claims import ConsumerClaim
from placement.providers.statements import contents, providers
from placement.storage.database import Transaction

# More than any max_unit, so such an amount is refused for its units; larger ones need not be distinguished.
LARGEST_CLAIMED = 2**40
ClassNames = Callable[[Transaction, Collection[int]], Mapping[int, str]]


@dataclass(slots=True)
class Replacement:
    """The state of one replacement between its steps, inside a transaction that a use case has opened.

    The steps are separate so that a use case can put its own between them. Every use case runs them in the
    order of `Claims._replace`, so that all lock in the same order: consumers, then providers, both ascending.
    """

    transaction: Transaction
    claims: Sequence[ConsumerClaim]
    existing: frozenset[str] = frozenset()
    provider_ids: Mapping[str, int] = field(default_factory=dict)
    class_ids: Mapping[str, int] = field(default_factory=dict)
    held: list[HeldAllocation] = field(default_factory=list)
    new_allocations: list[HeldAllocation] = field(default_factory=list)
    _conflict: errors.ConcurrentUpdate | None = None

    # -- consumers ----------------------------------------------------------------------------------

    def settle_consumers(self) -> None:
        """Create or lock the consumers, and read the holdings of existing ones.

        Consumers that must be new are inserted at once: the insertion tells whether they exist.
        """
        created = self._create([claim for claim in self.claims if claim.generation is None])
        rest = [claim for claim in self.claims if claim.consumer_uuid not in created]
        if not rest:
            return
        generations = self._lock(rest)
        absent = [claim for claim in rest if claim.consumer_uuid not in generations]
        created = self._create(absent)
        lost = [claim for claim in absent if claim.resources and claim.consumer_uuid not in created]
        if lost:
            # Another writer created them between our look and our insert, and has committed since.
            generations |= self._lock(lost)
        self.existing = frozenset(generations)
        self.held = consumers.held_by(self.transaction, self.existing) if generations else []

    def check_generations(self) -> None:
        """Raise ConcurrentUpdate unless the generation sent for each consumer is its present one."""
        if self._conflict is not None:
            raise self._conflict

    def _create(self, claims: Sequence[ConsumerClaim]) -> set[str]:
        return consumers.create(
            self.transaction, [consumer_attributes(claim) for claim in claims if claim.resources]
        )

    def _lock(self, claims: Sequence[ConsumerClaim]) -> dict[str, int]:
        generations = consumers.lock_generations(self.transaction, [claim.consumer_uuid for claim in claims])
        for claim in claims:
            actual = generations.get(claim.consumer_uuid)
            if not claim.expects_generation(actual):
                expected = "null" if actual is None else actual
                self._conflict = self._conflict or errors.ConcurrentUpdate(
                    f"consumer generation conflict - expected {expected} but got {claim.generation}"
                )
        return generations

    # -- providers and classes ----------------------------------------------------------------------

    def lock_providers(self) -> None:
        """Lock all providers concerned; providers that are named or fully left get the next generation.

        Raises BadRequest if something is claimed of a provider that does not exist.
        """
        named = {uuid for claim in self.claims for uuid in claim.resources}
        emptied = {claim.consumer_uuid for claim in self.claims if not claim.resources}
        cleared = {row.provider_id for row in self.held if row.consumer_uuid in emptied}
        left = {row.provider_id for row in self.held} - cleared
        self.provider_ids = providers.lock_and_stamp(self.transaction, named, cleared, left)
        for claim in self.claims:
            for uuid in claim.resources:
                if uuid not in self.provider_ids:
                    raise errors.BadRequest(f"Allocation for resource provider '{uuid}' that does not exist.")

    def class_names(self) -> set[str]:
        """Return the resource classes that are claimed."""
        return {name for claim in self.claims for amounts in claim.resources.values() for name in amounts}

    def resolve(self, class_ids: Mapping[str, int]) -> None:
        """Replace names in the claims by ids; all names are known by now."""
        self.class_ids = class_ids
        self.new_allocations = [
            HeldAllocation(
                claim.consumer_uuid, self.provider_ids[uuid], class_ids[name], min(amount, LARGEST_CLAIMED)
            )
            for claim in self.claims
            for uuid, amounts in claim.resources.items()
            for name, amount in amounts.items()
        ]

    # -- amounts ------------------------------------------------------------------------------------

    def apply(self) -> None:
        """Change the usage of inventories. Raises CapacityExceeded."""
        changes = changes_of(self.held, self.new_allocations)
        allowed = consumers.apply_changes(self.transaction, changes)
        refused = [change for change in changes if (change.provider_id, change.class_id) not in allowed]
        if refused:
            raise self._refusal(refused)

    def _refusal(self, changes: Sequence[UsageChange]) -> errors.CapacityExceeded:
        """Return why an inventory did not take its change: no record, units, or capacity, in this order."""
        uuids = {id_: uuid for uuid, id_ in self.provider_ids.items()}
        classes = {id_: name for name, id_ in self.class_ids.items()}
        prefix = "Unable to allocate inventory: "
        stored = contents.stored(self.transaction, {change.provider_id for change in changes})
        missing = sorted(c for c in changes if c.class_id not in stored.get(c.provider_id, {}))
        if missing:
            provider_id = missing[0].provider_id
            listed = ", ".join(
                classes[change.class_id] for change in missing if change.provider_id == provider_id
            )
            return errors.CapacityExceeded(
                f"{prefix}Inventory for '{listed}' on resource provider '{uuids[provider_id]}' invalid."
                f" It has no inventory of {listed}."
            )
        change = min(changes)
        record = stored[change.provider_id][change.class_id]
        units = record.inventory
        prefix += "Unable to create allocation for "
        prefix += f"'{record.class_name}' on resource provider '{uuids[change.provider_id]}'. "
        for row in self.new_allocations:
            is_here = (row.provider_id, row.class_id) == (change.provider_id, change.class_id)
            if is_here and not units.admits(row.amount):
                return errors.CapacityExceeded(
                    f"{prefix}The requested amount would violate inventory constraints. {row.amount} breaks "
                    f"min_unit {units.min_unit}, max_unit {units.max_unit} or step_size {units.step_size}."
                )
        return errors.CapacityExceeded(
            f"{prefix}The requested amount would exceed the capacity. "
            f"{change.delta} more with {record.used} of {units.capacity} used."
        )

    def store(self, class_names: ClassNames) -> None:
        """Write and record the allocations and the consumers' attributes and generations."""
        self._record(class_names)
        consumers.replace_held(
            self.transaction, {row.consumer_uuid for row in self.held}, self.new_allocations
        )
        self._advance_existing()
        requests = {claim.consumer_uuid: claim.request for claim in self.claims if claim.request is not None}
        consumers.keep(self.transaction, "request", requests)
        emptied = {claim.consumer_uuid for claim in self.claims if not claim.resources}
        consumers.delete(self.transaction, emptied & self.existing)

    def _record(self, class_names: ClassNames) -> None:
        """Record the former and the new holdings of each consumer."""
        known = {id_: name for name, id_ in self.class_ids.items()}
        others = {row.class_id for row in self.held} - known.keys()
        uuids = {id_: uuid for uuid, id_ in self.provider_ids.items()}
        before = recorded_holdings(self.held, uuids, {**known, **class_names(self.transaction, others)})
        for claim in self.claims:
            uuid, is_old = claim.consumer_uuid, claim.consumer_uuid in self.existing
            if claim.resources or is_old:
                kept = Action.UPDATE if is_old else Action.CREATE
                self.transaction.record(
                    kept if claim.resources else Action.DELETE,
                    TargetKind.ALLOCATIONS,
                    uuid,
                    before={"allocations": before.get(uuid, {})} if is_old else None,
                    after=claim_document(claim) if claim.resources else None,
                    consumer=uuid,
                )

    def _advance_existing(self) -> None:
        """Give consumers that existed, and still hold something, the next generation."""
        going_on = [
            consumer_attributes(claim)
            for claim in self.claims
            if claim.consumer_uuid in self.existing and claim.resources
        ]
        moved = {claim.consumer_uuid for claim in self.claims if claim.is_move}
        consumers.advance(self.transaction, going_on, moved)


def claim_document(claim: ConsumerClaim) -> dict[str, object]:
    """Return the new holdings of a consumer, as records show them."""
    return {
        "allocations": {uuid: dict(amounts) for uuid, amounts in claim.resources.items()},
        "project_id": claim.project_id,
        "user_id": claim.user_id,
        "consumer_type": claim.consumer_type,
    }


def recorded_holdings(
    held: Sequence[HeldAllocation], uuids: Mapping[int, str], classes: Mapping[int, str]
) -> dict[str, dict[str, dict[str, int]]]:
    """Return former holdings as records show them: consumer -> provider -> class -> amount."""
    found: dict[str, dict[str, dict[str, int]]] = {}
    for row in held:
        of_consumer = found.setdefault(row.consumer_uuid, {})
        of_consumer.setdefault(uuids[row.provider_id], {})[classes[row.class_id]] = row.amount
    return found


def consumer_attributes(claim: ConsumerClaim) -> ConsumerAttributes:
    """Return the project, user and type that the consumer of a claim shall have."""
    return ConsumerAttributes(claim.consumer_uuid, claim.project_id, claim.user_id, claim.consumer_type)


def attributes_of(claims: Sequence[ConsumerClaim]) -> set[Attribute]:
    """Return all projects, users and consumer types that the claims name."""
    return set().union(*(consumer_attributes(claim).named() for claim in claims))


def changes_of(
    held: Sequence[HeldAllocation], new_allocations: Sequence[HeldAllocation]
) -> list[UsageChange]:
    """Return the net change per inventory when `held` is replaced by `new_allocations`."""
    delta: dict[tuple[int, int], int] = defaultdict(int)
    amounts: dict[tuple[int, int], list[int]] = defaultdict(list)
    for row in held:
        delta[row.provider_id, row.class_id] -= row.amount
    for row in new_allocations:
        delta[row.provider_id, row.class_id] += row.amount
        amounts[row.provider_id, row.class_id].append(row.amount)
    return [
        UsageChange(*key, change, min(amounts[key]), max(amounts[key]), gcd(*amounts[key]))
        if key in amounts
        else UsageChange(*key, change, 0, 0, 0)
        for key, change in delta.items()
    ]
