"""Claims of consumers that must be new, the usual case: the database decides on them and writes them at once.

Claims of callers that come at one time are one write (`Backend.claim_at_once`). Where nothing is written, the
steps of a replacement find out why.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from math import gcd

from placement.allocations.coalescing import RequestCoalescer
from placement.allocations.replacement import LARGEST_CLAIMED, claim_document
from placement.common.clock import utcnow
from placement.engine.domain import errors, request_scope
from placement.engine.domain.audit import TargetKind
from placement.engine.domain.claims import ConsumerClaim
from placement.engine.domain.request_scope import Initiator, initiator
from placement.storage.audit import claim_record
from placement.storage.claim_rows import ClaimRecord, InventoryAmount, NewClaims, NewConsumer, UsageRise
from placement.storage.database import Database
from placement.storage.failures import OutcomeUnknown, TryAgain, Unreachable

# The most claims that are one write, and how long they wait for the one before.
_MOST_AT_ONCE = 32
_PATIENCE_SECONDS = 0.01
# If the write takes longer, as it waits for a lock, each caller makes its own.
_COMMON_SECONDS = 1.0
# A file has one writer at a time, so it would be in vain to begin before the other ended.
_PATIENCE_EMBEDDED_SECONDS = 1.0


class NewClaimWriter:
    """The writing of claims of new consumers, shared by callers that come at one time."""

    def __init__(self, database: Database) -> None:
        self._database = database
        patience = _PATIENCE_EMBEDDED_SECONDS if database.backend.is_embedded else _PATIENCE_SECONDS
        # A caller with less time is not sure to be served by another one before its deadline.
        self._least_seconds = patience + _COMMON_SECONDS
        self._coalescer: RequestCoalescer[tuple[ConsumerClaim, Initiator], bool | OutcomeUnknown] = (
            RequestCoalescer(self._write_shared, most=_MOST_AT_ONCE, patience_seconds=patience)
        )

    def takes(self, claims: Sequence[ConsumerClaim]) -> bool:
        """Return whether these claims can be written, if their consumers are new."""
        return bool(claims) and all(map(_is_of_new_consumer, claims))

    def write_request(self, claims: Sequence[ConsumerClaim]) -> bool:
        """Write the claims of one request; return False, with nothing written, if any of them cannot be.

        The claim of one consumer shares the write of callers that wait. Raises OutcomeUnknown, Unavailable.
        """
        actor = initiator()
        if len(claims) > 1 or request_scope.remaining() < self._least_seconds:
            return self.write(claims, [actor] * len(claims), of_one_request=True)
        claim = claims[0]
        is_written = self._coalescer.ask(None, (claim, actor), lambda: self.write([claim], [actor]))
        if isinstance(is_written, OutcomeUnknown):
            raise is_written
        return is_written

    def write(
        self,
        claims: Sequence[ConsumerClaim],
        initiators: Sequence[Initiator],
        *,
        of_one_request: bool = False,
    ) -> bool:
        """Write the claims; return False, with nothing written, if a consumer is not new or does not fit.

        Unless they are `of_one_request`, each of the claims raises the generations of its providers.
        Raises OutcomeUnknown, Unavailable. Source: placement-api.md, "Provider generation".
        """
        database = self._database
        records = _records(claims, initiators) if database.audits else []
        rows = _rows(claims, _generation_rises(claims, of_one_request), records)
        try:
            return database.backend.claim_at_once(database.single_write, rows)
        except Unreachable:
            raise
        except TryAgain:
            return False

    def _write_shared(
        self, asked: Sequence[tuple[ConsumerClaim, Initiator]]
    ) -> Sequence[bool | OutcomeUnknown | None]:
        """Return True for all claims, or None for all, or OutcomeUnknown for all if that is not known."""
        try:
            with request_scope.within(_COMMON_SECONDS):
                is_written = self.write([claim for claim, _ in asked], [actor for _, actor in asked])
        except OutcomeUnknown as error:
            return [OutcomeUnknown(str(error)) for _ in asked]
        except errors.Unavailable:
            # With a slow disk the write ends after its second; each request has 30 s of its own.
            return [None] * len(asked)
        return [is_written or None] * len(asked)


def _is_of_new_consumer(claim: ConsumerClaim) -> bool:
    return claim.generation is None and bool(claim.resources) and all(claim.resources.values())


def _generation_rises(claims: Sequence[ConsumerClaim], of_one_request: bool) -> Mapping[str, int]:
    """Return by how much the generation of each provider rises: by 1 for each request that names it."""
    rises = Counter(provider for claim in claims for provider in claim.resources)
    return dict.fromkeys(rises, 1) if of_one_request else rises


def _rows(
    claims: Sequence[ConsumerClaim], generation_rises: Mapping[str, int], records: Sequence[ClaimRecord]
) -> NewClaims:
    amounts = [
        InventoryAmount(claim.consumer_uuid, provider, name, min(amount, LARGEST_CLAIMED))
        for claim in claims
        for provider, resources in claim.resources.items()
        for name, amount in resources.items()
    ]
    return NewClaims(
        now=utcnow(),
        consumers=[
            NewConsumer(
                claim.consumer_uuid,
                claim.project_id,
                claim.user_id,
                claim.consumer_type,
                request=claim.request,
            )
            for claim in claims
        ],
        rises=_rises(amounts),
        amounts=amounts,
        providers=list(generation_rises),
        steps=list(generation_rises.values()),
        records=records,
    )


def _rises(amounts: Sequence[InventoryAmount]) -> list[UsageRise]:
    """Return by how much the use of each inventory rises: see storage.tables."""
    by_inventory: dict[tuple[str, str], list[int]] = defaultdict(list)
    for each in amounts:
        by_inventory[each.provider_uuid, each.class_name].append(each.amount)
    return [
        UsageRise(*inventory, sum(all_), min(all_), max(all_), gcd(*all_))
        for inventory, all_ in by_inventory.items()
    ]


def _records(claims: Sequence[ConsumerClaim], initiators: Sequence[Initiator]) -> list[ClaimRecord]:
    return [
        claim_record(
            TargetKind.ALLOCATIONS, claim.consumer_uuid, claim.consumer_uuid, claim_document(claim), actor
        )
        for claim, actor in zip(claims, initiators, strict=True)
    ]
