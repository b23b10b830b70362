"""Each operation of /openapi.json has an example; the example clusters accept it, and it is as described."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest
from flask import Flask

from placement.common.probes import PATHS
from placement.http.openapi_operations import PATH_PARAMETER, examples
from tests.examples import asked, demonstration_service

_JSON = "application/json"
_ITSELF = "/openapi.json"
# The document would be in itself, these probes answer in text, and answers to HEAD have no bodies.
_WITHOUT_ANSWER = (f"GET {_ITSELF}", "GET /livez", "GET /readyz", *(f"HEAD {path}" for path in PATHS))


@pytest.fixture(scope="module")
def application() -> Iterator[Flask]:
    with demonstration_service() as application:
        yield application


@pytest.fixture(scope="module")
def document(application: Flask) -> dict[str, Any]:
    found: dict[str, Any] = application.test_client().get(_ITSELF).json
    return found


def _operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            yield f"{method.upper()} {path}", operation


def _contents(operation: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The bodies in JSON that a request and its answers of success have."""
    yield "body", operation.get("requestBody", {}).get("content", {}).get(_JSON, {})
    for status, answer in operation["responses"].items():
        yield status, answer.get("content", {}).get(_JSON, {}) if status.startswith("2") else {}


def test_each_operation_shows_what_it_takes_and_gives(document: dict[str, Any]):
    lacking = []
    for name, operation in _operations(document):
        parameters = [each for each in operation["parameters"] if "$ref" not in each]
        required = [each for each in parameters if each["required"]]
        lacking += [f"{name}: {each['name']}" for each in required if "example" not in each]
        contents = dict(_contents(operation))
        body = contents.pop("body")
        answers = [each for each in contents.values() if each]
        if (body and "example" not in body) or (
            answers and name not in _WITHOUT_ANSWER and not any("example" in each for each in answers)
        ):
            lacking.append(name)
    named = {PATH_PARAMETER.sub(r"{\1}", name) for name in examples()}
    lacking += sorted({name for name, _ in _operations(document)} - named)
    assert not lacking, f"Examples are in placement/http/examples.json; they lack {', '.join(lacking)}"


def test_each_example_is_as_described(document: dict[str, Any]):
    wrong = []
    for name, operation in _operations(document):
        described = [*operation["parameters"], *(each for _, each in _contents(operation))]
        for each in described:
            if "example" in each:
                schema = {**each["schema"], "components": document["components"]}
                found = jsonschema_rs.Draft202012Validator(schema, validate_formats=True)
                wrong += [f"{name}: {error}" for error in found.iter_errors(each["example"])]
    assert not wrong, "\n".join(wrong)


def test_the_example_clusters_accept_each_example(application: Flask):
    refused = {}
    for name, example in examples().items():
        answer = asked(application.test_client(), name)
        if answer.status_code != example["status"]:
            refused[name] = answer.text
    assert not refused
