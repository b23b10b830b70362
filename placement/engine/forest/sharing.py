"""Sharing providers, and the trees that each serves beside its own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placement.engine.forest.arrays import Indices, Mask
from placement.engine.forest.forest import Forest


@dataclass(frozen=True, slots=True)
class Sharing:
    """A table of all sharing providers, with one pair per foreign tree that each serves.

    `providers` ascending; `pair_provider[i]` serves the tree of `pair_anchor[i]`, which is not its own.
    """

    providers: Indices
    pair_provider: Indices
    pair_anchor: Indices

    @property
    def is_empty(self) -> bool:
        """Whether no provider shares."""
        return not len(self.providers)

    def mask(self, count: int) -> Mask:
        """Return the mask of the first `count` rows that share."""
        shares = np.zeros(count, bool)
        shares[self.providers] = True
        return shares


class SharingMap:
    """A cache of the sharing of a forest, computed again only when trees, aggregates or traits change."""

    def __init__(self) -> None:
        self._known = (-1, Sharing(*(np.empty(0, np.int32),) * 3))

    def of(self, forest: Forest, sharing_trait: int) -> Sharing:
        """Return the present sharing of the forest."""
        version, sharing = self._known
        if version != forest.shape_version:
            sharing = _work_out(forest, sharing_trait)
            # In one step, because searches on older and newer snapshots run in parallel.
            self._known = (forest.shape_version, sharing)
        return sharing


def _work_out(forest: Forest, sharing_trait: int) -> Sharing:
    providers = forest.traits.rows_with((sharing_trait,), forest.count)
    if not len(providers):
        return Sharing(providers, providers, providers)
    roots = forest.providers.root
    sharers_by_aggregate: dict[int, list[int]] = {}
    for provider in providers.tolist():
        for aggregate in forest.aggregates.of(provider):
            sharers_by_aggregate.setdefault(aggregate, []).append(provider)
    pairs = [np.empty((0, 2), np.int32)]
    for aggregate, sharers in sharers_by_aggregate.items():
        served = np.unique(roots[forest.aggregates.rows_with((aggregate,), forest.count)])
        for provider in sharers:
            foreign = served[served != roots[provider]]
            pairs.append(np.stack([np.full(len(foreign), provider, np.int32), foreign], axis=1))
    table = np.unique(np.concatenate(pairs), axis=0)
    return Sharing(providers, table[:, 0].astype(np.int32), table[:, 1].astype(np.int32))
