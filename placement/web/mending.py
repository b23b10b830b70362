"""What would mend a query that fits nowhere: another query, or nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from placement.engine.domain.explanation import Alternative, ConditionKind
from placement.providers.fleet import FleetSnapshot
from placement.web import units


class Mend(NamedTuple):
    """A change of a query that may let it fit: why, and the changed query; empty if there is none."""

    words: str
    query: str = ""


def hopeless(explanation: Mapping[str, Any], snapshot: FleetSnapshot) -> Mend | None:
    """Return a sentence about the host with most free, if no host has the amount of the first empty stage."""
    if explanation["first_empty"] is None:
        return None
    stage = explanation["stages"][explanation["first_empty"]]
    if stage["kind"] != ConditionKind.AMOUNT or "resource_class" not in stage:
        return None
    name, wanted = stage["resource_class"], stage["wanted"]
    most = snapshot.roomiest(name)
    if most is None or most.whole - most.part >= wanted:
        return None
    left = units.amount(max(0, most.whole - most.part), name)
    return Mend(f"No host has {units.amount_of(wanted, name)} free. {most.name} has most, {left}.")


_SPLIT_SUFFIX = "_several"
_OF_GROUP = ("required", "member_of", "in_tree")


def mend(
    explanation: Mapping[str, Any],
    pairs: Sequence[tuple[str, str]],
    alternative: Alternative,
    where: str,
) -> Mend | None:
    """Return the query with the amount of the first empty stage split, if that is the alternative.

    `where` is the name of the provider below which others have enough of it.
    """
    if explanation["first_empty"] is None:
        return None
    stage = explanation["stages"][explanation["first_empty"]]
    name, group = alternative.resource_class, stage["group"]
    is_split = name in dict(pairs).get(f"split{group}", "").split(",")
    if stage.get("resource_class") != name or group is None or is_split:
        return None
    if not group and not _can_part(pairs, name):
        return None
    words = (
        f"No single provider of {units.plain(name)} has {units.amount(alternative.wanted, name)} free. "
        f"{alternative.givers} providers in {where} together have {units.amount(alternative.free, name)}."
    )
    return Mend(words, query_text(_with_split(pairs, name, group)))


def _can_part(pairs: Sequence[tuple[str, str]], name: str) -> bool:
    """Return whether an amount can leave the group without a suffix, and no condition stays there alone."""
    values = [value for key, value in pairs if key == "resources"]
    is_alone = all(each.partition(":")[0] == name for value in values for each in value.split(","))
    return not any(key.endswith(_SPLIT_SUFFIX) or (is_alone and key in _OF_GROUP) for key, _ in pairs)


def _with_split(pairs: Sequence[tuple[str, str]], name: str, group: str) -> Iterator[tuple[str, str]]:
    """Yield the parameters of a query with an amount split; only groups with a suffix can split amounts."""
    if group:
        yield from pairs
        yield f"split{group}", name
        return
    others = {key for key, _ in pairs if key.startswith("resources") and key != "resources"}
    for key, value in pairs:
        if key != "resources":
            yield key, value
            continue
        pieces = value.split(",")
        kept = [each for each in pieces if each.partition(":")[0] != name]
        if kept:
            yield key, ",".join(kept)
        yield f"resources{_SPLIT_SUFFIX}", ",".join(each for each in pieces if each not in kept)
    yield f"split{_SPLIT_SUFFIX}", name
    if others and all(key != "group_policy" for key, _ in pairs):
        yield "group_policy", "none"


def query_text(pairs: Iterable[tuple[str, str]]) -> str:
    """Return a query as it is typed: only what would mean something else there is quoted."""
    return "&".join(f"{key}={quote(value, safe=':,!/')}" for key, value in pairs)
