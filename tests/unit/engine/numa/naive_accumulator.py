"""The CPU accumulator word by word as it is specified: lists, no bit masks, no short cuts.

Only what the profile `koord-scheduler` has: no distribution, no step down from NUMANodeLevel.
"""

from placement.engine.numa.cpus import members_of
from placement.engine.numa.host import BindPolicy, ExclusiveLevel


class NotEnough(Exception):
    """The request cannot be served."""


def naive_take(layout, use, available, demand, rules, preferred=0):
    """The set of CPUs that `take_cpus` should take."""
    free, liked = set(members_of(available)), set(members_of(available & preferred))
    if not liked:
        return _Run(layout, use, demand, rules).take(free, demand.need)
    first = _Run(layout, use, demand, rules).take(liked, min(demand.need, len(liked)))
    rest = _Run(layout, use, demand, rules).take(free - liked, demand.need - len(first))
    return first | rest


class _Run:
    def __init__(self, layout, use, demand, rules):
        topology = layout.topology
        self.rows = topology.by_cpu
        self.threads = len(topology.by_cpu) // len(topology.cores)
        self.node_size = len(topology.by_cpu) // len(topology.numa_nodes)
        self.socket_size = len(topology.by_cpu) // len(topology.sockets)
        self.refs = {cpu: sum(layer >> cpu & 1 for layer in use.counts) for cpu in self.rows}
        self.carriers = {
            ExclusiveLevel.PCPU_LEVEL: set(members_of(use.pcpu_level)),
            ExclusiveLevel.NUMA_NODE_LEVEL: set(members_of(use.numa_level)),
        }
        self.level = demand.exclusive
        self.full = demand.bind is BindPolicy.FULL_PCPUS
        self.most = rules.fullest_first
        self.shares = rules.share_limit > 1
        self.result = []

    def take(self, free, n):
        self.free, self.n = set(free), n
        if n < 1:
            return set()
        if n > len(free):
            raise NotEnough
        if self.full or self.threads == 1:
            self.whole_cores()
        if self.n and not self.full:
            self.spread_part()
        for honour in (True, False):
            if self.n:
                self.grab(self.leftovers(honour))
        assert not self.n
        return set(self.result)

    def grab(self, listed):
        taken = list(listed)[: self.n]
        self.result += taken
        self.free -= set(taken)
        self.n -= len(taken)

    # -- places and orders

    def core(self, cpu):
        return self.rows[cpu].socket, self.rows[cpu].core

    def by(self, size):
        return size if self.most else -size

    def cpu_order(self, cpus):
        return sorted(cpus, key=lambda cpu: (self.refs[cpu] if self.shares else 0, cpu))

    def core_list(self, cpus):
        """CPUs core by core: more free threads first, then summed counts, then id; siblings ascending."""
        cores = {}
        for cpu in sorted(cpus):
            cores.setdefault(self.core(cpu), []).append(cpu)
        counts = {core: sum(self.refs[cpu] for cpu in of) if self.shares else 0 for core, of in cores.items()}
        ordered = sorted(cores, key=lambda core: (-len(cores[core]), counts[core], core))
        return [cpu for core in ordered for cpu in cores[core]]

    def whole(self, cpus):
        cores = [self.core(cpu) for cpu in cpus]
        return {cpu for cpu in cpus if cores.count(self.core(cpu)) == self.threads}

    def numa_order(self, nodes, on_socket):
        """NUMA nodes by what is free on them, then on their socket, then by id."""

        def key(numa):
            socket = self.rows[min(nodes[numa])].socket
            return self.by(len(nodes[numa])), self.by(len(on_socket[socket])), numa

        return sorted(nodes, key=key)

    def clean(self, pcpu, numa):
        """The free CPUs after leaving out neighbours of the requester's level, if that level is honoured."""
        own = self.carriers.get(self.level, set()) | set(self.result)
        if self.level is ExclusiveLevel.PCPU_LEVEL and pcpu:
            avoided = {self.core(cpu) for cpu in own}
            return {cpu for cpu in self.free if self.core(cpu) not in avoided}
        if self.level is ExclusiveLevel.NUMA_NODE_LEVEL and numa:
            avoided = {self.rows[cpu].numa for cpu in own}
            return {cpu for cpu in self.free if self.rows[cpu].numa not in avoided}
        return set(self.free)

    def grouped(self, cpus, field):
        groups = {}
        for cpu in cpus:
            groups.setdefault(getattr(self.rows[cpu], field), set()).add(cpu)
        return groups

    def spread(self, listed):
        if len(listed) <= self.threads:
            return listed
        output, remaining = [], list(listed)
        while remaining:
            sweep = self.one_per_core(remaining)
            output += sweep
            remaining = [cpu for cpu in remaining if cpu not in sweep]
        return output

    def one_per_core(self, listed):
        seen, thinned = set(), []
        for cpu in listed:
            if self.core(cpu) not in seen:
                seen.add(self.core(cpu))
                thinned.append(cpu)
        return thinned

    # -- part A

    def whole_cores(self):
        if self.n <= self.node_size:
            for honour in (True, False):
                usable = self.clean(pcpu=False, numa=honour)
                on_socket = self.grouped(usable, "socket")
                nodes = self.grouped(self.whole(usable), "numa")
                for numa in self.numa_order(nodes, on_socket):
                    if len(nodes[numa]) >= self.n:
                        return self.grab(self.core_list(nodes[numa]))
        sockets = self.grouped(self.whole(self.free), "socket")
        ordered = sorted(sockets, key=lambda socket: (self.by(len(sockets[socket])), socket))
        if self.n <= self.socket_size:
            for socket in ordered:
                if len(sockets[socket]) >= self.n:
                    return self.grab(self.core_list(sockets[socket]))
        remembered = []
        for socket in sorted(ordered, key=lambda socket: -len(sockets[socket])):
            if len(sockets[socket]) <= self.n:
                self.grab(self.core_list(sockets[socket]))
            else:
                remembered.append(socket)
        for socket in sorted(remembered, key=lambda socket: len(sockets[socket])):
            listed = self.core_list(sockets[socket])
            while listed and self.n >= self.threads:
                core, listed = listed[: self.threads], listed[self.threads :]
                self.grab(core)
        return None

    # -- part B

    def spread_part(self):
        if self.n <= self.node_size:
            for honour in (True, False):
                usable = self.clean(pcpu=honour, numa=honour)
                nodes, on_socket = self.grouped(usable, "numa"), self.grouped(usable, "socket")
                for numa in self.numa_order(nodes, on_socket):
                    listed = self.cpu_order(nodes[numa])
                    listed = self.one_per_core(listed) if honour else listed
                    if len(listed) >= self.n:
                        return self.grab(self.spread(listed))
        if self.n <= self.socket_size:
            for honour in (True, False):
                sockets = {
                    socket: self.one_per_core(self.cpu_order(cpus)) if honour else self.cpu_order(cpus)
                    for socket, cpus in self.grouped(self.clean(pcpu=honour, numa=False), "socket").items()
                }
                for socket in sorted(sockets, key=lambda socket: (self.by(len(sockets[socket])), socket)):
                    if len(sockets[socket]) >= self.n:
                        return self.grab(self.spread(sockets[socket]))
        return None

    # -- part C

    def leftovers(self, honour):
        usable = self.clean(pcpu=honour, numa=honour)
        nodes, sockets = self.grouped(usable, "numa"), self.grouped(usable, "socket")
        cores = {}
        for cpu in self.cpu_order(usable):
            cores.setdefault(self.core(cpu), []).append(cpu)

        def key(core):
            row = self.rows[cores[core][0]]
            return (
                -sum(self.rows[cpu].socket == row.socket for cpu in self.result),
                self.by(len(sockets[row.socket])),
                self.by(len(nodes[row.numa])),
                len(cores[core]),
                row.socket,
                sum(self.refs[cpu] for cpu in cores[core]) if self.shares else 0,
                core,
            )

        return self.spread([cpu for core in sorted(cores, key=key) for cpu in cores[core]])
