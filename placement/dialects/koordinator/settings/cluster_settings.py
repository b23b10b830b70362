"""The settings of a cluster as people write them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeVar

from placement.dialects.koordinator.profile import Profile
from placement.dialects.koordinator.qos import QosClass
from placement.dialects.koordinator.settings.settings import SchedulerSettings
from placement.kubernetes.field import Field
from placement.kubernetes.report import Report, shown
from placement.numa.policies import (
    BindPolicy,
    ExclusiveLevel,
    NumaPolicy,
    NumaStrategy,
)
from placement.scoring.fit import DEFAULT_SCORING, Scoring

PROFILE = "profile"
NODE_LABELS = "nodeLabels"
_BIND = "defaultCPUBindPolicy"
_EXCLUSIVE = "defaultCPUExclusivePolicy"
_NUMA = "defaultNUMATopologyPolicy"
_STRATEGY = "numaAllocateStrategy"
_HOST_SCORING = "hostScoring"
_NUMA_SCORING = "numaScoring"
_GUARANTEED = "guaranteedQoS"
_SUB_PRIORITY = "subPriorityImmutable"
SETTINGS = frozenset(
    {
        PROFILE,
        NODE_LABELS,
        _BIND,
        _EXCLUSIVE,
        _NUMA,
        _STRATEGY,
        _HOST_SCORING,
        _NUMA_SCORING,
        _GUARANTEED,
        _SUB_PRIORITY,
    }
)
_STRATEGIES = {"LeastAllocated": False, "MostAllocated": True}
_HEAVIEST = 100
_MOST_LABELS = 64

_Choice = TypeVar("_Choice", bound=StrEnum)


def scheduler_settings(document: Mapping[str, Any]) -> SchedulerSettings:
    """The scheduler settings in the settings of a cluster; what is absent has its default.

    Raises ManifestError naming every field that is wrong. Source: koordinator.md, "Scheduler settings".
    """
    report = Report()
    fields = {name: Field(name, document.get(name), report) for name in SETTINGS}
    settings = SchedulerSettings(
        profile=_choice(fields[PROFILE], Profile, Profile.DESIGN),
        default_bind_policy=_choice(fields[_BIND], BindPolicy, BindPolicy.FULL_PCPUS),
        default_exclusive_level=_choice(fields[_EXCLUSIVE], ExclusiveLevel, ExclusiveLevel.NONE),
        default_numa_policy=_choice(fields[_NUMA], NumaPolicy, NumaPolicy.NONE),
        default_numa_strategy=None
        if fields[_STRATEGY].value is None
        else _choice(fields[_STRATEGY], NumaStrategy, NumaStrategy.LEAST_ALLOCATED),
        host_scoring=_scoring(fields[_HOST_SCORING]),
        numa_scoring=_scoring(fields[_NUMA_SCORING]),
        guaranteed_qos=_choice(fields[_GUARANTEED], QosClass, QosClass.LSR),
        keeps_sub_priority=fields[_SUB_PRIORITY].flag(default=True) is not False,
    )
    _read_labels(fields[NODE_LABELS])
    report.raise_findings()
    return settings


def node_labels(document: Mapping[str, Any]) -> tuple[str, ...]:
    """The keys of the labels that become traits of hosts."""
    return _read_labels(Field(NODE_LABELS, document.get(NODE_LABELS), Report()))


def _read_labels(labels: Field) -> tuple[str, ...]:
    elements = labels.elements()
    if len(elements) > _MOST_LABELS:
        labels.refuse(f"there are more than {_MOST_LABELS} keys")
    keys = []
    for element in elements:
        key = element.text()
        if not key:
            element.refuse("must be the key of a label")
        else:
            keys.append(key)
    return tuple(keys)


def _choice(field: Field, choices: type[_Choice], default: _Choice) -> _Choice:
    text = field.text()
    if field.value is None:
        return default
    if text is None or text not in set(choices):
        listed = ", ".join(repr(str(choice)) for choice in choices)
        field.refuse(f"{shown(field.value)} is none of {listed}")
        return default
    return choices(text)


def _scoring(field: Field) -> Scoring:
    if field.value is None:
        return DEFAULT_SCORING
    for key in sorted(field.mapping().keys() - {"type", "resources"}):
        field.member(key).refuse("is unknown; there are type and resources")
    kind = field.member("type").text() or ""
    if kind not in _STRATEGIES:
        field.member("type").refuse(f"{kind!r} is none of {', '.join(_STRATEGIES)}")
    resources = field.member("resources")
    if resources.value is None:
        return Scoring(_STRATEGIES.get(kind, False))
    weights: dict[str, int] = {}
    for entry in resources.elements():
        name, weight = entry.member("name").text(), entry.member("weight")
        amount = 1 if weight.value is None else weight.integer()
        if not name:
            entry.member("name").refuse("is missing")
        elif name in weights:
            entry.member("name").refuse(f"{name!r} is listed twice")
        elif amount is not None and not 1 <= amount <= _HEAVIEST:
            weight.refuse(f"must be 1 to {_HEAVIEST}, not {amount}")
        elif amount is not None:
            weights[name] = amount
    if not weights:
        resources.refuse("there must be at least one resource")
    return Scoring(_STRATEGIES.get(kind, False), tuple(weights.items()))
