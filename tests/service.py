"""A running placement service as a client sees it: calls, answers, candidates in answers."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from tests.naive import Candidate
from tests.patience import PATIENCE_SECONDS

LATEST = "1.39"


class ServiceError(Exception):
    """The service cannot be reached or refuses a call that has to work."""


@dataclass(frozen=True)
class Answer:
    """Status and body of an answer; a body that is not JSON is text, an empty one None."""

    status: int
    body: Any


class Service:
    """Calls to the service at a base URL, past any proxy of the environment."""

    def __init__(self, url: str, token: str = "admin", tls: ssl.SSLContext | None = None) -> None:
        self._url = url.rstrip("/")
        self._token = token
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=tls)
        )

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Iterable[tuple[str, str]] = (),
        version: str = LATEST,
    ) -> Answer:
        """One request; every status is an answer. Raises ServiceError if there is none."""
        parameters = urlencode(list(query))
        request = urllib.request.Request(
            self._url + path + (f"?{parameters}" if parameters else ""),
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "X-Auth-Token": self._token,
                "OpenStack-API-Version": f"placement {version}",
                "Accept": "application/json",
            },
        )
        if body is not None:
            request.add_header("Content-Type", "application/json")
        try:
            with self._opener.open(request, timeout=PATIENCE_SECONDS) as response:
                return Answer(response.status, _decoded(response.read()))
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, _decoded(error.read()))
        except OSError as error:
            raise ServiceError(f"{self._url} does not answer: {error}") from error

    def must(self, method: str, path: str, body: Any = None) -> Any:
        """The body of the answer to a call that has to succeed. Raises ServiceError otherwise."""
        answer = self.call(method, path, body)
        if answer.status >= 300:
            raise ServiceError(f"{method} {path} answered {answer.status}: {answer.body}")
        return answer.body


def _decoded(content: bytes) -> Any:
    if not content:
        return None
    try:
        return json.loads(content)
    except ValueError:
        return content.decode(errors="replace")


def candidates(body: Any) -> list[Candidate]:
    """The candidates in an answer of microversion 1.12 or later, in order; no mappings before 1.34."""
    return [
        Candidate(
            allocations=frozenset(
                (provider, name, amount)
                for provider, held in element["allocations"].items()
                for name, amount in held["resources"].items()
            ),
            mappings=frozenset(
                (suffix, frozenset(providers)) for suffix, providers in element.get("mappings", {}).items()
            ),
        )
        for element in body["allocation_requests"]
    ]
