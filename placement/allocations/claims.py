"""Claims: replacing what consumers hold, all of it or nothing.

The decision is taken in SQL: rows are locked in ascending order, and `used` of an inventory is only raised
by a conditional update where it still fits.
Source: placement-api.md, "Allocations of a provider", "Allocations of a consumer".
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import gcd

from placement.allocations.coalescing import RequestCoalescer
from placement.allocations.group_rules import ConsumersSnapshot
from placement.allocations.statements import consumers
from placement.allocations.statements.consumers import (
    Attribute,
    AttributeRegistry,
    ConsumerAttributes,
    HeldAllocation,
    UsageChange,
)
from placement.engine.domain import errors, request_scope
from placement.engine.domain.audit import Action, TargetKind
from placement.engine.domain.inventories import AnyGeneration, ConsumerClaim
from placement.engine.domain.request_scope import Initiator, initiator
from placement.metrics.catalog import CLAIMS
from placement.providers.statements import contents, providers
from placement.providers.statements.names import ClassIds
from placement.storage.audit import described, document
from placement.storage.clock import utcnow
from placement.storage.database import Database, Transaction, retry, run_in_transaction
from placement.storage.failures import OutcomeUnknown, TryAgain, Unreachable

# More than any max_unit, so such an amount is refused for its units; larger ones need not be distinguished.
LARGEST_AMOUNT = 2**40
ClassNames = Callable[[Transaction, Collection[int]], Mapping[int, str]]


@dataclass(slots=True)
class Replacement:
    """The state of one replacement between its steps, inside a transaction that a use case has opened.

    The steps are separate so that a use case can put its own between them. Every use case runs them in the
    order of `Claims.replace`, so that all lock in the same order: consumers, then providers, both ascending.
    """

    transaction: Transaction
    claims: Sequence[ConsumerClaim]
    existing: frozenset[str] = frozenset()
    provider_ids: Mapping[str, int] = field(default_factory=dict)
    class_ids: Mapping[str, int] = field(default_factory=dict)
    held: list[HeldAllocation] = field(default_factory=list)
    fresh: list[HeldAllocation] = field(default_factory=list)
    _conflict: errors.ConcurrentUpdate | None = None

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
            if not isinstance(claim.generation, AnyGeneration) and claim.generation != actual:
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
        allowed = consumers.apply_changes(self.transaction, changes)
        refused = [change for change in changes if (change.provider_id, change.class_id) not in allowed]
        if refused:
            raise self._refusal(refused)

    def _refusal(self, refused: Sequence[UsageChange]) -> errors.CapacityExceeded:
        """Return why an inventory did not take its change: no record, units, or capacity, in this order."""
        uuids = {id_: uuid for uuid, id_ in self.provider_ids.items()}
        classes = {id_: name for name, id_ in self.class_ids.items()}
        prefix = "Unable to allocate inventory: "
        stored = contents.stored(self.transaction, {change.provider_id for change in refused})
        missing = sorted(c for c in refused if c.class_id not in stored.get(c.provider_id, {}))
        if missing:
            provider_id = missing[0].provider_id
            listed = ", ".join(
                classes[change.class_id] for change in missing if change.provider_id == provider_id
            )
            return errors.CapacityExceeded(
                f"{prefix}Inventory for '{listed}' on resource provider '{uuids[provider_id]}' invalid."
                f" It has no inventory of {listed}."
            )
        change = min(refused)
        record = stored[change.provider_id][change.class_id]
        units = record.inventory
        prefix += "Unable to create allocation for "
        prefix += f"'{record.class_name}' on resource provider '{uuids[change.provider_id]}'. "
        for row in self.fresh:
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
        known = {id_: name for name, id_ in self.class_ids.items()}
        others = {row.class_id for row in self.held} - known.keys()
        uuids = {id_: uuid for uuid, id_ in self.provider_ids.items()}
        before = holdings(self.held, uuids, {**known, **class_names(self.transaction, others)})
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
        holders = {row.consumer_uuid for row in self.held}
        consumers.replace_held(self.transaction, holders, self.fresh)
        consumers.advance(
            self.transaction,
            [
                consumer_attributes(claim)
                for claim in self.claims
                if claim.consumer_uuid in self.existing and claim.resources
            ],
            {claim.consumer_uuid for claim in self.claims if claim.is_move},
        )
        requests = {claim.consumer_uuid: claim.request for claim in self.claims if claim.request is not None}
        consumers.keep(self.transaction, "request", requests)
        emptied = {claim.consumer_uuid for claim in self.claims if not claim.resources}
        consumers.delete(self.transaction, emptied & self.existing)


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


# Counters of attempts to get something for a consumer: won, repeated, or refused by reason.


# Of the classes that an error is an instance of, the first counts.
_OUTCOMES = {
    errors.CapacityExceeded: "no_room",
    errors.ConcurrentUpdate: "concurrent",
    errors.Conflict: "conflict",
    errors.BadRequest: "bad_request",
    errors.NotFound: "not_found",
    errors.Unavailable: "unavailable",
}


def count_won(kind: str, number: int = 1) -> None:
    """Count `number` attempts that got something, each for a consumer of this kind."""
    CLAIMS.labels(kind, "won").inc(number)


def count_repeated(kind: str, number: int = 1) -> None:
    """Count `number` attempts for consumers of this kind that already held all that was asked for."""
    CLAIMS.labels(kind, "repeated").inc(number)


def count_refused(kind: str, error: errors.PlacementError) -> None:
    """Count an attempt for a consumer of this kind that failed, by its reason."""
    name = next((name for one, name in _OUTCOMES.items() if isinstance(error, one)), "other")
    CLAIMS.labels(kind, name).inc()


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
            RequestCoalescer(self._claim_batch, most=_MOST_GATHERED, patience_seconds=_GATHERING_SECONDS)
        )

    def note_dedicated_cpus(self, consumer_uuid: str, generation: int, cpus: str | None) -> None:
        """Keep the dedicated CPUs of a guest with its consumer of that generation; None: it has none.

        Raises Unavailable. Source: nova-flavors.md, "dedicated_cpus".
        """

        def work(transaction: Transaction) -> None:
            if consumers.note_dedicated_cpus(transaction, consumer_uuid, generation, cpus):
                _record_update(transaction, consumer_uuid, {"dedicated_cpus": cpus})

        run_in_transaction(self._database, work)

    def put(self, claims: Sequence[ConsumerClaim], *, of_one_consumer: bool = True) -> None:
        """Replace what consumers hold, and count the outcome. Raises as `replace`."""
        try:
            self.replace(claims, of_one_consumer=of_one_consumer)
        except errors.PlacementError as error:
            count_refused("consumer", error)
            raise
        count_won("consumer")

    def replace(
        self, claims: Sequence[ConsumerClaim], *, of_one_consumer: bool = True, terms: Terms | None = None
    ) -> None:
        """Make every consumer hold exactly what its claim says; all or nothing, and only on these terms.

        Raises BadRequest for unknown providers or classes, ConcurrentUpdate for a consumer generation or a
        standing that has changed, CapacityExceeded when something does not fit, Unavailable.
        """
        attributes = attributes_of(claims)
        retry(self._database, lambda: self._attributes.register(attributes))
        if terms is None and self._claim_batched(claims):
            return

        def work(transaction: Transaction) -> None:
            if terms is not None:
                terms.standing.confirm(transaction, terms.groups.values())
            replacement = Replacement(transaction, claims)
            replacement.settle_consumers()
            replacement.check_generations()
            replacement.lock_providers()
            ids = self._class_ids(transaction, replacement.class_names())
            for claim in claims:
                for name in (name for amounts in claim.resources.values() for name in amounts):
                    if name not in ids:
                        whom = f"for consumer {claim.consumer_uuid}: " if of_one_consumer else ""
                        raise errors.BadRequest(
                            f"Unable to allocate inventory {whom}No such resource class {name}."
                        )
            replacement.resolve(ids)
            replacement.apply()
            replacement.store(self._class_ids.names)
            if terms is not None:
                consumers.join(transaction, terms.groups)
                consumers.keep(transaction, "dedicated_cpus", terms.dedicated_cpus)
                for uuid, cpus in terms.dedicated_cpus.items():
                    _record_update(transaction, uuid, {"dedicated_cpus": cpus})

        run_in_transaction(self._database, work, before=lambda: self._attributes.register(attributes))

    def _claim_batched(self, claims: Sequence[ConsumerClaim]) -> bool:
        """Claim in one statement; a claim of one consumer joins the claims of callers that wait, too."""
        actor = initiator()
        if len(claims) != 1 or not self.can_batch or not all(_is_fresh(claim) for claim in claims):
            return self._claim_at_once(claims, [actor] * len(claims), of_one_request=True)
        found = self._gathering.ask(None, (claims[0], actor), lambda: self._claim_at_once(claims, [actor]))
        if isinstance(found, OutcomeUnknown):
            raise found
        return found

    def _claim_batch(
        self, asked: Sequence[tuple[ConsumerClaim, Initiator]]
    ) -> Sequence[bool | OutcomeUnknown | None]:
        """Return True for all claims, or None for all, or OutcomeUnknown for all if that is not known."""
        try:
            with request_scope.within(_COMMON_SECONDS):
                taken = self._claim_at_once([claim for claim, _ in asked], [actor for _, actor in asked])
        except OutcomeUnknown as error:
            return [OutcomeUnknown(str(error)) for _ in asked]
        except errors.Unavailable:
            # With a slow disk the statement ends after its second; each request has 30 s of its own.
            return [None] * len(asked)
        return [taken or None] * len(asked)

    @property
    def can_batch(self) -> bool:
        """Return whether the database has the statement with which `claim_together` claims."""
        return self._database.backend.has_claim_statement

    def claim_together(self, claims: Sequence[ConsumerClaim], initiators: Sequence[Initiator]) -> bool:
        """Let consumers that must be new hold what they claim, each for a caller of its own.

        Returns False, and writes nothing, if any of them cannot. Raises TryAgain, OutcomeUnknown,
        Unavailable.
        """
        self._attributes.register(attributes_of(claims))
        taken = self._claim_at_once(claims, initiators)
        if taken:
            count_won("consumer", len(claims))
        return taken

    def _claim_at_once(
        self,
        claims: Sequence[ConsumerClaim],
        initiators: Sequence[Initiator],
        *,
        of_one_request: bool = False,
    ) -> bool:
        """Claim in one statement for new consumers, the usual case; False if any is not new or does not fit.

        Unless they are `of_one_request`, each of the claims raises the generations of its providers.
        Source: placement-api.md, "Provider generation".
        """
        if not self.can_batch or not claims or not all(map(_is_fresh, claims)):
            return False
        amounts = [
            (claim.consumer_uuid, provider, name, min(amount, LARGEST_AMOUNT))
            for claim in claims
            for provider, resources in claim.resources.items()
            for name, amount in resources.items()
        ]
        of_inventories: dict[tuple[str, str], list[int]] = defaultdict(list)
        for _, provider, name, amount in amounts:
            of_inventories[provider, name].append(amount)
        # By how much the use of each inventory rises: see storage.tables.
        rises = [(*key, sum(all_), min(all_), max(all_), gcd(*all_)) for key, all_ in of_inventories.items()]
        # The generation of a provider rises by 1 for each request that names it.
        steps: Mapping[str, int] = Counter(provider for claim in claims for provider in claim.resources)
        if of_one_request:
            steps = dict.fromkeys(steps, 1)
        database, attributes = self._database, [consumer_attributes(claim) for claim in claims]
        columns = [list(each) for rows in (attributes, rises, amounts) for each in zip(*rows, strict=True)]
        records = [document(claim_document(claim)) for claim in claims] if database.audits else []
        actors = [list(column) for column in zip(*map(described, initiators), strict=True)]
        requests = [claim.request for claim in claims]
        try:
            return database.backend.claim_at_once(
                database.single_write,
                (utcnow(), *columns, records, *actors, requests, list(steps), list(steps.values())),
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
                before={"allocations": holdings(held, uuids, classes)[consumer_uuid]},
                consumer=consumer_uuid,
            )

        run_in_transaction(self._database, work)


def _record_update(transaction: Transaction, consumer_uuid: str, after: Mapping[str, object]) -> None:
    kind = TargetKind.ALLOCATIONS
    transaction.record(Action.UPDATE, kind, consumer_uuid, after=after, consumer=consumer_uuid)


def _is_fresh(claim: ConsumerClaim) -> bool:
    return claim.generation is None and bool(claim.resources) and all(claim.resources.values())
