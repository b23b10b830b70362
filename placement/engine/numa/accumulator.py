"""The choice of logical CPUs for a pod, under the bind policy that it or the host requires."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice

from placement.engine.numa.cpus import CpuLayout, lowest_bits, mask_of, members_of, sums_of
from placement.engine.numa.host import (
    NOT_ENOUGH_CPUS,
    BindPolicy,
    CpuDemand,
    CpuUse,
    Distribution,
    ExclusiveLevel,
    PickRules,
    PodRefused,
)


def take_cpus(
    layout: CpuLayout, use: CpuUse, available: int, demand: CpuDemand, rules: PickRules, preferred: int = 0
) -> int:
    """Return a mask of exactly `demand.need` CPUs out of the mask `available`, preferred ones first.

    Equal arguments give equal CPUs. `strict` has no effect here (but in `thinned`). Raises PodRefused if
    there are not enough CPUs. Source: koordinator.md, "CPU accumulator", "Preferred CPUs".
    """
    first = available & preferred
    if not first:
        return _take_run(layout, use, available, demand, rules)
    reserved = min(demand.need, first.bit_count())
    taken = _take_run(layout, use, first, demand._replace(need=reserved), rules)
    rest = demand._replace(need=demand.need - reserved)
    return taken | _take_run(layout, use, available & ~first, rest, rules)


def _take_run(layout: CpuLayout, use: CpuUse, free: int, demand: CpuDemand, rules: PickRules) -> int:
    if demand.need < 1:
        return 0
    if demand.need > free.bit_count():
        raise PodRefused(NOT_ENOUGH_CPUS)
    run = Run(layout, use, free, demand, rules)
    if rules.distribution is not Distribution.PACKED:
        packed = rules._replace(distribution=Distribution.PACKED)
        taken, dealt = 0, deal_over_numa_nodes(run)
        for numa, share in dealt.items():
            place = free & layout.numa_nodes[numa]
            taken |= _take_run(layout, use, place, demand._replace(need=share), packed)
        return taken if dealt else _take_run(layout, use, free, demand, packed)
    if layout.is_uneven and demand.bind is BindPolicy.FULL_PCPUS:
        take_differing_cores(run)
    if demand.bind is BindPolicy.FULL_PCPUS or layout.threads == 1:
        take_whole_cores(run)
    if run.need and demand.bind is not BindPolicy.FULL_PCPUS:
        take_spread(run)
    if run.need:
        take_leftovers(run)
    return run.taken


def thinned(layout: CpuLayout, available: int, bind: BindPolicy) -> int:
    """Return the available CPUs under a strict policy: of complete cores, or the lowest one of each core.

    Source: koordinator.md, "Strict bind policy".
    """
    if bind is BindPolicy.FULL_PCPUS:
        return layout.whole_cores(available)
    if bind is BindPolicy.SPREAD_BY_PCPUS:
        return layout.lowest_threads(available)
    return available


def check_binding(layout: CpuLayout, cpus: int, bind: BindPolicy) -> None:
    """Raise PodRefused if chosen CPUs break a strict policy: they must fill cores, or lie on one core each.

    Source: koordinator.md, "Strict bind policy".
    """
    cores = sum(1 for core in layout.cores if core & cpus)
    if (bind is BindPolicy.FULL_PCPUS and not layout.fills_cores(cpus)) or (
        bind is BindPolicy.SPREAD_BY_PCPUS and cores != cpus.bit_count()
    ):
        raise PodRefused(f"insufficient CPUs to satisfy required cpu bind policy {bind}")


class Run:
    """The state of a run that looks for `need` CPUs in the mask `free`."""

    __slots__ = ("demand", "free", "layout", "need", "rules", "shares", "taken", "use")

    def __init__(
        self, layout: CpuLayout, use: CpuUse, free: int, demand: CpuDemand, rules: PickRules
    ) -> None:
        self.layout = layout
        self.use = use
        self.free = free
        self.taken = 0
        self.need = demand.need
        self.demand = demand
        self.rules = rules
        # CPUs may be held more than once, so counts influence the orders.
        self.shares = rules.share_limit > 1

    def take(self, cpus: int) -> None:
        """Move free CPUs to the result."""
        self.free &= ~cpus
        self.taken |= cpus
        self.need -= cpus.bit_count()

    def by_size(self, size: int) -> int:
        """Return a sort key that puts the places that the strategy prefers first."""
        return size if self.rules.fullest_first else -size

    def count_groups(self, cpus: int) -> Iterator[int]:
        """Yield the CPUs split by how often they are held, least first; one group if counts do not matter."""
        if self.shares:
            for layer in self.use.counts:
                yield cpus & ~layer
                cpus &= layer
        yield cpus

    def first_cpus(self, cpus: int, count: int) -> int:
        """Return the first `count` of these CPUs in CPU order, or all of them."""
        chosen = 0
        for group in self.count_groups(cpus):
            chosen |= lowest_bits(group, count - chosen.bit_count())
        return chosen

    def first_threads(self, cpus: int, cores: tuple[int, ...]) -> int:
        """Return the first of these CPUs, in CPU order, of each core."""
        first = 0
        for core in cores:
            rest = cpus & core
            if rest:
                first |= self.first_cpus(rest, 1) if self.shares else rest & -rest
        return first

    def avoided(self, *, cores: bool, numa_nodes: bool) -> list[int]:
        """Return the CPUs to avoid in each pass of a step that honours these levels, best pass first.

        Neighbours are CPUs that were recorded with the requester's own level, and the CPUs of this run.
        Source: koordinator.md, "Exclusivity", "Profiles".
        """
        level, use = self.demand.exclusive, self.use
        if level is ExclusiveLevel.PCPU_LEVEL and cores:
            return [self.layout.cores_touching(use.pcpu_level | self.taken)]
        passes = []
        if level is ExclusiveLevel.NUMA_NODE_LEVEL:
            if numa_nodes:
                passes.append(self.layout.numa_nodes_touching(use.numa_level | self.taken))
            if self.rules.downgrades:
                neighbours = use.pcpu_level | use.numa_level | self.taken
                passes.append(self.layout.cores_touching(neighbours))
        return passes or [0]


def take_whole_cores(run: Run) -> None:
    """Take CPUs core by core from one NUMA node, else one socket, else several sockets.

    CPUs beyond whole cores stay needed, unless one place offers them on one more whole core.
    Source: koordinator.md, "Part A: whole cores".
    """
    layout = run.layout
    if run.need <= layout.numa_size:
        for avoided in dict.fromkeys((*run.avoided(cores=False, numa_nodes=True), 0)):
            usable = run.free & ~avoided
            whole = layout.whole_cores(usable)
            fitting = _fitting_numa_nodes(run, whole, usable)
            if fitting:
                cores = _in_core_order(run, whole, layout.cores_of_numa[fitting[0][-1]])
                run.take(_first_cpus(cores, run.need))
                return
    whole = layout.whole_cores(run.free)
    sizes = {socket: (whole & mask).bit_count() for socket, mask in layout.sockets.items()}
    sockets = sorted(sizes, key=lambda socket: (run.by_size(sizes[socket]), socket))
    if run.need <= layout.socket_size:
        for socket in sockets:
            if sizes[socket] >= run.need:
                cores = _in_core_order(run, whole, layout.cores_of_socket[socket])
                run.take(_first_cpus(cores, run.need))
                return
    remembered = []
    for socket in sorted(sockets, key=sizes.__getitem__, reverse=True):
        if sizes[socket] <= run.need:
            run.take(whole & layout.sockets[socket])
        else:
            remembered.append(socket)
    for socket in sorted(remembered, key=sizes.__getitem__):
        for core in _in_core_order(run, whole, layout.cores_of_socket[socket]):
            if run.need < core.bit_count():
                return
            run.take(core)


def take_differing_cores(run: Run) -> None:
    """Take whole cores of different sizes with exactly the needed CPUs, of one place if one has them.

    Places are NUMA nodes, then sockets, then the host, in the order of `take_whole_cores`. Nothing is taken
    where no whole cores have that many CPUs. Source: koordinator.md, "Cores that differ".
    """
    layout = run.layout
    for avoided in dict.fromkeys((*run.avoided(cores=False, numa_nodes=True), 0)):
        usable = run.free & ~avoided
        whole = layout.whole_cores(usable)
        places = [layout.cores_of_numa[numa] for *_, numa in _fitting_numa_nodes(run, whole, usable)]
        if not avoided:
            sizes = {socket: (whole & mask).bit_count() for socket, mask in layout.sockets.items()}
            ordered = sorted(sizes, key=lambda socket: (run.by_size(sizes[socket]), socket))
            places += [layout.cores_of_socket[socket] for socket in ordered if sizes[socket] >= run.need]
            places.append(layout.cores)
        for cores in places:
            exact = _largest_first(list(_in_core_order(run, whole, cores)), run.need)
            if exact:
                run.take(exact)
                return


def _largest_first(cores: list[int], count: int) -> int:
    """Return some of these cores with `count` CPUs in all, large ones first; nothing if there are none."""
    cores = sorted(cores, key=int.bit_count, reverse=True)
    # What the cores from each place on can have together.
    sums = [1]
    for core in reversed(cores):
        sums.append(sums[-1] | sums[-1] << core.bit_count())
    sums.reverse()
    if not sums[0] >> count & 1:
        return 0
    taken = 0
    for place, core in enumerate(cores, start=1):
        size = core.bit_count()
        if size <= count and sums[place] >> (count - size) & 1:
            taken |= core
            count -= size
    return taken


def _in_core_order(run: Run, whole: int, cores: tuple[int, ...]) -> Iterator[int]:
    """Yield the whole cores among these, the least shared first."""
    if run.shares:
        cores = tuple(sorted(cores, key=lambda core: run.use.sum_of_counts(whole & core)))
    for core in cores:
        rest = whole & core
        if rest:
            yield rest


def _first_cpus(cores: Iterable[int], count: int) -> int:
    taken = 0
    for core in cores:
        missing = count - taken.bit_count()
        if core.bit_count() >= missing:
            return taken | lowest_bits(core, missing)
        taken |= core
    return taken


def take_spread(run: Run) -> None:
    """Take CPUs of one NUMA node, else of one socket, from as many cores as possible; else take nothing.

    Source: koordinator.md, "Part B: spread".
    """
    layout = run.layout
    if run.need <= layout.numa_size:
        for avoided, thinned in _passes(run.avoided(cores=True, numa_nodes=True)):
            usable = run.free & ~avoided
            for _, _, numa in _fitting_numa_nodes(run, usable, usable):
                cores = layout.cores_of_numa[numa]
                listed = _listed(run, usable & layout.numa_nodes[numa], cores, thinned)
                if listed.bit_count() >= run.need:
                    run.take(_first_spread(run, listed, cores))
                    return
    if run.need > layout.socket_size:
        return
    for avoided, thinned in _passes(run.avoided(cores=True, numa_nodes=False)):
        on_socket = {
            socket: _listed(run, run.free & ~avoided & mask, layout.cores_of_socket[socket], thinned)
            for socket, mask in layout.sockets.items()
        }
        places = [
            (run.by_size(cpus.bit_count()), socket)
            for socket, cpus in on_socket.items()
            if cpus.bit_count() >= run.need
        ]
        if places:
            socket = min(places)[-1]
            run.take(_first_spread(run, on_socket[socket], layout.cores_of_socket[socket]))
            return


def _passes(avoided: list[int]) -> Iterator[tuple[int, bool]]:
    """Yield the CPUs to avoid in each pass, and whether a place must offer as many cores as CPUs."""
    yield from ((cpus, True) for cpus in avoided)
    yield 0, False


def _fitting_numa_nodes(run: Run, cpus: int, usable: int) -> list[tuple[int, int, int]]:
    """Return the NUMA nodes that have enough of the CPUs, the preferred ones first; the last value is the id.

    NUMA nodes with equally many are in the order of the `usable` CPUs of their sockets.
    """
    layout, fitting = run.layout, []
    for numa, socket in layout.socket_of_numa.items():
        size = (cpus & layout.numa_nodes[numa]).bit_count()
        if size >= run.need:
            beside = (usable & layout.sockets[socket]).bit_count()
            fitting.append((run.by_size(size), run.by_size(beside), numa))
    return sorted(fitting)


def _listed(run: Run, cpus: int, cores: tuple[int, ...], thinned: bool) -> int:
    return run.first_threads(cpus, cores) if thinned else cpus


def _first_spread(run: Run, cpus: int, cores: tuple[int, ...]) -> int:
    """Return the first needed CPUs of a list in CPU order, after spreading it over cores.

    Source: koordinator.md, "Spreading a list".
    """
    if cpus.bit_count() <= run.layout.threads:
        return run.first_cpus(cpus, run.need)
    chosen, missing = 0, run.need
    while missing:
        sweep = run.first_cpus(run.first_threads(cpus, cores), missing)
        chosen |= sweep
        cpus &= ~sweep
        missing -= sweep.bit_count()
    return chosen


def take_leftovers(run: Run) -> None:
    """Take free CPUs from anywhere on the host, near what the run has taken and from broken cores first.

    Source: koordinator.md, "Part C: leftovers".
    """
    for avoided in dict.fromkeys((*run.avoided(cores=True, numa_nodes=True), 0)):
        if run.need:
            run.take(mask_of(islice(leftover_order(run, run.free & ~avoided), run.need)))


def leftover_order(run: Run, usable: int) -> Iterator[int]:
    """Yield all CPUs of a mask in the order of leftovers.

    Of more CPUs than a core has, the first threads of all cores come in turn, then the second threads.
    """
    layout = run.layout
    on_socket = {
        socket: (-(run.taken & mask).bit_count(), run.by_size((usable & mask).bit_count()))
        for socket, mask in layout.sockets.items()
    }
    on_numa = {numa: run.by_size((usable & mask).bit_count()) for numa, mask in layout.numa_nodes.items()}
    keyed = []
    for index, (mask, numa, socket) in enumerate(layout.core_places):
        rest = usable & mask
        if rest:
            shared = run.use.sum_of_counts(rest) if run.shares else 0
            key = (*on_socket[socket], on_numa[numa], rest.bit_count(), socket, shared, index)
            keyed.append((key, rest))
    cores = [
        [cpu for group in run.count_groups(rest) for cpu in members_of(group)] for _, rest in sorted(keyed)
    ]
    if usable.bit_count() <= layout.threads:
        yield from chain.from_iterable(cores)
    else:
        for sweep in range(max(map(len, cores))):
            yield from (core[sweep] for core in cores if sweep < len(core))


def deal_over_numa_nodes(run: Run) -> Mapping[int, int]:
    """Return how many CPUs each NUMA node gives, ids ascending; empty if one of them can hold all.

    The fewest NUMA nodes that can hold the request take part, the ones with most room, or all that have room.
    CPUs without exclusive neighbours are dealt first, in whole cores or on a core each if the policy asks for
    that; any free CPU will do in the end. Expects as many free CPUs as are needed.
    Source: koordinator.md, "DistributeEvenly".
    """
    *offers, anything = _offers(run)
    nodes = _participants(run, *anything)
    if len(nodes) == 1 and run.rules.distribution is Distribution.OVER_NEEDED:
        return {}
    if run.layout.is_uneven and run.demand.bind is BindPolicy.FULL_PCPUS:
        whole = run.layout.whole_cores(run.free)
        dealt = deal_differing_cores(run.layout, whole, run.need, _participants(run, whole, 1))
        if dealt or run.demand.strict:
            return dealt
        offers.clear()
    for usable, grain in offers:
        better = _participants(run, usable, grain)
        if better and (len(better) == len(nodes) or run.rules.distribution is Distribution.OVER_ALL):
            return _deal(run, better, grain)
    return _deal(run, nodes, 1)


def deal_differing_cores(
    layout: CpuLayout, whole: int, need: int, limits: Mapping[int, int]
) -> dict[int, int]:
    """Deal `need` CPUs over NUMA nodes so that each gives whole cores, as evenly as that allows.

    `whole` is a mask of the CPUs of whole cores, which may differ in size. `limits` are the most CPUs that
    each NUMA node gives. Empty if no whole cores have that many CPUs. Source: koordinator.md, "Cores that
    differ".
    """
    poorest_first = sorted(limits, key=lambda numa: (limits[numa], numa))
    sums = []
    for numa in poorest_first:
        cores = [whole & core for core in layout.cores_of_numa.get(numa, ())]
        # A NUMA node may be reported with any amount of cpu.
        most = min(limits[numa], sum(map(int.bit_count, cores)))
        sums.append(sums_of(map(int.bit_count, cores)) & ((2 << most) - 1))
    # What the NUMA nodes from each place on can give together.
    together = [1]
    for offered in reversed(sums):
        together.append(_added(together[-1], offered))
    together.reverse()
    if not together[0] >> need & 1:
        return {}
    shares = {}
    for place, (numa, offered) in enumerate(zip(poorest_first, sums, strict=True), start=1):
        even = need // (len(sums) - place + 1)
        possible = [
            count for count in members_of(offered) if count <= need and together[place] >> (need - count) & 1
        ]
        share = min(possible, key=lambda count: abs(count - even))
        need -= share
        if share:
            shares[numa] = share
    return shares


def _added(sums: int, others: int) -> int:
    """Return every sum of one of these numbers and one of the others, as masks."""
    added = 0
    for other in members_of(others):
        added |= sums << other
    return added


def _offers(run: Run) -> Iterator[tuple[int, int]]:
    """Yield CPUs that may be dealt, and how many of them stay together; all free CPUs come last."""
    layout = run.layout
    for avoided in dict.fromkeys((*run.avoided(cores=True, numa_nodes=True), 0)):
        usable = run.free & ~avoided
        if run.demand.bind is BindPolicy.FULL_PCPUS:
            yield layout.whole_cores(usable), layout.threads
        else:
            yield run.first_threads(usable, layout.cores), 1
    yield run.free, 1


def _participants(run: Run, usable: int, grain: int) -> dict[int, int]:
    """Return the room in each NUMA node to deal over, ids ascending; empty if all have too little."""
    rooms = {numa: (usable & mask).bit_count() for numa, mask in run.layout.numa_nodes.items()}
    missing = -(-run.need // grain) * grain
    if sum(rooms.values()) < missing:
        return {}
    if run.rules.distribution is Distribution.OVER_ALL:
        return {numa: room for numa, room in rooms.items() if room}
    chosen: set[int] = set()
    for numa in sorted(rooms, key=lambda numa: (-rooms[numa], numa)):
        if missing > 0:
            chosen.add(numa)
            missing -= rooms[numa]
    return {numa: room for numa, room in rooms.items() if numa in chosen}


def _deal(run: Run, rooms: Mapping[int, int], grain: int) -> Mapping[int, int]:
    units = even_shares([room // grain for room in rooms.values()], run.need // grain)
    shares = {numa: unit * grain for numa, unit in zip(rooms, units, strict=True)}
    odd = run.need % grain
    if odd:
        poorest = min((numa for numa in rooms if rooms[numa] > shares[numa]), key=shares.__getitem__)
        shares[poorest] += odd
    return {numa: share for numa, share in shares.items() if share}


def even_shares(rooms: list[int], units: int) -> list[int]:
    """Deal units over places with this room as evenly as possible, remainders to the first places.

    Expects no more units than there is room.
    """
    level = bisect_right(
        range(max(rooms, default=0) + 1), units, key=lambda level: sum(min(room, level) for room in rooms)
    )
    shares = [min(room, level - 1) for room in rooms]
    rest = units - sum(shares)
    for place, room in enumerate(rooms):
        if rest and room > shares[place]:
            shares[place] += 1
            rest -= 1
    return shares
