"""A Flask route that returns bytes made beforehand: what HTTP alone costs.

`READY_MADE` names a directory with one file per query string, called by `name_of`.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from flask import Flask, Response, request


def name_of(query: str) -> str:
    """The file of a query string."""
    return hashlib.sha256(query.encode()).hexdigest()


def create() -> Flask:
    """The application, with all bodies in memory."""
    flask = Flask(__name__)
    bodies = {path.name: path.read_bytes() for path in Path(os.environ["READY_MADE"]).iterdir()}

    @flask.get("/allocation_candidates")
    def candidates() -> Response:
        return Response(bodies[name_of(request.query_string.decode())], mimetype="application/json")

    return flask
