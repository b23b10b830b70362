"""What must hold of the nodes and pods of a cluster at any time, whatever was done to them."""

from __future__ import annotations

import sqlalchemy as sa

from placement.pods.services.node_view import view_of
from placement.pods.state.host import foreign_cpus
from placement.pods.state.node_info import NodeInfo
from placement.pods.store.accounts import stored_accounts
from placement.pods.store.cache import ClusterCache
from placement.pods.store.loader import NodeLoader, facts_of
from placement.providers.statements.clusters import found
from placement.server import checks
from placement.server.invariants.invariant import InvariantViolation
from placement.server.invariants.pods import disagreements
from placement.server.online_migrations import MigrationOwner
from placement.storage import tables
from placement.storage.database import Database

_EXCEEDED = "capacity-suffices"


def loaded(database: Database, cluster: str) -> dict[int, NodeInfo]:
    """The nodes as they are stored, read afresh."""
    with database.snapshot() as connection:
        return NodeLoader().load(connection, facts_of(found(connection, cluster)))


def check(
    database: Database, cluster: str, *, exact: bool = True, may_exceed: bool = False
) -> dict[int, NodeInfo]:
    """All of it at once; `exact` unless others gave something back that pods have not been given yet.

    `may_exceed`: consumers beside pods may hold more than their node offers by now.
    The nodes as they are stored, read afresh.
    """
    states = loaded(database, cluster)
    for state in states.values():
        check_accounts(database, state, exact=exact)
        check_cpus(state)
    found = [] if may_exceed else exceeded(database)
    assert not found, found
    check_rows(database)
    return states


def check_accounts(database: Database, state: NodeInfo, *, exact: bool) -> None:
    """What is stored is what follows from the pods: nothing lost, nothing left over."""
    with database.snapshot() as connection:
        stored = stored_accounts(connection, [state])[state.root_id]
    found = list(disagreements(state.identity, stored, state.accounts))
    assert not found, found
    if exact:
        for consumer in stored.shares.keys() | state.accounts.shares.keys():
            assert stored.shares.get(consumer, {}) == state.accounts.shares.get(consumer, {})


def check_cpus(state: NodeInfo) -> None:
    """LS pool, exclusive, withheld and others' CPUs are all CPUs; the pool has nothing of the rest."""
    view = view_of(state)
    everything = set(state.offers.cores)
    shared = {cpu for pool in view.ls_pools for cpu in pool.cpus}
    exclusive = {cpu for pod in state.pods for cpu in pod.holding.cpus}
    exclusive |= {cpu for _, pod in state.reported_pods for cpu in pod.cpus}
    withheld = set(state.template.node_import.withheld_cpus)
    foreign = foreign_cpus(state.offers, state.others)
    assert shared | (exclusive & everything) | withheld | foreign == everything
    assert not shared & (exclusive | withheld | foreign)
    assert not foreign & {cpu for pool in view.be_pools for cpu in pool.cpus}
    assert [cpu.cpu.cpu for cpu in view.cpus] == sorted(everything)
    for cpu in view.cpus:
        # Shared pods run on what a reservation keeps, unless consumers beside pods may be there.
        kept = cpu.owner == "reservation" and cpu.cpu.cpu not in foreign
        assert (kept or cpu.owner in ("free", "kubelet-reserved")) == (cpu.cpu.cpu in shared)


def check_rows(database: Database) -> None:
    """What `placement db check` asks of the rows, warnings included, but for inventories below their use."""
    found = [each for each in _violations(database) if each.invariant != _EXCEEDED]
    assert not found, found


def exceeded(database: Database) -> list[str]:
    """What `placement db check` says of inventories below their use."""
    return [each.sentence for each in _violations(database) if each.invariant == _EXCEEDED]


def _violations(database: Database) -> list[InvariantViolation]:
    with database.snapshot() as connection:
        return list(checks.violations(connection, MigrationOwner("p", "u")))


def check_image(fresh: dict[int, NodeInfo], cluster_cache: ClusterCache, cluster: str) -> None:
    """An image that was kept in step is what a fresh one is."""
    view = cluster_cache.snapshot(cluster)
    assert view.nodes.keys() == fresh.keys()
    for root_id, state in view.nodes.items():
        other = fresh[root_id]
        assert stored_of(state) == stored_of(other)
        assert (state.attributes, state.pods) == (other.attributes, other.pods)
        assert (state.reservations, state.holders) == (other.reservations, other.holders)
        assert (dict(state.others), dict(state.free)) == (dict(other.others), dict(other.free))
        assert (state.totals, state.host, state.accounts) == (other.totals, other.host, other.accounts)
        for pod in other.holders:
            assert cluster_cache.may_have(view, [pod.uid])
            assert cluster_cache.may_have(view, [(pod.namespace, pod.name)])


def stored_of(state: NodeInfo) -> tuple[object, ...]:
    """What is stored of a node itself."""
    return (state.id, state.name, state.root_id, state.root_uuid, state.revision, state.imported_at)


def nothing_is_held(database: Database) -> bool:
    """Whether there are neither allocations nor consumers nor owned CPUs nor any use."""
    with database.snapshot() as connection:
        rows = [
            connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()
            for table in (tables.allocations, tables.consumers, tables.logical_cpus)
        ]
        used = connection.execute(sa.select(sa.func.sum(tables.inventories.c.used))).scalar_one()
    return not any(rows) and not used
