"""The use cases of one process, wired to one database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from placement.allocations.best_fit import BestFit
from placement.allocations.candidates import CandidateSearch, SearchSettings
from placement.allocations.claims import Claims
from placement.allocations.group_rules import GroupPlacer
from placement.allocations.holdings import Holdings, Listings
from placement.allocations.orphans import Orphans
from placement.allocations.reshaper import Reshaper
from placement.allocations.statements.consumers import AttributeRegistry
from placement.allocations.world import ImaginedSearch
from placement.audit.events import Events
from placement.audit.service import AuditTrail
from placement.flavors.service import Flavors
from placement.health import Health
from placement.http.registry import Registry
from placement.planning.capacity import Planning
from placement.planning.service import Plans
from placement.pods.services.binding import Binders
from placement.pods.services.bound_pods import BoundPods
from placement.pods.services.closed_nodes import ClosedNodes
from placement.pods.services.clusters import Clusters
from placement.pods.services.extender import Extender
from placement.pods.services.finder import Finder
from placement.pods.services.nodes import NodeImports
from placement.pods.services.pods import Pods
from placement.pods.services.preemption import Preemption
from placement.pods.services.reservations import Reservations
from placement.pods.services.translation import PodTranslation
from placement.pods.services.views import HostViews
from placement.pods.store.cache import ClusterCache
from placement.pods.store.writer import PodWriter
from placement.providers import service as providers
from placement.providers.fleet import FleetCapacity, Hosts
from placement.providers.inventories import Inventories
from placement.providers.use_history import UseHistory
from placement.providers.view import ForestKeeper
from placement.sessions import Sessions
from placement.storage.database import Database


def use_cases_on(
    database: Database,
    search_settings: SearchSettings,
    binders: Binders | None = None,
    resource_prefixes: Sequence[str] = (),
) -> Registry:
    """Return the use cases on a database; `close` of the registry gives back their connections."""
    registry = Registry()
    forest, cluster_cache, events = ForestKeeper(database), ClusterCache(database), Events(database)
    registry.add(database, forest, cluster_cache, events, AuditTrail(database), Sessions(database))
    registry.close_with(forest.close, cluster_cache.close, events.close)
    attributes = AttributeRegistry(database)
    _add_providers(registry, database)
    _add_allocations(registry, database, attributes, search_settings)
    _add_pods(registry, database, attributes, binders, resource_prefixes)
    _add_planning(registry, database, search_settings.seconds)
    return registry


def _add_providers(registry: Registry, database: Database) -> None:
    forest, hosts = registry[ForestKeeper], Hosts(database, registry[ForestKeeper])
    use_history = UseHistory(database, hosts)
    registry.add(
        hosts,
        use_history,
        FleetCapacity(database, forest),
        Health(database, forest, registry[ClusterCache], use_history),
        Inventories(database),
        providers.Aggregates(database),
        providers.ProviderMemberships(database),
        providers.Providers(database, forest),
        providers.ResourceClasses(database),
        providers.Traits(database),
    )


def _add_allocations(
    registry: Registry, database: Database, attributes: AttributeRegistry, search_settings: SearchSettings
) -> None:
    candidates = CandidateSearch(database, registry[ForestKeeper], search_settings)
    claims, holdings = Claims(database, attributes), Holdings(database)
    group_placer = GroupPlacer(database, candidates, holdings)
    registry.add(
        candidates,
        claims,
        holdings,
        group_placer,
        BestFit(candidates, claims, holdings, group_placer),
        Listings(database),
        Orphans(database, registry[ForestKeeper]),
        Reshaper(database, attributes),
        ImaginedSearch(database, registry[ForestKeeper], candidates),
    )


def _add_pods(
    registry: Registry,
    database: Database,
    attributes: AttributeRegistry,
    binders: Binders | None,
    resource_prefixes: Sequence[str],
) -> None:
    cluster_cache = registry[ClusterCache]
    pod_writer = PodWriter(database, attributes, cluster_cache)
    pods = Pods(database, cluster_cache, pod_writer)
    node_imports = NodeImports(database, cluster_cache.loader, pod_writer, resource_prefixes)
    clusters = Clusters(database, node_imports)
    preemption = Preemption(database, cluster_cache, pods)
    registry.add(
        pods,
        BoundPods(database, pod_writer),
        node_imports,
        clusters,
        Reservations(database, cluster_cache, pod_writer, pods),
        PodTranslation(database, cluster_cache),
        preemption,
        Extender(clusters, pods, preemption, binders),
        HostViews(database, cluster_cache.loader),
        Finder(database),
        ClosedNodes(cluster_cache),
    )


def _add_planning(registry: Registry, database: Database, seconds: float) -> None:
    candidates = registry[CandidateSearch]
    shared = database, registry[ForestKeeper], registry[ClusterCache], candidates, seconds
    registry.add(
        Flavors(registry[Clusters], candidates, registry[BestFit], registry[Claims]),
        Planning(*shared),
        Plans(*shared),
    )


@contextmanager
def opened(connection: str, search_settings: SearchSettings) -> Iterator[Registry]:
    """Open the use cases on the database at this URL, and close them after the block."""
    database = Database(connection)
    registry = use_cases_on(database, search_settings)
    try:
        yield registry
    finally:
        registry.close()
        database.dispose()
