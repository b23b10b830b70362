"""The results of a search for pages: candidates by host, hosts left by stage, near misses by host."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import orjson

from placement.engine.domain.explanation import Alternative, ConditionKind, CountedUnit, Reason
from placement.engine.domain.inventories import NUMA_ROOT
from placement.pods.host import Place
from placement.pods.node_info import NodeInfo
from placement.pods.views import Closure, NamedPlace, closures
from placement.web import units
from placement.web.templating import address

Use = Mapping[str, tuple[int, int]]
"""Capacity and use of a host by resource class."""

# Candidates by host.

_MOST_NAMES = 3
_NOTHING = (0, 0)


class ClaimedUse(NamedTuple):
    """The use of a class on a host before a claim and after it, of its capacity."""

    resource_class: str
    before: int
    after: int
    capacity: int


class CandidateRow(NamedTuple):
    """A candidate: what it gives and on which providers, its score with the parts, and the claim as JSON.

    `beyond` is a sentence if its node as a whole has less left, beside its pods, than the claim takes.
    """

    amounts: Mapping[str, int]
    providers: str
    score: str
    parts: Sequence[str]
    claim: str
    beyond: str


class CandidateHost(NamedTuple):
    """A host with its candidates, best first, and its use after the first of them is claimed.

    If it is a node, `closed` are the reasons for which it takes no pods, or only some.
    """

    uuid: str
    name: str
    offers: list[CandidateRow]
    uses: Sequence[ClaimedUse]
    closed: Sequence[tuple[Closure, str]]


def by_host(
    candidates: Iterable[Mapping[str, Any]], uses: Mapping[str, Use], nodes: Mapping[str, NodeInfo]
) -> list[CandidateHost]:
    """Return the hosts of candidates in the order of their best ones; `uses` and `nodes` are by host uuid."""
    found: dict[str, CandidateHost] = {}
    for each in candidates:
        uuid, name, node = each["host"]["uuid"], each["host"]["name"], nodes.get(each["host"]["uuid"])
        as_node = [] if node is None else list(_as_node(node, each["allocations"].values()))
        offer = _offer(each, as_node)
        if uuid not in found:
            use = uses.get(uuid, {})
            after = [
                ClaimedUse(of, use[of][1], use[of][1] + amount, use[of][0])
                for of, amount in offer.amounts.items()
                if use.get(of, _NOTHING)[0]
            ]
            closed = [] if node is None else list(closures(node))
            found[uuid] = CandidateHost(uuid, name, [], after + as_node, closed)
        found[uuid].offers.append(offer)
    return list(found.values())


def _as_node(node: NodeInfo, given: Iterable[Mapping[str, Any]]) -> Iterator[ClaimedUse]:
    """Yield the use of a node as a whole, pods included, before and after a claim that names its parts."""
    claim = {
        Place(node.identity.path(each["name"]), name): amount
        for each in given
        for name, amount in each["resources"].items()
    }
    named = {place.resource_class for place in claim}
    for name, use in node.host_after(claim).items():
        if name not in named:
            yield ClaimedUse(name, *use)


def _offer(candidate: Mapping[str, Any], as_node: Iterable[ClaimedUse]) -> CandidateRow:
    given, host = candidate["allocations"], candidate["host"]["name"]
    beyond = " and ".join(
        units.share(use.capacity - use.before, use.capacity, use.resource_class)
        for use in as_node
        if use.after > use.capacity
    )
    amounts = summed(each["resources"] for each in given.values())
    names = [below(each["name"], host) for each in given.values()]
    claim = {uuid: each["resources"] for uuid, each in given.items()}
    score = candidate["score"]
    parts = list(_parts(candidate["score_parts"]))
    return CandidateRow(
        amounts,
        units.listed(names, _MOST_NAMES),
        "" if score is None else str(score),
        parts,
        orjson.dumps(claim).decode(),
        beyond and f"The node has {beyond} left beside its pods: less than the claim takes.",
    )


def summed(held: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the sums by resource class of what several providers give."""
    sums: dict[str, int] = {}
    for amounts in held:
        for name, amount in amounts.items():
            sums[name] = sums.get(name, 0) + amount
    return sums


def below(name: str, host: str) -> str:
    """Return the name of a provider without that of its host in front."""
    return name.removeprefix(f"{host}/") if name != host else "the host itself"


