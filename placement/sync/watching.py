"""The threads that keep the collections of the store current, also after the connection was lost."""

from __future__ import annotations

import random
import threading
import time

from placement.sync.api_server import GONE, ApiServer, ApiServerError
from placement.sync.figures import WATCH_FAILURES
from placement.sync.informer_store import InformerStore
from placement.sync.journal import Journal
from placement.sync.pause import Pause
from placement.sync.watched_collections import Collection, version_of

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
    """The thread that lists, then watches from the version of the list; it lists anew only when it must."""

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
                listed = list_into(self._api_server, self._collection, self._store, self._journal)
                if listed is None:
                    time.sleep(_UNKNOWN_KIND_SECONDS)
                else:
                    self._follow(*listed)
            except ApiServerError as error:
                self._recover(error)

    def _follow(self, collection: Collection, version: str) -> None:
        """Watch from this version. Raises ApiServerError when only a new list helps."""
        is_doubtful = False
        while True:
            began, before, is_on = time.monotonic(), version, False
            try:
                if is_doubtful:
                    # A restored etcd has older versions, and a watch from a later one brings nothing.
                    page = next(self._api_server.pages(collection.path, {"limit": "1"}))
                    latest = page.resource_version
                    if _number(latest) < _number(version):
                        raise ApiServerError(f"version {version} is after the latest, {latest}", GONE)
                events = self._api_server.watch(collection.path, version, random.randint(*_WATCH_SECONDS))
                is_on = True
                # Where nothing happens no event tells that the watch is on again.
                if self._broken_at_once < _MOST_BROKEN_AT_ONCE:
                    self._journal.well(self._source)
                for event in events:
                    version = version_of(event.object)
                    if event.type != "BOOKMARK":
                        key, watched = collection.watched(event.object)
                        gone = event.type == "DELETED"
                        self._store.put(collection.title, key, None if gone else watched)
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
) -> tuple[Collection, str] | None:
    """List the collection into the store; return it, and the version of the list. Raises ApiServerError.

    It is the collection in the version of the API that Kubernetes offers. Return None if it does not know the
    kind, where that may be: then there are no objects.
    """
    source = _source(collection)
    try:
        found, version = collection.listed(api_server)
    except ApiServerError as error:
        if error.status not in collection.absent:
            raise
        if collection.older_collection is not None:
            return list_into(api_server, collection.older_collection, store, journal)
        store.lacks(collection.title)
        if collection.without:
            journal.trouble(source, f"{UNKNOWN_KIND} {collection.kind}, so {collection.without}")
        else:
            journal.well(source)
        return None
    store.replace(collection.title, found)
    journal.well(source)
    return collection, version


def _number(version: str) -> int:
    """Return the number of a version, 0 if it is none. Kubernetes compares versions so (KEP-5504)."""
    return int(version) if version.isdecimal() else 0


def _source(collection: Collection) -> str:
    return f"{SOURCE}{collection.title}"
