"""Hosts of regular and irregular shape, and strategies that draw them."""

from fractions import Fraction

from hypothesis import strategies as st

from placement.engine.numa.cpus import (
    CpuTopology,
    LogicalCpu,
    format_cpu_list,
    layout_of,
    mask_of,
    members_of,
    parse_cpu_list,
)
from placement.engine.numa.host import (
    DEFAULT_RULES,
    BindPolicy,
    CpuDemand,
    CpuUse,
    Distribution,
    ExclusiveLevel,
    Holding,
    HostLedger,
    HostState,
    NumaAmounts,
    PickRules,
    PodDemand,
)


def topology(sockets=2, numa_per_socket=1, cores_per_numa=4, threads=2, *, distant=False):
    """A regular host; siblings are adjacent, or half the host apart."""
    numa_nodes = sockets * numa_per_socket
    cores = numa_nodes * cores_per_numa
    rows = []
    for core in range(cores):
        numa = core // cores_per_numa
        for thread in range(threads):
            cpu = core + thread * cores if distant else core * threads + thread
            rows.append(LogicalCpu(cpu, core, numa, numa // numa_per_socket))
    return CpuTopology(tuple(rows))


def layout(*shape, **numbering):
    return layout_of(topology(*shape, **numbering))


def cpus(text):
    return mask_of(parse_cpu_list(text))


def shown(mask):
    return format_cpu_list(members_of(mask))


def use_of(*held):
    """A use from (cpu list, level) or plain cpu lists."""
    use = CpuUse()
    for item in held:
        listed, level = (item, "None") if isinstance(item, str) else item
        use = use.plus(cpus(listed), ExclusiveLevel(level))
    return use


def demand(need, bind="", *, strict=False, exclusive="None"):
    return CpuDemand(need, BindPolicy(bind), strict, ExclusiveLevel(exclusive))


def pod(bind=None, *, strict=False, exclusive="None", **amounts):
    """What a pod asks for: cpu in millicores; bound if a bind policy is given, even an empty one."""
    cpu = amounts.get("cpu", 0)
    bound = None if bind is None else demand(cpu // 1000, bind, strict=strict, exclusive=exclusive)
    return PodDemand(amounts, bound)


def host(*shape, capacity=None, holdings=(), rules=DEFAULT_RULES, ratio=1, **state):
    """A host of a shape with these holdings; 1000 millicores and 1000 of memory for every CPU by default."""
    places = layout(*shape)
    ledger = HostLedger({str(number): holding for number, holding in enumerate(holdings)})
    if capacity is None:
        sizes = {numa: 1000 * mask.bit_count() for numa, mask in places.numa_nodes.items()}
        capacity = {numa: {"cpu": size, "memory": size} for numa, size in sizes.items()}
    return HostState(
        places,
        use=ledger.cpu_use(places),
        capacity=NumaAmounts(capacity),
        held=ledger.amounts(),
        neighbours=ledger.numa_neighbours(places),
        pool=places.cpus,
        cpu_ratio=Fraction(ratio),
        rules=rules,
        **state,
    )


def holding(listed="", level="None", **by_numa):
    """A holding of a cpu list and of amounts such as `numa0={"cpu": 1000}`."""
    amounts = {int(name.removeprefix("numa")): row for name, row in by_numa.items()}
    return Holding(parse_cpu_list(listed), ExclusiveLevel(level), NumaAmounts(amounts))


def some_of(values):
    """A subset of these, as a frozenset."""
    return st.sets(st.sampled_from(sorted(values))).map(frozenset) if values else st.just(frozenset())


SHAPES = st.tuples(st.integers(1, 3), st.integers(1, 2), st.integers(1, 4), st.sampled_from((1, 2, 2, 2, 4)))


@st.composite
def topologies(draw):
    """Regular hosts, of which a few CPUs may be offline."""
    whole = topology(*draw(SHAPES), distant=draw(st.booleans()))
    offline = draw(st.one_of(st.just(frozenset()), some_of(whole.cpus)))
    rows = tuple(row for row in whole.by_cpu.values() if row.cpu not in offline)
    return CpuTopology(rows) if rows else whole


@st.composite
def uses(draw, place, limit):
    """CPUs of a layout held up to `limit` times by pods of any level."""
    use = CpuUse()
    for _ in range(draw(st.integers(0, 4))):
        held = mask_of(draw(some_of(place.topology.cpus))) & ~use.saturated(limit)
        use = use.plus(held, draw(st.sampled_from(ExclusiveLevel)))
    return use


@st.composite
def problems(draw, distributions=(Distribution.PACKED,), downgrades=(False,)):
    """Everything `take_cpus` asks for, by name; never more CPUs than there are available."""
    place = layout_of(draw(topologies()))
    limit, fullest_first = draw(st.sampled_from((1, 1, 2, 3))), draw(st.booleans())
    distribution = draw(st.sampled_from(distributions))
    rules = PickRules(limit, fullest_first, distribution, draw(st.sampled_from(downgrades)))
    use, masks = draw(uses(place, limit)), st.one_of(st.just(frozenset()), some_of(place.topology.cpus))
    available = place.cpus & ~use.saturated(limit) & ~mask_of(draw(masks))
    need, bind = draw(st.integers(0, available.bit_count())), draw(st.sampled_from(BindPolicy))
    asked = CpuDemand(need, bind, exclusive=draw(st.sampled_from(ExclusiveLevel)))
    view = {"layout": place, "use": use, "available": available}
    return {**view, "demand": asked, "rules": rules, "preferred": mask_of(draw(masks))}