def _parts(parts: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for part in parts:
        if "type" not in part:
            yield f"prefers {part['prefer']}: {'met' if part['met'] else 'not met'}"
            continue
        weight = "" if part["weight"] == 1 else f" × {part['weight']}"
        classes = [
            f"{units.plain(name)} {figures.get('score', figures.get('skipped'))}"
            for name, figures in part["resources"].items()
        ]
        yield f"{part['type']} {part['score']}/{part['max_score']}{weight}: {', '.join(classes)}"


# The stages of an explanation, counted in hosts.


class FunnelStep(NamedTuple):
    """A condition in words, with a remark, and the number of hosts that meet it."""

    words: str
    remark: str
    hosts: int
    of: int
    is_empty: bool


_OF_CLUSTER = "of cluster "
# The groups that the rows of the form make are named nowhere there.
_OF_ROWS = re.compile(r"_(\d+|numa|several)")
_LEADS = ("trees that can give ", "trees ", "roots with ", "roots in ", "roots ")


def funnel(explanation: Mapping[str, Any], hosts: int | None = None) -> list[FunnelStep]:
    """Return the stages up to the first that no host passed; without joint ones that took nothing away.

    A search that ended at its limit says nothing about hosts that it did not come to, so its end is left out.
    All hosts are the nodes that came to the first stage that counts these, unless `hosts` says how many trees
    are hosts. Stages count each part of a request alone, so a step has at most what the one before has.
    """
    stages = explanation["stages"]
    whole = (stage["came"] for stage in stages if stage["counted"] != CountedUnit.PROVIDERS)
    left = every = next(whole, 0) if hosts is None else hosts
    steps: list[FunnelStep] = []
    for at, stage in enumerate(stages):
        is_empty = at == explanation["first_empty"]
        left = min(left, stage["trees"])
        is_joint = stage["kind"] in (ConditionKind.GROUPS, ConditionKind.COMBINATION) or _clusters_of(stage)
        is_cut = stage["kind"] == ConditionKind.COMBINATION and not explanation["complete"]
        is_idle = is_joint and steps and steps[-1].hosts == left
        if is_empty or not (is_cut or is_idle or stage["kind"] == ConditionKind.ANY):
            steps.append(FunnelStep(*_words(stage), left, every, is_empty))
        if is_empty:
            break
    return steps


def _words(stage: Mapping[str, Any]) -> tuple[str, str]:
    """Return the condition of a stage in words, and a remark."""
    text, group = stage["condition"], f"group {stage['group']}" if stage["group"] else ""
    text = text.removeprefix(f"{group}, ")
    if _OF_ROWS.fullmatch(stage["group"] or ""):
        group = ""
    if stage["kind"] == ConditionKind.AMOUNT and "resource_class" in stage:
        name, wanted = stage["resource_class"], stage["wanted"]
        part = "some of " if text.startswith("a part of ") else ""
        on = "on one provider" if stage["counted"] == CountedUnit.PROVIDERS and not part else ""
        remarks = filter(None, (units.plain(name), on, group))
        return f"{part}{units.amount(wanted, name)} free", ", ".join(remarks)
    if stage["kind"] == ConditionKind.GROUPS:
        return "all of the above on one host", ""
    if stage["kind"] == ConditionKind.COMBINATION:
        return "all of the above side by side", "sums, group_policy, same_subtree"
    if clusters := _clusters_of(stage):
        return f"in cluster {', '.join(clusters)}", group
    if text == f"trait {NUMA_ROOT}":
        return "a NUMA node", group
    lead = next((each for each in _LEADS if text.startswith(each)), "")
    return text.removeprefix(lead), group


def _clusters_of(stage: Mapping[str, Any]) -> list[str]:
    """Return the clusters that a stage asks roots to be in, if it asks for nothing else."""
    if stage["kind"] != ConditionKind.ROOT_AGGREGATES:
        return []
    names = [each for any_of in stage.get("required", ()) for each in any_of]
    is_all = all(each.startswith(_OF_CLUSTER) for each in names)
    return [each.removeprefix(_OF_CLUSTER) for each in names] if is_all else []


# Near misses by host, with what would mend them.


class MissedHost(NamedTuple):
    """A host with providers that came close, what they lack, and the address of its page with that marked."""

    name: str
    sentences: Sequence[str]
    page: str
    drawing: str


def missed_hosts(nearest: Sequence[Mapping[str, Any]], places: Mapping[str, NamedPlace]) -> list[MissedHost]:
    """Return the hosts of near misses in their order, each once."""
    of_host: dict[str, list[Mapping[str, Any]]] = {}
    names = {}
    for miss in nearest:
        provider = miss["resource_provider"]
        called = provider["name"] or provider["uuid"]
        place = places.get(provider["uuid"]) or NamedPlace(called, provider["uuid"], called)
        names[place.root_uuid] = place.root_name
        of_host.setdefault(place.root_uuid, []).append(miss)
    return [
        MissedHost(
            names[root],
            list(_sentences(misses, names[root])),
            _marking(f"/hosts/{root}", misses),
            _marking(f"/hosts/{root}/drawing", misses),
        )
        for root, misses in of_host.items()
    ]


def _sentences(misses: Sequence[Mapping[str, Any]], host: str) -> Iterator[str]:
    """Yield what the providers of a host lack; providers that lack the same share a sentence."""
    alike: dict[tuple[str, int, int], list[str]] = {}
    for miss in misses:
        shortages = miss.get("shortages", ())
        if (
            len(shortages) == 1
            and shortages[0]["reason"] == Reason.AMOUNT
            and "resource_provider" in shortages[0]
        ):
            of = shortages[0]
            key = of["resource_class"], of["wanted"], of["free"]
            alike.setdefault(key, []).append(below(of["resource_provider"]["name"] or "", host))
        else:
            yield from miss["sentences"]
    for (name, wanted, free), providers in alike.items():
        missing = units.amount_of(wanted - free, name)
        on = units.listed(providers, 1)
        yield f"{missing} missing: {units.share(free, wanted, name)} free on {on}"


def _marking(path: str, misses: Sequence[Mapping[str, Any]]) -> str:
    """Return the address of a page of a host, with what is missing there marked."""
    lacks = []
    for miss in misses:
        uuid = miss["resource_provider"]["uuid"]
        for shortage in miss.get("shortages", ()):
            where = (shortage.get("resource_provider") or miss["resource_provider"])["uuid"]
            name, missing = shortage.get("resource_class") or "", shortage.get("missing")
            words = f"{units.amount(missing, name)} missing" if missing else "unsuitable"
            lacks.append(f"{where},{name},{words}")
        if not miss.get("shortages"):
            lacks.append(f"{uuid},,{'; '.join(miss['sentences'])}")
    return f"{address(path)}?{urlencode([('lacks', each) for each in lacks])}"


class Mend(NamedTuple):
    """A change of a query that may let it fit: why, and the changed query."""

    words: str
    query: str


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
        f"In {where} {alternative.givers} together have {units.amount(alternative.free, name)}."
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
