"""Tries the files that workers need before they start, and before SIGHUP replaces them."""

from __future__ import annotations

import logging

from gunicorn.util import import_app

from placement.domain.errors import PlacementError
from placement.operations.http.arbiter import Arbiter

LOG = logging.getLogger(__name__)
# Above this room, as it looks into all rooms.
_PREPARATION = "placement.preparation:prepare"


def prepare() -> None:
    """Try out what workers read when they start, and keep it for them. Raises PlacementError."""
    import_app(_PREPARATION)()


class CarefulArbiter(Arbiter):
    """A master that keeps its workers if their successors could not start."""

    def reload(self) -> None:
        """What SIGHUP asks for."""
        try:
            limits = self.app.read_limits()
            if self.app.tls is not None:
                self.app.tls.renew()
            prepare()
        except Exception as error:
            # After any failure the present workers can go on.
            kind = "" if isinstance(error, PlacementError) else f"{type(error).__name__}: "
            LOG.error("SIGHUP: %s%s Everything stays as it was.", kind, " ".join(str(error).split()))
            return
        self.app.limits = limits
        super().reload()
