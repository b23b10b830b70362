"""How well each node suits a pod, as one number that can be compared with those of other nodes."""

from __future__ import annotations

import numpy as np

from placement.scheduling.columns.node_columns import NodeColumns
from placement.scheduling.pod_rules.ruled_ranking import AnyRanking
from placement.scoring.rule import BEST


def priorities(ranking: AnyRanking, columns: NodeColumns, best: int) -> dict[str, int]:
    """Return the score of each node on which the pod fits, 0 to 100, by name; rankings score up to `best`.

    Nodes on which the pod uses a reservation stay first, then those where it gets more of what it prefers.
    """
    standings = ranking.standings(columns)
    rows = np.flatnonzero(standings.fits)
    missed = standings.missed[rows]
    levels = missed - min(0, missed.min(initial=0))
    worst = levels.max(initial=0)
    points = (standings.highest[rows] * BEST // best + BEST * (worst - levels)) // (worst + 1)
    names = list(columns.names)
    return dict(zip(map(names.__getitem__, rows.tolist()), points.tolist(), strict=True))
