"""The files that every worker needs, checked and read beforehand by the process that starts them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from placement.allocations.orders import order_of
from placement.engine.domain.errors import PlacementError
from placement.http import auth, gate
from placement.http.auth import Keystone
from placement.http.responses import Misconfigured
from placement.server import settings


def prepare() -> None:
    """Read tokens and rules as they are now; workers that start from now on have them.

    Raises PlacementError that says what in the configuration cannot be used; then nothing has changed.
    """
    loaded = settings.load()
    settings.require_strategy(loaded)
    order_of(loaded.scoring.order_by, "[scoring] order_by")
    read: list[Callable[[], None]] = []
    try:
        if loaded.api.auth_strategy == "token":
            read.append(auth.prepare(Path(loaded.api.tokens_file) if loaded.api.tokens_file else None))
        if loaded.api.auth_strategy == "keystone":
            Keystone(loaded)
        read.append(gate.prepare(loaded))
    except Misconfigured as error:
        raise PlacementError(str(error)) from None
    for publish in read:
        publish()
