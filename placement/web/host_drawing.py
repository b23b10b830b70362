"""A host as boxes: providers as they are stored, sockets around NUMA nodes, CPUs with their owners."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import islice

from markupsafe import Markup

from placement.allocations.statements.lists import ListedHolding
from placement.common.titles import consumer_title
from placement.engine.domain.units import unit_of
from placement.engine.numa.cpus import CpuTopology, format_cpu_list
from placement.engine.numa.host import ExclusiveLevel
from placement.pods.services.node_view import CpuView, NodeView
from placement.pods.services.views import HostView
from placement.pods.state.model import RecordedPod
from placement.providers.statements.providers import TreeMember
from placement.web import host_boxes, units

_CPU_CLASSES = ("PCPU", "VCPU")
# What is counted in these units is drawn one by one, up to so many.
_DEVICES, _MOST_PIECES = ("VF", "vGPU", "pieces"), 32
# A provider of more is no core.
_MOST_THREADS = 16
_COLOURS = 12
_NUMA_TRAIT = "HW_NUMA_ROOT"
# No consumer gets a core of these alone.
_RESERVED = {"system", "reserved", "gone"}
POOLED = "pooled"
Lacks = Mapping[str, Mapping[str, str]]
"""What is missing, in words, by provider and class; the class is empty for what is no amount."""


class OwnerSigns:
    """The signs of owners on one page: a letter and a colour for each consumer, the same on every drawing."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def of(self, consumer: str) -> tuple[str, int]:
        """Return the letter and the colour of a consumer; a new one gets the next."""
        number, letters = self._numbers.setdefault(consumer, len(self._numbers)), ""
        rest = number + 1
        while rest:
            # A to Z, then AA and so on.
            rest, digit = divmod(rest - 1, 26)
            letters = chr(ord("A") + digit) + letters
        return letters, number % _COLOURS


def drawing_of(
    host: HostView, lacks: Lacks | None = None, signs: OwnerSigns | None = None
) -> host_boxes.HostDrawing:
    """Return the host as boxes; the drawings of one page share their `signs`."""
    return _HostArtist(host, lacks or {}, signs or OwnerSigns()).drawn()


