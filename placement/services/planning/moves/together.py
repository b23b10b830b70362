"""Several things that are done together: each way of one is tried with each way of the next."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence

Task = Callable[[int], Iterator[int]]
"""Gives each way to do one thing with at most so many moves of others, and how many it takes.

At each the board is as it would be; whoever goes on finds it as it was.
"""


def all_done(state: Callable[[], Hashable], tasks: Sequence[Task], spare: int) -> Iterator[int]:
    """Yield at each way to do all of that with at most so many moves of others, and how many are left.

    Nothing is tried again where the board is in a `state` that led nowhere. Raises SearchEnded.
    """
    return _rest(state, tasks, spare, set())


def _rest(
    state: Callable[[], Hashable], tasks: Sequence[Task], spare: int, nowhere: set[Hashable]
) -> Iterator[int]:
    if not tasks:
        yield spare
        return
    here = (len(tasks), spare, state())
    if here in nowhere:
        return
    for moves in tasks[0](spare):
        yield from _rest(state, tasks[1:], spare - moves, nowhere)
    nowhere.add(here)
