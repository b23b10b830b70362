"""Reading request bodies."""

from __future__ import annotations

from typing import Any

import orjson
from flask import request

from placement.api import context
from placement.api.schemas.base import VersionedSchema, load
from placement.domain.errors import BadRequest

_PREFIX = "JSON does not validate: "


def json_body() -> Any:
    """The body as JSON. Raises BadRequest."""
    try:
        return orjson.loads(request.get_data(cache=False))
    except ValueError as error:
        raise BadRequest(f"Malformed JSON: {error}") from None


def validated(schema: type[VersionedSchema]) -> Any:
    """The body, checked against the schema in the request's version. Raises BadRequest."""
    return load(schema, context.version(), json_body(), _PREFIX)
