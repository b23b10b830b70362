"""Making one database hold what another one holds, in one transaction of each."""

from __future__ import annotations

from itertools import islice

from placement.domain.errors import Conflict
from placement.storage.moving import belongings, comparison, consumers, faults, names, providers
from placement.storage.moving.side import Progress, Report, Side

_SHOWN = 10


def refuse_faulty(source: Side) -> None:
    """Raises Conflict that lists the rows of the source which cannot be moved."""
    _refuse("The source has rows that cannot be moved; correct or delete them there", faults.find(source))


def move(
    source: Side, target: Side, owner: tuple[str, str], progress: Progress, *, may_remove: bool
) -> Report:
    """Bring about in the target what the source holds, and compare both afterwards.

    `owner`: project and user of consumers that have no record. What the target holds beside it stays if it
    belongs to a cluster of this service, and is removed otherwise, but only if `may_remove`.

    Raises Conflict for what clusters here have already, for what would have to be removed and may not, and if
    the two differ in the end.
    """
    report = Report()
    wanted, present = providers.read(source), providers.read(target)
    providers.refuse_taken(wanted, present)
    gone = providers.only_in(present, wanted)
    ids = names.copy(source, target, report)
    at = providers.write(wanted, present, gone, target, report, progress)
    known = consumers.copy(source, target, ids, report, progress)
    orphans = consumers.complete(source, target, owner, report)
    left = consumers.only_in(target, known.union(orphans))
    if not may_remove and (gone or left):
        raise Conflict(
            f"{len(gone)} providers and {len(left)} consumers are in the target and not in the source; "
            "allow to remove them with --remove, or choose another target"
        )
    moved = {wanted.ids[uuid]: at[uuid] for uuid in wanted.ids}
    fresh = {at[uuid] for uuid in wanted.ids if uuid not in present.ids}
    _analyze(target)
    belongings.copy(source, target, ids, moved, fresh, report, progress)
    providers.remove(gone, present, target, report, progress)
    consumers.remove(left, target, report)
    _analyze(target)
    found = comparison.differences(source, target, moved, known.union(orphans), progress)
    _refuse("The two databases differ afterwards", list(islice(found, _SHOWN)))
    report.compared = {"providers": len(wanted.ids), "consumers": len(known) + len(orphans)}
    return report


def _analyze(target: Side) -> None:
    """Have the database know how full its tables are; statements on tables just filled would take ages."""
    if target.transaction is not None:
        target.connection.exec_driver_sql("ANALYZE")


def _refuse(sentence: str, findings: list[str]) -> None:
    if findings:
        raise Conflict("\n  ".join([f"{sentence}:", *findings]))
