"""Claims: replacing what consumers hold, all of it or nothing.

The decision is taken in SQL: rows are locked in ascending order, and `used` of an inventory is only raised
by a conditional update where it still fits.
Source: placement-api.md, "Allocations of a provider", "Allocations of a consumer".
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd

from placement.allocations.coalescing import RequestCoalescer
from placement.allocations.group_rules import ConsumersSnapshot
from placement.allocations.outcomes import count_won, counted
from placement.allocations.replacement import (
    LARGEST_AMOUNT,
    Replacement,
    attributes_of,
    claim_document,
    consumer_attributes,
    holdings,
)
from placement.allocations.statements import allocations, consumers
from placement.allocations.statements.allocations import InventoryAmount, Rise, UsageChange, claim_at_once
from placement.allocations.statements.consumers import AttributeRegistry
from placement.engine.domain import deadline
from placement.engine.domain.audit import Action, Initiator, TargetKind, initiator
from placement.engine.domain.claims import ConsumerClaim
from placement.engine.domain.errors import BadRequest, NotFound, Unavailable
from placement.providers.statements import providers
from placement.providers.statements.names import ClassIds
from placement.storage.database import Database, Transaction
from placement.storage.failures import OutcomeUnknown, TryAgain, Unreachable
from placement.storage.transactions import attempt, ensure

# The most claims of new consumers that one statement writes, and how long they wait for it.
_MOST_GATHERED = 32
_GATHERING_SECONDS = 0.01
# If the statement takes longer, as it waits for a lock, each caller sends its own.
_COMMON_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of a claim: what must still be so when it is written, and what is kept by consumer uuid.

    Kept are the groups that consumers join, and the dedicated CPUs of guests.
    """

    standing: ConsumersSnapshot
    groups: Mapping[str, str]
    dedicated_cpus: Mapping[str, str]


class Claims:
    """A use case that writes what consumers hold."""

    def __init__(self, database: Database, attributes: AttributeRegistry) -> None:
        self._database = database
        self._attributes = attributes
        self._class_ids = ClassIds(database.history)
        self._gathering: RequestCoalescer[tuple[ConsumerClaim, Initiator], bool | OutcomeUnknown] = (
            RequestCoalescer(self._taken_together, most=_MOST_GATHERED, patience_seconds=_GATHERING_SECONDS)
        )

    def note_dedicated_cpus(self, consumer_uuid: str, generation: int, cpus: str | None) -> None:
        """Keep the dedicated CPUs of a guest with its consumer of that generation; None: it has none.

        Raises Unavailable. Source: nova-flavors.md, "dedicated_cpus".
        """

        attempt(self._database, lambda transaction: _note_cpus(transaction, consumer_uuid, generation, cpus))

    @counted("consumer")
    def put(self, claims: Sequence[ConsumerClaim], *, of_one_consumer: bool = True) -> None:
        """Replace what consumers hold, and count the outcome. Raises as `replace`."""
        self.replace(claims, of_one_consumer=of_one_consumer)

    def replace(
        self, claims: Sequence[ConsumerClaim], *, of_one_consumer: bool = True, terms: Terms | None = None
    ) -> None:
        """Make every consumer hold exactly what its claim says; all or nothing, and only on these terms.

        Raises BadRequest for unknown providers or classes, ConcurrentUpdate for a consumer generation or a
        standing that has changed, CapacityExceeded when something does not fit, Unavailable.
        """
        attributes = attributes_of(claims)
        ensure(self._database, lambda: self._attributes.register(attributes))
        if terms is None and self._take_place_soon(claims):
            return

        def work(transaction: Transaction) -> None:
            if terms is not None:
                terms.standing.confirm(transaction, terms.groups.values())
            replacement = Replacement(transaction, claims)
            replacement.settle_consumers()
            replacement.check_generations()
            replacement.lock_providers()
            ids = self._class_ids(transaction, replacement.class_names())
            _check_classes(claims, ids, of_one_consumer=of_one_consumer)
            replacement.resolve(ids)
            replacement.apply()
            replacement.store(self._class_ids.names)
            if terms is not None:
                consumers.join(transaction, terms.groups)
                consumers.keep_dedicated_cpus(transaction, terms.dedicated_cpus)
                for uuid, cpus in terms.dedicated_cpus.items():
                    _record_cpus(transaction, uuid, cpus)

        attempt(self._database, work, before=lambda: self._attributes.register(attributes))

    def _take_place_soon(self, claims: Sequence[ConsumerClaim]) -> bool:
        """Do as `_take_place_at_once`; a claim of one consumer goes together with claims of other callers."""
        who = initiator()
        if len(claims) != 1 or not self.may_be_gathered or not all(_is_fresh(claim) for claim in claims):
            return self._take_place_at_once(claims, [who] * len(claims), of_one_request=True)
        found = self._gathering.ask(None, (claims[0], who), lambda: self._take_place_at_once(claims, [who]))
        if isinstance(found, OutcomeUnknown):
            raise found
        return found

    def _taken_together(
        self, asked: Sequence[tuple[ConsumerClaim, Initiator]]
    ) -> Sequence[bool | OutcomeUnknown | None]:
        """Return True for all claims, or None for all, or OutcomeUnknown for all if that is not known."""
        try:
            with deadline.within(_COMMON_SECONDS):
                taken = self._take_place_at_once([claim for claim, _ in asked], [who for _, who in asked])
        except OutcomeUnknown as error:
            return [OutcomeUnknown(str(error)) for _ in asked]
        except Unavailable:
            # With a slow disk the statement ends after its second; each request has 30 s of its own.
            return [None] * len(asked)
        return [taken or None] * len(asked)

    @property
    def may_be_gathered(self) -> bool:
        """Return whether the database has the statement with which `take_together` claims."""
        return self._database.backend.has_claim_statement

    def take_together(self, claims: Sequence[ConsumerClaim], initiators: Sequence[Initiator]) -> bool:
        """Let consumers that must be new hold what they claim, each for a caller of its own.

        Returns False, and writes nothing, if any of them cannot. Raises TryAgain, OutcomeUnknown,
        Unavailable.
        """
        self._attributes.register(attributes_of(claims))
        taken = self._take_place_at_once(claims, initiators)
        if taken:
            count_won("consumer", len(claims))
        return taken

    def _take_place_at_once(
        self,
        claims: Sequence[ConsumerClaim],
        initiators: Sequence[Initiator],
        *,
        of_one_request: bool = False,
    ) -> bool:
        """Claim in one statement for new consumers, the usual case; False if any is not new or does not fit.

        Unless they are `of_one_request`, each of the claims raises the generations of its providers.
        """
        if not self.may_be_gathered or not claims or not all(_is_fresh(claim) for claim in claims):
            return False
        amounts = [
            InventoryAmount(claim.consumer_uuid, provider, name, min(amount, LARGEST_AMOUNT))
            for claim in claims
            for provider, resources in claim.resources.items()
            for name, amount in resources.items()
        ]
        described = [consumer_attributes(claim) for claim in claims]
        try:
            documents = [claim_document(claim) for claim in claims]
            requests = [claim.request for claim in claims]
            return claim_at_once(
                self._database,
                described,
                _rises(amounts),
                amounts,
                documents,
                requests,
                initiators,
                _steps(claims, of_one_request=of_one_request),
            )
        except Unreachable:
            raise
        except TryAgain:
            return False

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
                transaction.record(
                    Action.UPDATE, TargetKind.ALLOCATIONS, uuid, after={"group": group}, consumer=uuid
                )

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
            ids = providers.lock_and_stamp(transaction, (), (), touched)
            allocations.apply_changes(
                transaction,
                [UsageChange(row.provider_id, row.class_id, -row.amount, 0, 0, 0) for row in held],
            )
            allocations.replace(transaction, [consumer_uuid], ())
            consumers.delete(transaction, [consumer_uuid])
            uuids = {id_: uuid for uuid, id_ in ids.items()}
            classes = self._class_ids.names(transaction, {row.class_id for row in held})
            transaction.record(
                Action.DELETE,
                TargetKind.ALLOCATIONS,
                consumer_uuid,
                before={"allocations": holdings(held, uuids, classes)[consumer_uuid]},
                consumer=consumer_uuid,
            )

        attempt(self._database, work)


