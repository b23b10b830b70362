"""The stages of an explanation, counted in hosts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from placement.engine.domain.explanation import IN_CLUSTER, ConditionKind, CountedUnit
from placement.engine.domain.tree_specs import NUMA_ROOT
from placement.web import units


class FunnelStep(NamedTuple):
    """A condition in words, with a remark, and the number of hosts that meet it."""

    words: str
    remark: str
    hosts: int
    of: int
    is_empty: bool


# The groups that the rows of the form make are named nowhere there.
_OF_ROWS = re.compile(r"_(\d+|numa|several)")
_LEADS = ("hosts with ", "hosts in ", "hosts ")


def funnel(explanation: Mapping[str, Any]) -> list[FunnelStep]:
    """Return the stages up to the first that no host passed; without the last one if it took nothing away.

    The numbers are the same as in the explanation. All hosts are the ones that came to the first stage.
    """
    stages = explanation["stages"]
    every = stages[0]["trees_came"] if stages else 0
    steps: list[FunnelStep] = []
    for at, stage in enumerate(stages):
        is_empty = at == explanation["first_empty"]
        is_idle = stage["kind"] == ConditionKind.COMBINATION and steps and steps[-1].hosts == stage["trees"]
        if is_empty or not (is_idle or stage["kind"] == ConditionKind.ANY):
            steps.append(FunnelStep(*_words(stage), stage["trees"], every, is_empty))
        if is_empty:
            break
    return steps


def hints(explanation: Mapping[str, Any]) -> list[str]:
    """Return the hints of an explanation; the one on the class that ends first has units."""
    margin = explanation.get("margin")
    if margin is None:
        return list(explanation["hints"])
    name, requests = margin["resource_class"], units.counted(margin["room"], "such request")
    free = f"{units.amount(margin['free'], name)} free on {units.counted(margin['hosts'], 'host')}"
    return [f"{units.plain(name)} ends first: {free} with a candidate, room for {requests}"]


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
    is_all = all(each.startswith(IN_CLUSTER) for each in names)
    return [each.removeprefix(IN_CLUSTER) for each in names] if is_all else []
