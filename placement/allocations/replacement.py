"""Replacing what consumers hold, inside a transaction that a use case has opened.

The steps are separate so that a use case can put its own between them. Every use case runs them in the
order of `Claims.replace`, so that all lock in the same order: consumers, then providers, both ascending.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import gcd

from placement.allocations.statements import allocations, consumers
from placement.allocations.statements.allocations import HeldAllocation, UsageChange
from placement.allocations.statements.consumers import Attribute, ConsumerAttributes
from placement.engine.domain.audit import Action, TargetKind
from placement.engine.domain.claims import AnyGeneration, ConsumerClaim
from placement.engine.domain.errors import BadRequest, CapacityExceeded, ConcurrentUpdate
from placement.providers.statements import contents, providers
from placement.storage.database import Transaction

# More than any max_unit, so such an amount is refused for its units; larger ones need not be distinguished.
LARGEST_AMOUNT = 2**40
ClassNames = Callable[[Transaction, Collection[int]], Mapping[int, str]]


@dataclass(slots=True)
class Replacement:
    """The state of one replacement between its steps."""

    transaction: Transaction
    claims: Sequence[ConsumerClaim]
    existing: frozenset[str] = frozenset()
    provider_ids: Mapping[str, int] = field(default_factory=dict)
    class_ids: Mapping[str, int] = field(default_factory=dict)
    held: list[HeldAllocation] = field(default_factory=list)
    fresh: list[HeldAllocation] = field(default_factory=list)
    _conflict: ConcurrentUpdate | None = None

    # -- consumers ----------------------------------------------------------------------------------

    def settle_consumers(self) -> None:
        """Create or lock the consumers, and read what the existing ones hold.

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
        self.held = allocations.held_by(self.transaction, self.existing) if generations else []

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
            self._compare(claim, generations.get(claim.consumer_uuid))
        return generations

    def _compare(self, claim: ConsumerClaim, actual: int | None) -> None:
        if isinstance(claim.generation, AnyGeneration) or claim.generation == actual:
            return
        expected = "null" if actual is None else actual
        self._conflict = self._conflict or ConcurrentUpdate(
            f"consumer generation conflict - expected {expected} but got {claim.generation}"
        )

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
                    raise BadRequest(f"Allocation for resource provider '{uuid}' that does not exist.")

    def class_names(self) -> set[str]:
        """Return the resource classes that are claimed."""
        return {name for claim in self.claims for amounts in claim.resources.values() for name in amounts}

    def resolve(self, class_ids: Mapping[str, int]) -> None:
        """Replace names in the claims by ids; all names are known by now."""
        self.class_ids = class_ids
        self.fresh = [
            HeldAllocation(
                claim.consumer_uuid, self.provider_ids[uuid], class_ids[name], min(amount, LARGEST_AMOUNT)
            )
            for claim in self.claims
            for uuid, amounts in claim.resources.items()
            for name, amount in amounts.items()
        ]

    # -- amounts ------------------------------------------------------------------------------------

    def apply(self) -> None:
        """Change what is used. Raises CapacityExceeded."""
        changes = changes_of(self.held, self.fresh)
        allowed = allocations.apply_changes(self.transaction, changes)
        refused = [change for change in changes if (change.provider_id, change.class_id) not in allowed]
        if refused:
            uuids = {id_: uuid for uuid, id_ in self.provider_ids.items()}
            classes = {id_: name for name, id_ in self.class_ids.items()}
            raise explain_refusal(self.transaction, refused, self.fresh, uuids, classes)

    def store(self, class_names: ClassNames) -> None:
        """Write and record the allocations and the consumers' attributes and generations."""
        self._record(class_names)
        holders = {row.consumer_uuid for row in self.held}
        allocations.replace(self.transaction, holders, self.fresh)
        consumers.advance(
            self.transaction,
            [
                consumer_attributes(claim)
                for claim in self.claims
                if claim.consumer_uuid in self.existing and claim.resources
            ],
            {claim.consumer_uuid for claim in self.claims if claim.is_move},
        )
        kept = {claim.consumer_uuid: claim.request for claim in self.claims if claim.request is not None}
        consumers.keep_requests(self.transaction, kept)
        emptied = {claim.consumer_uuid for claim in self.claims if not claim.resources}
        consumers.delete(self.transaction, emptied & self.existing)

    def _record(self, class_names: ClassNames) -> None:
        known = {id_: name for name, id_ in self.class_ids.items()}
        others = {row.class_id for row in self.held} - known.keys()
        classes = {**known, **class_names(self.transaction, others)}
        uuids = {id_: uuid for uuid, id_ in self.provider_ids.items()}
        before = holdings(self.held, uuids, classes)
        for claim in self.claims:
            uuid = claim.consumer_uuid
            if claim.resources or uuid in self.existing:
                self.transaction.record(
                    _action(claim, self.existing),
                    TargetKind.ALLOCATIONS,
                    uuid,
                    before={"allocations": before.get(uuid, {})} if uuid in self.existing else None,
                    after=claim_document(claim) if claim.resources else None,
                    consumer=uuid,
                )


