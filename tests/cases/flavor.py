"""Runs tables of flavor cases (`flavor-cases/1`) against the nova dialect, or against a running service.

With a url the `translate` cases go through the service's endpoint; the other kinds ask about single rules,
which no endpoint offers, and run in this process either way.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from placement.engine.numa.cpus import format_cpu_list
from placement.flavors.nova.cells import deal
from placement.flavors.nova.cpu_facts import (
    CPU_POLICY,
    DEDICATED_KEY,
    THREAD_POLICY,
    dedicated_mask,
    realtime_mask,
)
from placement.flavors.nova.cpuset import CpusetTextError, parse_cpuset
from placement.flavors.nova.extra_spec_rules import extra_spec_fault
from placement.flavors.nova.problems import FlavorRefused, Problems
from placement.flavors.nova.translation import translate_document, translation_document

FORMAT = "flavor-cases/1"
ENDPOINT = "/ext/v1/flavors/translation"

Case = Mapping[str, Any]
Outcome = Mapping[str, Any]


def run(document: dict[str, Any], url: str | None) -> Iterator[tuple[str, str | None]]:
    """Each case's id with None if it passed, else with one line that says what differs."""
    for case in document["cases"]:
        yield case["id"], difference(case["expect"], _outcome(case, url))


def _outcome(case: Case, url: str | None) -> Outcome:
    if case["kind"] == "translate" and url is not None:
        return _translated_by(url, case)
    ask = _KINDS.get(case["kind"])
    if ask is None:
        return {"error": f"unknown kind {case['kind']}"}
    try:
        return ask(case)
    except FlavorRefused as refused:
        return _refusal([finding.code for finding in refused.findings])
    except CpusetTextError:
        return {"error": "cpuset_invalid"}


def difference(expected: Outcome, outcome: Outcome) -> str | None:
    """What differs from the expectation, None if nothing does."""
    for key, value in (expected if "problems" in expected else {"error": None, **expected}).items():
        if outcome.get(key) != value:
            return f"{key}: expected {json.dumps(value)}, got {json.dumps(outcome.get(key))}"
    return None


def _refusal(codes: list[str]) -> Outcome:
    """Return the first problem, which copied tables name, and all of them."""
    return {"error": codes[0], "problems": codes}


def body_of(case: Case) -> dict[str, Any]:
    """The body of the request that a case is about."""
    return {name: case[name] for name in ("flavor", "image", "options") if name in case}


def _translated_by(url: str, case: Case) -> Outcome:
    request = urllib.request.Request(
        url.rstrip("/") + ENDPOINT,
        data=json.dumps(body_of(case)).encode(),
        headers={"Content-Type": "application/json", "X-Auth-Token": "admin"},
    )
    try:
        with urllib.request.urlopen(request) as response:
            return json.load(response)
    except urllib.error.HTTPError as refused:
        return _refusal([error["code"] for error in json.load(refused)["errors"]])


def _translate(case: Case) -> Outcome:
    return json.loads(json.dumps(translation_document(translate_document(body_of(case)))))


def _checked(name: str, ask: Callable[[Problems], Any]) -> Outcome:
    problems = Problems()
    answer = ask(problems)
    problems.raise_if_any()
    return {name: sorted(answer) if isinstance(answer, frozenset) else answer}


def _cpu_policy(case: Case) -> Outcome:
    return _checked("policy", lambda p: CPU_POLICY.settle(case["flavor_policy"], case["image_policy"], p))


def _cpu_thread_policy(case: Case) -> Outcome:
    return _checked("policy", lambda p: THREAD_POLICY.settle(case["flavor_policy"], case["image_policy"], p))


def _dedicated_mask(case: Case) -> Outcome:
    extra_specs = {} if case["mask"] is None else {DEDICATED_KEY: case["mask"]}
    return _checked("cpus", lambda p: dedicated_mask(extra_specs, case["vcpus"], p))


def _realtime_mask(case: Case) -> Outcome:
    image = case.get("image") or {}
    return _checked("cpus", lambda p: realtime_mask(case["extra_specs"], image, case["vcpus"], p))


def _distribute(case: Case) -> Outcome:
    dealt = deal(case["cell_sizes"], case["shared"], case["dedicated"])
    return {"cells": ["V" * shared + "P" * dedicated for shared, dedicated in dealt]}


_KINDS: Mapping[str, Callable[[Case], Outcome]] = {
    "translate": _translate,
    "cpu_policy": _cpu_policy,
    "cpu_thread_policy": _cpu_thread_policy,
    "cpuset_parse": lambda case: {"cpus": list(parse_cpuset(case["text"]))},
    "cpuset_format": lambda case: {"text": format_cpu_list(case["cpus"])},
    "dedicated_mask": _dedicated_mask,
    "realtime_mask": _realtime_mask,
    "distribute": _distribute,
    "extra_spec": lambda case: {"valid": extra_spec_fault(case["key"], case["value"]) is None},
}
