"""What sums show at once: that hosts have too little in all, however consumers are moved among them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from placement.services.planning.moves.board import Board, Consumer
from placement.services.planning.moves.wishes import sums_of


def too_little(board: Board, need: Mapping[int, int], open_: Collection[int], staying: str) -> str:
    """Why so much of each class can never be placed on open hosts; empty where sums do not show that.

    Consumers on these hosts may change places among them. `staying` is what these hosts are called.
    """
    slack = _slack(each for root in open_ for each in board.on.get(root, {}).values())
    for class_id, wanted in need.items():
        free = board.ground.by_root(class_id)
        left = sum(free[root].free for root in free.keys() & open_) + slack[class_id]
        if wanted > left:
            return f"{staying} have {left} {board.class_name(class_id)} left in all, {wanted} are needed"
    return ""


def most_free(board: Board, roots: Sequence[int], wanted: int, staying: Collection[int]) -> tuple[int, str]:
    """How many more of these hosts, at most `wanted`, can be empty as far as sums tell, and why no more.

    Hosts that are `staying` have a consumer that may not be moved.
    """
    here = [each for root in roots for each in board.on.get(root, {}).values()]
    occupied = sum(bool(board.on.get(root)) for root in roots)
    slack = _slack(here)
    most, why = occupied - len(staying), "hosts that others would have to leave have consumers that stay"
    for class_id in sorted({name for each in here if each.wish is not None for name in each.wish.wanted}):
        found = board.ground.by_root(class_id)
        uses = {root: found[root] for root in found.keys() & set(roots)}
        held = sum(use.used for use in uses.values()) - slack[class_id]
        rooms = {root: use.free + use.used for root, use in uses.items()}
        left = sum(rooms.get(root, 0) for root in staying)
        others = sorted((rooms.get(root, 0) for root in roots if root not in staying), reverse=True)
        kept = len(staying)
        for room in others:
            if left >= held:
                break
            left, kept = left + room, kept + 1
        if left >= held and occupied - kept < most:
            most = occupied - kept
            name = board.class_name(class_id)
            why = f"{held} {name} are held, for which {kept} hosts are needed at least"
    return (wanted, "") if most >= wanted else (max(most, 0), why)


def _slack(consumers: Iterable[Consumer]) -> Counter[int]:
    """How much less consumers could hold elsewhere than they hold now, by class."""
    slack: Counter[int] = Counter()
    for each in consumers:
        if each.wish is not None and not each.fixed:
            least = each.wish.wanted
            slack.update(
                {name: max(0, held - least.get(name, 0)) for name, held in sums_of(each.spot.draws).items()}
            )
    return slack


def needs(consumers: Iterable[Consumer]) -> Counter[int]:
    """How much consumers take at least wherever they go, by class."""
    need: Counter[int] = Counter()
    for each in consumers:
        if each.wish is not None:
            need.update(each.wish.wanted)
    return need
