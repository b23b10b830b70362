"""What the design documents and the reference promise of clusters and pods holds over HTTP, case by case."""

import json
from pathlib import Path

import pytest

from tests.cases.clusters import difference
from tests.client import Client

pytestmark = pytest.mark.one_database

DATA = Path(__file__).parent / "data"
CASES = {
    case["id"]: case
    for file in ("design.json", "reservations.json", "pods.json")
    for case in json.loads((DATA / file).read_text())["cases"]
}


@pytest.mark.parametrize("name", CASES)
def test_the_rule_holds(name, shared_application):
    api = Client(shared_application.test_client())

    def call(method, path, body):
        answer = api.call(method, path, body)
        return answer.status_code, answer.json

    assert difference(call, CASES[name]) is None
