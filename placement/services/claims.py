"""Claims: what consumers shall hold from now on, all of it or nothing.

The decision is taken in SQL: rows are locked in ascending order, and `used` of an inventory is only raised
by a conditional update where it still fits. Source of the rules: Placement API, allocations.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd

from placement.domain.allocation import AnyGeneration, ConsumerClaim
from placement.domain.errors import BadRequest, CapacityExceeded, ConcurrentUpdate, NotFound
from placement.services.transactions import attempt
from placement.storage import allocations, consumers, inventories, names, providers, tables
from placement.storage.allocations import Change, Held
from placement.storage.consumers import LabelIds, Labelling
from placement.storage.database import Database, Transaction
from placement.storage.names import ClassIds


class Claims:
    """Writes what consumers hold."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._labels = LabelIds(database)
        self._class_ids = ClassIds()

    def replace(self, claims: Sequence[ConsumerClaim], *, of_one_consumer: bool = True) -> None:
        """Make every consumer hold exactly what its claim says; all or nothing.

        Raises BadRequest for unknown providers or classes, ConcurrentUpdate for a consumer generation,
        CapacityExceeded when something does not fit, Unavailable.
        """
        labels = self._labels.of(
            (kind, label)
            for claim in claims
            for kind, label in (
                ("project", claim.project_id),
                ("user", claim.user_id),
                ("type", claim.consumer_type),
            )
            if label is not None
        )
        attempt(
            self._database,
            lambda transaction: _Replacement(
                transaction, claims, labels, self._class_ids, of_one_consumer
            ).run(),
        )

    def release(self, consumer_uuid: str) -> None:
        """Delete everything a consumer holds, whatever its generation; no provider generation changes.

        Raises NotFound if it holds nothing.
        """

        def work(transaction: Transaction) -> None:
            consumers.lock_generations(transaction, [consumer_uuid])
            held = allocations.held_by(transaction, [consumer_uuid])
            if not held:
                raise NotFound(f"No allocations for consumer '{consumer_uuid}'")
            touched = {row.provider_id for row in held}
            providers.lock_all(transaction, (), touched)
            allocations.apply_changes(
                transaction, [Change(row.provider_id, row.class_id, -row.amount, 0, 0, 0) for row in held]
            )
            allocations.replace(transaction, [consumer_uuid], ())
            consumers.delete(transaction, [consumer_uuid])
            providers.touch(transaction, (), touched)

        attempt(self._database, work)


@dataclass(slots=True)
class _Replacement:
    """One transaction that replaces allocations."""

    transaction: Transaction
    claims: Sequence[ConsumerClaim]
    labels: Mapping[tuple[str, str], int]
    class_ids: ClassIds
    of_one_consumer: bool

    def run(self) -> None:
        existing = self._settle_consumers()
        held = allocations.held_by(self.transaction, existing) if existing else []
        provider_ids = self._hold_providers(existing, held)
        fresh = self._resolve(provider_ids)
        self._apply(held, fresh, provider_ids)
        allocations.replace(self.transaction, {row.consumer_uuid for row in held}, fresh)
        self._finish(existing)

    # -- consumers ----------------------------------------------------------------------------------

    def _settle_consumers(self) -> list[str]:
        """Create or lock the consumers and check their generations; returns those that existed before.

        Consumers that must be new are simply inserted: in the usual case that answers whether they exist.
        """
        created = self._create([claim for claim in self.claims if claim.generation is None])
        rest = [claim for claim in self.claims if claim.consumer_uuid not in created]
        if not rest:
            return []
        generations = self._lock(rest)
        absent = [claim for claim in rest if claim.consumer_uuid not in generations]
        created = self._create(absent)
        lost = [claim for claim in absent if claim.resources and claim.consumer_uuid not in created]
        if lost:
            # Another writer created them between our look and our insert, and has committed since.
            generations |= self._lock(lost)
        return sorted(generations)

    def _create(self, claims: Sequence[ConsumerClaim]) -> set[str]:
        return consumers.create(
            self.transaction, [self._labelling(claim) for claim in claims if claim.resources]
        )

    def _lock(self, claims: Sequence[ConsumerClaim]) -> dict[str, int]:
        generations = consumers.lock_generations(self.transaction, [claim.consumer_uuid for claim in claims])
        for claim in claims:
            self._check_generation(claim, generations.get(claim.consumer_uuid))
        return generations

    @staticmethod
    def _check_generation(claim: ConsumerClaim, actual: int | None) -> None:
        if isinstance(claim.generation, AnyGeneration) or claim.generation == actual:
            return
        expected = "null" if actual is None else actual
        raise ConcurrentUpdate(
            f"consumer generation conflict - expected {expected} but got {claim.generation}"
        )

    def _labelling(self, claim: ConsumerClaim) -> Labelling:
        type_id = None if claim.consumer_type is None else self.labels["type", claim.consumer_type]
        return Labelling(
            claim.consumer_uuid,
            self.labels["project", claim.project_id],
            self.labels["user", claim.user_id],
            type_id,
        )

    def _finish(self, existing: Sequence[str]) -> None:
        emptied = [claim.consumer_uuid for claim in self.claims if not claim.resources]
        for claim in self.claims:
            if claim.consumer_uuid in existing and claim.resources:
                consumers.advance(self.transaction, self._labelling(claim))
        consumers.delete(self.transaction, [uuid for uuid in emptied if uuid in existing])

    # -- providers and classes ----------------------------------------------------------------------

    def _hold_providers(self, existing: Sequence[str], held: Sequence[Held]) -> dict[str, int]:
        """Hold all providers concerned; those that are named or fully left get the next generation."""
        named = {uuid for claim in self.claims for uuid in claim.resources}
        emptied = {claim.consumer_uuid for claim in self.claims if not claim.resources}
        cleared = {row.provider_id for row in held if row.consumer_uuid in emptied}
        left = {row.provider_id for row in held} - cleared
        ids = providers.hold_and_stamp(self.transaction, named, cleared, left)
        for claim in self.claims:
            for uuid in claim.resources:
                if uuid not in ids:
                    raise BadRequest(f"Allocation for resource provider '{uuid}' that does not exist.")
        return ids

    def _resolve(self, provider_ids: Mapping[str, int]) -> list[Held]:
        """The claims by ids."""
        wanted = {name for claim in self.claims for amounts in claim.resources.values() for name in amounts}
        ids = self.class_ids(self.transaction, wanted)
        fresh = []
        for claim in self.claims:
            for uuid, amounts in claim.resources.items():
                for name, amount in amounts.items():
                    if name not in ids:
                        whom = f"for consumer {claim.consumer_uuid}: " if self.of_one_consumer else ""
                        raise BadRequest(f"Unable to allocate inventory {whom}No such resource class {name}")
                    fresh.append(Held(claim.consumer_uuid, provider_ids[uuid], ids[name], amount))
        return fresh

    # -- amounts ------------------------------------------------------------------------------------

    def _apply(self, held: Sequence[Held], fresh: Sequence[Held], provider_ids: Mapping[str, int]) -> None:
        changes = changes_of(held, fresh)
        allowed = allocations.apply_changes(self.transaction, changes)
        refused = [change for change in changes if (change.provider_id, change.class_id) not in allowed]
        if refused:
            uuids = {id_: uuid for uuid, id_ in provider_ids.items()}
            raise explain_refusal(self.transaction, refused, fresh, uuids)


