"""Writers side by side, on the real service with two workers.

Source: placement-api.md, "Concurrency expectations".
"""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.client import Client
from tests.conftest import application_at
from tests.server import BACKENDS, RunningServer, database_url, running_service
from tests.service import Answer, Service

WRITERS = 8


@pytest.fixture(scope="module", params=BACKENDS)
def running(request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    with database_url(request.param) as url, running_service(url, workers=2) as server:
        yield server


@pytest.fixture
def service(running: RunningServer) -> Service:
    return Service(running.url)


def together(service: Service, calls: Sequence[tuple[str, str, Any]]) -> list[Answer]:
    """All calls at the same moment, as far as threads allow."""
    gate = threading.Barrier(len(calls))

    def call(method: str, path: str, body: Any) -> Answer:
        gate.wait()
        return service.call(method, path, body)

    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result() for future in [pool.submit(call, *one) for one in calls]]


def statuses(answers: Sequence[Answer]) -> Counter[int]:
    return Counter(answer.status for answer in answers)


def provider(service: Service, **inventories: int) -> str:
    own = str(uuid.uuid4())
    service.must("POST", "/resource_providers", {"name": own, "uuid": own})
    records = {name: {"total": total} for name, total in inventories.items()}
    body = {"resource_provider_generation": 0, "inventories": records}
    service.must("PUT", f"/resource_providers/{own}/inventories", body)
    return own


def claim(own: str, amount: int = 1, generation: int | None = None) -> dict[str, Any]:
    return Client.allocations({own: {"VCPU": amount}}, generation, project_id="project", user_id="user")


def message(answer: Answer) -> str:
    text: str = answer.body["errors"][0]["detail"]
    return text.split("\n")[-1].strip()


def test_all_that_fit_succeed(service: Service):
    own = provider(service, VCPU=WRITERS)
    answers = together(service, [("PUT", f"/allocations/{uuid.uuid4()}", claim(own)) for _ in range(WRITERS)])
    assert statuses(answers) == {204: WRITERS}


def test_exactly_one_too_many_is_refused_for_capacity(service: Service):
    own = provider(service, VCPU=WRITERS - 1)
    answers = together(service, [("PUT", f"/allocations/{uuid.uuid4()}", claim(own)) for _ in range(WRITERS)])
    assert statuses(answers) == {204: WRITERS - 1, 409: 1}
    (refused,) = [answer for answer in answers if answer.status == 409]
    assert "The requested amount would exceed the capacity." in message(refused)
    assert refused.body["errors"][0]["code"] == "placement.undefined_code"


@pytest.mark.parametrize("exists", [False, True])
def test_one_of_many_writers_of_a_consumer_wins(service: Service, exists: bool):
    own, consumer = provider(service, VCPU=100), uuid.uuid4()
    if exists:
        service.must("PUT", f"/allocations/{consumer}", claim(own))
    body = claim(own, 2, 1 if exists else None)
    answers = together(service, [("PUT", f"/allocations/{consumer}", body)] * WRITERS)
    assert statuses(answers) == {204: 1, 409: WRITERS - 1}
    codes = {answer.body["errors"][0]["code"] for answer in answers if answer.status == 409}
    assert codes == {"placement.concurrent_update"}
    assert service.must("GET", f"/resource_providers/{own}/usages")["usages"] == {"VCPU": 2}


@pytest.mark.parametrize("what", ["traits", "aggregates", "inventories"])
def test_one_of_many_writers_with_one_generation_wins(service: Service, what: str):
    own = provider(service, VCPU=4)
    values: list[Any] = [
        {
            "traits": [f"HW_CPU_X86_{'AVX' if number % 2 else 'SSE'}"],
            "aggregates": [str(uuid.uuid4())],
            "inventories": {"VCPU": {"total": 10 + number}},
        }[what]
        for number in range(WRITERS)
    ]
    path = f"/resource_providers/{own}/{what}"
    answers = together(
        service, [("PUT", path, {what: value, "resource_provider_generation": 1}) for value in values]
    )
    assert statuses(answers) == {200: 1, 409: WRITERS - 1}
    codes = {answer.body["errors"][0]["code"] for answer in answers if answer.status == 409}
    assert codes == {"placement.concurrent_update"}


@pytest.mark.parametrize("kind", ["traits", "resource_classes"])
def test_first_of_many_creators_of_a_name_creates_it(service: Service, kind: str):
    name = f"CUSTOM_{uuid.uuid4().hex.upper()}"
    answers = together(service, [("PUT", f"/{kind}/{name}", None)] * WRITERS)
    assert statuses(answers) == {201: 1, 204: WRITERS - 1}


def test_only_one_post_of_a_class_creates_it(service: Service):
    body = {"name": f"CUSTOM_{uuid.uuid4().hex.upper()}"}
    answers = together(service, [("POST", "/resource_classes", body)] * WRITERS)
    assert statuses(answers) == {201: 1, 409: WRITERS - 1}


def test_first_use_of_labels_and_aggregates_never_fails(service: Service):
    own = provider(service, VCPU=100)
    fresh = uuid.uuid4().hex
    labels = {"project_id": fresh, "user_id": fresh, "consumer_type": fresh.upper()}
    answers = together(
        service, [("PUT", f"/allocations/{uuid.uuid4()}", claim(own) | labels) for _ in range(WRITERS)]
    )
    assert statuses(answers) == {204: WRITERS}
    owners = [provider(service) for _ in range(WRITERS)]
    body = {"aggregates": [str(uuid.uuid4())], "resource_provider_generation": 1}
    answers = together(service, [("PUT", f"/resource_providers/{one}/aggregates", body) for one in owners])
    assert statuses(answers) == {200: WRITERS}


def test_reshapes_of_one_provider_do_not_mix(service: Service):
    own = provider(service, VCPU=4)
    entry = {"resource_provider_generation": 1, "inventories": {"VCPU": {"total": 8}}}
    body = {"inventories": {own: entry}, "allocations": {}}
    answers = together(service, [("POST", "/reshaper", body)] * WRITERS)
    assert statuses(answers) == {204: 1, 409: WRITERS - 1}
    assert service.must("GET", f"/resource_providers/{own}")["generation"] == 3


def test_data_survives_a_restart():
    with database_url("sqlite") as url:
        with application_at(url) as application:
            api = Client(application.test_client())
            own = api.provider("host", VCPU=4)
            assert api.claim({own: {"VCPU": 1}}).status_code == 204
            assert api.put("/traits/CUSTOM_KEPT").status_code == 201
        with application_at(url) as application:
            api = Client(application.test_client())
            assert api.used(own) == {"VCPU": 1}
            assert api.get("/traits/CUSTOM_KEPT").status_code == 204
