"""How well a request fits what is used already: 0 (badly) to 100."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

# By Kubernetes resource name: millicores of `cpu`, whole bytes or pieces of everything else.
Amounts = Mapping[str, int]

BEST = 100

# Resources that every pod is weighed by; all others count only for pods that ask for them.
NATIVE = frozenset({"cpu", "memory", "ephemeral-storage", "pods"})


class Scoring(NamedTuple):
    """Whether full places score high (MostAllocated) or empty ones, and the weight of each resource."""

    fullest_first: bool = False
    weights: tuple[tuple[str, int], ...] = (("cpu", 1), ("memory", 1))

    def score(self, requested: Amounts, capacity: Amounts, request: Amounts) -> int:
        """The weighted score of a place with `requested` of its `capacity` in use if `request` were added.

        Source: koordinator.md, "Score".
        """
        return self.of_request(request)(requested, capacity)

    def of_request(self, request: Amounts) -> Callable[[Amounts, Amounts], int]:
        """The score of places for one request: many places are asked, and the request is looked at once."""
        counted = [
            (resource, weight, request.get(resource, 0))
            for resource, weight in self.weights
            if request.get(resource, 0) or resource in NATIVE
        ]
        fullest_first = self.fullest_first

        def score(requested: Amounts, capacity: Amounts) -> int:
            total = weights = 0
            for resource, weight, asked in counted:
                room = capacity.get(resource, 0)
                if room > 0:
                    used = min(requested.get(resource, 0) + asked, room)
                    total += weight * ((used if fullest_first else room - used) * BEST // room)
                    weights += weight
            return total // weights if weights else 0

        return score


DEFAULT_SCORING = Scoring()