def generation_after(claim: ConsumerClaim) -> int:
    """Return the generation of a consumer once it holds what it claims, if it had the one of the claim."""
    return claim.generation + 1 if isinstance(claim.generation, int) else 1


def _note_cpus(transaction: Transaction, consumer_uuid: str, generation: int, cpus: str | None) -> None:
    if consumers.note_dedicated_cpus(transaction, consumer_uuid, generation, cpus):
        _record_cpus(transaction, consumer_uuid, cpus)


def _record_cpus(transaction: Transaction, consumer_uuid: str, cpus: str | None) -> None:
    transaction.record(
        Action.UPDATE,
        TargetKind.ALLOCATIONS,
        consumer_uuid,
        after={"dedicated_cpus": cpus},
        consumer=consumer_uuid,
    )


def _is_fresh(claim: ConsumerClaim) -> bool:
    return claim.generation is None and bool(claim.resources) and all(claim.resources.values())


def _steps(claims: Sequence[ConsumerClaim], *, of_one_request: bool) -> Mapping[str, int]:
    """Return by how much the generation of each provider rises, by uuid: by 1 for each request that names it.

    Source: placement-api.md, "Provider generation".
    """
    named = Counter(provider for claim in claims for provider in claim.resources)
    return dict.fromkeys(named, 1) if of_one_request else named


def _rises(amounts: Sequence[InventoryAmount]) -> list[Rise]:
    """Return by how much the use of each inventory rises."""
    together: dict[tuple[str, str], list[int]] = defaultdict(list)
    for given in amounts:
        together[given.provider_uuid, given.class_name].append(given.amount)
    return [Rise(*key, sum(all_), min(all_), max(all_), gcd(*all_)) for key, all_ in together.items()]


def _check_classes(
    claims: Sequence[ConsumerClaim], known: Mapping[str, int], *, of_one_consumer: bool
) -> None:
    for claim in claims:
        for amounts in claim.resources.values():
            for name in amounts:
                if name not in known:
                    whom = f"for consumer {claim.consumer_uuid}: " if of_one_consumer else ""
                    raise BadRequest(f"Unable to allocate inventory {whom}No such resource class {name}.")
