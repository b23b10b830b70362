"""What there is and what is used of it: sums of the forest by cluster or aggregate, or by host."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from placement.forest import capacity
from placement.services.following.forest_keeper import ForestKeeper
from placement.storage.database import Database
from placement.storage.statements import clusters, provider_rows

_NONE = "none"


class Group(NamedTuple):
    """What a group of hosts has of a resource class, in units of the class.

    `name` is a cluster, the uuid of an aggregate, "none" for hosts in neither, or the host.
    """

    name: str
    resource_class: str
    total: float
    reserved: float
    allocation_ratio: float
    used: float


class Capacity:
    """Sums as of the last look at the database, which is seconds old at most."""

    def __init__(self, database: Database, forest: ForestKeeper) -> None:
        self._database = database
        self._forest = forest

    def groups(self, *, per_host: bool = False) -> Iterator[Group]:
        """The sums of each group and class, nothing while the forest is not loaded. Raises Unavailable.

        Each host counts once: for its cluster, else for its oldest aggregate; `per_host` by itself.
        """
        view = self._forest.latest()
        if view is None:
            return
        with self._database.read() as connection:
            if per_host:
                names = provider_rows.root_names(connection)
                sums = capacity.by_root(view.forest)
            else:
                aggregates = clusters.aggregates_called(connection)
                names = {id_: name or uuid for id_, uuid, name in aggregates}
                of_clusters = frozenset(id_ for id_, _, name in aggregates if name)
                sums = capacity.by_aggregate(view.forest, of_clusters)
        for found in sums:
            # What is newer than the forest has no sums yet, what it still has may be gone.
            name = _NONE if found.group == capacity.NO_AGGREGATE else names.get(found.group)
            class_name = view.names.classes.get(found.class_id)
            if name is not None and class_name is not None:
                yield Group(name, class_name, found.total, found.reserved, round(found.ratio, 6), found.used)
