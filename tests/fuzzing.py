"""Requests that schemathesis makes of the OpenAPI document, and what it finds wrong about the answers.

`python -m tests.fuzzing [EXAMPLES [MICROVERSION ...]]` tries every operation so often; `make fuzz` does it.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import schemathesis
from flask import Flask
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import FlakyStrategyDefinition, Unsatisfiable
from schemathesis.core.failures import FailureGroup

from tests.client import Client
from tests.conftest import application_on
from tests.described_service import KNOWN, TOKEN, described_service, fill
from tests.odd_values import anything, health, requests, scene, send
from tests.server import BACKENDS

# Rules that JSON Schema does not know, such as names that must exist, are answered 400.
_ACCEPTED = ["2xx", 400, 401, 403, 404, 409, 415]
_REFUSED = [400, 401, 403, 404, 405, 406, 409, 411, 415]
# Each manifest of these has an outcome of its own, so a call with a bad one is answered 200.
_BY_ITEM = [f"POST /ext/v1/clusters/{{cluster}}/{what}" for what in ("nodes", "pods")]
# kube-scheduler is answered 200 whatever it sends, with whatever token.
_EXTENDER = [
    f"POST /ext/v1/clusters/{{cluster}}/extender/{verb}"
    for verb in ("filter", "prioritize", "preempt", "bind")
]
_CONFIGURATION = {
    "checks": {
        "positive_data_acceptance": {"expected-statuses": _ACCEPTED},
        "negative_data_rejection": {"expected-statuses": _REFUSED},
    },
    "operations": [
        {
            "include-name": _BY_ITEM,
            "checks": {"negative_data_rejection": {"expected-statuses": ["2xx", *_REFUSED]}},
        },
        {
            "include-name": _EXTENDER,
            "checks": {
                "negative_data_rejection": {"expected-statuses": ["2xx"]},
                "ignored_auth": {"enabled": False},
                "unsupported_method": {"enabled": False},
            },
        },
    ],
    # A caller without a token, or with another one, is a check of its own.
    "generation": {"with-security-parameters": False},
}
_EXAMPLES, _VERSIONS = 100, ("1.0", "1.12", "1.39")
_MOST_VAIN_ATTEMPTS = 20


class _NoSuchRequest(Exception):
    """Of requests for which anything is right there are no wrong ones."""


def operations(application: Flask, version: str) -> list[Any]:
    """The operations of the document of a microversion."""
    schema = schemathesis.openapi.from_wsgi(
        f"/openapi.json?microversion={version}",
        application,
        config=schemathesis.Config.from_dict(_CONFIGURATION),
    )
    return [found.ok() for found in schema.get_all_operations()]


def findings(application: Flask, operation: Any, version: str, examples: int) -> set[str]:
    """What is wrong about the answers to so many requests that keep to the document, and that do not."""
    fill(Client(application.test_client(), token=TOKEN))
    found, is_asked = set[str](), False

    def ask(case: Any) -> None:
        nonlocal is_asked
        is_asked = True
        if case.meta.generation.mode is schemathesis.GenerationMode.POSITIVE:
            _name_what_is_there(case)
        found.update(_wrong(case, version))

    for mode in schemathesis.GenerationMode:
        # Giving up depends on the attempts before, which Hypothesis may notice.
        with suppress(_NoSuchRequest, FlakyStrategyDefinition, Unsatisfiable):
            _try(operation.as_strategy(generation_mode=mode), examples, ask)
    return found if is_asked else {f"{version} {operation.label}: nothing could be asked"}


def _try(cases: st.SearchStrategy[Any], examples: int, ask: Callable[[Any], None]) -> None:
    """Ask so many of these. Raises _NoSuchRequest after few attempts; Hypothesis would make hundreds."""
    attempts = asked = 0

    def attempted(_: None) -> st.SearchStrategy[Any]:
        nonlocal attempts
        attempts += 1
        if attempts > _MOST_VAIN_ATTEMPTS and not asked:
            raise _NoSuchRequest
        return cases

    @settings(
        max_examples=examples,
        phases=[Phase.generate],
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=st.none().flatmap(attempted))
    def example(case: Any) -> None:
        nonlocal asked
        asked += 1
        ask(case)

    example()


def _name_what_is_there(case: Any) -> None:
    """Most of the time; what is not there teaches little but 404."""
    for name, value in (case.path_parameters or {}).items():
        chosen = sum(str(value).encode()) % 4
        known = KNOWN.get(name, ())
        if chosen < 3 and known:
            case.path_parameters[name] = known[chosen % len(known)]


def _wrong(case: Any, version: str) -> Iterator[str]:
    headers = {"X-Auth-Token": TOKEN, "OpenStack-API-Version": f"placement {version}"}
    try:
        case.call_and_validate(headers=headers)
    except FailureGroup as failures:
        for failure in failures.exceptions:
            yield f"{version} {case.operation.label}: {failure}\n    {case.as_curl_command()}"


def odd_values(application: Flask, attempts: int) -> set[str]:
    """What fails of so many requests with any odd value at any place, and of what is asked after them."""
    api, rng, found = Client(application.test_client()), random.Random(attempts), set[str]()
    scene(api)
    for request in requests():
        for _ in range(attempts):
            place, value, body = anything(request, rng)
            status = send(api, request, body)
            ill = health(api) if status < 300 else {}
            if status >= 500 or ill:
                found.add(f"{request.method} {request.path} {place} {value!r:.80}: {status} {ill}")
    return found


def main(arguments: list[str]) -> int:
    """Print the findings; 1 if there are any."""
    examples = int(arguments[0]) if arguments else _EXAMPLES
    found: set[str] = set()
    with tempfile.TemporaryDirectory() as directory, described_service(Path(directory)) as application:
        for version in arguments[1:] or _VERSIONS:
            for operation in operations(application, version):
                print(version, operation.label, flush=True)
                found |= findings(application, operation, version, examples)
    for backend in BACKENDS:
        with application_on(backend) as application:
            print("odd values", backend, flush=True)
            found |= odd_values(application, examples)
    print("\n\n".join(sorted(found)) or "nothing found")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
