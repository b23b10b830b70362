"""A thread that keeps one collection of the store current, also after the connection was lost."""

from __future__ import annotations

import random
import threading
import time

from placement.sync.api_server import GONE, ApiServer, ApiServerError
from placement.sync.events import Journal
from placement.sync.figures import WATCH_FAILURES
from placement.sync.store import Collection, InformerStore, version_of

# How long to wait before trying again.


_FIRST_SECONDS = 0.5
_LONGEST_SECONDS = 30.0


class Pause:
    """A pause that doubles with each failure in a row; jitter keeps callers from coming back together."""

    def __init__(self, longest: float = _LONGEST_SECONDS) -> None:
        self._longest = longest
        self._next = _FIRST_SECONDS

    def after_failure(self) -> float:
        """Return the seconds to wait now."""
        now = self._next
        self._next = min(2 * now, self._longest)
        return now * random.uniform(0.5, 1.0)

    def after_success(self) -> None:
        """Begin again with a short pause."""
        self._next = _FIRST_SECONDS


# The beginning of the trouble with a kind that need not be there.
UNKNOWN_KIND = "Kubernetes knows no"
SOURCE = "Kubernetes, "
# Short enough that a connection which died without a word is noticed soon, long enough to cost nothing.
_WATCH_SECONDS = (90, 150)
_UNKNOWN_KIND_SECONDS = 300.0
_SUSPICIOUSLY_SHORT_SECONDS = 1.0
# After so many watches that were let in and broke off at once, only an event proves that one is on.
_MOST_BROKEN_AT_ONCE = 2


class Watching(threading.Thread):
    """A thread that lists, then watches from the version of the list; it lists anew only when it must."""

    def __init__(
        self, api_server: ApiServer, collection: Collection, store: InformerStore, journal: Journal
    ) -> None:
        super().__init__(name=collection.title, daemon=True)
        self._api_server = api_server
        self._collection = collection
        self._store = store
        self._journal = journal
        self._source = _source(collection)
        self._pause = Pause()
        # How many watches in a row were let in and broke off at once.
        self._broken_at_once = 0

    def run(self) -> None:
        while True:
            try:
                version = list_into(self._api_server, self._collection, self._store, self._journal)
                if version is None:
                    time.sleep(_UNKNOWN_KIND_SECONDS)
                else:
                    self._follow(version)
            except ApiServerError as error:
                self._recover(error)

    def _follow(self, version: str) -> None:
        """Watch from this version. Raises ApiServerError when only a new list helps."""
        is_doubtful = False
        while True:
            began, before, is_on = time.monotonic(), version, False
            try:
                if is_doubtful:
                    # A restored etcd has older versions, and a watch from a later one brings nothing.
                    page = next(self._api_server.pages(self._collection.path, {"limit": "1"}))
                    latest = page.resource_version
                    if _number(latest) < _number(version):
                        raise ApiServerError(f"version {version} is after the latest, {latest}", GONE)
                events = self._api_server.watch(
                    self._collection.path, version, random.randint(*_WATCH_SECONDS)
                )
                is_on = True
                # Where nothing happens no event tells that the watch is on again.
                if self._broken_at_once < _MOST_BROKEN_AT_ONCE:
                    self._journal.well(self._source)
                for event in events:
                    version = version_of(event.object)
                    if event.type != "BOOKMARK":
                        key, seen = self._collection.seen(event.object)
                        gone = event.type == "DELETED"
                        self._store.put(self._collection.title, key, None if gone else seen)
                    self._well()
            except ApiServerError as error:
                if error.status is not None:
                    raise
                is_short = is_on and time.monotonic() - began < _SUSPICIOUSLY_SHORT_SECONDS
                self._broken_at_once = self._broken_at_once + 1 if is_short else 0
                self._recover(error)
                is_doubtful = True
                continue
            is_doubtful = version == before
            # A server that ends every watch at once must not be asked a thousand times a second.
            if version == before and time.monotonic() - began < _SUSPICIOUSLY_SHORT_SECONDS:
                time.sleep(self._pause.after_failure())
            else:
                self._well()

    def _well(self) -> None:
        self._broken_at_once = 0
        self._pause.after_success()
        self._journal.well(self._source)

    def _recover(self, error: ApiServerError) -> None:
        if error.status == GONE:
            self._journal.note(f"{self._source}: versions since the last one are not known, listing again")
        else:
            WATCH_FAILURES.labels(self._collection.title).inc()
            self._journal.trouble(self._source, str(error))
        time.sleep(self._pause.after_failure())


def list_into(
    api_server: ApiServer, collection: Collection, store: InformerStore, journal: Journal
) -> str | None:
    """List the collection into the store; return the version of the list. Raises ApiServerError.

    Return None if Kubernetes does not know the kind, where that may be: then there are no objects.
    """
    source = _source(collection)
    try:
        found, version = collection.listed(api_server)
    except ApiServerError as error:
        if error.status not in collection.absent:
            raise
        store.lacks(collection.title)
        if collection.without:
            journal.trouble(source, f"{UNKNOWN_KIND} {collection.kind}, so {collection.without}")
        else:
            journal.well(source)
        return None
    store.replace(collection.title, found)
    journal.well(source)
    return version


def _number(version: str) -> int:
    """Return the number of a version, 0 if it is none. Kubernetes compares versions so (KEP-5504)."""
    return int(version) if version.isdecimal() else 0


def _source(collection: Collection) -> str:
    return f"{SOURCE}{collection.title}"
