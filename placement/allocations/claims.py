"""Claims: the replacement of all that consumers hold, or of nothing.

Consumers that must be new, the usual case, are written at once (new_claims); all others by the steps of a
replacement (replacement).
Source: placement-api.md, "Allocations of a provider", "Allocations of a consumer".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from placement.allocations.claim_metrics import count_refused
from placement.allocations.consumers_snapshot import ConsumersSnapshot
from placement.allocations.new_claims import NewClaimWriter
from placement.allocations.replacement import Replacement, attributes_of, recorded_holdings
from placement.allocations.statements import consumers
from placement.allocations.statements.consumers import AttributeRegistry, UsageChange
from placement.engine.domain import errors
from placement.engine.domain.audit import Action, TargetKind
from placement.engine.domain.claims import ConsumerClaim
from placement.engine.domain.request_scope import Initiator
from placement.metrics.catalog import CLAIMS
from placement.providers.statements import providers
from placement.providers.statements.names import ClassIds
from placement.storage.database import Database, Transaction, retry, run_in_transaction


@dataclass(frozen=True, slots=True)
class ClaimTerms:
    """The terms of a claim: consumers that must be unchanged, and texts to keep by consumer uuid.

    Kept are the groups that consumers join, and the dedicated CPUs of guests.
    """

    consumers: ConsumersSnapshot
    groups: Mapping[str, str]
    dedicated_cpus: Mapping[str, str]

    def keep(self, transaction: Transaction) -> None:
        """Keep the groups and the dedicated CPUs with the consumers, which are written."""
        consumers.join(transaction, self.groups)
        consumers.keep(transaction, "dedicated_cpus", self.dedicated_cpus)
        for uuid, cpus in self.dedicated_cpus.items():
            _record_update(transaction, uuid, {"dedicated_cpus": cpus})


class Claims:
    """A use case that writes the holdings of consumers."""

    def __init__(self, database: Database, attributes: AttributeRegistry) -> None:
        self._database = database
        self._attributes = attributes
        self._class_ids = ClassIds(database.history)
        self._new_claims = NewClaimWriter(database)

    def put(
        self,
        claims: Sequence[ConsumerClaim],
        *,
        names_consumer: bool = True,
        terms: ClaimTerms | None = None,
        is_counted: bool = True,
    ) -> None:
        """Replace the holdings of each consumer by its claim; all or nothing, and only on these terms.

        The outcome counts in the metrics unless `is_counted` is false. `names_consumer`: errors about classes
        name the consumer of the claim. Raises BadRequest for unknown providers or classes, ConcurrentUpdate
        for generations or consumers that have changed, CapacityExceeded when something does not fit,
        Unavailable.
        """
        try:
            self._put(claims, names_consumer, terms)
        except errors.PlacementError as error:
            if is_counted:
                count_refused("consumer", error)
            raise
        if is_counted:
            CLAIMS.labels("consumer", "won").inc()

    def put_new(self, claims: Sequence[ConsumerClaim], initiators: Sequence[Initiator]) -> bool:
        """Write the claims of consumers that must be new, each for a caller of its own.

        Returns False, and writes nothing, if any of them cannot. Raises TryAgain, OutcomeUnknown,
        Unavailable.
        """
        writer = self._new_claims
        self._attributes.register(attributes_of(claims))
        is_written = writer.takes(claims) and writer.write(claims, initiators)
        if is_written:
            CLAIMS.labels("consumer", "won").inc(len(claims))
        return is_written

    def _put(self, claims: Sequence[ConsumerClaim], names_consumer: bool, terms: ClaimTerms | None) -> None:
        attributes = attributes_of(claims)
        writer = self._new_claims

        def write_new() -> bool:
            # Repeated where nothing was sent; what was sent and has an unknown outcome may be written.
            self._attributes.register(attributes)
            return writer.write_request(claims)

        if terms is None and writer.takes(claims) and retry(self._database, write_new):
            return

        def work(transaction: Transaction) -> None:
            if terms is not None:
                terms.consumers.confirm(transaction, terms.groups.values())
            self._replace(transaction, claims, names_consumer)
            if terms is not None:
                terms.keep(transaction)

        run_in_transaction(self._database, work, before=lambda: self._attributes.register(attributes))

    def _replace(
        self, transaction: Transaction, claims: Sequence[ConsumerClaim], names_consumer: bool
    ) -> None:
        replacement = Replacement(transaction, claims)
        replacement.settle_consumers()
        replacement.check_generations()
        replacement.lock_providers()
        ids = self._class_ids(transaction, replacement.class_names())
        _check_class_names(claims, ids, names_consumer)
        replacement.resolve(ids)
        replacement.apply()
        replacement.store(self._class_ids.names)

    def note_dedicated_cpus(self, consumer_uuid: str, generation: int, cpus: str | None) -> None:
        """Keep the dedicated CPUs of a guest with its consumer of that generation; None: it has none.

        Raises Unavailable. Source: nova-flavors.md, "dedicated_cpus".
        """

        def work(transaction: Transaction) -> None:
            if consumers.note_dedicated_cpus(transaction, consumer_uuid, generation, cpus):
                _record_update(transaction, consumer_uuid, {"dedicated_cpus": cpus})

        run_in_transaction(self._database, work)

    def join_groups(self, groups: Mapping[str, str]) -> None:
        """Put consumers that hold something into groups, by uuid. Raises Unavailable."""

        def work(transaction: Transaction) -> None:
            consumers.lock_groups(transaction, {*groups.values()})
            present = consumers.lock(transaction, groups)
            inside = consumers.members(transaction, {*groups.values()})
            joining = {
                uuid: group
                for uuid, group in groups.items()
                if uuid in present and uuid not in inside.get(group, ())
            }
            consumers.join(transaction, joining)
            for uuid, group in joining.items():
                _record_update(transaction, uuid, {"group": group})

        run_in_transaction(self._database, work)

    def release(self, consumer_uuid: str) -> None:
        """Delete everything a consumer holds, whatever its generation; no provider generation changes.

        Raises NotFound if it holds nothing.
        """

        def work(transaction: Transaction) -> None:
            consumers.lock_generations(transaction, [consumer_uuid])
            held = consumers.held_by(transaction, [consumer_uuid])
            if not held:
                raise errors.NotFound(f"No allocations for consumer '{consumer_uuid}'")
            touched = {row.provider_id for row in held}
            ids = providers.lock_and_stamp(transaction, (), (), touched)
            consumers.apply_changes(
                transaction,
                [UsageChange(row.provider_id, row.class_id, -row.amount, 0, 0, 0) for row in held],
            )
            consumers.replace_held(transaction, [consumer_uuid], ())
            consumers.delete(transaction, [consumer_uuid])
            uuids = {id_: uuid for uuid, id_ in ids.items()}
            classes = self._class_ids.names(transaction, {row.class_id for row in held})
            transaction.record(
                Action.DELETE,
                TargetKind.ALLOCATIONS,
                consumer_uuid,
                before={"allocations": recorded_holdings(held, uuids, classes)[consumer_uuid]},
                consumer=consumer_uuid,
            )

        run_in_transaction(self._database, work)


def _check_class_names(claims: Sequence[ConsumerClaim], ids: Mapping[str, int], names_consumer: bool) -> None:
    """Raise BadRequest for the first class that does not exist, naming its consumer if asked to."""
    for claim in claims:
        for name in (name for amounts in claim.resources.values() for name in amounts):
            if name not in ids:
                whom = f"for consumer {claim.consumer_uuid}: " if names_consumer else ""
                raise errors.BadRequest(f"Unable to allocate inventory {whom}No such resource class {name}.")


def _record_update(transaction: Transaction, consumer_uuid: str, after: Mapping[str, object]) -> None:
    kind = TargetKind.ALLOCATIONS
    transaction.record(Action.UPDATE, kind, consumer_uuid, after=after, consumer=consumer_uuid)
