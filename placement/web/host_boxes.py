"""What the drawing of a host consists of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from markupsafe import Markup

from placement.services.host_views import TreeMember
from placement.web import units


@dataclass(slots=True)
class Owner:
    """Somebody who holds something here: a letter and a colour for the drawing, and who it is."""

    consumer: str
    sign: str
    colour: int
    title: str
    project: str = ""
    user: str = ""
    kind: str = ""
    policy: str = ""
    cpus: str = ""
    pod: tuple[str, str, str] | None = None
    amounts: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Thread:
    """A CPU: its number, None where nobody knows it; its owner, or why it has none; the pools it is in."""

    cpu: int | None
    state: str
    sign: str
    title: str
    owner: Owner | None = None
    pooled: bool = False

    @property
    def html(self) -> str:
        """The box of the CPU, with its texts escaped."""
        colour, consumer = (None, None) if self.owner is None else (self.owner.colour, self.owner.consumer)
        return _thread(self.state, self.sign, self.title, colour, consumer, self.pooled)


_THREAD = Markup('<i class="cpu {}"{} title="{}">{}</i>')


@lru_cache(4096)
def _thread(state: str, sign: str, title: str, colour: int | None, consumer: str | None, pooled: bool) -> str:
    """CPUs are many and look alike: to write one takes longer than to look it up."""
    if consumer is None:
        return str(_THREAD.format(f"{state} pooled" if pooled else state, "", title, sign))
    owner = Markup(' data-owner="{}"').format(consumer)
    return str(_THREAD.format(f"{state} c{colour}", owner, title, sign))


@dataclass(frozen=True, slots=True)
class Core:
    """A physical core: the provider that stands for it, if one does."""

    name: str
    threads: Sequence[Thread]
    uuid: str | None = None
    lacks: bool = False

    @property
    def html(self) -> Markup:
        """Its CPUs."""
        return Markup("".join([thread.html for thread in self.threads]))


@dataclass(frozen=True, slots=True)
class Bar:
    """One inventory: what is used of its capacity, and by whom."""

    resource_class: str
    used: int
    capacity: int
    total: int
    reserved: int
    ratio: float
    shares: Sequence[tuple[Owner, float, float]]
    lacks: str | None = None

    @property
    def percent(self) -> int:
        """Of the capacity."""
        return units.percent(self.used, self.capacity)

    @property
    def text(self) -> str:
        """Used of capacity with the unit."""
        return units.share(self.used, self.capacity, self.resource_class)


@dataclass(slots=True)
class Box:
    """A provider, or a socket, with what is in it."""

    kind: str
    name: str
    member: TreeMember | None
    bars: Sequence[Bar] = ()
    cores: list[Core] = field(default_factory=list)
    boxes: list[Box] = field(default_factory=list)
    lacks: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Drawing:
    """A host, and who holds something of it."""

    root: Box
    owners: Sequence[Owner]
    threads: int
    free_threads: int
    cores: int
    free_cores: int


def plain(drawing: Drawing) -> dict[str, Any]:
    """Who holds what, as data."""
    return {
        "owners": [
            {
                "consumer_uuid": owner.consumer,
                "title": owner.title,
                "project_id": owner.project,
                "user_id": owner.user,
                "kind": owner.kind,
                "cpus": owner.cpus,
                "amounts": owner.amounts,
            }
            for owner in drawing.owners
        ],
        "threads": drawing.threads,
        "free_threads": drawing.free_threads,
        "cores": drawing.cores,
        "free_cores": drawing.free_cores,
    }
