"""The consumers that count in the rules of a claim beside its members, checked again when it is written.

Groups are locked first, then consumers: of two claims into a group the second decides again, and sees the
first. Consumers that do not exist yet cannot be locked, so callers that add some at a time name a group.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from placement.allocations.holdings import resources_of
from placement.allocations.statements import consumers
from placement.engine.domain import errors
from placement.engine.domain.claims import AmountsByProvider
from placement.storage.database import Transaction


@dataclass(frozen=True, slots=True)
class ConsumersSnapshot:
    """Consumers as they were found: `generations`, None for one that does not exist, and what they hold.

    `groups`: the consumers in each group that counts.
    """

    groups: Mapping[str, Collection[str]] = field(default_factory=dict)
    generations: Mapping[str, int | None] = field(default_factory=dict)
    held: Mapping[str, AmountsByProvider] = field(default_factory=dict)

    def confirm(self, transaction: Transaction, joined: Iterable[str]) -> None:
        """Lock the consumers and groups, joined ones too. Raises ConcurrentUpdate if something changed."""
        consumers.lock_groups(transaction, {*self.groups, *joined})
        present = consumers.members(transaction, self.groups)
        if any(present.get(name, set()) != set(uuids) for name, uuids in self.groups.items()):
            raise errors.ConcurrentUpdate("another claim changed a group meanwhile")
        locked = consumers.lock(transaction, self.generations) if self.generations else {}
        for uuid, generation in self.generations.items():
            now = locked[uuid].generation if uuid in locked else None
            if now != generation:
                raise errors.ConcurrentUpdate(f"consumer {uuid} has changed meanwhile")
        # A consumer that was deleted and has claimed again may have the generation it had before.
        held = resources_of(transaction, locked)
        for uuid in locked:
            if held.get(uuid, {}) != self.held.get(uuid, {}):
                raise errors.ConcurrentUpdate(f"consumer {uuid} holds something else than before")
