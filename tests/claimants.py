"""Clients of a running service, each over a connection of its own, and what they claim from."""

from __future__ import annotations

import random
import uuid
from collections import Counter

import requests

from tests.patience import PATIENCE_SECONDS
from tests.service import LATEST

CLIENTS = 16


class Caller:
    """One client with a connection and dice of its own, and a count of the answers it got."""

    root = ""
    """Where the paths of its calls begin."""

    def __init__(self, url: str, seed: int = 0) -> None:
        self.url = url
        self.random = random.Random(seed)
        self.session = requests.Session()
        self.session.trust_env = False
        self.session.headers.update({"X-Auth-Token": "admin", "OpenStack-API-Version": f"placement {LATEST}"})
        self.statuses: Counter[tuple[str, int]] = Counter()

    def call(self, method: str, path: str, body: object = None) -> requests.Response:
        """One request; its method and status are counted."""
        url = f"{self.url}{self.root}{path}"
        answer = self.session.request(method, url, json=body, timeout=PATIENCE_SECONDS)
        self.statuses[method, answer.status_code] += 1
        return answer


class Claimant(Caller):
    """One client with a connection of its own."""

    def claim(self, consumer: str, resources: dict, generation: int | None = None) -> requests.Response:
        return self.call(
            "PUT",
            f"/allocations/{consumer}",
            {
                "allocations": {provider: {"resources": amounts} for provider, amounts in resources.items()},
                "project_id": "storm",
                "user_id": "storm",
                "consumer_type": "INSTANCE",
                "consumer_generation": generation,
            },
        )


def providers(client: Claimant, capacity: int, number: int = 3) -> list[str]:
    created = []
    for at in range(number):
        own = str(uuid.uuid4())
        assert client.call("POST", "/resource_providers", {"name": f"host-{own}", "uuid": own}).ok
        body = {
            "resource_provider_generation": 0,
            "inventories": {"VCPU": {"total": capacity}, "MEMORY_MB": {"total": 2 * capacity}},
        }
        assert client.call("PUT", f"/resource_providers/{own}/inventories", body).ok, at
        created.append(own)
    return created


def recorded_use(client: Claimant, provider: str) -> tuple[Counter[str], Counter[str]]:
    """What the service says is used, and the sum of the allocations it shows."""
    usages = client.call("GET", f"/resource_providers/{provider}/usages").json()["usages"]
    shown = client.call("GET", f"/resource_providers/{provider}/allocations").json()["allocations"]
    summed: Counter[str] = Counter(dict.fromkeys(usages, 0))
    for allocation in shown.values():
        summed.update(allocation["resources"])
    return Counter(usages), summed


def bulk_outcomes(client: Claimant, members: list[dict[str, str]], *, atomic: bool) -> list[int]:
    body = {"project_id": "p", "user_id": "u", "consumer_type": "INSTANCE", "atomic": atomic}
    body |= {"query": "resources=VCPU:1,MEMORY_MB:1", "members": members}
    answer = client.call("POST", "/ext/v1/claims", body)
    if atomic and answer.status_code == 409:
        held = [client.call("GET", f"/allocations/{each['consumer_uuid']}").json() for each in members]
        assert not any(each["allocations"] for each in held)
        return []
    assert answer.status_code == 200, answer.text
    statuses = [member["status"] for member in answer.json()["members"]]
    assert not atomic or set(statuses) <= {200, 201}
    return statuses
