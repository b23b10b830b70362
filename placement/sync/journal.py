"""The lines that the command prints on a terminal."""

from __future__ import annotations

import threading
from typing import TextIO

from placement.common.texts import printable


class Journal:
    """A journal of progress on one stream and trouble on the other; may be used by several threads."""

    def __init__(self, progress: TextIO, trouble: TextIO) -> None:
        self._progress = progress
        self._trouble = trouble
        self._lock = threading.Lock()
        self._last: dict[str, str] = {}

    def note(self, text: str) -> None:
        """Print progress."""
        self._write(self._progress, text)

    def trouble(self, source: str, text: str) -> None:
        """Print the trouble with a thing, but not the same text again until `well` was called for it."""
        with self._lock:
            repeated = self._last.get(source) == text
            self._last[source] = text
        if not repeated:
            self._write(self._trouble, f"{source}: {text}")

    def well(self, source: str) -> None:
        """Note that the trouble with a thing is over."""
        with self._lock:
            settled = self._last.pop(source, None) is not None
        if settled:
            self._write(self._trouble, f"{source}: well again")

    def troubles(self) -> dict[str, str]:
        """Return the present troubles, by source."""
        with self._lock:
            return dict(self._last)

    def _write(self, stream: TextIO, text: str) -> None:
        with self._lock:
            print(printable(text), file=stream, flush=True)
