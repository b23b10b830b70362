"""Amounts with their units, by the name of their resource class."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from markupsafe import Markup

from placement.common.host_use import NODE_CPU, NODE_MEMORY
from placement.engine.domain.units import PIECES, REMEMBERED, VIRTUAL_FUNCTION, unit_of
from placement.pods.state.node_info import Overdrawn

_GIBI = 1024
_ALL_PODS = {NODE_CPU: "CPU, all pods", NODE_MEMORY: "Memory, all pods"}
_FIRST = (NODE_CPU, NODE_MEMORY, "PCPU", "VCPU", "MEMORY_MB", "DISK_GB")
_LONGEST_NAME, _KEPT = 24, 11
_HIGH = 90
_NARROW = "\N{NARROW NO-BREAK SPACE}"
# A MiB is 0.001 GiB.
_MOST_PLACES = 3
_PAIR = Markup('<span class="pair">{} <span class="note">{}</span></span>')
_PLURALS = ("pieces", "pods", "contexts")


@lru_cache(REMEMBERED)
def amount(value: float, resource_class: str) -> str:
    """Return an amount with its unit: `12 CPU`, `1.5 GiB`."""
    return f"{number(value / unit_of(resource_class).divisor)} {_unit(value, resource_class)}"


def _unit(value: float, resource_class: str) -> str:
    """Return the name of the unit of an amount, in the right number."""
    unit = unit_of(resource_class)
    return unit.name.removesuffix("s") if value == unit.divisor and unit.name in _PLURALS else unit.name


@lru_cache(REMEMBERED)
def share(part: float, whole: float, resource_class: str) -> str:
    """Return a part of a whole with their unit: `3 of 12 CPU`."""
    unit = unit_of(resource_class)
    of, value, places = number(whole / unit.divisor), part / unit.divisor, 0
    text = number(value)
    # Neither all nor nothing: 511.9 of 512 GiB are not 512 of 512 GiB.
    while part not in (0, whole) and text in ("0", of) and places < _MOST_PLACES:
        places += 1
        text = f"{value:,.{places}f}".replace(",", _NARROW).rstrip("0").rstrip(".")
    return f"{text} of {of} {_unit(whole, resource_class)}"


def amount_of(value: float, resource_class: str) -> str:
    """Return an amount with its unit, and its class where that says more: `6 CPU of PCPU`, `4 vCPU`."""
    says_all = unit_of(resource_class).name.casefold() == plain(resource_class).casefold()
    return amount(value, resource_class) + ("" if says_all else f" of {plain(resource_class)}")


def counted(count: int, thing: str, things: str = "") -> str:
    """Return how many things there are, in the right number: `1 host`, `12 hosts`."""
    return f"{number(count)} {thing if count == 1 else things or f'{thing}s'}"


@lru_cache(REMEMBERED)
def number(value: float) -> str:
    """Return a number as people read it: thousands apart, two decimals below ten, one below a hundred."""
    places = 0 if value == int(value) or abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    text = f"{value:,.{places}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return text.replace(",", _NARROW)


def alarm(percent: int) -> str:
    """Return how the bar of a use is marked: `over` above 100 %, `high` from 90 % on."""
    return "over" if percent > 100 else "high" if percent >= _HIGH else ""


def listed(names: Sequence[str], most: int) -> str:
    """Return names by commas; of many names the first ones, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {number(more)} more" if more > 0 else "")


def order(resource_class: str) -> tuple[int, str]:
    """Return by what classes are sorted where many are listed: usual ones first, then by name."""
    return _FIRST.index(resource_class) if resource_class in _FIRST else len(_FIRST), resource_class


def in_units(overdrawn: Overdrawn) -> str:
    """Return that more is held than a node offers, with the amounts as people read them."""
    name = overdrawn.place.resource_class
    return overdrawn.sentence(lambda units: amount(units, name), f"of {plain(name)}")


def shortened(name: str) -> str:
    """Return a long name without its middle: names of one place begin alike."""
    return name if len(name) <= _LONGEST_NAME else f"{name[:_KEPT]}…{name[-_KEPT:]}"


