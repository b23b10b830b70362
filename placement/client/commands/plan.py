"""`placement plan`: moves that would make room, whether they are still possible, and making them."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placement.client.arguments import (
    IN_AGGREGATES,
    IN_CLUSTER,
    UsageError,
    argument,
    consumer_uuid,
    given,
    positive,
    read_json,
    repeatable,
    take_cluster,
)
from placement.client.cells import amounts, lines
from placement.client.client import ANSWER_SECONDS
from placement.client.command import PROSE, Listing, Prose
from placement.client.commands.capacity import kinds_of
from placement.client.commands.flavor import OPTIONS, note_ignored
from placement.client.making_moves import make_moves
from placement.client.plan_drawing import draw_plan, list_moves, name_mover, summary
from placement.client.tables import ShownTable
from placement.engine.domain.errors import PlacementError

if TYPE_CHECKING:
    pass

_GOALS = ("fit", "empty", "free", "defragment")
_COLUMNS = ("#", "consumer", "kind", "by", "from", "to", "amounts", "providers")
_STATES = ("#", "consumer", "from", "to", "state", "why")
_BOUNDED = {"project": "project_id", "type": "consumer_type", "label": "label"}
_PATH = "/ext/v1/plans"
# Reading the state and showing the plan take some time beside the search.
_BEYOND_SECONDS = 10
# The members that showing a plan needs of the plan, and of each move, beside the pod of a move.
_SHOWN = ("goal", "wanted", "achieved", "reached", "complete", "bound", "stranded", "left", "hosts")
_MEMBERS = (
    *("consumer", "kind", "by", "consumer_generation"),
    *("from_host", "to_host", "from_allocations", "to_allocations"),
)
_RECORDS = "this moves records, not machines: migrate first, with the plan as the list of live migrations"
_FILE = argument("file", metavar="FILE", help="a plan as `placement plan make --save` writes it; - for input")


class _Telling(Prose):
    """A command that lists the moves of a plan, or draws it."""

    left_out_first = ("providers", "amounts", "by", "kind")
    kept = ("consumer", "from", "to")

    def result(self, parsed_args: argparse.Namespace, plan: Mapping[str, Any]) -> ShownTable:
        """Return the moves, or the plan as text."""
        if parsed_args.formatter == PROSE:
            return ("Plan",), [(line,) for line in draw_plan(plan, self.app.stdout)]
        rows = []
        for at, move, consumer, before, after in list_moves(plan):
            total: Counter[str] = Counter()
            for entry in move["to_allocations"].values():
                total.update(entry["resources"])
            hosts, providers = (before, after), lines(list(move["to_allocations"]))
            rows.append((at, consumer, move["kind"], move["by"], *hosts, amounts(dict(total)), providers))
        return _COLUMNS, rows


class MakePlan(_Telling):
    """Look for moves that make room, leave hosts empty, or make free resources usable again.

    `fit KIND` is for requests that do not fit, `empty HOST...` and `free N` for hosts, `defragment KIND`
    strands less for such requests. KIND is a .json file with a flavor, a file with the manifest of a pod
    (needs --cluster; not for `defragment`), or a query such as resources=VCPU:2; options of flavors give one
    without a file. Nothing is written. If the goal is not reached, the moves that were found are shown and
    the command ends with 1.
    """

    arguments = (
        argument("goal", choices=_GOALS, help="the goal of the plan"),
        argument("kinds", nargs="*", metavar="WHAT", help="KIND, hosts, or a number"),
        *OPTIONS,
        IN_CLUSTER,
        argument("--closed", action="store_true", help="let consumers go to closed hosts as well"),
        IN_AGGREGATES,
        argument("--count", type=positive, metavar="N", help="let N requests fit (default 1)"),
        argument("--class", dest="resource_class", metavar="CLASS", help="strand less of this class"),
        argument("--moves", type=positive, metavar="N", help="N moves at most"),
        repeatable("--never", "UUID", "never move it", type=consumer_uuid),
        argument("--only", action="append", metavar="CLUSTER", help="only hosts of this cluster; repeatable"),
        repeatable(
            "--at-most",
            "project=P:N",
            "at most N moves of a project, a type=T of consumers, or of pods with a label=KEY=VALUE",
        ),
        argument("--seconds", type=positive, metavar="N", help="search for at most N seconds"),
        argument("--save", metavar="FILE", help="write the plan as JSON"),
    )

    def take_action(self, parsed_args: argparse.Namespace) -> ShownTable:
        goal = _goal(parsed_args)
        limits = given(
            at_most=[_at_most(text) for text in parsed_args.at_most],
            moves=parsed_args.moves,
            never=parsed_args.never or None,
            clusters=parsed_args.only,
            seconds=parsed_args.seconds,
        )
        (wanted,) = goal.values()
        if isinstance(wanted, dict):
            note_ignored(self, wanted)
        question = {"goal": goal, "limits": limits, **given(cluster=parsed_args.cluster)}
        question |= given(closed=parsed_args.closed or None)
        seconds = max(ANSWER_SECONDS, (parsed_args.seconds or 0) + _BEYOND_SECONDS)
        plan = self.client.post(_PATH, question, seconds)
        if parsed_args.save is not None:
            try:
                Path(parsed_args.save).write_text(json.dumps(plan, indent=2) + "\n")
            except OSError as error:
                raise PlacementError(f"{parsed_args.save}: {error.strerror}") from None
        if not plan["reached"]:
            self.exit_status = 1
        if parsed_args.formatter != PROSE:
            self.note(summary(plan))
        return self.result(parsed_args, plan)


class ShowPlan(_Telling):
    """Show a plan, drawn before and after, or as a row for each move; needs no service."""

    arguments = (_FILE,)
    auth_required = False

    def take_action(self, parsed_args: argparse.Namespace) -> ShownTable:
        return self.result(parsed_args, _read(parsed_args.file, _SHOWN))


class _Checking(Listing):
    """A command that tells which moves of a plan are still possible."""

    kept = ("consumer", "state")

    def checked(self, plan: Mapping[str, Any]) -> ShownTable:
        """Ask the service, and list the answer; the command ends with 1 if a move is not possible."""
        # Plans that older releases wrote say nothing of closed hosts.
        limits = given(cluster=plan.get("cluster"), closed=plan.get("closed"))
        question = {"moves": plan["moves"], **limits}
        checked = self.client.post(f"{_PATH}/check", question)
        if not checked["valid"]:
            self.exit_status = 1
        return _STATES, [
            (at, consumer, before, after, each["state"], each["why"])
            for (at, _, consumer, before, after), each in zip(list_moves(plan), checked["moves"], strict=True)
        ]


class CheckPlan(_Checking):
    """Check whether the moves of a plan are still possible, each after the moves before it.

    If one is not, the command ends with 1.
    """

    arguments = (_FILE,)

    def take_action(self, parsed_args: argparse.Namespace) -> ShownTable:
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
        argument("--yes", action="store_true", help="move the records without asking"),
        argument("--dry-run", action="store_true", help="write nothing; print the output of `plan check`"),
    )

    def take_action(self, parsed_args: argparse.Namespace) -> ShownTable:
        plan = _read(parsed_args.file)
        if parsed_args.dry_run:
            return self.checked(plan)
        if not parsed_args.yes:
            moves = len(plan["moves"])
            question = f"{_RECORDS[0].upper()}{_RECORDS[1:]}. Rewrite the records of {moves} moves?"
            self.confirm(question, _RECORDS)
        return ("#", "consumer", "state"), self._made(plan["moves"])

    def _made(self, moves: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, str, str]]:
        for at, move, state in make_moves(self.client, moves):
            yield at, name_mover(move), state
        self.note(f"Written: {_RECORDS}.")


def _read(file: str, members: Iterable[str] = ()) -> Mapping[str, Any]:
    """Return a plan that has these members beside its moves. Raises PlacementError naming a missing one."""
    plan = read_json(file)
    if not isinstance(plan, dict) or not isinstance(plan.get("moves"), list):
        raise PlacementError(f"{file}: is not a plan: it has no moves")
    places = [("", plan, members)]
    places += [(f"moves[{at}].", move, _MEMBERS) for at, move in enumerate(plan["moves"])]
    for place, part, names in places:
        for name in names:
            if not isinstance(part, dict) or name not in part:
                raise PlacementError(f"{file}: {place}{name} is missing")
    return plan


def _goal(parsed: argparse.Namespace) -> dict[str, Any]:
    words = parsed.kinds = take_cluster(parsed, parsed.kinds)
    if parsed.aggregate and parsed.goal in ("empty", "free"):
        raise UsageError(f"--aggregate: is for fit and defragment, not for {parsed.goal}")
    if parsed.goal == "empty":
        if not words:
            raise UsageError("empty: name the hosts, such as empty cloud/compute-01")
        return {"empty": words}
    if parsed.goal == "free":
        if len(words) != 1 or not (words[0].isascii() and words[0].isdecimal()):
            raise UsageError("free: give the number of hosts, such as free 2")
        return {"free": int(words[0])}
    kinds = kinds_of(parsed)
    if len(kinds) != 1:
        raise UsageError(f"{parsed.goal}: one kind of request is expected, not {len(kinds)}")
    (kind,) = kinds.values()
    return {parsed.goal: {**kind, **given(count=parsed.count, resource_class=parsed.resource_class)}}


def _at_most(text: str) -> dict[str, Any]:
    rest, _, moves = text.rpartition(":")
    name, separator, value = rest.partition("=")
    if name not in _BOUNDED or not separator or not (moves.isascii() and moves.isdecimal()):
        raise UsageError(f"--at-most: {text} is not project=P:N, type=T:N or label=KEY=VALUE:N")
    return {_BOUNDED[name]: value, "moves": int(moves)}
