"""The UUIDs of aggregates and providers that a request calls by name."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from placement.engine.domain import request_scope
from placement.engine.domain.errors import BadValues, Finding, NameKind, NamesOf, RequestPlace
from placement.engine.domain.identifiers import normalize_uuid
from placement.providers.statements import clusters, providers
from placement.providers.view import ForestKeeper, visible_aggregates
from placement.storage.database import Database

NamePlaces = Mapping[str, RequestPlace]
"""The names in a request, each with the place where it stands."""
# Messages stay readable however many things share a name.
_MOST_SHOWN = 5


class CalledUuids:
    """A use case that finds aggregates and providers by name or UUID, as far as the caller may see these."""

    for_bound_callers = True

    def __init__(self, database: Database, keeper: ForestKeeper) -> None:
        self._database = database
        self._keeper = keeper

    def aggregates(self, called: NamePlaces, cluster: str | None = None) -> dict[str, str]:
        """Return the UUIDs of aggregates by what they are called; UUIDs stand for themselves.

        Where several have a name, the one with hosts of the `cluster` counts. Raises BadValues for names
        that no aggregate has, or several have.
        """
        found = {name: uuid for name in called if (uuid := normalize_uuid(name)) is not None}
        named = self.aggregates_named(called.keys() - found.keys(), cluster)
        findings = []
        for name, place in called.items():
            uuids = [found[name]] if name in found else named[name]
            if len(uuids) == 1:
                found[name] = uuids[0]
            else:
                findings.append(_not_one_aggregate(name, uuids, place))
        if findings:
            raise BadValues(findings)
        return found

    def aggregates_named(
        self, names: Collection[str], cluster: str | None = None
    ) -> Mapping[str, Sequence[str]]:
        """Return the UUIDs of all aggregates of each name; with a `cluster`, of several only its own."""
        found: dict[str, list[str]] = {name: [] for name in names}
        possible = _storable(names)
        if not possible:
            return found
        with self._database.read() as connection:
            named = clusters.aggregates_named(connection, possible)
        if request_scope.visible_clusters() is not None:
            seen = visible_aggregates(self._keeper.current().forest, {each.uuid: each.id for each in named})
            named = [each for each in named if each.uuid in seen]
        for each in named:
            if each.name is not None:
                found[each.name].append(each.uuid)
        several = {uuid for uuids in found.values() if len(uuids) > 1 for uuid in uuids}
        if cluster is not None and several:
            with self._database.read() as connection:
                inside = clusters.aggregates_after(connection, cluster, 0, len(several), several)
            own = {each.uuid for each in inside}
            found = {
                name: [uuid for uuid in uuids if uuid in own or not own & set(uuids)]
                for name, uuids in found.items()
            }
        return found

    def providers(self, called: NamePlaces) -> dict[str, str]:
        """Return the UUIDs of providers by what they are called; UUIDs stand for themselves.

        Raises BadValues for names that none has.
        """
        found = {name: uuid for name in called if (uuid := normalize_uuid(name)) is not None}
        found |= self.providers_named(called.keys() - found.keys())
        unknown = [(name, place) for name, place in called.items() if name not in found]
        if unknown:
            raise BadValues(
                Finding(f"No host {name} found", place, name, NamesOf(NameKind.HOST))
                for name, place in unknown
            )
        return found

    def providers_named(self, names: Iterable[str]) -> dict[str, str]:
        """Return the UUIDs of the providers that have one of the names, by name."""
        wanted = _storable(names)
        if not wanted:
            return {}
        with self._database.read() as connection:
            found = providers.uuids_by_name(connection, wanted)
        if request_scope.visible_clusters() is not None:
            forest = self._keeper.current().forest
            found = {name: uuid for name, uuid in found.items() if forest.row_of_uuid(uuid) >= 0}
        return found


def _storable(names: Iterable[str]) -> set[str]:
    """Return the names that something may have: no database holds a NUL."""
    return {name for name in names if "\0" not in name}


def _not_one_aggregate(name: str, uuids: Sequence[str], place: RequestPlace) -> Finding:
    """Return what is wrong with a name that no aggregate has, or several have."""
    if not uuids:
        return Finding(f"No aggregate {name} found", place, name, NamesOf(NameKind.AGGREGATE))
    shown = ", ".join(uuids[:_MOST_SHOWN])
    more = f" and {len(uuids) - _MOST_SHOWN} more" if len(uuids) > _MOST_SHOWN else ""
    return Finding(f"{len(uuids)} aggregates have the name {name}: {shown}{more}; give a UUID", place)
