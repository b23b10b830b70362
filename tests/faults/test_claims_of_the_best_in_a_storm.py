"""Many who search and claim in one call at the same time: each unit goes to one of them, and twins agree."""

from __future__ import annotations

import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from tests.claimants import Claimant
from tests.server import RunningServer
from tests.test_claims_take_the_best_that_is_left import PATH, wish

CLIENTS = 64


def test_in_a_storm_every_unit_goes_to_exactly_one(two_workers: RunningServer) -> None:
    """As many units as half of the claims: each is claimed once, nobody else is told anything but "full"."""
    setting = Claimant(two_workers.url)
    units, each = 96, 3
    for number in range(units // 2):
        own = str(uuid.uuid4())
        assert setting.call("POST", "/resource_providers", {"name": f"host-{number}", "uuid": own}).ok
        body = {"resource_provider_generation": 0, "inventories": {"VCPU": {"total": 2}}}
        assert setting.call("PUT", f"/resource_providers/{own}/inventories", body).ok

    def work(_: int) -> list[tuple[str, int, str]]:
        client = Claimant(two_workers.url)
        found = []
        for _ in range(each):
            wanted = wish()
            answer = client.call("POST", PATH, wanted)
            found.append((wanted["consumer_uuid"], answer.status_code, answer.text))
        return found

    with ThreadPoolExecutor(CLIENTS) as pool:
        outcomes = [outcome for outcomes in pool.map(work, range(CLIENTS)) for outcome in outcomes]
    assert Counter(status for _, status, _ in outcomes) == {201: units, 409: CLIENTS * each - units}
    assert all("no candidate" in text for _, status, text in outcomes if status == 409)
    shown = setting.call("GET", "/usages?project_id=project").json()["usages"]["INSTANCE"]
    assert (shown["VCPU"], shown["consumer_count"]) == (units, units)


def test_twins_of_one_claim_get_one_answer(two_workers: RunningServer) -> None:
    """Also where there is only one unit: the twin that finds nothing left is not told so."""
    setting = Claimant(two_workers.url)
    own = str(uuid.uuid4())
    assert setting.call("POST", "/resource_providers", {"name": "host", "uuid": own}).ok
    body = {"resource_provider_generation": 0, "inventories": {"VCPU": {"total": 1}}}
    assert setting.call("PUT", f"/resource_providers/{own}/inventories", body).ok
    wanted = wish()

    def work(_: int) -> tuple[int, str]:
        answer = Claimant(two_workers.url).call("POST", PATH, wanted)
        return answer.status_code, str(answer.json().get("allocations", answer.text))

    with ThreadPoolExecutor(16) as pool:
        outcomes = list(pool.map(work, range(16)))
    assert Counter(status for status, _ in outcomes) == {201: 1, 200: 15}
    assert len({held for _, held in outcomes}) == 1
