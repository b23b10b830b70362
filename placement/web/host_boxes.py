"""The parts of the drawing of a host: providers as they are stored, sockets around NUMA nodes, CPUs.

provider -> Box (bars of its inventories, boxes below it, cores in it) -> Core -> Thread -> owner
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from markupsafe import Markup

from placement.engine.domain.inventories import Inventory
from placement.providers.statements.providers import TreeMember


@dataclass(frozen=True, slots=True)
class HostDrawing:
    """A drawing of a host, with the owners of what is held there, and the states that its CPUs are in.

    `cores` are the ones that consumers can get, `reserved_cores` the others.
    """

    box: Box
    owners: Sequence[DrawnOwner]
    states: frozenset[str]
    threads: int
    free_threads: int
    cores: int
    free_cores: int
    reserved_cores: int


def plain(drawing: HostDrawing) -> dict[str, Any]:
    """Return the owners with what they hold, and the counts of CPUs and cores, as data."""
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
        "reserved_cores": drawing.reserved_cores,
    }


@dataclass(slots=True)
class Box:
    """A provider, or a socket, with what is in it."""

    kind: str
    name: str
    member: TreeMember | None
    bars: list[Bar] = field(default_factory=list)
    cores: list[Core] = field(default_factory=list)
    boxes: list[Box] = field(default_factory=list)
    lacks: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar for one inventory: what is used of its capacity, also in words, and the shares of the owners.

    A share is its owner, where it begins and how long it is, in percent. A few devices are drawn one by one
    instead, as `pieces`.
    """

    resource_class: str
    used: int
    inventory: Inventory
    text: str
    shares: Sequence[tuple[DrawnOwner, float, float]]
    lacks: str | None = None
    pieces: Markup | None = None


@dataclass(frozen=True, slots=True)
class Core:
    """A physical core, with the provider that stands for it, if one does."""

    name: str
    threads: Sequence[Thread]
    uuid: str | None = None
    lacks: bool = False

    @property
    def html(self) -> Markup:
        """Return the boxes of its CPUs."""
        return Markup("".join([thread.html for thread in self.threads]))


@dataclass(frozen=True, slots=True)
class Thread:
    """A CPU: its number, None if unknown; its owner, or why it has none; whether it is in a shared pool."""

    cpu: int | None
    state: str
    sign: str
    title: str
    owner: DrawnOwner | None = None
    pooled: bool = False

    @property
    def html(self) -> str:
        """Return the box of the CPU with its number, and its texts escaped."""
        colour, consumer = (None, None) if self.owner is None else (self.owner.colour, self.owner.consumer)
        return _thread(self.state, self.sign, self.title, colour, consumer, self.pooled, self.cpu)


_THREAD = Markup('<i class="cpu {}"{} title="{}">{}{}</i>')
_NUMBER = Markup("<small>{}</small>")


@lru_cache(4096)
def _thread(
    state: str,
    sign: str,
    title: str,
    colour: int | None,
    consumer: str | None,
    pooled: bool,
    cpu: int | None,
) -> str:
    """Return the box of a CPU from memory: CPUs look alike, and writing one takes longer than a look-up."""
    number = "" if cpu is None else _NUMBER.format(cpu)
    if consumer is None:
        return str(_THREAD.format(f"{state} pooled" if pooled else state, "", title, sign, number))
    owner = Markup(' data-owner="{}"').format(consumer)
    return str(_THREAD.format(f"{state} c{colour}", owner, title, sign, number))


FREE = "free"
_WORDS = {
    FREE: "free",
    "system": "kept for the system",
    "reserved": "reserved by the node",
    "kubelet-reserved": "reserved by kubelet, in the shared pools",
    "kubelet": "pinned by kubelet",
    "reported": "a pod that only the node agent reports",
    "reservation": "kept by a reservation",
    "others": "the rest of a core that is held in part, so no pod gets it",
    "gone": "never given out",
}
_SIGNS = {
    FREE: "",
    "system": "×",
    "reserved": "×",
    "kubelet-reserved": "·",
    "reservation": "R",
    "others": "½",
    "gone": "×",
}


def held_thread(
    owner: DrawnOwner, cpu: int | None = None, pooled: bool = False, state: str = "held"
) -> Thread:
    """Return a CPU that an owner holds."""
    number = "" if cpu is None else f"CPU {cpu}: "
    kind = " ".join(filter(None, (owner.kind, owner.policy)))
    title = f"{number}{owner.sign} {owner.title}" + (f" ({kind})" if kind else "")
    return Thread(cpu, "held" if state in ("pod", "others") else state, owner.sign, title, owner, pooled)


def idle_thread(cpu: int | None, state: str, pooled: bool = False) -> Thread:
    """Return a CPU without an owner: free, or kept from all, as its state says."""
    number = "" if cpu is None else f"CPU {cpu}: "
    title = f"{number}{_WORDS.get(state, state)}" + (", in the shared pool" if pooled else "")
    return Thread(cpu, state, _SIGNS.get(state, "?"), title, None, pooled)


@dataclass(slots=True)
class DrawnOwner:
    """A consumer that holds something here, with a letter and a colour for the drawing."""

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
