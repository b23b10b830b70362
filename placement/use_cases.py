"""The use cases of the service, wired to one database."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import cast

from placement.allocations.best_fit import BestFit
from placement.allocations.candidates import CandidateSearch, SearchSettings
from placement.allocations.claims import Claims
from placement.allocations.group_rules import GroupPlacer
from placement.allocations.holdings import Holdings, Listings
from placement.allocations.reshaper import Reshaper
from placement.allocations.statements.consumers import AttributeRegistry
from placement.audit.service import AuditTrail, Events
from placement.common.probes import Check
from placement.engine.domain import request_scope
from placement.engine.domain.errors import Unavailable
from placement.flavors.service import Flavors
from placement.metrics import catalog
from placement.planning.capacity import Planning
from placement.planning.plans import Plans
from placement.pods.cache import ClusterCache
from placement.pods.clusters import Clusters, NodeImports
from placement.pods.extender import Binders, Extender
from placement.pods.preemption import Preemption
from placement.pods.service import Pods, Reservations
from placement.pods.translation import PodTranslation
from placement.pods.views import ClosedNodes, Finder, HostViews
from placement.pods.writer import PodWriter
from placement.providers import view
from placement.providers.fleet import FleetCapacity, Hosts
from placement.providers.inventories import Inventories
from placement.providers.service import Aggregates, ProviderMemberships, Providers, ResourceClasses, Traits
from placement.providers.use_history import UseHistory
from placement.providers.view import ForestKeeper
from placement.storage import schema
from placement.storage.database import Database
from placement.storage.failures import NO_SLOT
from placement.storage.sessions import Sessions

# What a process needs to answer requests, looked at by a thread of its own, so that asking costs nothing.


LOG = logging.getLogger(__name__)
_MEMORY = Path("/proc/self/statm")
_EVERY_SECONDS = 2.0
_DATABASE_ANSWERS_WITHIN_SECONDS = 3.0
# Rounds are seconds apart; a thread that reported nothing for so long is stuck.
_STALE_SECONDS = 10.0
SCHEMA, WRITABLE, FOREST = "schema-version", "database-writable", "forest-loaded"


class Health:
    """The checks of one process: schema version, database writable, forest loaded and how far behind."""

    def __init__(
        self, database: Database, forest: ForestKeeper, images: ClusterCache, use_history: UseHistory
    ) -> None:
        self._database = database
        self._forest = forest
        self._images = images
        self._use_history = use_history
        self._known: tuple[str | None, frozenset[str]] | None = None
        self._database_checks: tuple[Check, ...] = ()
        self._forest_problem = "it is still being loaded"
        self._told_at = time.monotonic()

    @property
    def database_kind(self) -> str:
        """Return which database it is: sqlite or postgresql."""
        return self._database.backend.name

    def watch(self) -> None:
        """Look again and again from a thread of its own, the first time at once, and sample the use."""
        threading.Thread(target=self._watch, name="health", daemon=True).start()

    def _watch(self) -> None:
        while True:
            try:
                self.look()
                self._sample()
            except Exception:
                # The next look may be luckier; without any, health would stay as it is for ever.
                LOG.exception("looking at the health of this process failed")
            time.sleep(_EVERY_SECONDS)

    def _sample(self) -> None:
        """Take the sample of the half hour if that is due, and nothing is amiss; else the next look does."""
        if all(check.ok for check in self.checks()):
            with suppress(Unavailable), request_scope.within(_DATABASE_ANSWERS_WITHIN_SECONDS):
                self._use_history.sample(time.time())

    def look(self) -> None:
        """Look at the database, let the forest catch up with it, and write down how things are."""
        with request_scope.within(_DATABASE_ANSWERS_WITHIN_SECONDS):
            self._database_checks = self._look_at_database()
        self._told_at = time.monotonic()
        # The first time this loads everything, which has no bound.
        began, is_first = time.monotonic(), not self._forest.state.loaded
        try:
            self._forest.current()
        except Unavailable as error:
            self._forest_problem = str(error)
        else:
            self._forest_problem = ""
            if is_first:
                count, seconds = self._forest.state.providers, time.monotonic() - began
                LOG.info("loaded %d providers in %.1f seconds", count, seconds)
        # The figures of a process that are not counted where something happens.
        state, (nodes, size) = self._forest.state, self._images.held
        catalog.LAG_SECONDS.set(state.behind_seconds)
        catalog.PROVIDERS.set(state.providers)
        catalog.FOREST_BYTES.set(state.bytes)
        catalog.IMAGE_NODES.set(nodes)
        catalog.IMAGE_BYTES.set(size)
        for name, count in self._database.connections().items():
            catalog.DATABASE_CONNECTIONS.labels(name).set(count)
        catalog.WORKERS.set(1)
        if _MEMORY.exists():
            pages = int(_MEMORY.read_text().split()[1])
            catalog.RESIDENT_BYTES.set(pages * os.sysconf("SC_PAGE_SIZE"))

    def checks(self) -> list[Check]:
        """Return what was found last, without a query and without waiting."""
        silent = time.monotonic() - self._told_at
        found = self._database_checks
        if not found or silent > _STALE_SECONDS:
            given = f"the database has not answered for {silent:.0f} s" if found else "not looked at yet"
            found = (Check(SCHEMA, False, given), Check(WRITABLE, False, given))
        # Only the writes of this process find a disk full.
        refused = self._database.refusal
        if refused:
            found = tuple(
                Check(WRITABLE, False, refused) if each.name == WRITABLE and each.ok else each
                for each in found
            )
        state = self._forest.state
        if not state.loaded:
            forest = Check(FOREST, False, self._forest_problem or "it is being loaded again")
        else:
            is_late = state.behind_seconds > _STALE_SECONDS
            read = f"{state.providers} providers, read {state.behind_seconds:.1f} s ago"
            why = f": {self._forest_problem or 'the database is slow'}" if is_late else ""
            forest = Check(FOREST, not is_late, f"{read}{why}")
        return [*found, forest]

    def _look_at_database(self) -> tuple[Check, ...]:
        try:
            with self._database.read() as connection:
                present = schema.revision_of(connection)
                writable = self._database.backend.is_writable(connection)
        except Unavailable as error:
            if self._database.diagnose(error.__cause__ or error) is NO_SLOT and self._database_checks:
                # Others use all connections, so what was found before still holds.
                return self._database_checks
            return Check(SCHEMA, False, str(error)), Check(WRITABLE, False, str(error))
        given = "it takes writes" if writable else "it takes no writes"
        return self._schema_check(present), Check(WRITABLE, writable, given)

    def _schema_check(self, present: str | None) -> Check:
        if self._known is None:
            self._known = schema.newest(self._database), schema.revisions(self._database)
        newest, known = self._known
        if present is not None and present == newest:
            return Check(SCHEMA, True, present)
        if present is None or present in known:
            return Check(SCHEMA, False, f"{present}, this release needs {newest}")
        # In a rolling upgrade the release before goes on beside the next one.
        return Check(SCHEMA, True, f"{present}, of a newer release than this one, whose newest is {newest}")


_KNOW_CLUSTERS = frozenset(
    (
        "aggregates",
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
        "use_history",
        # Figures and health are for every caller that reaches the port.
        "capacity",
        "health",
    )
)
"""The use cases that show a caller that is bound to clusters nothing else, see `providers.view`."""


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
        self.cluster_cache = ClusterCache(database)
        writer = PodWriter(database, attributes, self.cluster_cache)
        self.pods = Pods(database, self.cluster_cache, writer)
        self.reservations = Reservations(database, self.cluster_cache, writer, self.pods)
        self.pod_translation = PodTranslation(database, self.cluster_cache)
        self.nodes = NodeImports(database, self.cluster_cache.loader, writer, resource_prefixes)
        self.clusters = Clusters(database, self.nodes)
        self.extender = Extender(self.clusters, self.pods, Preemption(database, self.cluster_cache), binders)
        self.forest = ForestKeeper(database)
        self.capacity = FleetCapacity(database, self.forest)
        self.hosts = Hosts(database, self.forest)
        self.use_history = UseHistory(database, self.hosts)
        self.health = Health(database, self.forest, self.cluster_cache, self.use_history)
        self.host_views = HostViews(database, self.cluster_cache.loader)
        self.finder = Finder(database)
        self.closed_nodes = ClosedNodes(self.cluster_cache)
        self.candidates = CandidateSearch(database, self.forest, search_settings)
        self.claims = Claims(database, attributes)
        self.holdings = Holdings(database)
        self.ruled = GroupPlacer(database, self.candidates, self.holdings)
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
        self.aggregates = Aggregates(database)
        self.memberships = ProviderMemberships(database)
        self.providers = Providers(database, self.forest)
        self.reshaper = Reshaper(database, attributes)
        self.resource_classes = ResourceClasses(database)
        self.traits = Traits(database)
        self.audit = AuditTrail(database)
        self.events = Events(database)
        self.sessions = Sessions(database)

    def of_clusters(self) -> UseCases:
        """Return the use cases that a caller bound to clusters may use: only the ones that know clusters."""
        return cast(UseCases, _OfClusters(self))

    def close(self) -> None:
        """Give back the connections that are kept for looking at changes."""
        self.forest.close()
        self.cluster_cache.close()
        self.events.close()

    @classmethod
    @contextmanager
    def opened(cls, connection: str, search_settings: SearchSettings) -> Iterator[UseCases]:
        """Open the use cases on the database at this URL, and close them after the block."""
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
        """Return a use case. Raises Forbidden if it knows no clusters."""
        if name not in _KNOW_CLUSTERS:
            view.require_everything()
        return getattr(self._use_cases, name)
