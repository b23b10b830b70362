"""Everything the service can do, wired to one database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import cast

from placement.domain import scope
from placement.services import scoping
from placement.services.auditing.events import Events
from placement.services.auditing.trail import AuditTrail
from placement.services.capacity import Capacity
from placement.services.clusters.closed_nodes import ClosedNodes
from placement.services.clusters.clusters import Clusters
from placement.services.clusters.extender import Extender
from placement.services.clusters.node_imports import NodeImports
from placement.services.clusters.node_writing import NodeWriter
from placement.services.clusters.pod_translation import PodTranslation
from placement.services.clusters.pods import Pods
from placement.services.clusters.preemption import Preemption
from placement.services.clusters.reservation_ends import ReservationEnds
from placement.services.clusters.reservations import Reservations
from placement.services.clusters.vanished_pods import Binders
from placement.services.finding import Finder
from placement.services.flavors import Flavors
from placement.services.fleet import Hosts
from placement.services.following.cluster_cache import ClusterCache
from placement.services.following.forest_keeper import ForestKeeper
from placement.services.health.checks import Health
from placement.services.host_views import HostViews
from placement.services.placement.best_fit import BestFit
from placement.services.placement.candidates import Candidates, SearchSettings
from placement.services.placement.claims import Claims
from placement.services.placement.holdings import Holdings
from placement.services.placement.inventories import Inventories
from placement.services.placement.listings import Listings
from placement.services.placement.memberships import Memberships
from placement.services.placement.names import ResourceClasses, Traits
from placement.services.placement.providers import Providers
from placement.services.placement.reshaper import Reshaper
from placement.services.placement.ruled import Ruled
from placement.services.planning.planning import Planning
from placement.services.planning.plans import Plans
from placement.storage.database import Database
from placement.storage.statements.consumers import AttributeRegistry

_KNOW_CLUSTERS = frozenset(
    (
        "best_fit",
        "candidates",
        "closed_nodes",
        "clusters",
        "extender",
        "finder",
        "flavors",
        "host_views",
        "hosts",
        "listings",
        "nodes",
        "planning",
        "plans",
        "pod_translation",
        "pods",
        "reservations",
        # Figures and health are for all who reach the port.
        "capacity",
        "health",
    )
)
"""The use cases that show a caller who is bound to clusters nothing else, see `services.scoping`."""


class UseCases:
    """The use cases of one process."""

    def __init__(
        self,
        database: Database,
        search_settings: SearchSettings,
        binders: Binders | None = None,
        resource_prefixes: Sequence[str] = (),
    ) -> None:
        self.database = database
        attributes = AttributeRegistry(database)
        writer = NodeWriter(attributes, database.history)
        self.cluster_cache = ClusterCache(database)
        ends = ReservationEnds(database, self.cluster_cache, writer)
        self.pods = Pods(database, self.cluster_cache, writer, ends)
        self.reservations = Reservations(database, self.cluster_cache, self.pods, ends)
        self.pod_translation = PodTranslation(database, self.cluster_cache)
        self.nodes = NodeImports(database, self.cluster_cache.loader, writer, resource_prefixes)
        self.clusters = Clusters(database, self.nodes)
        self.extender = Extender(self.clusters, self.pods, Preemption(database, self.cluster_cache), binders)
        self.forest = ForestKeeper(database)
        self.health = Health(database, self.forest, self.cluster_cache)
        self.capacity = Capacity(database, self.forest)
        self.hosts = Hosts(database, self.forest)
        self.host_views = HostViews(database, self.cluster_cache.loader)
        self.finder = Finder(database)
        self.closed_nodes = ClosedNodes(self.cluster_cache)
        self.candidates = Candidates(database, self.forest, search_settings)
        self.claims = Claims(database, attributes)
        self.holdings = Holdings(database)
        self.ruled = Ruled(database, self.candidates, self.holdings)
        self.best_fit = BestFit(self.candidates, self.claims, self.holdings, self.ruled)
        self.planning = Planning(
            database, self.forest, self.cluster_cache, self.candidates, search_settings.seconds
        )
        self.plans = Plans(
            database, self.forest, self.cluster_cache, self.candidates, search_settings.seconds
        )
        self.flavors = Flavors(self.clusters, self.candidates, self.best_fit, self.claims)
        self.inventories = Inventories(database)
        self.listings = Listings(database)
        self.memberships = Memberships(database)
        self.providers = Providers(database, self.forest)
        self.reshaper = Reshaper(database, attributes)
        self.resource_classes = ResourceClasses(database)
        self.traits = Traits(database)
        self.audit = AuditTrail(database)
        self.events = Events(database)

    @property
    def within_scope(self) -> UseCases:
        """What the work at hand may ask for: to a bound caller only those that know clusters."""
        return self if scope.admits(None) else cast(UseCases, _OfClusters(self))

    def close(self) -> None:
        """Give back the connections that are kept for looking at changes."""
        self.forest.close()
        self.cluster_cache.close()
        self.events.close()

    @classmethod
    @contextmanager
    def opened(cls, connection: str, search_settings: SearchSettings) -> Iterator[UseCases]:
        """The use cases on the database at this URL, closed again after the block."""
        database = Database(connection)
        use_cases = cls(database, search_settings)
        try:
            yield use_cases
        finally:
            use_cases.close()
            database.dispose()


class _OfClusters:
    """The use cases for a bound caller."""

    def __init__(self, use_cases: UseCases) -> None:
        self._use_cases = use_cases

    def __getattr__(self, name: str) -> object:
        """Raises Forbidden for a use case that knows no clusters."""
        if name not in _KNOW_CLUSTERS:
            scoping.require_everything()
        return getattr(self._use_cases, name)
