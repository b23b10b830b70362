"""The application that a WSGI server loads: `placement.wsgi:application`."""

from __future__ import annotations

import os
import sys

from flask import Flask

from placement import app
from placement.engine.domain.errors import PlacementError
from placement.health import Health
from placement.http.errors import Misconfigured
from placement.http.registry import registry_of
from placement.http.strategies.authentication import Authentication
from placement.server import settings


def _application() -> Flask:
    loaded = settings.load()
    settings.require_strategy(loaded)
    settings.start_logging(loaded)
    # The command does this once for all of its workers.
    if settings.MADE_READY_VARIABLE not in os.environ:
        settings.warn(loaded)
        settings.make_ready(loaded)
    flask = app.configured(loaded)
    # It loads the forest, too: the first search should not pay for that, nor other requests wait for it.
    registry_of(flask)[Health].watch()
    keystone = registry_of(flask)[Authentication].keystone
    if keystone is not None:
        keystone.sign_in_beside()
    return flask


try:
    application = _application()
except (PlacementError, Misconfigured) as error:
    sys.exit(f"placement: {error}")
