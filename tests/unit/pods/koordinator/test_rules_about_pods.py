"""What pods say is read, refused, bound and written down as the table of rules says, under both profiles."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from placement.common.manifest import ManifestError, Profile
from placement.engine.numa.cpus import format_cpu_list
from placement.engine.numa.host import BindPolicy, ExclusiveLevel, NumaPolicy, NumaStrategy, PodRefused
from placement.pods.decide.rules.numa import allocate_on_host
from placement.pods.decide.rules.rule import Fit
from placement.pods.koordinator.annotations import (
    completed_spec,
    kubernetes_qos,
    qos_with_default,
    raw_priority,
    raw_qos,
    running_qos,
    status_document,
)
from placement.pods.koordinator.pod import admission_violations
from placement.pods.manifests.pod import pod_limit, pod_requests
from placement.pods.state.host import remarks_on
from placement.pods.state.model import NO_REQUEST, KubeletPolicy, QosClass, SchedulerSettings
from tests.unit.pods.koordinator.pods import admitted, build_pod, held, host, judged, read, request_of

CASES = json.loads((Path(__file__).parents[3] / "data" / "pod-readings.json").read_text())["cases"]
KINDS = {
    "profile": Profile,
    "default_bind_policy": BindPolicy,
    "default_exclusive_level": ExclusiveLevel,
    "default_numa_policy": NumaPolicy,
    "default_numa_strategy": NumaStrategy,
    "guaranteed_qos": QosClass,
}


def container_of(given: dict[str, Any]) -> dict[str, Any]:
    return {"restartPolicy": given.get("restartPolicy"), "resources": given}


def manifest_of(given: dict[str, Any]) -> dict[str, Any]:
    members = {name: value for name, value in given.items() if name not in ("containers", "raw_containers")}
    if "initContainers" in members:
        members["initContainers"] = [container_of(each) for each in members["initContainers"]]
    document = build_pod(*map(container_of, given.get("containers", ())), **members)
    if "raw_containers" in given:
        document["spec"]["containers"] = given["raw_containers"]
    return document


def holding_of(listed: str, level: str = "None", by_numa: dict[str, dict[str, int]] | None = None) -> Any:
    return held(listed, level, **{f"numa{numa}": amounts for numa, amounts in (by_numa or {}).items()})


# What is found by a single question.
ANSWERS: dict[str, Callable[[Reading], Any]] = {
    "reasons": lambda reading: [*getattr(reading.judged().answer, "reasons", ())],
    "status": lambda reading: reading.judged().answer.refusal_class,
    "fits": lambda reading: isinstance(reading.judged().answer, Fit),
    "cpus": lambda reading: format_cpu_list(reading.given()[0].cpus),
    "status_written": lambda reading: status_document(reading.given()[0]),
    "numa_policy": lambda reading: reading.host.numa_policy,
    "limit": lambda reading: pod_limit(reading.pod, "cpu"),
    "qos": lambda reading: raw_qos(reading.pod),
    "qos_with_default": lambda reading: qos_with_default(reading.pod, reading.settings.guaranteed_qos),
    "kubernetes_qos": lambda reading: kubernetes_qos(reading.pod),
    "running_qos": lambda reading: running_qos(reading.pod, KubeletPolicy(reading.options["kubelet"])),
    "priority": lambda reading: raw_priority(reading.pod),
}


class Reading:
    """A pod and a host of a row; what is found about them is named as the row names it."""

    def __init__(self, case: dict[str, Any]) -> None:
        given = case.get("settings", {})
        self.options = given
        self.settings = SchedulerSettings(
            **{name: kind(given[name]) for name, kind in KINDS.items() if name in given}
        )
        self.document = manifest_of(case["pod"])
        self.pod = read(self.document)
        self.old = read(manifest_of(case["old"])) if "old" in case else None
        node = {name: value for name, value in case.get("host", {}).items() if name != "held"}
        if "rows" in node:
            node["rows"] = tuple(map(tuple, node["rows"]))
        holdings = [holding_of(*each) for each in case.get("host", {}).get("held", ())]
        self.host = host(*holdings, settings=self.settings, **node)

    def request(self, members: dict[str, Any] | None) -> Any:
        found = request_of(self.document, self.settings)
        if found is NO_REQUEST:
            return None
        return {name: getattr(found, name) for name in members or {"bound": None}}

    def request_refused(self, _: Any) -> Any:
        with pytest.raises(PodRefused) as refused:
            request_of(self.document, self.settings)
        return [*refused.value.refusal.reasons, refused.value.refusal.refusal_class]

    def designated(self, _: Any) -> Any:
        found = request_of(self.document, self.settings).designated_status
        amounts = {str(numa): dict(row) for numa, row in found.amounts.items()}
        return {"cpus": format_cpu_list(found.cpus), "amounts": amounts}

    def findings(self, expected: list[str]) -> Any:
        with pytest.raises(ManifestError) as refused:
            admitted(self.document, self.settings)
        return [text for text in expected if any(text in str(said) for said in refused.value.findings)]

    def warnings(self, expected: list[str]) -> Any:
        found = admitted(self.document, self.settings).warnings
        return [text for text in expected if any(text in said for said in found)] if expected else [*found]

    def spec_written(self, _: Any) -> Any:
        _, demand = self.given()
        bind, strict = (BindPolicy.NONE, False) if demand is None else (demand.bind, demand.strict)
        return completed_spec(admitted(self.document, self.settings).spec, bind, strict)

    def judged(self) -> Any:
        return judged(self.host, self.document, self.settings)

    def given(self) -> Any:
        request, fit = request_of(self.document, self.settings), self.judged().answer
        assert isinstance(fit, Fit), fit
        return allocate_on_host(self.host, request, fit)

    def remarks(self, expected: list[str]) -> Any:
        found = remarks_on(self.host, request_of(self.document, self.settings))
        if expected and expected[0].startswith("~"):
            return [text for text in expected if any(text[1:] in said for said in found)]
        return [*found]

    def requests(self, expected: dict[str, float]) -> Any:
        found = pod_requests(self.pod)
        return {name: found[name] for name in expected}

    def violations(self, _: Any) -> Any:
        checked = self.options.get("check_sub_priority", True)
        return admission_violations(self.pod, self.settings.profile, self.old, check_sub_priority=checked)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_rule(case: dict[str, Any]) -> None:
    reading = Reading(case)
    for name, expected in case["expect"].items():
        found = ANSWERS[name](reading) if name in ANSWERS else getattr(reading, name)(expected)
        assert found == expected, name
