"""What a WSGI server loads: `placement.wsgi:application`."""

from __future__ import annotations

import logging
import os
import sys
import threading

from flask import Flask

from placement import app
from placement.api.errors import Misconfigured
from placement.domain.errors import PlacementError, Unavailable
from placement.operations import settings
from placement.services.following.forest_keeper import ForestKeeper


def _application() -> Flask:
    loaded = settings.load()
    settings.require_strategy(loaded)
    settings.start_logging(loaded)
    # The command does this once for all of its workers.
    if settings.MADE_READY_VARIABLE not in os.environ:
        settings.warn_of_open_secrets(loaded)
        settings.make_ready(loaded)
    flask = app.configured(loaded)
    # The first search should not pay for loading, and what needs no search should not wait for it.
    forest = flask.extensions["placement_use_cases"].forest
    threading.Thread(target=_load, args=[forest], name="first load", daemon=True).start()
    return flask


def _load(forest: ForestKeeper) -> None:
    try:
        forest.current()
    except Unavailable as error:
        logging.getLogger(__name__).warning("the forest is not loaded yet: %s", error)


try:
    application = _application()
except (PlacementError, Misconfigured) as error:
    sys.exit(f"placement: {error}")
