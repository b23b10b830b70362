"""Claims: what consumers shall hold from now on, all of it or nothing.

The decision is taken in SQL: rows are locked in ascending order, and `used` of an inventory is only raised
by a conditional update where it still fits. Source of the rules: Placement API, allocations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from placement.domain.allocation import ConsumerClaim
from placement.domain.errors import BadRequest, NotFound
from placement.services.replacement import Replacement, label_ids
from placement.services.transactions import attempt
from placement.storage import allocations, consumers, providers
from placement.storage.allocations import Change
from placement.storage.consumers import LabelIds
from placement.storage.database import Database, Transaction
from placement.storage.names import ClassIds


class Claims:
    """Writes what consumers hold."""

    def __init__(self, database: Database, labels: LabelIds) -> None:
        self._database = database
        self._labels = labels
        self._class_ids = ClassIds()

    def replace(self, claims: Sequence[ConsumerClaim], *, of_one_consumer: bool = True) -> None:
        """Make every consumer hold exactly what its claim says; all or nothing.

        Raises BadRequest for unknown providers or classes, ConcurrentUpdate for a consumer generation,
        CapacityExceeded when something does not fit, Unavailable.
        """
        labels = label_ids(self._labels, claims)

        def work(transaction: Transaction) -> None:
            replacement = Replacement(transaction, claims, labels)
            replacement.settle_consumers()
            replacement.check_generations()
            replacement.hold_providers()
            ids = self._class_ids(transaction, replacement.class_names())
            _check_classes(claims, ids, of_one_consumer=of_one_consumer)
            replacement.resolve(ids)
            replacement.apply()
            replacement.store()

        attempt(self._database, work)

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


def _check_classes(
    claims: Sequence[ConsumerClaim], known: Mapping[str, int], *, of_one_consumer: bool
) -> None:
    for claim in claims:
        for amounts in claim.resources.values():
            for name in amounts:
                if name not in known:
                    whom = f"for consumer {claim.consumer_uuid}: " if of_one_consumer else ""
                    raise BadRequest(f"Unable to allocate inventory {whom}No such resource class {name}")