def changes_of(held: Sequence[Held], fresh: Sequence[Held]) -> list[Change]:
    """The net change per inventory when `held` is replaced by `fresh`."""
    delta: dict[tuple[int, int], int] = defaultdict(int)
    amounts: dict[tuple[int, int], list[int]] = defaultdict(list)
    for row in held:
        delta[row.provider_id, row.class_id] -= row.amount
    for row in fresh:
        delta[row.provider_id, row.class_id] += row.amount
        amounts[row.provider_id, row.class_id].append(row.amount)
    return [
        Change(*key, change, min(amounts[key]), max(amounts[key]), gcd(*amounts[key]))
        if key in amounts
        else Change(*key, change, 0, 0, 0)
        for key, change in delta.items()
    ]


def explain_refusal(
    transaction: Transaction, refused: Sequence[Change], fresh: Sequence[Held], uuids: Mapping[int, str]
) -> CapacityExceeded:
    """Why an inventory did not take its change: no record, units, or capacity, in this order."""
    prefix = "Unable to allocate inventory: "
    stored = inventories.stored(transaction, {change.provider_id for change in refused})
    missing = sorted(c for c in refused if c.class_id not in stored.get(c.provider_id, {}))
    if missing:
        provider_id = missing[0].provider_id
        listed = ", ".join(
            _class_name(transaction, change.class_id)
            for change in missing
            if change.provider_id == provider_id
        )
        return CapacityExceeded(
            f"{prefix}Inventory for '{listed}' on resource provider '{uuids[provider_id]}' invalid."
        )
    change = min(refused)
    record = stored[change.provider_id][change.class_id]
    where = f"{record.class_name} on resource provider {uuids[change.provider_id]}"
    amounts = [
        row.amount
        for row in fresh
        if (row.provider_id, row.class_id) == (change.provider_id, change.class_id)
    ]
    units = record.inventory
    for amount in amounts:
        if not units.admits(amount):
            return CapacityExceeded(
                f"{prefix}Unable to create allocation for {where}: {amount} breaks "
                f"min_unit {units.min_unit}, max_unit {units.max_unit} or step_size {units.step_size}. "
                "The requested amount would violate inventory constraints."
            )
    return CapacityExceeded(
        f"{prefix}Unable to create allocation for {where}: {change.delta} more with {record.used} of "
        f"{units.capacity} used. The requested amount would exceed the capacity."
    )


def _class_name(transaction: Transaction, class_id: int) -> str:
    return names.name_of(transaction, tables.resource_classes, class_id)
