"""How many more there is room for, as it is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Classes:
    """What some hosts offer of a class, in its units: `stranded` is free where nothing more fits."""

    free: int
    wanted: int
    stranded: int


@dataclass(frozen=True, slots=True)
class Room:
    """How many more some hosts have room for together; `lower` and `upper` are equal where that is exact.

    `hosts` offer what is asked for, `taking` of them can take one. `ideal`: how many could be placed if
    everything that is free were one host; `fragmentation` is the share of that which cannot.
    Stranded amounts and fragmentation are those of docs/packing.md.
    """

    lower: int
    upper: int
    hosts: int
    taking: int
    runs_out_first: str | None
    ideal: int
    fragmentation: float
    classes: Mapping[str, Classes]


@dataclass(frozen=True, slots=True)
class HostRoom:
    """How many more one host has room for; `like`: it is imagined, and like the host of this uuid."""

    uuid: str
    name: str | None
    lower: int
    upper: int
    runs_out_first: str
    classes: Mapping[str, Classes]
    like: str | None = None


@dataclass(frozen=True, slots=True)
class KindRoom:
    """How many more of one kind: in all, and by cluster, aggregate of roots (uuid), host, where asked for."""

    total: Room
    clusters: Mapping[str, Room] | None = None
    aggregates: Mapping[str, Room] | None = None
    hosts: Sequence[HostRoom] | None = None
