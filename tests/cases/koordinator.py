"""Runs tables of Koordinator cases (`koordinator-cpuset-cases/1`) against the rooms that decide them.

The cases ask about single rules, which no endpoint offers, so they run in this process with or without a url.
A case passes if it holds under every profile it must hold under.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from placement.common.manifest import ManifestError, Profile
from placement.engine.numa.cpus import CpuListError, parse_cpu_list
from placement.engine.numa.host import NumaAmounts, PodRefused, RefusalClass
from placement.pods.koordinator import annotations as keys
from placement.pods.koordinator.pod import unequal_limit
from tests.cases import koordinator_agents, koordinator_choices, koordinator_phases, koordinator_sequences
from tests.cases import koordinator_inputs as read

FORMAT = "koordinator-cpuset-cases/1"

Json = Mapping[str, Any]
Kind = Callable[[Json, Profile], Json]

KINDS: Mapping[str, Kind] = {
    **koordinator_choices.KINDS,
    **koordinator_sequences.KINDS,
    **koordinator_phases.KINDS,
    **koordinator_agents.KINDS,
}

# What the profile `design` reads in another way, as it is written in inputs (koordinator.md, "Profiles").
_READ_DIFFERENTLY = (
    "DistributeEvenly",
    "distribute-cpus-across-numa",
    "ConstrainedBurst",
    "SingleNUMANodeContainerLevel",
    keys.NUMA_TOPOLOGY_POLICY_ALIAS,
    'preferredCPUExclusivePolicy\\": \\"Default',
    'managedByKubelet\\": \\"true',
    'singleNUMANodeExclusive\\": \\"Preferred',
)
_AMOUNTS = ("numa_resources", "available", "allocated")

_LISTS = ("ls_pools", "be_pools", "pools", "allocs", "pod_cpu_allocs")
_ORDER = ("socket", "node", "uid")

# What a parser says about a broken annotation is its own affair, so there are no reasons to compare.
_UNREADABLE: Json = {"code": str(RefusalClass.ERROR), "reasons": []}


def run(document: dict[str, Any], url: str | None) -> Iterator[tuple[str, str | None]]:
    """Each case's id with None if it passed, else with one line that says what differs."""
    for case in document["cases"]:
        yield case["id"], _difference_or_crash(case)


def _difference_or_crash(case: Json) -> str | None:
    try:
        return difference(case)
    except Exception as error:  # one case that cannot even be run must not hide the others
        return f"{type(error).__name__}: {error}".splitlines()[0]


def difference(case: Json) -> str | None:
    """What is not as a case expects it, under the first profile where anything differs; None if nothing."""
    case = {**case, "input": read.given_input(case["input"])}
    for profile in profiles_of(case):
        outcome = _outcome(case, profile)
        for key, expected in _expectations(case["expect"]):
            if not _agree(key, expected, outcome):
                shown = json.dumps(outcome.get(key), default=str)
                return f"{key} under {profile}: expected {json.dumps(expected)}, got {shown}"
    return None


def profiles_of(case: Json) -> list[Profile]:
    """The profiles under which a case must hold: `design` only if that does not read it in another way."""
    given = read.given_input(case["input"])
    text = json.dumps(given)
    differs = any(word in text for word in _READ_DIFFERENTLY)
    asks = [given, given.get("request") or {}, *(given.get("steps") or ())]
    differs |= any(part.get("exclusive") == "NUMANodeLevel" for part in asks)
    if case["kind"] == "admission":
        differs |= any(unequal_limit(read.pod(given["new"] or {}), "cpu"))
    return [Profile.KOORD_SCHEDULER] if differs else [Profile.KOORD_SCHEDULER, Profile.DESIGN]


def _outcome(case: Json, profile: Profile) -> Json:
    kind = KINDS.get(case["kind"])
    if kind is None:
        return {"error": f"unknown kind {case['kind']}"}
    try:
        return {"error": None, **kind(case["input"], profile)}
    except PodRefused as refused:
        refusal = refused.refusal
        return {"error": {"code": str(refusal.refusal_class), "reasons": list(refusal.reasons)}}
    except (ManifestError, CpuListError):
        return {"error": _UNREADABLE}


def _expectations(expect: Json) -> Iterator[tuple[str, Any]]:
    yield "error", expect.get("error")
    yield from ((key, value) for key, value in expect.items() if key != "error")
    if not expect:
        yield "differences", []


def _agree(key: str, expected: Any, outcome: Json) -> bool:
    found = outcome.get(key)
    if key == "error":
        return _errors_agree(expected, found)
    if key == "message":
        return expected in (outcome.get("error") or {}).get("reasons", ())
    if key == "allocation":
        return all(_agree(part, value, found) for part, value in expected.items())
    return bool(_comparable(key, expected) == _comparable(key, found))


def _errors_agree(expected: Any, found: Any) -> bool:
    if expected is True or isinstance(expected, str) or not expected or not found:
        texts = (found or {}).get("reasons", []) if isinstance(found, Mapping) else []
        return expected in texts if isinstance(expected, str) else bool(expected) == bool(found)
    if expected["code"] != found["code"]:
        return False
    if found is _UNREADABLE or "reasons" not in expected:
        return True
    return bool(sorted(expected["reasons"]) == sorted(found["reasons"]))


def _comparable(key: str, value: Any) -> Any:
    """A value such that equal meanings are equal: lists of CPUs as sets, quantities as numbers."""
    if key in ("designated", "status"):
        return value and {part: _comparable(part, of) for part, of in value.items()}
    if key in _LISTS:
        described = [{part: _comparable(part, of) for part, of in row.items() if of} for row in value or ()]
        return sorted(described, key=lambda row: [str(row.get(part, "")) for part in _ORDER])
    if key == "numaNodeResources":
        return _comparable("numa_resources", {entry["node"]: entry["resources"] for entry in value})
    if key in _AMOUNTS:
        amounts = value if isinstance(value, NumaAmounts) else read.numa_amounts(value)
        return {numa: {name: n for name, n in row.items() if n} for numa, row in amounts.items() if row}
    if key in ("cpuset", "reserved_cpus"):
        return None if value is None else _cpus(value)
    return value


def _cpus(text: str) -> Any:
    """The CPUs of a list; a list that is none, which is passed on as it is, by its text."""
    try:
        return parse_cpu_list(text)
    except CpuListError:
        return text
