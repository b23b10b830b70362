"""`placement plan`: moves that would make room, whether they are still possible, and making them."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placement.client.client import ANSWER_SECONDS, VERSION, ServiceError, path
from placement.client.commands.capacity import kinds_of
from placement.client.commands.flavor import OPTIONS
from placement.client.display import PROSE, Listing, Prose, argument, consumer_uuid, positive, read_json
from placement.client.drawing import drawn, list_moves, name_mover, summary
from placement.client.formats import Lines, ResourceAmounts
from placement.engine.domain.errors import PlacementError
from placement.engine.domain.inventories import MOVE_HEADER

if TYPE_CHECKING:
    from placement.client.client import Client


# Making the moves of a plan: what consumers hold is rewritten, guarded by their generations.


MADE, MADE_BEFORE = "made", "made before"
# The last microversion without types of consumers; a write in it leaves the type as it is.
_WITHOUT_TYPES = "1.37"
_NO_TYPE = "unknown"
# No answer, or one that says that the service ran out of time or of its database.
_UNCERTAIN = (None, 502, 503, 504)


class _Uncertain(PlacementError):
    """A failure after which it is not known whether a move was made."""


class Moves:
    """The moves of a plan, which are made in their order."""

    def __init__(self, client: Client, moves: Sequence[Mapping[str, Any]]) -> None:
        self._client, self._moves = client, moves

    def made(self) -> Iterator[tuple[int, Mapping[str, Any], str]]:
        """Make the moves one by one; yield the number, the move, and whether it was made now or before.

        Raises PlacementError naming the first move that is refused; no move after it is made.
        """
        for at, move in enumerate(self._moves, start=1):
            try:
                state = self._make(move)
            except _Uncertain as error:
                raise PlacementError(
                    f"move {at} of {len(self._moves)}, {move['consumer']}: {error}. "
                    f"Move {at} may have been made; apply the plan again."
                ) from None
            except PlacementError as error:
                raise PlacementError(
                    f"move {at} of {len(self._moves)}, {move['consumer']}: {error}. "
                    f"The {at - 1} before it are made, nothing else is."
                ) from None
            yield at, move, state

    def _make(self, move: Mapping[str, Any]) -> str:
        """Make a move. Raises PlacementError saying why it is refused."""
        place = path("allocations", move["consumer"])
        present = self._client.get(place)
        held = _amounts(present["allocations"])
        if held == _amounts(move["to_allocations"]):
            return MADE_BEFORE
        if held != _amounts(move["from_allocations"]):
            raise PlacementError("holds something else than the plan knows" if held else "holds nothing")
        if move["by"] != "rewriting":
            raise PlacementError(
                f"is a pod on node {move['pod']['from_node']}, which Kubernetes has to evict; "
                f"{move['pod']['to_node']} has room for it"
            )
        generation, known = present["consumer_generation"], move["consumer_generation"]
        if generation != known:
            raise PlacementError(f"has generation {generation} by now, the plan knows {known}")
        self._write(place, present, move)
        return MADE

    def _write(self, place: str, present: Mapping[str, Any], move: Mapping[str, Any]) -> None:
        body = {
            "allocations": move["to_allocations"],
            "project_id": present["project_id"],
            "user_id": present["user_id"],
            "consumer_generation": move["consumer_generation"],
        }
        typed = present["consumer_type"] != _NO_TYPE
        if typed:
            body["consumer_type"] = present["consumer_type"]
        try:
            self._client.put(place, body, VERSION if typed else _WITHOUT_TYPES, {MOVE_HEADER: "true"})
        except ServiceError as error:
            if error.status not in _UNCERTAIN:
                raise
            # The answer may have been lost after the move was made.
            if not self._is_made(place, move):
                raise _Uncertain(str(error)) from error

    def _is_made(self, place: str, move: Mapping[str, Any]) -> bool:
        """Return whether it is certain that a move was made."""
        try:
            held = _amounts(self._client.get(place)["allocations"])
        except ServiceError:
            return False
        return held == _amounts(move["to_allocations"])


def _amounts(allocations: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    return {uuid: dict(entry["resources"]) for uuid, entry in allocations.items()}


_GOALS = ("fit", "empty", "free", "defragment")
_COLUMNS = ("#", "Consumer", "Kind", "By", "From", "To", "Amounts", "Providers")
_STATES = ("#", "Consumer", "State", "Why")
_TEXT = ("Plan",)
_BOUNDED = {"project": "project_id", "type": "consumer_type", "label": "label"}
_PATH = "/ext/v1/plans"
# Reading the state and showing the plan take some time beside the search.
_BEYOND_SECONDS = 10
# The members that showing a plan needs of the plan, and of each move, beside the pod of a move.
_SHOWN = ("goal", "wanted", "achieved", "reached", "complete", "bound", "stranded", "left", "hosts")
_MEMBERS = (
    "consumer",
    "kind",
    "by",
    "consumer_generation",
    "from_host",
    "to_host",
    "from_allocations",
    "to_allocations",
)
_RECORDS = "this moves records, not machines: migrate first, with the plan as the list of live migrations"
_FILE = argument("file", metavar="FILE", help="a plan as `placement plan make --save` writes it; - for input")


class _Telling(Prose):
    """A command that lists the moves of a plan, or draws it."""

    left_out_first = ("Providers", "Amounts", "By", "Kind")

    def told(self, parsed_args: argparse.Namespace, plan: Mapping[str, Any]) -> tuple[Any, Any]:
        """Return the moves, or the plan as text."""
        if parsed_args.formatter == PROSE:
            return _TEXT, [(line,) for line in drawn(plan, self.app.stdout)]
        return _COLUMNS, list(_rows(plan))


class MakePlan(_Telling):
    """Look for moves that make room, leave hosts empty, or make free resources usable again.

    `fit KIND` is for requests that do not fit, `empty HOST...` and `free N` for hosts, `defragment KIND`
    strands less for such requests. KIND is a .json file with a flavor, a file with the manifest of a pod
    (needs --cluster; not for `defragment`), or a query such as resources=VCPU:2; options of flavors give one
    without a file. Nothing is written. If the goal is not reached, the moves that were found are shown and
    the command ends with 1.
    """

    arguments = (
        argument("goal", choices=_GOALS, help="what the plan is for"),
        argument("kinds", nargs="*", metavar="WHAT", help="KIND, hosts, or a number"),
        *OPTIONS,
        argument("--cluster", help="in this cluster only"),
        argument("--count", type=positive, metavar="N", help="let so many requests fit (default 1)"),
        argument("--class", dest="resource_class", metavar="CLASS", help="strand less of this class"),
        argument("--moves", type=positive, metavar="N", help="so many moves at most"),
        argument(
            "--never", action="append", default=[], type=consumer_uuid, metavar="UUID", help="never move it"
        ),
        argument("--only", action="append", metavar="CLUSTER", help="only hosts of this cluster; repeatable"),
        argument(
            "--at-most",
            action="append",
            default=[],
            metavar="project=P:N",
            help="at most N moves of a project, a type=T of consumers, or of pods with a label=KEY=VALUE",
        ),
        argument("--seconds", type=positive, metavar="N", help="look for so long at most"),
        argument("--save", metavar="FILE", help="write the plan as JSON"),
    )

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Ask, save and tell."""
        question: dict[str, Any] = {"goal": _goal(parsed_args), "limits": _limits(parsed_args)}
        if parsed_args.cluster is not None:
            question["cluster"] = parsed_args.cluster
        seconds = max(ANSWER_SECONDS, (parsed_args.seconds or 0) + _BEYOND_SECONDS)
        plan = self.client.post(_PATH, question, seconds)
        if parsed_args.save is not None:
            _save(parsed_args.save, plan)
        if not plan["reached"]:
            self.exit_status = 1
        if parsed_args.formatter != PROSE:
            self.note(summary(plan))
        return self.told(parsed_args, plan)


