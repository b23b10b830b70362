"""The lines that the command prints for a person who watches it."""

from __future__ import annotations

import threading
from typing import TextIO


class Journal:
    """Progress on one stream, trouble on the other; may be used by several threads."""

    def __init__(self, progress: TextIO, trouble: TextIO) -> None:
        self._progress = progress
        self._trouble = trouble
        self._lock = threading.Lock()
        self._last: dict[str, str] = {}

    def note(self, text: str) -> None:
        """Print progress."""
        self._write(self._progress, text)

    def trouble(self, source: str, text: str) -> None:
        """Print what went wrong with a thing, but not the same again until `well` was called for it."""
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
        """What goes wrong at present, by source."""
        with self._lock:
            return dict(self._last)

    def _write(self, stream: TextIO, text: str) -> None:
        with self._lock:
            print(text, file=stream, flush=True)
