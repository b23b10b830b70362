"""The scheduler settings of a cluster, and their written form."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any, TypeVar

from placement.allocations.orders import FORMER, SCORING, numa_scoring, pod_scoring
from placement.common.manifest import Field, ManifestReport, Profile, shown
from placement.engine.domain.errors import BadRequest
from placement.engine.numa.host import BindPolicy, ExclusiveLevel, NumaPolicy, NumaStrategy
from placement.engine.scoring.order import DEFAULT_SCORING, POD_SCORING
from placement.pods.state.model import QosClass, SchedulerSettings

PROFILE = "profile"
NODE_LABELS = "nodeLabels"
_BIND = "defaultCPUBindPolicy"
_EXCLUSIVE = "defaultCPUExclusivePolicy"
_NUMA = "defaultNUMATopologyPolicy"
_STRATEGY = "numaAllocateStrategy"
_GUARANTEED = "guaranteedQoS"
_SUB_PRIORITY = "subPriorityImmutable"
LOOP_NODES = "loopNodes"
_OWN = (PROFILE, NODE_LABELS, _BIND, _EXCLUSIVE, _NUMA, _STRATEGY, _GUARANTEED, _SUB_PRIORITY, LOOP_NODES)
SETTINGS = frozenset({*_OWN, SCORING, *FORMER.values()})
_MOST_LABELS = 64


class LoopNodes(StrEnum):
    """The nodes on which the scheduling loop places the pods that name it: all, or the marked ones."""

    ALL = "all"
    MARKED = "marked"


_SettingChoice = TypeVar("_SettingChoice", bound=StrEnum)
_Scoring = TypeVar("_Scoring")


def scheduler_settings(document: Mapping[str, Any]) -> SchedulerSettings:
    """Return the scheduler settings in the settings of a cluster; what is absent has its default.

    Raises ManifestError naming every field that is wrong. Source: koordinator.md, "Scheduler settings".
    """
    report = ManifestReport()
    body = Field("", document, report)
    fields = {name: body.member(name) for name in SETTINGS}
    settings = SchedulerSettings(
        profile=_choice(fields[PROFILE], Profile, Profile.DESIGN),
        default_bind_policy=_choice(fields[_BIND], BindPolicy, BindPolicy.FULL_PCPUS),
        default_exclusive_level=_choice(fields[_EXCLUSIVE], ExclusiveLevel, ExclusiveLevel.NONE),
        default_numa_policy=_choice(fields[_NUMA], NumaPolicy, NumaPolicy.NONE),
        default_numa_strategy=None
        if fields[_STRATEGY].value is None
        else _choice(fields[_STRATEGY], NumaStrategy, NumaStrategy.LEAST_ALLOCATED),
        host_scoring=_scored(pod_scoring, document, POD_SCORING, report),
        numa_scoring=_scored(numa_scoring, document, DEFAULT_SCORING, report),
        guaranteed_qos=_choice(fields[_GUARANTEED], filter(None, QosClass), QosClass.LSR),
        keeps_sub_priority=fields[_SUB_PRIORITY].flag(default=True) is not False,
    )
    _read_labels(fields[NODE_LABELS])
    # The service places pods alike; the loop reads it.
    _choice(fields[LOOP_NODES], LoopNodes, LoopNodes.ALL)
    report.raise_findings()
    return settings


def node_labels(document: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the keys of the labels that become traits of hosts."""
    return _read_labels(Field(NODE_LABELS, document.get(NODE_LABELS), ManifestReport()))


def _read_labels(labels: Field) -> tuple[str, ...]:
    elements = labels.elements()
    if len(elements) > _MOST_LABELS:
        labels.refuse(f"there are more than {_MOST_LABELS} keys")
    keys = []
    for element in elements:
        keys.append(element.text())
        if not keys[-1]:
            element.refuse("must be the key of a label")
    return tuple(filter(None, keys))


def _choice(field: Field, choices: Iterable[_SettingChoice], default: _SettingChoice) -> _SettingChoice:
    text = field.text()
    if field.value is None:
        return default
    by_name = {str(choice): choice for choice in choices}
    if text is None or text not in by_name:
        field.refuse(f"{shown(field.value)} is not one of {', '.join(map(repr, by_name))}")
        return default
    return by_name[text]


def _scored(
    read: Callable[[Mapping[str, Any]], _Scoring],
    document: Mapping[str, Any],
    default: _Scoring,
    report: ManifestReport,
) -> _Scoring:
    try:
        return read(document)
    except BadRequest as refused:
        for finding in refused.findings:
            report.refuse(finding.what, finding.place)
        return default
