"""The OpenAPI document of the service, one for each microversion."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import orjson
from apispec import APISpec
from flask import Flask
from werkzeug.routing import Rule

from placement.api.described import guard_of, operation_of
from placement.api.microversions import NEWEST, OLDEST, Feature, Microversion
from placement.api.openapi.operations import Described, microversion_parameter
from placement.api.openapi.schemas import Schemas
from placement.api.route_guard import PAGES

OPENAPI = "3.1.0"
# Where an application keeps its documents.
EXTENSION = "placement_openapi"
_DISTRIBUTION = "placement-forest"
_TEXT = {"type": "string"}
_SAID = (
    f"Resource providers, allocations and candidates as in OpenStack Placement {OLDEST} to {NEWEST}, and "
    "below /ext/v1, without microversions, what this service adds. This document is that of microversion "
    "{version}; /openapi.json?microversion=1.12 is that of another. x-openstack says in which versions "
    "an operation, a parameter or a member is there. A method that a path does not have is 405. What is no "
    "HTTP is refused before a route is looked for (400, 408, 414, 417, 431, 501, 505). Errors come "
    "as JSON, as text or as HTML, as the header Accept prefers."
)
_SCHEMES: dict[str, dict[str, str]] = {
    "token": {"type": "apiKey", "in": "header", "name": "X-Auth-Token"},
    "bearer": {"type": "http", "scheme": "bearer"},
    "basic": {"type": "http", "scheme": "basic", "description": "The token is the password."},
}
View = Callable[..., Any]


class Documents:
    """The documents of an application, each made when it is asked for first."""

    def __init__(self, application: Flask, *, only_header: bool) -> None:
        """`only_header`: tokens come in X-Auth-Token only."""
        self._application = application
        self._schemes = {"token": _SCHEMES["token"]} if only_header else _SCHEMES
        # There are few versions, so there is an end to it.
        self.text = lru_cache(maxsize=None)(self._text)

    def _text(self, version: Microversion) -> bytes:
        """The document without the URL of the server, as JSON."""
        return orjson.dumps(self._made(version))

    def _made(self, version: Microversion) -> dict[str, Any]:
        spec = APISpec(
            title="Placement",
            version=importlib.metadata.version(_DISTRIBUTION),
            openapi_version=OPENAPI,
            info={"description": _SAID.format(version=version), "license": {"name": "Apache-2.0"}},
            security=[{name: []} for name in self._schemes],
        )
        for name, scheme in self._schemes.items():
            spec.components.security_scheme(name, scheme)
        spec.components.header("RequestId", {"description": "The id of the request.", "schema": _TEXT})
        spec.components.header("Microversion", {"description": "The version that counted.", "schema": _TEXT})
        spec.components.parameter("Microversion", "header", microversion_parameter(version))
        schemas = Schemas(spec, version)
        for rule, method, view in routes(self._application):
            operation, guard = operation_of(view), guard_of(view)
            if operation is not None and (guard is None or guard.exists(version)):
                described = Described(rule.rule, method, operation, guard, version)
                tag = rule.endpoint.partition(".")[0]
                document = described.document(schemas, tag, _summary(view))
                spec.path(described.path, operations={described.method: document})
        return spec.to_dict()


def routes(application: Flask) -> Iterator[tuple[Rule, str, View]]:
    """Every rule of the API with every method and its handler, in the order of paths."""
    rules = (rule for rule in application.url_map.iter_rules() if not rule.rule.startswith(PAGES))
    for rule in sorted(rules, key=lambda rule: rule.rule):
        for method in sorted(rule.methods or ()):
            yield rule, method, application.view_functions[rule.endpoint]


def versions() -> list[Microversion]:
    """All microversions, the oldest first."""
    return [OLDEST, *sorted(feature.value for feature in Feature)]


def _summary(view: View) -> str:
    """What its docstring says first."""
    return (view.__doc__ or "").partition("\n\n")[0].strip()
