"""A naive explainer of small clouds, to check the real one against: one rule after the other.

A host has zones, traits, amounts of its own, and GPUs below it, each a provider with amounts of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

GPU = "CUSTOM_GPU"


@dataclass(frozen=True)
class Host:
    """A host with the amounts that are free, by class, and the free amount of each of its GPUs."""

    name: str
    zones: frozenset[str] = frozenset()
    traits: frozenset[str] = frozenset()
    free: Mapping[str, int] = field(default_factory=dict)
    gpus: tuple[int, ...] = ()


@dataclass(frozen=True)
class Request:
    """Amounts of hosts, an amount of one GPU, and in which place; zones are sets of which one is enough.

    `cluster` is a zone of the host, whatever else is asked for.
    """

    amounts: Mapping[str, int] = field(default_factory=dict)
    gpu: int = 0
    cluster: str | None = None
    zones: tuple[frozenset[str], ...] = ()
    not_in: frozenset[str] = frozenset()
    host: str | None = None
    root_required: frozenset[str] = frozenset()
    root_forbidden: frozenset[str] = frozenset()
    required: frozenset[str] = frozenset()
    forbidden: frozenset[str] = frozenset()


class Rule(NamedTuple):
    """A rule that a host meets or not: its kind, what it is about, and whether it is one of amounts."""

    kind: str
    about: str
    is_met: Callable[[Host], bool]
    is_amount: bool = False


class Step(NamedTuple):
    """The hosts that meet a rule and all before it."""

    rule: Rule
    came: tuple[Host, ...]
    left: tuple[Host, ...]


def rules(request: Request) -> Iterator[Rule]:
    """All rules in order: where a host is, what it is, what it has free."""
    if request.cluster is not None:
        yield Rule("root_aggregates", request.cluster, lambda host: request.cluster in host.zones)
    if request.zones:
        about = ",".join("/".join(sorted(any_of)) for any_of in request.zones)
        yield Rule("aggregates", about, lambda host: all(any_of & host.zones for any_of in request.zones))
    if request.host is not None:
        yield Rule("in_tree", request.host, lambda host: host.name == request.host)
    for zone in sorted(request.not_in):
        yield Rule("root_aggregates", zone, lambda host, zone=zone: zone not in host.zones)
    for trait in sorted(request.root_required):
        yield Rule("root_traits", trait, lambda host, trait=trait: trait in host.traits)
    for trait in sorted(request.root_forbidden):
        yield Rule("root_traits", trait, lambda host, trait=trait: trait not in host.traits)
    for trait in sorted(request.required):
        yield Rule("traits", trait, lambda host, trait=trait: trait in host.traits)
    for trait in sorted(request.forbidden):
        # What the host does not offer is no matter of traits.
        yield Rule(
            "traits",
            trait,
            lambda host, trait=trait: (
                trait not in host.traits or not request.amounts.keys() & host.free.keys()
            ),
        )
    for name, wanted in request.amounts.items():
        yield Rule(
            "amount", name, lambda host, name=name, wanted=wanted: host.free.get(name, 0) >= wanted, True
        )
    if request.gpu:
        yield Rule("amount", GPU, lambda host: any(free >= request.gpu for free in host.gpus), True)


def funnel(hosts: Sequence[Host], request: Request) -> list[Step]:
    """The hosts left after each rule; the last ones have a candidate."""
    steps, left = [], tuple(hosts)
    for rule in rules(request):
        came, left = left, tuple(host for host in left if rule.is_met(host))
        steps.append(Step(rule, came, left))
    return steps


def place(hosts: Sequence[Host], request: Request) -> list[Host]:
    """The hosts that meet all rules but the ones of amounts."""
    return [host for host in hosts if all(rule.is_met(host) for rule in rules(request) if not rule.is_amount)]


def parts_served(host: Host, request: Request) -> int:
    """How many amounts of the request the host has, each by itself."""
    return sum(rule.is_met(host) for rule in rules(request) if rule.is_amount)


def offering(hosts: Sequence[Host], name: str) -> list[Host]:
    """The hosts that offer the class, however little of it is free."""
    return [host for host in hosts if (host.gpus if name == GPU else name in host.free)]


def missing(host: Host, name: str, request: Request) -> list[int]:
    """How much each provider of the host lacks of a class, the GPUs one by one."""
    if name == GPU:
        return [max(0, request.gpu - free) for free in host.gpus]
    return [max(0, request.amounts[name] - host.free[name])] if name in host.free else []
