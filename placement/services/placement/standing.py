"""Who counts in the rules of a claim beside its members, and that this is still so when it is written.

Groups are locked first, then consumers: of two claims into a group the second decides again, and sees the
first. Consumers that do not exist yet cannot be locked: whoever adds some at a time names a group.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from placement.domain.errors import ConcurrentUpdate
from placement.services import scoping
from placement.services.placement.candidates import Candidates
from placement.services.placement.holdings import Holdings, held_by
from placement.storage.database import Database, Transaction
from placement.storage.statements import consumer_groups, consumers

Held = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Standing:
    """Consumers as they were found: `generations`, None for those that do not exist, and what they hold.

    `groups`: the consumers in each group that counts.
    """

    groups: Mapping[str, Collection[str]] = field(default_factory=dict)
    generations: Mapping[str, int | None] = field(default_factory=dict)
    held: Mapping[str, Held] = field(default_factory=dict)

    def confirm(self, transaction: Transaction, joined: Iterable[str]) -> None:
        """Lock all of them, and the groups that are joined. Raises ConcurrentUpdate if something changed."""
        consumer_groups.lock(transaction, {*self.groups, *joined})
        present = consumer_groups.members(transaction, self.groups)
        if any(present.get(name, set()) != set(uuids) for name, uuids in self.groups.items()):
            raise ConcurrentUpdate("another claim changed a group meanwhile")
        locked = consumers.lock(transaction, self.generations) if self.generations else {}
        for uuid, generation in self.generations.items():
            now = locked[uuid].generation if uuid in locked else None
            if now != generation:
                raise ConcurrentUpdate(f"consumer {uuid} has changed meanwhile")
        # Who was deleted and has claimed again has the generation of a new consumer as before.
        held = held_by(transaction, locked)
        for uuid in locked:
            if held.get(uuid, {}) != self.held.get(uuid, {}):
                raise ConcurrentUpdate(f"consumer {uuid} holds something else than before")


def standing_of(
    database: Database,
    holdings: Holdings,
    candidates: Candidates,
    named: Collection[str],
    groups: Collection[str],
) -> Standing:
    """The present standing of consumers, and of all in some groups, as far as they may be seen."""
    with database.read() as connection:
        found = consumer_groups.members(connection, groups)
    counted = {name: frozenset(found.get(name, ())) for name in groups}
    uuids = sorted({*named, *(uuid for each in counted.values() for uuid in each)})
    known = holdings.of_consumers(uuids) if uuids else {}
    hidden = scoping.hidden(
        {uuid: each.resources for uuid, each in known.items()}, lambda: candidates.view().forest
    )
    known = {uuid: each for uuid, each in known.items() if uuid not in hidden}
    generations = {
        uuid: known[uuid].consumer.generation if uuid in known else None
        for uuid in uuids
        if uuid not in hidden
    }
    return Standing(counted, generations, {uuid: each.resources for uuid, each in known.items()})
