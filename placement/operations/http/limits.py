"""What one worker process allows the clients of its connections."""

from __future__ import annotations

from dataclasses import dataclass

from placement.services.bounds import MOST_FORM_BYTES

_OF_FOLLOWED_CHANGES = 1
# Forest and images keep one each for good; health, removal of old records and [capacity] watch take one each.
_BESIDE_REQUESTS = 5


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds, bytes and numbers; those without an option are the same everywhere."""

    # Options of the group [api].
    largest_body_bytes: int = 32 * 2**20
    request_seconds: float = 30
    requests_per_caller: int = 256

    # A form of the pages, which strangers may send.
    largest_form_bytes: int = MOST_FORM_BYTES
    head_seconds: float = 10
    body_seconds: float = 60
    keep_alive_seconds: float = 75
    # A request line may hold a query string of 64 KiB.
    largest_line_bytes: int = 68 * 1024
    largest_head_bytes: int = 136 * 1024
    # Of all requests that are being received or wait.
    most_buffered_bytes: int = 256 * 2**20
    # Of a body kept in memory; what is longer goes to a temporary file.
    body_in_memory_bytes: int = 64 * 1024
    most_senders: int = 512
    most_connections: int = 4096
    # An answer may take so long, and longer if the client takes at least this much per second.
    send_seconds: float = 60
    slowest_reader_bytes_per_second: int = 100_000
    # How long a refused client may go on sending; it is not read.
    drain_seconds: float = 2
    # How long a stopping worker waits for requests that are on their way over idle connections.
    linger_seconds: float = 2
    orphan_seconds: float = 2

    # The database pool has a connection for each of these, see `connections`.
    status_threads: int = 3
    read_threads: int = 12
    write_threads: int = 8
    # More than may wait for changes (api.routes.audit), also of one caller, so that others learn it at once.
    event_threads: int = 12
    # Strangers may sign in, so a slow identity service costs no thread of others. It needs no database.
    sign_in_threads: int = 4
    most_waiting: int = 512

    @property
    def connections(self) -> int:
        """Return how many connections to the database a process may hold at once, so that none is waited for.

        Requests that follow changes look at the database one after another, so they hold one together.
        """
        threads = self.read_threads + self.write_threads + self.status_threads
        return threads + _OF_FOLLOWED_CHANGES + _BESIDE_REQUESTS
