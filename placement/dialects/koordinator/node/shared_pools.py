"""CPU shared pools as the node agent reports them."""

from __future__ import annotations

from placement.kubernetes.field import Field
from placement.numa.pools import SharedPool


def read_shared_pools(annotation: Field) -> tuple[SharedPool, ...]:
    """The pools of a parsed cpu-shared-pools annotation, as reported, ascending by socket and NUMA node.

    They only serve diagnosis, so unreadable ones are left out and CPUs are not compared with the topology.
    """
    pools = [_read_pool(entry) for entry in annotation.elements()]
    return tuple(sorted((pool for pool in pools if pool), key=lambda pool: (pool.socket, pool.numa)))


def _read_pool(entry: Field) -> SharedPool | None:
    socket, numa = entry.member("socket").integer(), entry.member("node").integer()
    cpus = entry.member("cpuset").cpu_list()
    return None if socket is None or numa is None or cpus is None else SharedPool(socket, numa, cpus)
