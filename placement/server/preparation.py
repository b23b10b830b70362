"""The files that every worker needs, checked and read beforehand by the process that starts them."""

from __future__ import annotations

from pathlib import Path

from placement.allocations.orders import order_of
from placement.engine.domain.errors import PlacementError
from placement.http import auth, gate
from placement.http.auth import NO_FILE, BadTokens, Keystone
from placement.http.context import Misconfigured
from placement.server import settings


def prepare() -> None:
    """Read tokens and rules as they are now; workers that start from now on have them.

    Raises PlacementError that says what in the configuration cannot be used; then nothing has changed.
    """
    loaded = settings.load()
    settings.require_strategy(loaded)
    order_of(loaded.scoring.order_by, "[scoring] order_by")
    api, tokens = loaded.api, {}
    try:
        if api.auth_strategy == "token":
            if not api.tokens_file:
                raise BadTokens(NO_FILE)
            file = Path(api.tokens_file)
            tokens[file] = auth.read(file)
        if api.auth_strategy == "keystone":
            Keystone(loaded)
        enforcer = gate.enforcer_of(loaded)
    except Misconfigured as error:
        raise PlacementError(str(error)) from None
    auth.prepared.update(tokens)
    gate.prepared[:] = [enforcer]