def _action(claim: ConsumerClaim, existing: Collection[str]) -> Action:
    if not claim.resources:
        return Action.DELETE
    return Action.UPDATE if claim.consumer_uuid in existing else Action.CREATE


def claim_document(claim: ConsumerClaim) -> dict[str, object]:
    """Return the document by which a record shows what a consumer holds from now on."""
    return {
        "allocations": {uuid: dict(amounts) for uuid, amounts in claim.resources.items()},
        "project_id": claim.project_id,
        "user_id": claim.user_id,
        "consumer_type": claim.consumer_type,
    }


def holdings(
    held: Sequence[HeldAllocation], uuids: Mapping[int, str], classes: Mapping[int, str]
) -> dict[str, dict[str, dict[str, int]]]:
    """Return what records show that consumers held: consumer -> provider -> class -> amount."""
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


def changes_of(held: Sequence[HeldAllocation], fresh: Sequence[HeldAllocation]) -> list[UsageChange]:
    """Return the net change per inventory when `held` is replaced by `fresh`."""
    delta: dict[tuple[int, int], int] = defaultdict(int)
    amounts: dict[tuple[int, int], list[int]] = defaultdict(list)
    for row in held:
        delta[row.provider_id, row.class_id] -= row.amount
    for row in fresh:
        delta[row.provider_id, row.class_id] += row.amount
        amounts[row.provider_id, row.class_id].append(row.amount)
    return [
        UsageChange(*key, change, min(amounts[key]), max(amounts[key]), gcd(*amounts[key]))
        if key in amounts
        else UsageChange(*key, change, 0, 0, 0)
        for key, change in delta.items()
    ]


def explain_refusal(
    transaction: Transaction,
    refused: Sequence[UsageChange],
    fresh: Sequence[HeldAllocation],
    uuids: Mapping[int, str],
    classes: Mapping[int, str],
) -> CapacityExceeded:
    """Return why an inventory did not take its change: no record, units, or capacity, in this order.

    `uuids` and `classes` are the names of providers and resource classes by their ids.
    """
    prefix = "Unable to allocate inventory: "
    stored = contents.stored(transaction, {change.provider_id for change in refused})
    missing = sorted(c for c in refused if c.class_id not in stored.get(c.provider_id, {}))
    if missing:
        provider_id = missing[0].provider_id
        listed = ", ".join(
            classes[change.class_id] for change in missing if change.provider_id == provider_id
        )
        return CapacityExceeded(
            f"{prefix}Inventory for '{listed}' on resource provider '{uuids[provider_id]}' invalid."
            f" It has no inventory of {listed}."
        )
    change = min(refused)
    record = stored[change.provider_id][change.class_id]
    where = f"'{record.class_name}' on resource provider '{uuids[change.provider_id]}'."
    amounts = [
        row.amount
        for row in fresh
        if (row.provider_id, row.class_id) == (change.provider_id, change.class_id)
    ]
    units = record.inventory
    for amount in amounts:
        if not units.admits(amount):
            return CapacityExceeded(
                f"{prefix}Unable to create allocation for {where} "
                f"The requested amount would violate inventory constraints. {amount} breaks "
                f"min_unit {units.min_unit}, max_unit {units.max_unit} or step_size {units.step_size}."
            )
    return CapacityExceeded(
        f"{prefix}Unable to create allocation for {where} The requested amount would exceed the capacity. "
        f"{change.delta} more with {record.used} of {units.capacity} used."
    )