class _HostArtist:
    """A host on the way to its drawing."""

    def __init__(self, host: HostView, lacks: Lacks, signs: OwnerSigns) -> None:
        self._host = host
        self._signs = signs
        self._lacks = lacks
        self._view = host.view
        self._below: dict[int, list[TreeMember]] = {}
        for member in host.members:
            if member.parent_id is not None:
                self._below.setdefault(member.parent_id, []).append(member)
        self._held: dict[tuple[str, str], list[tuple[host_boxes.DrawnOwner, int]]] = {}
        self._owners: dict[str, host_boxes.DrawnOwner] = {}
        self._core_uuids = {member.name: member.uuid for member in host.members}
        self._ids = {member.uuid: member.id for member in host.members}

    def drawn(self) -> host_boxes.HostDrawing:
        """Return the drawing; owners come first, as boxes name them."""
        self._note_owners()
        box = self._box(self._host.root, "host")
        if self._view is not None and self._view.cpus:
            self._place_cpus(box, self._view)
        cores = [core for each in _all_boxes(box) for core in each.cores]
        usable = [core.threads for core in cores if self._is_usable(core)]
        threads = [thread for core in cores for thread in core.threads]
        states = {thread.state for thread in threads}
        states |= {POOLED for thread in threads if thread.pooled}
        owners = sorted(self._owners.values(), key=lambda owner: (len(owner.sign), owner.sign))
        return host_boxes.HostDrawing(
            box,
            owners,
            frozenset(states),
            threads=len(threads),
            free_threads=sum(thread.state == host_boxes.FREE for thread in threads),
            cores=len(usable),
            free_cores=sum(all(thread.state == host_boxes.FREE for thread in each) for each in usable),
            reserved_cores=len(cores) - len(usable),
        )

    def _is_usable(self, core: host_boxes.Core) -> bool:
        """Return whether consumers can get some of a core, as the map counts cores."""
        records = self._host.records.get(self._ids.get(core.uuid or "", -1), {}).values()
        if records:
            return any(record.inventory.capacity > 0 for record in records)
        return any(thread.state not in _RESERVED for thread in core.threads)

    def _note_owners(self) -> None:
        """Note the owners of what is held on the host, and the amounts that each of them holds."""
        pods = {} if self._view is None else {pod.consumer: pod for pod, _, _ in self._view.pods}
        uuids = {member.id: member.uuid for member in self._host.members}
        for holding in self._host.held:
            record = self._host.records.get(holding.provider_id, {}).get(holding.class_id)
            if record is None:
                continue
            name = record.class_name
            owner = self._owners.get(holding.consumer_uuid) or self._owner_of(
                holding, pods.get(holding.consumer_uuid)
            )
            owner.amounts[name] = owner.amounts.get(name, 0) + holding.amount
            self._held.setdefault((uuids[holding.provider_id], name), []).append((owner, holding.amount))

    def _owner_of(self, holding: ListedHolding, pod: RecordedPod | None) -> host_boxes.DrawnOwner:
        """Return a new owner: a pod with its class and policy, or another consumer with its type."""
        title = pod.full_name if pod else consumer_title(holding.consumer_type, holding.consumer_uuid)
        owner = self._new_owner(holding.consumer_uuid, title)
        owner.project, owner.user = holding.project_id, holding.user_id
        owner.kind = holding.consumer_type or ""
        if pod is not None:
            cluster = "" if self._host.node is None else self._host.node.cluster
            owner.kind = pod.qos or ""
            owner.policy = "" if pod.holding.level is ExclusiveLevel.NONE else str(pod.holding.level)
            owner.pod = (cluster, pod.namespace, pod.name)
        return owner

    def _new_owner(self, consumer: str, title: str) -> host_boxes.DrawnOwner:
        owner = self._owners[consumer] = host_boxes.DrawnOwner(consumer, *self._signs.of(consumer), title)
        return owner

    def _box(self, member: TreeMember, kind: str) -> host_boxes.Box:
        box = host_boxes.Box(
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
            box.bars.append(host_boxes.Bar(name, record.used, record.inventory, text, shares, lacks, pieces))
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
        pieces = [host_boxes.held_thread(owner) for owner in owners] + [
            host_boxes.idle_thread(None, host_boxes.FREE)
        ] * (capacity - len(owners))
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

    def _stored_core(self, member: TreeMember) -> host_boxes.Core:
        """Return a core known only by its inventory: as many threads as it has, with their owners."""
        (record,) = self._host.records[member.id].values()
        held = self._held.get((member.uuid, record.class_name), ())
        capacity, total = max(record.inventory.capacity, 0), record.inventory.total
        threads = [host_boxes.held_thread(owner) for owner in islice(_one_by_one(held), capacity)]
        threads += [host_boxes.idle_thread(None, host_boxes.FREE)] * (capacity - len(threads))
        threads += [host_boxes.idle_thread(None, "gone")] * min(max(total - capacity, 0), _MOST_THREADS)
        return host_boxes.Core(self._short(member), threads, member.uuid, member.uuid in self._lacks)

    def _place_cpus(self, box: host_boxes.Box, view: NodeView) -> None:
        """Draw the CPUs of a node in its NUMA nodes, and sockets around these."""
        pooled = frozenset().union(*(pool.cpus for pool in (*view.ls_pools, *view.be_pools)))
        numa_boxes = {each.name: each for each in box.boxes}
        titles = _titles_of_sockets(view.cpus)
        socket_boxes: dict[str, host_boxes.Box] = {}
        for (socket, numa, core), cpus in sorted(_by_core(view.cpus).items()):
            title = titles[socket]
            socket_box = socket_boxes.setdefault(title, host_boxes.Box("socket", title, None))
            numa_box = numa_boxes.setdefault(f"numa-{numa}", host_boxes.Box("numa", f"numa-{numa}", None))
            if numa_box not in socket_box.boxes:
                socket_box.boxes.append(numa_box)
            numa_box.cores.append(self._known_core(socket, core, cpus, pooled))
        inside = [id(each) for socket_box in socket_boxes.values() for each in socket_box.boxes]
        box.boxes = [*socket_boxes.values(), *(each for each in box.boxes if id(each) not in inside)]
        self._note_cpus(core for each in numa_boxes.values() for core in each.cores)

    def _known_core(
        self, socket: int, number: int, cpus: Sequence[CpuView], pooled: Set[int]
    ) -> host_boxes.Core:
        """Return a core of which each CPU is known."""
        uuid = self._core_uuids.get(f"{self._host.root.name}/core-{socket}-{number}")
        # Consumers that are no pods hold so many threads of a core, whichever these are.
        owners = _one_by_one(
            (owner, amount)
            for name in _CPU_CLASSES
            for owner, amount in self._held.get((uuid or "", name), ())
            if owner.pod is None
        )
        threads = [self._known_thread(cpu, owners, cpu.cpu.cpu in pooled) for cpu in cpus]
        return host_boxes.Core(f"core {number}", threads, uuid, uuid in self._lacks)

    def _note_cpus(self, cores: Iterable[host_boxes.Core]) -> None:
        """Note the numbers of the CPUs that each owner holds."""
        numbers: dict[str, set[int]] = {}
        for thread in (thread for core in cores for thread in core.threads):
            if thread.owner is not None and thread.cpu is not None:
                numbers.setdefault(thread.owner.consumer, set()).add(thread.cpu)
        for consumer, cpus in numbers.items():
            self._owners[consumer].cpus = format_cpu_list(cpus)

    def _known_thread(
        self, cpu: CpuView, owners: Iterator[host_boxes.DrawnOwner], pooled: bool
    ) -> host_boxes.Thread:
        number = cpu.cpu.cpu
        if cpu.owner == "others":
            owner = next(owners, None)
            return (
                host_boxes.idle_thread(number, "others", pooled)
                if owner is None
                else host_boxes.held_thread(owner, number, pooled)
            )
        if cpu.consumer is None:
            return host_boxes.idle_thread(number, cpu.owner, pooled)
        owner = self._owners.get(cpu.consumer) or self._unlisted_owner(cpu, cpu.consumer)
        return host_boxes.held_thread(owner, number, pooled, cpu.owner)

    def _unlisted_owner(self, cpu: CpuView, consumer: str) -> host_boxes.DrawnOwner:
        """Return a new owner of a CPU and of nothing else: a reservation, or a pod that kubelet pins."""
        title = cpu.reservation or ""
        if cpu.kubelet_pod is not None:
            title = f"{cpu.kubelet_pod.namespace}/{cpu.kubelet_pod.name}"
        owner = self._new_owner(consumer, title or consumer_title(None, consumer))
        owner.kind = cpu.owner
        return owner


def _one_by_one(held: Iterable[tuple[host_boxes.DrawnOwner, int]]) -> Iterator[host_boxes.DrawnOwner]:
    """Yield each owner as often as it holds one; amounts may be far above what is drawn."""
    return (owner for owner, amount in held for _ in range(amount))


def _titles_of_sockets(cpus: Iterable[CpuView]) -> Mapping[int, str]:
    """Return the title of the box of each socket; sockets with a common NUMA node are in one."""
    joined = CpuTopology(tuple(each.cpu for each in cpus)).joined_sockets
    together: dict[int, list[int]] = {}
    for socket, first in joined.items():
        together.setdefault(first, []).append(socket)
    titles = {
        first: f"socket {first}" if len(sockets) == 1 else f"sockets {format_cpu_list(sockets)}"
        for first, sockets in together.items()
    }
    return {socket: titles[first] for socket, first in joined.items()}


def _by_core(cpus: Iterable[CpuView]) -> Mapping[tuple[int, int, int], list[CpuView]]:
    """Return CPUs by socket, NUMA node and core."""
    by_core: dict[tuple[int, int, int], list[CpuView]] = {}
    for each in cpus:
        by_core.setdefault((each.cpu.socket, each.cpu.numa, each.cpu.core), []).append(each)
    return by_core


def _all_boxes(box: host_boxes.Box) -> Iterator[host_boxes.Box]:
    yield box
    for each in box.boxes:
        yield from _all_boxes(each)
