"""The register of a worker: the phase of each of its connections, and how many bytes it keeps."""

from __future__ import annotations

from collections.abc import Iterator

from placement.operations.http.connection import Connection, Phase
from placement.operations.http.limits import Limits


class Register:
    """Connections by their phases, oldest first, and the bytes of the requests that they keep."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._counted: dict[Connection, int] = {}
        self._held = 0
        self._draining: dict[Connection, None] = {}
        self._idle: dict[Connection, None] = {}
        self._senders: dict[Connection, None] = {}
        self._readers: dict[Connection, None] = {}
        self._lists = {
            Phase.DRAIN: self._draining,
            Phase.IDLE: self._idle,
            Phase.HEAD: self._senders,
            Phase.BODY: self._senders,
            Phase.SENDING: self._readers,
        }
        self._listed: dict[Connection, dict[Connection, None]] = {}

    def __contains__(self, connection: Connection) -> bool:
        return connection in self._counted

    def __iter__(self) -> Iterator[Connection]:
        return iter(list(self._counted))

    def __len__(self) -> int:
        return len(self._counted)

    def add(self, connection: Connection) -> None:
        """Add a connection."""
        self._counted[connection] = 0
        self.note(connection)

    def discard(self, connection: Connection) -> None:
        """Remove a connection that is closed."""
        self._held -= self._counted.pop(connection, 0)
        self._list(connection, None)

    def note(self, connection: Connection) -> None:
        """Take down the phase and the bytes of a connection that is not closed; they may have changed."""
        if connection not in self._counted:
            return
        held = connection.held
        self._held += held - self._counted[connection]
        self._counted[connection] = held
        self._list(connection, self._lists.get(connection.phase))

    def greediest(self) -> Connection | None:
        """The connection to drop when too many bytes are kept: the sender with the most, if that is much.

        A client that sends a lot and stalls must not keep others from sending little.
        """
        if self._held <= self._limits.most_buffered_bytes:
            return None
        most = max(self._senders, key=self._counted.__getitem__, default=None)
        return most if most and self._counted[most] > self._limits.body_in_memory_bytes else None

    def oldest_of_many(self) -> Connection | None:
        """The connection to drop when too many are sending."""
        return next(iter(self._senders)) if len(self._senders) > self._limits.most_senders else None

    def least_useful(self) -> Connection | None:
        """The connection whose end would harm least; None if all are being worked for."""
        lists = self._draining, self._idle, self._senders, self._readers
        return next((next(iter(each)) for each in lists if each), None)

    def _list(self, connection: Connection, wanted: dict[Connection, None] | None) -> None:
        found = self._listed.get(connection)
        if found is wanted:
            return
        if found is not None:
            del found[connection], self._listed[connection]
        if wanted is not None:
            wanted[connection] = None
            self._listed[connection] = wanted
