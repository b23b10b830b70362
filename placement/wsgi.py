"""What a WSGI server loads: `placement.wsgi:application`."""

from __future__ import annotations

import logging
from contextlib import suppress

from flask import Flask

from placement import app
from placement.api.application import ApiSettings
from placement.domain.errors import Unavailable
from placement.operations import settings
from placement.services.candidates import SearchSettings
from placement.storage.database import Database


def _application() -> Flask:
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(process)d %(levelname)s %(name)s %(message)s"
    )
    loaded = settings.load()
    database = Database(
        loaded.placement_database.connection,
        pool_size=loaded.placement_database.max_pool_size,
        max_overflow=loaded.placement_database.max_overflow,
        pool_timeout=loaded.placement_database.pool_timeout,
    )
    maximum = loaded.placement.max_allocation_candidates
    strategy = loaded.placement.allocation_candidates_generation_strategy
    flask = app.build(
        database,
        ApiSettings(
            incomplete_consumer_project_id=loaded.placement.incomplete_consumer_project_id,
            incomplete_consumer_user_id=loaded.placement.incomplete_consumer_user_id,
        ),
        SearchSettings(maximum=None if maximum < 0 else maximum, depth_first=strategy == "depth-first"),
    )
    # The first search should not pay for loading; a database that is down now may be up by then.
    with suppress(Unavailable), flask.extensions["placement_use_cases"].forest.current():
        pass
    return flask


application = _application()
