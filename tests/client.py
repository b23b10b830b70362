"""A client for tests: calls in one line, answers with their parts at hand."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from tests.described import objection

NEWEST = "1.39"


@dataclass(frozen=True)
class Client:
    """Calls as some caller at some microversion; `at` and `as_` give variations."""

    http: FlaskClient
    version: str | None = NEWEST
    token: str | None = "admin"
    headers: tuple[tuple[str, str], ...] = ()

    def at(self, version: str | None) -> Client:
        """The same caller at another microversion; None sends no header."""
        return Client(self.http, version, self.token, self.headers)

    def as_(self, token: str | None, **headers: str) -> Client:
        """Another caller; keyword names become header names with dashes."""
        named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
        return Client(self.http, self.version, token, named)

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> TestResponse:
        """One request; `body` is sent as JSON unless it is None or bytes. /openapi.json has the answer."""
        sent = dict(self.headers)
        if self.token is not None:
            sent["X-Auth-Token"] = self.token
        if self.version is not None:
            sent["OpenStack-API-Version"] = f"placement {self.version}"
        sent.update({name.replace("_", "-"): value for name, value in headers.items()})
        content = {"data": body} if isinstance(body, bytes) else {} if body is None else {"json": body}
        answer = self.http.open(path, method=method, headers=sent, **content)
        wrong = objection(self.http.application, method, path, answer)
        assert wrong is None, wrong
        return answer

    def get(self, path: str, **headers: str) -> TestResponse:
        """GET."""
        return self.call("GET", path, **headers)

    def put(self, path: str, body: Any = None, **headers: str) -> TestResponse:
        """PUT."""
        return self.call("PUT", path, body, **headers)

    def post(self, path: str, body: Any = None, **headers: str) -> TestResponse:
        """POST."""
        return self.call("POST", path, body, **headers)

    def delete(self, path: str, **headers: str) -> TestResponse:
        """DELETE."""
        return self.call("DELETE", path, **headers)

    # -- shorthands for reading ----------------------------------------------------------------------

    def used_by(self, consumer: str) -> dict[str, dict[str, int]]:
        """What a consumer holds, by provider."""
        held = self.at(NEWEST).get(f"/allocations/{consumer}").json["allocations"]
        return {provider: entry["resources"] for provider, entry in held.items()}

    def consumer_generation(self, consumer: str) -> int | None:
        """The present generation of a consumer, None if it holds nothing."""
        found: int | None = self.at(NEWEST).get(f"/allocations/{consumer}").json.get("consumer_generation")
        return found

    # -- shorthands for setting a scene; each asserts that it worked ----------------------------------

    def provider(self, name: str, parent: str | None = None, **inventories: Any) -> str:
        """A new provider with inventories (a total, or a whole record); its uuid."""
        own = str(uuid.uuid4())
        newest = self.at(NEWEST)
        body = {"name": name, "uuid": own, "parent_provider_uuid": parent}
        assert newest.post("/resource_providers", body).status_code == 200
        if inventories:
            newest.offer(own, **inventories)
        return own

    def generation(self, provider: str) -> int:
        """The present generation of a provider."""
        found: int = self.at(NEWEST).get(f"/resource_providers/{provider}").json["generation"]
        return found

    def offer(self, provider: str, **inventories: Any) -> None:
        """Replace the inventories of a provider."""
        records = {
            name: record if isinstance(record, dict) else {"total": record}
            for name, record in inventories.items()
        }
        body = {"resource_provider_generation": self.generation(provider), "inventories": records}
        answer = self.at(NEWEST).put(f"/resource_providers/{provider}/inventories", body)
        assert answer.status_code == 200, answer.text

    def carry(self, provider: str, *traits: str) -> None:
        """Replace the traits of a provider, creating custom ones."""
        newest = self.at(NEWEST)
        for trait in traits:
            if trait.startswith("CUSTOM_"):
                assert newest.put(f"/traits/{trait}").status_code in (201, 204)
        body = {"resource_provider_generation": self.generation(provider), "traits": list(traits)}
        answer = newest.put(f"/resource_providers/{provider}/traits", body)
        assert answer.status_code == 200, answer.text

    def join(self, provider: str, *aggregates: str) -> None:
        """Replace the aggregates of a provider."""
        body = {
            "resource_provider_generation": self.generation(provider),
            "aggregates": list(aggregates),
        }
        answer = self.at(NEWEST).put(f"/resource_providers/{provider}/aggregates", body)
        assert answer.status_code == 200, answer.text

    def claim(
        self,
        resources: dict[str, dict[str, int]],
        consumer: str | None = None,
        generation: int | None = None,
        **labels: str,
    ) -> TestResponse:
        """Replace the allocations of a consumer, a new one by default."""
        return self.at(NEWEST).put(
            f"/allocations/{consumer or uuid.uuid4()}", self.allocations(resources, generation, **labels)
        )

    @staticmethod
    def allocations(
        resources: dict[str, dict[str, int]], generation: int | None = None, **labels: str
    ) -> dict[str, Any]:
        """A body of allocations at the newest version."""
        return {
            "allocations": {provider: {"resources": amounts} for provider, amounts in resources.items()},
            "project_id": "project",
            "user_id": "user",
            "consumer_type": "INSTANCE",
            "consumer_generation": generation,
            **labels,
        }

    def used(self, provider: str) -> dict[str, int]:
        """What is used of a provider."""
        found: dict[str, int] = self.at(NEWEST).get(f"/resource_providers/{provider}/usages").json["usages"]
        return found


def unique(prefix: str = "thing") -> str:
    """A name nobody else uses."""
    return f"{prefix}-{uuid.uuid4().hex}"


def custom(prefix: str = "X") -> str:
    """The name of a custom trait or resource class nobody else uses."""
    return f"CUSTOM_{prefix}_{uuid.uuid4().hex.upper()}"


def detail(answer: TestResponse) -> str:
    """The message of an error, or of all that are wrong, after their shape was checked."""
    errors = answer.json["errors"]
    assert len(errors) == 1 or (len(errors) > 1 and answer.request.path.startswith("/ext/"))
    for error in errors:
        assert error["status"] == answer.status_code
        assert error["request_id"] == answer.headers["x-openstack-request-id"]
    return "; ".join(error["detail"].split("\n")[-1].strip() for error in errors)


def code(answer: TestResponse) -> str:
    """The code of an error."""
    found: str = answer.json["errors"][0]["code"]
    return found
