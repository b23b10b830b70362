"""The reasons why no other member can be placed: the hosts with room, and the rules that leave them out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placement.engine.search.members.state import (
    MemberKind,
    PlacementState,
)


@dataclass(frozen=True, slots=True)
class Hindrance:
    """A hindrance: `with_room` hosts have room for one more; `left_out` of them by each hard rule."""

    with_room: int
    left_out: dict[int, int]


def hindrance(state: PlacementState, kind: MemberKind) -> Hindrance:
    """Return the hindrance of the next member of a kind, in the state as it is."""
    table = state.searched(kind)
    hosts = len(np.unique(table.hosts))
    left_out: dict[int, int] = {}
    for number, tally in state.hard(kind):
        open_ = len(np.unique(table.hosts[tally.allowed(table.places[number])]))
        if open_ < hosts:
            left_out[number] = hosts - open_
    return Hindrance(hosts, left_out)
