"""Why nobody else can be placed: the hosts that have room, and which rules leave them out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placement.search.members.board import Board, Kind


@dataclass(frozen=True, slots=True)
class Hindrance:
    """`with_room`: so many hosts have room for one more; `left_out`: how many of them by each hard rule."""

    with_room: int
    left_out: dict[int, int]


def hindrance(board: Board, kind: Kind) -> Hindrance:
    """What stops the next of a kind, on the board as it is."""
    table = board.anywhere(kind)
    hosts = np.unique(table.hosts)
    left_out: dict[int, int] = {}
    for number in kind.rules:
        tally = board.tallies[number]
        if tally.rule.weight is None:
            open_ = np.unique(table.hosts[tally.allowed(table.places[number])])
            if len(open_) < len(hosts):
                left_out[number] = len(hosts) - len(open_)
    return Hindrance(len(hosts), left_out)
