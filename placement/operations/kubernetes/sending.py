"""Sending single things to the service, and remembering which of them it does not want."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from placement.operations.client import ServiceError
from placement.operations.kubernetes.informer_store import Key, Kind
from placement.operations.kubernetes.journal import Journal
from placement.operations.kubernetes.rejections import Rejections
from placement.operations.kubernetes.service import CONFLICT, is_refusal


class Sending:
    """One call after the other; a refusal concerns its thing only, any other failure everything."""

    def __init__(self, journal: Journal, progress: Callable[[], None]) -> None:
        self._journal = journal
        self._progress = progress
        self.rejections: Rejections[Key] = Rejections()

    def accepted(self, key: Key, mark: Hashable, send: Callable[[], list[str] | None]) -> bool:
        """Whether the service took the thing, which it is not asked again while the mark stays.

        `send` may return warnings. Raises ServiceError for what is no refusal.
        """
        if self.rejections.holds_back(key, mark):
            return False
        try:
            warnings = send()
        except ServiceError as error:
            if not is_refusal(error):
                raise
            self.rejections.add(key, mark, conflict=error.status == CONFLICT)
            self._journal.trouble(_title(key), f"rejected: {error}")
            return False
        self.settled(key)
        for warning in warnings or ():
            self._journal.note(f"{_title(key)}: {warning}")
        self._progress()
        return True

    def settled(self, key: Key) -> None:
        """Nothing is wrong with this, or it is gone."""
        if self.rejections.discard(key):
            self._journal.well(_title(key))


def _title(key: Key) -> str:
    return f"pod {key.namespace}/{key.name}" if key.kind is Kind.POD else f"node {key.name}"
