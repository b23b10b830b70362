"""All invariants that queries can tell, in the order in which they are mended."""

from __future__ import annotations

from collections.abc import Iterator

from placement.storage.checks import amounts, clusters, references, trees
from placement.storage.checks.invariant import Invariant, Violation
from placement.storage.database import Executor, Transaction
from placement.storage.statements import providers


def invariants(project: str, user: str) -> list[Invariant]:
    """What rows refer to first: it decides what the others can see."""
    return [
        *references.invariants(project, user),
        *trees.INVARIANTS,
        *clusters.INVARIANTS,
        *amounts.INVARIANTS,
    ]


def violations(connection: Executor, project: str, user: str) -> Iterator[Violation]:
    """Every violation in a connection that sees one state; holders without a record get this owner."""
    for invariant in invariants(project, user):
        yield from invariant.violations(connection)


def mend(transaction: Transaction, project: str, user: str) -> dict[str, int]:
    """Mend what can be mended, as trees are while nobody else moves any; how many rows by invariant."""
    providers.lock_trees(transaction, shared=False)
    mended = {each.name: each.mend(transaction) for each in invariants(project, user)}
    return {name: count for name, count in mended.items() if count}