def called(resource_class: str) -> str:
    """Return what a class is called where amounts of many classes are listed."""
    return _ALL_PODS.get(resource_class, plain(resource_class))


def plain(resource_class: str) -> str:
    """Return the name of a class without CUSTOM_."""
    return resource_class.removeprefix("CUSTOM_")


# Nodes count the CPUs and the memory of a pod several times: by core, by NUMA node and for the node.
_SAME = (
    ("PCPU", "CUSTOM_CPU_MILLI", "CUSTOM_NODE_CPU_MILLI"),
    ("MEMORY_MB", "CUSTOM_NODE_MEMORY_MB"),
)
_PODS = "CUSTOM_PODS"
MINUS = "\N{MINUS SIGN}"


def summary(amounts: Mapping[str, float]) -> str:
    """Return amounts by class in one line, each thing once: `8 CPU · 16 GiB · 1 VF`."""
    return " · ".join(_short(value, name) for name, value in _once(amounts).items())


def difference(before: Mapping[str, float], after: Mapping[str, float]) -> str:
    """Return what came and went in one line, each thing once: `+8 CPU · −16 GiB`."""
    names = [*after, *(name for name in before if name not in after)]
    changes = {name: after.get(name, 0) - before.get(name, 0) for name in names}
    changed = _once({name: change for name, change in changes.items() if change})
    signed = ((name, "+" if change > 0 else MINUS, abs(change)) for name, change in changed.items())
    return " · ".join(f"{sign}{_short(value, name)}" for name, sign, value in signed)


def _once(amounts: Mapping[str, float]) -> Mapping[str, float]:
    """Return amounts without classes that count the same again; CPUs and memory first, VFs together."""
    again = {_PODS}
    for same in _SAME:
        again.update([name for name in same if name in amounts][1:])
    once: dict[str, float] = {}
    for name in sorted(amounts.keys() - again or amounts, key=_place):
        unit = unit_of(name)
        functions = (each for each in once if unit_of(each) == unit and unit.name == VIRTUAL_FUNCTION)
        key = next(functions, name)
        once[key] = once.get(key, 0) + amounts[name]
    return once


def _place(resource_class: str) -> tuple[bool, bool, str]:
    """Return by what classes are sorted: CPUs first, then memory, then the rest by name."""
    return "CPU" not in unit_of(resource_class).name, "MEMORY" not in resource_class, resource_class


def _short(value: float, resource_class: str) -> str:
    """Return an amount with its unit; of disk, and of what is counted in pieces, with the class."""
    if unit_of(resource_class) is PIECES:
        return f"{number(value)} {plain(resource_class)}"
    return amount(value, resource_class) + (" disk" if resource_class == "DISK_GB" else "")


def summed(held: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the sums by resource class of what several providers give."""
    sums: dict[str, int] = {}
    for amounts in held:
        for name, value in amounts.items():
            sums[name] = sums.get(name, 0) + value
    return sums


def pairs(amounts: Mapping[str, float]) -> Markup:
    """Return amounts by class for a cell of a table, each with its unit and the class."""
    return Markup("".join([_pair(value, name) for name, value in amounts.items()]))


def requested(quantity: str, resource: str) -> str:
    """Return a quantity that a pod requests, with its unit; whole bytes of memory are shown in GiB."""
    if resource == "memory" and quantity.isdigit():
        return amount(int(quantity) // _GIBI**2, "MEMORY_MB")
    return f"{quantity} {'CPU' if resource == 'cpu' else resource}"


@lru_cache(REMEMBERED)
def _pair(value: float, resource_class: str) -> str:
    return str(_PAIR.format(amount(value, resource_class), plain(resource_class)))


@lru_cache(REMEMBERED)
def shared(part: float, whole: float, resource_class: str) -> Markup:
    """Return a part of a whole for a cell of a table."""
    return _PAIR.format(share(part, whole, resource_class), plain(resource_class))
