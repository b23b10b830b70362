"""The examples of the OpenAPI document, asked of the example clusters one after another.

`python -m tests.examples` writes what is answered into placement/http/examples.json, cut to what shows its
form. The requests in that file are written by hand.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import orjson
from flask import Flask
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from placement.health import Health
from placement.http import openapi_operations
from placement.http.registry import registry_of
from tests.conftest import application_at
from tests.server import database_url

_HEADERS = {
    "Accept": "application/json",
    "OpenStack-API-Version": "placement 1.39",
    "X-Auth-Token": "admin",
}
_MOST_ITEMS = 2
# Objects whose members are things of the service, not fields.
_KEY = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|[0-9]+")


@contextmanager
def demonstration_service() -> Iterator[Flask]:
    """The service in this process on the example clusters."""
    with database_url("sqlite", has_examples=True) as url, application_at(url) as application:
        registry_of(application)[Health].look()
        yield application


def asked(http: FlaskClient, name: str) -> TestResponse:
    """The answer to the example of an operation, such as `GET /traits/<name>`."""
    example = openapi_operations.examples()[name]
    method, _, rule = name.partition(" ")
    path = openapi_operations.PATH_PARAMETER.sub(lambda found: example["path"][found[1]], rule)
    pairs: dict[str, Any] = {}
    for key, value in example.get("query", {}).items():
        # An object stands for the parameters that are its members.
        pairs |= value if isinstance(value, dict) else {key: value}
    return http.open(
        path,
        method=method,
        query_string=pairs,
        json=example.get("body"),
        headers=_HEADERS,
    )


def cut(value: Any) -> Any:
    """A JSON value with the first items of its lists and of its maps of things."""
    if isinstance(value, list):
        return [cut(item) for item in value[:_MOST_ITEMS]]
    if isinstance(value, dict):
        things = sum(bool(_KEY.fullmatch(key)) for key in value) == len(value)
        return {key: cut(value[key]) for key in list(value)[: _MOST_ITEMS if things else None]}
    return value


def write() -> None:
    """Write what is answered beside the requests."""
    examples = openapi_operations.examples()
    with demonstration_service() as application:
        http = application.test_client()
        for name, example in examples.items():
            answer = asked(http, name)
            assert answer.status_code < 300, f"{name}: {answer.status} {answer.text}"
            example["status"] = answer.status_code
            if answer.mimetype == "application/json" and answer.data and name != "GET /openapi.json":
                example["answer"] = cut(answer.json)
    lines = (b"%b: %b" % (orjson.dumps(name), orjson.dumps(each)) for name, each in examples.items())
    openapi_operations.EXAMPLES.write_bytes(b"{\n%b\n}\n" % b",\n".join(lines))


if __name__ == "__main__":
    write()
