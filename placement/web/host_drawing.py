"""A host as boxes: providers as they are stored, sockets around NUMA nodes, CPUs with their owners.

provider -> Box (bars of its inventories, boxes below it, cores in it) -> Core -> Thread -> owner
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Any

from markupsafe import Markup

from placement.engine.domain.inventories import Inventory
from placement.engine.domain.units import unit_of
from placement.engine.numa.cpus import format_cpu_list
from placement.engine.numa.host import ExclusiveLevel
from placement.pods.views import CpuView, HostView, NodeView, TreeMember
from placement.web import units

# The parts of the drawing of a host.


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
class HostDrawing:
    """A drawing of a host, with the owners of what is held there, and the states that its CPUs are in.

    `cores` are the ones that consumers can get, `reserved_cores` the others.
    """

    root: Box
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


_CPU_CLASSES = ("PCPU", "VCPU")
# What is counted in these units is drawn one by one, up to so many.
_DEVICES, _MOST_PIECES = ("VF", "vGPU", "pieces"), 32
# A provider of more is no core.
_MOST_THREADS = 16
_COLOURS = 12
_NUMA_TRAIT = "HW_NUMA_ROOT"
FREE = "free"
_WORDS = {
    FREE: "free",
    "system": "kept for the system",
    "reserved": "reserved by the node",
    "kubelet-reserved": "reserved by kubelet, in the shared pools",
    "kubelet": "pinned by kubelet",
    "reported": "a pod known by report only",
    "reservation": "kept by a reservation",
    "others": "the rest of a core that is held in part, so no pod gets it",
    "gone": "not to be given away",
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
# No consumer gets a core of these alone.
_RESERVED = {"system", "reserved", "gone"}
POOLED = "pooled"


Lacks = Mapping[str, Mapping[str, str]]
"""What is missing, in words, by provider and class; the class is empty for what is no amount."""


def drawing_of(host: HostView, lacks: Lacks | None = None) -> HostDrawing:
    """Return the host as boxes."""
    return _Artist(host, lacks or {}).drawn()


class _Artist:
    def __init__(self, host: HostView, lacks: Lacks) -> None:
        self._host = host
        self._lacks = lacks
        self._view = host.view
        self._below: dict[int, list[TreeMember]] = {}
        for member in host.members:
            if member.parent_id is not None:
                self._below.setdefault(member.parent_id, []).append(member)
        self._held: dict[tuple[str, str], list[tuple[DrawnOwner, int]]] = {}
        self._owners: dict[str, DrawnOwner] = {}
        self._core_uuids = {member.name: member.uuid for member in host.members}
        self._ids = {member.uuid: member.id for member in host.members}

    def drawn(self) -> HostDrawing:
        self._note_owners()
        root = self._box(self._host.root, "host")
        if self._view is not None and self._view.cpus:
            self._place_cpus(root, self._view)
        drawn = [core.threads for box in _all_boxes(root) for core in box.cores]
        usable = [core.threads for box in _all_boxes(root) for core in box.cores if self._is_usable(core)]
        states = {thread.state for threads in drawn for thread in threads}
        states |= {POOLED for threads in drawn for thread in threads if thread.pooled}
        owners = sorted(self._owners.values(), key=lambda owner: (len(owner.sign), owner.sign))
        return HostDrawing(
            root,
            owners,
            frozenset(states),
            threads=sum(map(len, drawn)),
            free_threads=sum(thread.state == FREE for threads in drawn for thread in threads),
            cores=len(usable),
            free_cores=sum(all(thread.state == FREE for thread in threads) for threads in usable),
            reserved_cores=len(drawn) - len(usable),
        )

    def _is_usable(self, core: Core) -> bool:
        """Return whether consumers can get some of a core, as the map counts cores."""
        records = self._host.records.get(self._ids.get(core.uuid or "", -1), {}).values()
        if records:
            return any(record.inventory.capacity > 0 for record in records)
        return any(thread.state not in _RESERVED for thread in core.threads)

    def _note_owners(self) -> None:
        pods = {} if self._view is None else {pod.consumer: pod for pod, _, _ in self._view.pods}
        cluster = "" if self._host.node is None else self._host.node.cluster
        uuids = {member.id: member.uuid for member in self._host.members}
        for row in self._host.held:
            record = self._host.records.get(row.provider_id, {}).get(row.class_id)
            if record is None:
                continue
            resource_class = record.class_name
            owner = self._owners.get(row.consumer_uuid)
            if owner is None:
                pod = pods.get(row.consumer_uuid)
                owner = self._new_owner(row.consumer_uuid, pod.full_name if pod else row.user_id)
                owner.project, owner.user, owner.kind = row.project_id, row.user_id, row.consumer_type or ""
                if pod is not None:
                    owner.kind = pod.qos or ""
                    owner.policy = "" if pod.holding.level is ExclusiveLevel.NONE else str(pod.holding.level)
                    owner.pod = (cluster, pod.namespace, pod.name)
            owner.amounts[resource_class] = owner.amounts.get(resource_class, 0) + row.amount
            self._held.setdefault((uuids[row.provider_id], resource_class), []).append((owner, row.amount))

    def _new_owner(self, consumer: str, title: str) -> DrawnOwner:
        number, letters = len(self._owners), ""
        rest = number + 1
        while rest:
            # A to Z, then AA and so on.
            rest, digit = divmod(rest - 1, 26)
            letters = chr(ord("A") + digit) + letters
        owner = self._owners[consumer] = DrawnOwner(consumer, letters, number % _COLOURS, title)
        return owner

    def _box(self, member: TreeMember, kind: str) -> Box:
        box = Box(
            kind,
            self._short(member),
            member,
            lacks=[words for name, words in self._lacks.get(member.uuid, {}).items() if not name],
        )
        for record in self._host.records.get(member.id, {}).values():
            name, capacity, start = record.class_name, record.inventory.capacity, 0.0
            text, shares = units.share(record.used, capacity, name), []
            for owner, amount in self._held.get((member.uuid, name), ()):
                width = min(100 * amount / capacity if capacity > 0 else 100, 100 - start)
                shares.append((owner, round(start, 2), round(width, 2)))
                start += width
            lacks = self._lacks.get(member.uuid, {}).get(name)
            pieces = self._pieces(member, name, capacity)
            box.bars.append(Bar(name, record.used, record.inventory, text, shares, lacks, pieces))
        # CPUs that are known one by one are drawn where they are (_place_cpus).
        knows_cpus = self._view is not None and bool(self._view.cpus)
        for child in self._below.get(member.id, ()):
            if not self._is_core(child):
                box.boxes.append(self._box(child, "numa" if _NUMA_TRAIT in child.traits else "provider"))
            elif not knows_cpus:
                box.cores.append(self._stored_core(child))
        return box

    def _pieces(self, member: TreeMember, name: str, capacity: int) -> Markup | None:
        """Return the boxes of devices with their owners, None for many and for what is no device."""
        if not 0 < capacity <= _MOST_PIECES or unit_of(name).name not in _DEVICES:
            return None
        held = self._held.get((member.uuid, name), ())
        owners = list(islice(_one_by_one(held), capacity))
        pieces = [_thread_of(owner) for owner in owners] + [_idle(None, FREE)] * (capacity - len(owners))
        return Markup("".join([piece.html for piece in pieces]))

    def _short(self, member: TreeMember) -> str:
        """Return the name without that of the root, which is shown above it."""
        root = self._host.root.name
        return member.name.removeprefix(root).lstrip("/-_.: ") or member.name

    def _is_core(self, member: TreeMember) -> bool:
        records = self._host.records.get(member.id, {}).values()
        if _NUMA_TRAIT in member.traits or member.id in self._below:
            return False
        small = all(record.inventory.capacity <= _MOST_THREADS for record in records)
        return small and len(records) == 1 and next(iter(records)).class_name in _CPU_CLASSES

    def _stored_core(self, member: TreeMember) -> Core:
        """Return a core known only by its inventory: as many threads as it has, with their owners."""
        (record,) = self._host.records[member.id].values()
        held = self._held.get((member.uuid, record.class_name), ())
        capacity, total = max(record.inventory.capacity, 0), record.inventory.total
        threads = [_thread_of(owner) for owner in islice(_one_by_one(held), capacity)]
        threads += [_idle(None, FREE)] * (capacity - len(threads))
        threads += [_idle(None, "gone")] * min(max(total - capacity, 0), _MOST_THREADS)
        return Core(self._short(member), threads, member.uuid, member.uuid in self._lacks)

    def _place_cpus(self, root: Box, view: NodeView) -> None:
        """Draw the CPUs of a node in its NUMA nodes, and sockets around these."""
        pooled = frozenset().union(*(pool.cpus for pool in (*view.ls_pools, *view.be_pools)))
        by_core: dict[tuple[int, int, int], list[CpuView]] = {}
        for cpu in view.cpus:
            by_core.setdefault((cpu.cpu.socket, cpu.cpu.numa, cpu.cpu.core), []).append(cpu)
        numa_boxes = {box.name: box for box in root.boxes}
        sockets: dict[int, Box] = {}
        for (socket, numa, core), cpus in sorted(by_core.items()):
            around = sockets.setdefault(socket, Box("socket", f"socket {socket}", None))
            box = numa_boxes.get(f"numa-{numa}") or numa_boxes.setdefault(
                f"numa-{numa}", Box("numa", f"numa-{numa}", None)
            )
            if box not in around.boxes:
                around.boxes.append(box)
            uuid = self._core_uuids.get(f"{self._host.root.name}/core-{socket}-{core}")
            # Consumers that are no pods hold so many threads of a core, whichever these are.
            others = _one_by_one(
                (owner, amount)
                for name in _CPU_CLASSES
                for owner, amount in self._held.get((uuid or "", name), ())
                if owner.pod is None
            )
            threads = [self._known_thread(cpu, others, cpu.cpu.cpu in pooled) for cpu in cpus]
            box.cores.append(Core(f"core {core}", threads, uuid, uuid in self._lacks))
        inside = [id(box) for socket_box in sockets.values() for box in socket_box.boxes]
        root.boxes = [*sockets.values(), *(box for box in root.boxes if id(box) not in inside)]
        numbers: dict[str, set[int]] = {}
        for box in numa_boxes.values():
            for thread in (thread for core in box.cores for thread in core.threads):
                if thread.owner is not None and thread.cpu is not None:
                    numbers.setdefault(thread.owner.consumer, set()).add(thread.cpu)
        for consumer, held in numbers.items():
            self._owners[consumer].cpus = format_cpu_list(held)

    def _known_thread(self, cpu: CpuView, others: Iterator[DrawnOwner], pooled: bool) -> Thread:
        number = cpu.cpu.cpu
        if cpu.owner == "others":
            holder = next(others, None)
            return _idle(number, "others", pooled) if holder is None else _thread_of(holder, number, pooled)
        if cpu.consumer is None:
            return _idle(number, cpu.owner, pooled)
        owner = self._owners.get(cpu.consumer)
        if owner is None:
            title = cpu.reservation or ""
            if cpu.kubelet_pod is not None:
                title = f"{cpu.kubelet_pod.namespace}/{cpu.kubelet_pod.name}"
            owner = self._new_owner(cpu.consumer, title or cpu.consumer)
            owner.kind = cpu.owner
        return _thread_of(owner, number, pooled, cpu.owner)


def _one_by_one(held: Iterable[tuple[DrawnOwner, int]]) -> Iterator[DrawnOwner]:
    """Yield each owner as often as it holds one; amounts may be far above what is drawn."""
    return (owner for owner, amount in held for _ in range(amount))


def _thread_of(
    owner: DrawnOwner, cpu: int | None = None, pooled: bool = False, state: str = "held"
) -> Thread:
    number = "" if cpu is None else f"CPU {cpu}: "
    kind = " ".join(filter(None, (owner.kind, owner.policy)))
    title = f"{number}{owner.sign} {owner.title}" + (f" ({kind})" if kind else "")
    return Thread(cpu, "held" if state in ("pod", "others") else state, owner.sign, title, owner, pooled)


def _idle(cpu: int | None, state: str, pooled: bool = False) -> Thread:
    number = "" if cpu is None else f"CPU {cpu}: "
    title = f"{number}{_WORDS.get(state, state)}" + (", in the shared pool" if pooled else "")
    return Thread(cpu, state, _SIGNS.get(state, "?"), title, None, pooled)


def _all_boxes(box: Box) -> Iterator[Box]:
    yield box
    for each in box.boxes:
        yield from _all_boxes(each)
