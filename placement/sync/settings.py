"""What the command of the synchronization can set, a module of its own as the others load the clients."""

from __future__ import annotations

from typing import NamedTuple

PATIENCE_SECONDS = 600.0
# A bind is decided within two minutes of its claim: see the extender.
LEAST_PATIENCE_SECONDS = 180
LEASE_SECONDS = 15
SHORTEST_LEASE_SECONDS, LONGEST_LEASE_SECONDS = 3, 3600


class LeaseName(NamedTuple):
    """The namespace and the name of a Lease."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"