class ShowPlan(_Telling):
    """Show a plan, drawn before and after, or as a row for each move; needs no service."""

    arguments = (_FILE,)
    auth_required = False

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Read and tell."""
        return self.told(parsed_args, _read(parsed_args.file, _SHOWN))


class _Checking(Listing):
    """A command that tells which moves of a plan are still possible."""

    left_out_first = ("Why",)

    def checked(self, plan: Mapping[str, Any]) -> tuple[Any, Any]:
        """Ask the service, and list the answer; the command ends with 1 if a move is not possible."""
        question = {"moves": plan["moves"]}
        if plan.get("cluster") is not None:
            question["cluster"] = plan["cluster"]
        checked = self.client.post(f"{_PATH}/check", question)
        if not checked["valid"]:
            self.exit_status = 1
        return _STATES, [
            (at, name_mover(move), each["state"], each["why"])
            for at, (move, each) in enumerate(zip(plan["moves"], checked["moves"], strict=True), start=1)
        ]


class CheckPlan(_Checking):
    """Check whether the moves of a plan are still possible, each after the moves before it.

    If one is not, the command ends with 1.
    """

    arguments = (_FILE,)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Ask and list."""
        return self.checked(_read(parsed_args.file))


class ApplyPlan(_Checking):
    """Make the moves of a plan by rewriting what consumers hold, one after the other.

    This moves records, not machines: a guest stays on its host. Migrate first, with the plan as the list of
    live migrations. The command asks before it writes; without a terminal it needs --yes, or ends with 2.

    A move that was made before is recognised, so a plan that was broken off may be applied again. It ends at
    the first move that is refused: the consumer holds something else or has another generation by now, there
    is no room any more, or it is a pod, which Kubernetes has to evict.
    """

    arguments = (
        _FILE,
        argument("--yes", action="store_true", help="move the records without a question"),
        argument("--dry-run", action="store_true", help="write nothing; print what `plan check` prints"),
    )

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser, which also refuses a command that may not ask."""
        self._parser = super().get_parser(prog_name)
        return self._parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Make the moves and list them, or tell whether they can be made."""
        plan = _read(parsed_args.file)
        if parsed_args.dry_run:
            return self.checked(plan)
        if not parsed_args.yes:
            self._ask(len(plan["moves"]))
        return ("#", "Consumer", "State"), self._made(Moves(self.client, plan["moves"]))

    def _ask(self, moves: int) -> None:
        """Ask for consent. Raises PlacementError without it; exits with 2 where no terminal can answer."""
        if not (self.app.stdin.isatty() and self.app.stderr.isatty()):
            self._parser.error(f"--yes: is missing, and there is no terminal to ask at; {_RECORDS}")
        question = f"{_RECORDS[0].upper()}{_RECORDS[1:]}. Rewrite the records of {moves} moves? [y/N] "
        self.app.stderr.write(question)
        self.app.stderr.flush()
        if self.app.stdin.readline().strip().lower() not in ("y", "yes"):
            raise PlacementError("not confirmed; nothing was written")

    def _made(self, moves: Moves) -> Iterator[tuple[int, str, str]]:
        for at, move, state in moves.made():
            yield at, name_mover(move), state
        self.note(f"Written: {_RECORDS}.")


