"""Use cases on the traits and aggregates of one provider.

Source: placement-api.md, "Aggregates", "Traits of a provider", "Traits".
"""

from __future__ import annotations

from collections.abc import Collection

from placement.domain.audit import Action, Kind
from placement.domain.errors import BadRequest, ConcurrentUpdate
from placement.services.placement.providers import lock, missing
from placement.services.transactions import attempt
from placement.storage.database import Database, Transaction
from placement.storage.statements import memberships, names, providers
from placement.storage.statements.memberships import Members, Replaced
from placement.storage.statements.providers import LockedProvider

_STALE = "Resource provider's generation already changed. Please update the generation and try again."


class Memberships:
    """Reads and writes the traits and aggregates of a provider."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def traits(self, uuid: str) -> Members:
        """The traits of a provider. Raises NotFound."""
        with self._database.read() as connection:
            return self._present(memberships.traits_of(connection, uuid), uuid)

    def aggregates(self, uuid: str) -> Members:
        """The aggregates of a provider. Raises NotFound."""
        with self._database.read() as connection:
            return self._present(memberships.aggregates_of(connection, uuid), uuid)

    @staticmethod
    def _present(found: Members | None, uuid: str) -> Members:
        if found is None:
            raise missing(uuid)
        return found

    def replace_traits(self, uuid: str, wanted: Collection[str], generation: int) -> Members:
        """Make these the provider's traits; its generation rises only if they differ.

        Raises NotFound, ConcurrentUpdate, BadRequest for unknown traits.
        """

        def work(transaction: Transaction) -> Members:
            locked = lock(transaction, uuid)
            _check_generation(locked, generation)
            ids = names.trait_ids(transaction, wanted)
            unknown = sorted(set(wanted) - ids.keys())
            if unknown:
                raise BadRequest(f"No such trait {', '.join(unknown)}")
            replaced = memberships.replace_traits(transaction, locked.id, ids.values())
            if replaced.changed:
                providers.touch(transaction, [locked.id])
                _record(transaction, Kind.TRAITS, uuid, replaced, wanted)
            return self._present(memberships.traits_of(transaction, uuid), uuid)

        return attempt(self._database, work)

    def clear_traits(self, uuid: str) -> None:
        """Take all traits from a provider. Raises NotFound."""

        def work(transaction: Transaction) -> None:
            locked = lock(transaction, uuid)
            replaced = memberships.replace_traits(transaction, locked.id, ())
            if replaced.changed:
                providers.touch(transaction, [locked.id])
                _record(transaction, Kind.TRAITS, uuid, replaced, ())

        attempt(self._database, work)

    def replace_aggregates(self, uuid: str, wanted: Collection[str], generation: int | None) -> int:
        """Make these the provider's aggregates; its generation afterwards.

        With `generation` None nothing is checked and the generation stays (before microversion 1.19).
        Raises NotFound, ConcurrentUpdate.
        """

        def work(transaction: Transaction) -> int:
            locked = lock(transaction, uuid)
            if generation is not None:
                _check_generation(locked, generation)
            replaced = memberships.replace_aggregates(transaction, locked.id, wanted)
            _record(transaction, Kind.AGGREGATES, uuid, replaced, wanted)
            raised = [] if generation is None else [locked.id]
            providers.touch(transaction, raised, [] if raised else [locked.id])
            return locked.generation + len(raised)

        return attempt(self._database, work)


def _record(
    transaction: Transaction, kind: Kind, uuid: str, replaced: Replaced, wanted: Collection[str]
) -> None:
    transaction.record(
        Action.UPDATE, kind, uuid, before={kind: replaced.before}, after={kind: sorted(wanted)}
    )


def _check_generation(locked: LockedProvider, generation: int) -> None:
    if locked.generation != generation:
        raise ConcurrentUpdate(_STALE)
