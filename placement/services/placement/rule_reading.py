"""Rules between members by ids: their places in a forest, and who counts in them already."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from placement.domain.errors import BadRequest
from placement.domain.member_rules import MemberRule, Per, RuleKind
from placement.search.members.places import (
    AggregatePlaces,
    HostPlaces,
    Marker,
    Places,
    ProviderPlaces,
    places_of_each,
    sharers_of,
)
from placement.search.members.tally import Rule
from placement.services import scoping
from placement.services.following.forest_keeper import View
from placement.services.placement.standing import Held, Standing
from placement.storage.database import Database
from placement.storage.statements import names
from placement.storage.statements.names import SHARING_TRAIT


@dataclass(frozen=True, slots=True)
class Counted:
    """Who is placed already: others by their standing, and members by name with what they hold.

    `own` are the uuids of these members, which do not count a second time.
    """

    standing: Standing
    own: Collection[str]
    members: Sequence[tuple[str | None, Held]]

    def others_in(self, rule: MemberRule) -> Iterable[Held]:
        """What those hold who count in a rule and are no members."""
        standing = self.standing
        others = {*rule.consumers, *(uuid for name in rule.groups for uuid in standing.groups[name])}
        return (standing.held[uuid] for uuid in sorted(others - {*self.own}) if uuid in standing.held)

    def members_in(self, rule: MemberRule) -> Iterable[Held]:
        """What those members hold whom a rule concerns."""
        return (held for name, held in self.members if rule.members is None or name in rule.members)


class RuleReader:
    """Reads rules for one view of the forest."""

    def __init__(self, database: Database, view: View, counted: Counted) -> None:
        self._database = database
        self._view = view
        self._counted = counted
        self.sharers = sharers_of(view.forest, view.sharing, view.names.trait_ids[SHARING_TRAIT])

    def rule(self, rule: MemberRule) -> Rule:
        """The rule by ids. Raises BadRequest naming what does not exist."""
        places = self._places(rule.place, rule)
        held = [self._rows(each) for each in self._counted.members_in(rule)]
        counted = [self._rows(each) for each in self._counted.others_in(rule)] + held
        limit = rule.max_skew if rule.kind is RuleKind.SPREAD else rule.count
        on_hosts = rule.per is not Per.PROVIDER
        return Rule(
            rule.kind,
            places,
            limit,
            places_of_each(places, counted),
            on_hosts,
            rule.weight,
            places_of_each(places, held),
        )

    def _rows(self, held: Mapping[str, object]) -> list[int]:
        rows = (self._view.forest.row_of_uuid(uuid) for uuid in held)
        return [row for row in rows if row >= 0]

    def _places(self, where: str, rule: MemberRule) -> Places:
        forest = self._view.forest
        if rule.per is Per.HOST:
            return HostPlaces(forest, self.sharers)
        if rule.per is Per.AGGREGATE:
            return AggregatePlaces(forest, self.sharers, self._aggregates(rule))
        return ProviderPlaces(forest, self._marker(where, rule))

    def _aggregates(self, rule: MemberRule) -> list[int]:
        """The ids of the aggregates that a rule lists, also where no provider was ever in one."""
        if not rule.aggregates:
            return []
        with self._database.read() as connection:
            known = scoping.aggregates(self._view.forest, names.aggregate_ids(connection, rule.aggregates))
        return [known.get(uuid, -at) for at, uuid in enumerate(rule.aggregates, start=1)]

    def _marker(self, where: str, rule: MemberRule) -> Marker:
        known = self._view.names
        if rule.resource_class is not None:
            if rule.resource_class not in known.class_ids:
                raise BadRequest(f"{where}.resource_class: No such resource class {rule.resource_class}.")
            return Marker(class_id=known.class_ids[rule.resource_class])
        if rule.trait is not None:
            if rule.trait not in known.trait_ids:
                raise BadRequest(f"{where}.trait: No such trait {rule.trait}.")
            return Marker(trait_id=known.trait_ids[rule.trait])
        return Marker(depth=rule.depth)
