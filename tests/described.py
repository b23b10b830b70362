"""Answers held against the OpenAPI document of the service that gives them."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import orjson
from flask import Flask
from werkzeug.exceptions import HTTPException
from werkzeug.test import TestResponse

from placement.common.microversions import NEWEST, Microversion
from placement.http.gate import OWN_PATHS
from placement.http.openapi import Documents
from placement.http.openapi_operations import PATH_PARAMETER
from placement.http.registry import registry_of

_JSON = "application/json"
# What a route answers that the version does not have yet, or that is refused before its turn.
_WITHOUT_ROUTE = (400, 401, 404, 405, 406, 413, 415)
# By version; all applications of this process have the same but for their security schemes.
_DOCUMENTS: dict[Microversion, dict[str, Any]] = {}
_VALIDATORS: dict[tuple[Microversion, bytes], Any] = {}


def objection(application: Flask, method: str, path: str, answer: TestResponse) -> str | None:
    """What the document says otherwise about an answer; None if nothing, or if there is no such route."""
    try:
        bound = application.url_map.bind("localhost")
        rule, _ = bound.match(path.partition("?")[0], method, return_rule=True)
    except HTTPException:
        return None
    version = _version(rule.rule, answer)
    paths = _document(application, version)["paths"]
    described = paths.get(PATH_PARAMETER.sub(r"{\1}", rule.rule), {}).get(method.lower())
    status = answer.status_code
    if status == 500:
        return f"{method} {path}: the service failed: {answer.text}"
    if described is None and not _is_described(application, rule.rule):
        # Not one of ours: that all of these are described has a test of its own.
        return None
    if described is None:
        return None if status in _WITHOUT_ROUTE else f"{method} {path} is not described in {version}"
    found = described["responses"].get(str(status))
    if found is None:
        return f"{method} {path}: {status} is not described in {version}"
    if "$ref" in found:
        found = _document(application, version)["components"]["responses"][found["$ref"].rpartition("/")[2]]
    wrong = _wrong_body(found.get("content", {}), version, answer)
    return None if wrong is None else f"{method} {path}: {status} in {version}: {wrong}"


def _is_described(application: Flask, rule: str) -> bool:
    return PATH_PARAMETER.sub(r"{\1}", rule) in _document(application, NEWEST)["paths"]


def _wrong_body(content: dict[str, Any], version: Microversion, answer: TestResponse) -> str | None:
    if not answer.data:
        return "a body is described" if _JSON in content else None
    known = content.get(answer.content_type) or content.get(answer.mimetype)
    if known is None:
        return f"no body of {answer.content_type} is described"
    if answer.mimetype != _JSON:
        return None
    error = next(_validator(version, known["schema"]).iter_errors(answer.json), None)
    return None if error is None else str(error)


def _version(rule: str, answer: TestResponse) -> Microversion:
    """The version that counted for the answer; the oldest errors come before one is agreed."""
    text = answer.headers.get("openstack-api-version", "").rpartition(" ")[2]
    if rule.startswith(OWN_PATHS) or not text:
        return NEWEST
    major, minor = text.split(".")
    return Microversion(int(major), int(minor))


def _document(application: Flask, version: Microversion) -> dict[str, Any]:
    if version not in _DOCUMENTS:
        _DOCUMENTS[version] = orjson.loads(registry_of(application)[Documents].text(version))
    return _DOCUMENTS[version]


def _validator(version: Microversion, schema: dict[str, Any]) -> Any:
    key = (version, orjson.dumps(schema))
    if key not in _VALIDATORS:
        whole = {**schema, "components": _DOCUMENTS[version]["components"]}
        _VALIDATORS[key] = jsonschema_rs.Draft202012Validator(whole, validate_formats=True)
    return _VALIDATORS[key]