def _read(file: str, members: Iterable[str] = ()) -> Mapping[str, Any]:
    """Return a plan that has these members beside its moves. Raises PlacementError naming a missing one."""
    plan = read_json(file)
    if not isinstance(plan, dict) or not isinstance(plan.get("moves"), list):
        raise PlacementError(f"{file}: is no plan: it has no moves")
    places = [("", plan, members)]
    places += [(f"moves[{at}].", move, _MEMBERS) for at, move in enumerate(plan["moves"])]
    for place, part, names in places:
        for name in names:
            if not isinstance(part, dict) or name not in part:
                raise PlacementError(f"{file}: {place}{name} is missing")
    return plan


def _save(file: str, plan: Mapping[str, Any]) -> None:
    try:
        Path(file).write_text(json.dumps(plan, indent=2) + "\n")
    except OSError as error:
        raise PlacementError(f"{file}: {error.strerror}") from None


def _goal(parsed: argparse.Namespace) -> dict[str, Any]:
    """Return the goal that the arguments stand for. Raises PlacementError."""
    if parsed.goal == "empty":
        if not parsed.kinds:
            raise PlacementError("empty: the hosts are missing")
        return {"empty": parsed.kinds}
    if parsed.goal == "free":
        if len(parsed.kinds) != 1 or not (parsed.kinds[0].isascii() and parsed.kinds[0].isdecimal()):
            raise PlacementError("free: how many hosts is missing, such as free 2")
        return {"free": int(parsed.kinds[0])}
    kinds = kinds_of(parsed)
    if len(kinds) != 1:
        raise PlacementError(f"{parsed.goal}: one kind of request is expected, not {len(kinds)}")
    (kind,) = kinds.values()
    beside = {"count": parsed.count, "resource_class": parsed.resource_class}
    return {parsed.goal: {**kind, **{name: value for name, value in beside.items() if value is not None}}}


def _limits(parsed: argparse.Namespace) -> dict[str, Any]:
    limits: dict[str, Any] = {"at_most": [_at_most(text) for text in parsed.at_most]}
    given = {
        "moves": parsed.moves,
        "never": parsed.never or None,
        "clusters": parsed.only,
        "seconds": parsed.seconds,
    }
    return limits | {name: value for name, value in given.items() if value is not None}


def _at_most(text: str) -> dict[str, Any]:
    rest, _, moves = text.rpartition(":")
    name, separator, value = rest.partition("=")
    if name not in _BOUNDED or not separator or not (moves.isascii() and moves.isdecimal()):
        raise PlacementError(f"--at-most: {text} is no project=P:N, type=T:N or label=KEY=VALUE:N")
    return {_BOUNDED[name]: value, "moves": int(moves)}


def _rows(plan: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    for at, move, consumer, before, after in list_moves(plan):
        total: Counter[str] = Counter()
        for entry in move["to_allocations"].values():
            total.update(entry["resources"])
        amounts, providers = ResourceAmounts(dict(total)), Lines(list(move["to_allocations"]))
        yield at, consumer, move["kind"], move["by"], before, after, amounts, providers
