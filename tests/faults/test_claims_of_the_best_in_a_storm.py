"""Many who search and claim in one call at the same time: each unit goes to one of them, and twins agree."""

from __future__ import annotations

import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from tests.claimants import Claimant
from tests.server import RunningServer
from tests.test_claims_take_the_best_that_is_left import PATH, wish

CLIENTS = 64


def provider(setting: Claimant, name: str, units: int) -> None:
    own = str(uuid.uuid4())
    assert setting.call("POST", "/resource_providers", {"name": name, "uuid": own}).ok
    body = {"resource_provider_generation": 0, "inventories": {"VCPU": {"total": units}}}
    assert setting.call("PUT", f"/resource_providers/{own}/inventories", body).ok


def test_every_unit_goes_to_exactly_one_and_twins_get_one_answer(two_workers: RunningServer) -> None:
    """As many units as half of the claims: each is claimed once, nobody else is told anything but "full"."""
    setting = Claimant(two_workers.url)
    units, each = 96, 3
    for number in range(units // 2):
        provider(setting, f"host-{number}", 2)

    def work(_: int) -> list[tuple[int, str]]:
        client = Claimant(two_workers.url)
        answers = [client.call("POST", PATH, wish()) for _ in range(each)]
        return [(answer.status_code, answer.text) for answer in answers]

    with ThreadPoolExecutor(CLIENTS) as pool:
        outcomes = [outcome for outcomes in pool.map(work, range(CLIENTS)) for outcome in outcomes]
    assert Counter(status for status, _ in outcomes) == {201: units, 409: CLIENTS * each - units}
    assert all("no candidate" in text for status, text in outcomes if status == 409)
    shown = setting.call("GET", "/usages?project_id=project").json()["usages"]["INSTANCE"]
    assert (shown["VCPU"], shown["consumer_count"]) == (units, units)

    # Also where there is only one unit: the twin that finds nothing left is not told so.
    provider(setting, "last", 1)
    wanted = wish()

    def repeat(_: int) -> tuple[int, str]:
        answer = Claimant(two_workers.url).call("POST", PATH, wanted)
        return answer.status_code, str(answer.json().get("allocations", answer.text))

    with ThreadPoolExecutor(16) as pool:
        twins = list(pool.map(repeat, range(16)))
    assert Counter(status for status, _ in twins) == {201: 1, 200: 15}
    assert len({held for _, held in twins}) == 1
