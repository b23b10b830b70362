"""Claims of one query by several callers at one time, each for one consumer, served together.

They cost one look, one search and one statement. They get no more than there is, for the statement decides.
They see all that was committed when the last of them asked, for the search begins after that. If they cannot
all be served in one statement, or if that takes long, each caller goes on as if it were alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from placement.allocations.applications import ClaimApplication, Outcome, claim_of, fitted
from placement.allocations.candidates import CandidateSearch
from placement.allocations.claims import Claims
from placement.allocations.coalescing import RequestCoalescer
from placement.allocations.holdings import Holdings
from placement.allocations.shortlists import CandidateQueue, NoCandidate, Promises, Proposal
from placement.engine.domain import request_scope
from placement.engine.domain.errors import PlacementError
from placement.engine.domain.request_scope import Initiator, initiator

# The most callers that one of them serves, and how long a caller waits for its turn.
_MOST = 32
_PATIENCE_SECONDS = 0.05
# If the common work takes longer, each caller works for itself, at the same time as the others.
_WORK_SECONDS = 1.0

Asked = tuple[ClaimApplication, Initiator]


class ClaimCoalescer:
    """A gathering of claims that have one query."""

    def __init__(self, candidates: CandidateSearch, claims: Claims, holdings: Holdings) -> None:
        self._candidates = candidates
        self._claims = claims
        self._holdings = holdings
        self._gathering: RequestCoalescer[Asked, Outcome] = RequestCoalescer(
            self._served, most=_MOST, patience_seconds=_PATIENCE_SECONDS
        )

    def outcome(self, application: ClaimApplication, alone: Callable[[], Outcome]) -> Outcome:
        """Return the outcome of a claim; `alone` finds it without others. Raises what `alone` raises."""
        wish = application.wish
        # A claim that says more, as a member of many may, is served by itself.
        is_plain = application == ClaimApplication(application.applicant, wish)
        if not is_plain or not self._claims.can_batch:
            return alone()
        # One caller searches for all and sees what it may see itself, so the scope is in the key.
        key = wish.query.identity, wish.options, request_scope.seen()
        return self._gathering.ask(key, (application, initiator()), alone)

    def _served(self, asked: Sequence[Asked]) -> Sequence[Outcome | None]:
        """Return the outcome of each, None where it is in doubt."""
        try:
            with request_scope.within(_WORK_SECONDS):
                return self._settled(asked)
        except PlacementError:
            # Each caller meets the error itself, or finds what was written although the outcome was unknown.
            return [None] * len(asked)

    def _settled(self, asked: Sequence[Asked]) -> Sequence[Outcome | None]:
        proposals, refused = self._proposed([application for application, _ in asked])
        claims = [
            claim_of(application, proposal, {})
            for (application, _), proposal in zip(asked, proposals, strict=False)
        ]
        initiators = [actor for _, actor in asked[: len(claims)]]
        if claims and not self._claims.claim_together(claims, initiators):
            return [None] * len(asked)
        given = [
            fitted(application.applicant, claim, proposal)
            for (application, _), claim, proposal in zip(asked, claims, proposals, strict=False)
        ]
        return [*given, *refused]

    def _proposed(
        self, applications: Sequence[ClaimApplication]
    ) -> tuple[list[Proposal], Sequence[NoCandidate | None]]:
        """Return what the first would get, and why the others get nothing, None where that is in doubt."""
        promises = Promises.of(self._candidates.view(), many=True)
        shortlist = CandidateQueue(self._candidates, promises, applications[0].wish, len(applications), set())
        proposals: list[Proposal] = []
        try:
            for _ in applications:
                proposals.append(shortlist.take())
        except NoCandidate as refusal:
            others = [each.applicant.consumer_uuid for each in applications[len(proposals) :]]
            # A consumer that exists may hold it already.
            known = self._holdings.of_consumers(others)
            return proposals, [None if uuid in known else NoCandidate(str(refusal)) for uuid in others]
        return proposals, ()
