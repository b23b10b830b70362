"""What a WSGI server loads: `placement.wsgi:application`."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from flask import Flask

from placement import app
from placement.api.tokens import BadTokens
from placement.domain.errors import PlacementError, Unavailable
from placement.operations import settings


def _application() -> Flask:
    loaded = settings.load()
    settings.start_logging(loaded)
    # The command does this once for all of its workers.
    if settings.MADE_READY_VARIABLE not in os.environ:
        settings.make_ready(loaded)
    flask = app.configured(loaded)
    # The first search should not pay for loading; a database that is down now may be up by then.
    with suppress(Unavailable), flask.extensions["placement_use_cases"].forest.current():
        pass
    return flask


try:
    application = _application()
except (PlacementError, BadTokens, ImportError) as error:
    sys.exit(f"placement: {error}")
