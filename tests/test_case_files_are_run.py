"""`python -m tests.cases FILE` runs a file by the module of its format, and says which cases fail and why.

That right answers pass, other data does no harm and nothing stays is shown against the real service
(test_candidates_results.py); here the service of granular cases takes everything, except where it is broken.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cases import __main__ as command
from tests.cases import granular, koordinator, modules
from tests.service import Answer, Service, ServiceError

DATA = Path(__file__).parent / "data"
CASES: dict[str, Any] = json.loads((DATA / "granular.json").read_text(encoding="utf-8"))


class Indifferent(Service):
    """A service that takes everything and finds nothing; requests that begin as `broken` says fail."""

    def __init__(self) -> None:
        super().__init__("http://memory")
        self.calls: list[str] = []
        self.broken = "nothing"

    def call(self, method: str, path: str, *_: Any, **__: Any) -> Answer:
        self.calls.append(f"{method} {path}")
        if self.calls[-1].startswith(self.broken):
            return Answer(503, "out of\norder")
        return Answer(200, {"generation": 0, "allocation_requests": []})


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Indifferent:
    """The service that the runner of granular cases finds under any URL."""
    service = Indifferent()
    monkeypatch.setattr(granular, "Service", lambda url: service)
    return service


def on_topology(name: str) -> dict[str, Any]:
    """The granular cases of one topology."""
    cases = [case for case in CASES["cases"] if case["topology"] == name]
    return {**CASES, "topologies": {name: CASES["topologies"][name]}, "cases": cases}


def printed(document: dict[str, Any], directory: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit status and output for a file."""
    file = directory / "cases.json"
    file.write_text(json.dumps(document))
    return command.main([str(file), "--url", "http://memory"]), capsys.readouterr().out


def test_failures_are_listed_with_their_reasons(service: Indifferent, tmp_path: Path, capsys):
    bad = {"id": "bad", "topology": "atlantis"}
    statuses = [{"id": str(at), "topology": "one", "expect": {"status": at}} for at in (200, 400)]
    document = {"format": granular.FORMAT, "topologies": {"one": []}, "cases": [bad]}
    for case in statuses:
        case |= {"query": [], "microversion": "1.39"}
    lines = ["bad: no topology 'atlantis' in the file", "400: status 200 instead of 400", "1/3", ""]
    assert printed({**document, "cases": [bad, *statuses]}, tmp_path, capsys) == (1, "\n".join(lines))
    assert printed({**document, "cases": statuses[:1]}, tmp_path, capsys) == (0, "1/1\n")


def test_without_a_url_a_service_is_started(tmp_path: Path, capsys):
    file, document = tmp_path / "cases.json", on_topology("two-hosts")
    file.write_text(json.dumps(document))
    assert command.main([str(file)]) == 0
    assert capsys.readouterr().out == "{0}/{0}\n".format(len(document["cases"]))


def test_unusable_files_are_named_with_the_cause(tmp_path: Path, capsys):
    file = tmp_path / "cases.json"
    for text, complaint in (
        (None, "No such file"),
        ('{"format": "fake-cases/2", "cases": []}', "unknown format 'fake-cases/2'"),
        ('{"cases": []}', "not a case file"),
        ("[]", "not a case file"),
        ("{", "not JSON"),
    ):
        if text is not None:
            file.write_text(text)
        assert command.main([str(file)]) == 2, text
        seen = capsys.readouterr()
        assert (seen.out, seen.err.startswith(f"{file}: {complaint}")) == ("", True), text


def test_every_module_has_its_own_format():
    formats = [module.FORMAT for module in modules()]
    assert granular.FORMAT in formats
    assert len(formats) == len(set(formats))


def answered(expect: dict[str, Any], uuids: granular.Uuids) -> list[dict[str, Any]]:
    """The elements of the right answer to a case."""
    elements = []
    for candidate in granular.expected_candidates(expect, uuids):
        held: dict[str, dict[str, dict[str, int]]] = {}
        for provider, name, amount in candidate.allocations:
            held.setdefault(provider, {"resources": {}})["resources"][name] = amount
        mappings = {suffix: sorted(names) for suffix, names in candidate.mappings}
        elements.append({"allocations": held, "mappings": mappings})
    return elements


def test_candidates_are_compared_one_by_one():
    (case,) = [case for case in CASES["cases"] if case["id"] == "uc4-isolate"]
    expect, uuids = case["expect"], granular.fresh_uuids(CASES["topologies"][case["topology"]])
    elements = answered(expect, uuids)

    def difference(elements: list[dict[str, Any]], **changed: Any) -> str | None:
        return granular.difference(
            {**expect, **changed}, Answer(200, {"allocation_requests": elements}), uuids
        )

    assert difference(elements) is None
    shown = "RP1:SRIOV_NET_VF=1 RP3:SRIOV_NET_VF=1 ('1' on RP1, '2' on RP3)"
    assert difference([*elements, elements[0]]) == f"0 missing; 1 not expected, such as {shown}"
    assert difference(elements[1:]) == f"1 missing, such as {shown}; 0 not expected"
    foreign = {"allocations": {"elsewhere": {"resources": {"VCPU": 1}}}, "mappings": {}}
    assert difference([*elements, foreign]) is None
    few = {"candidates": [], "distinct_allocations": 1}
    assert difference([], **few) == "0 distinct allocations instead of 1"


def test_a_topology_that_cannot_be_set_up_fails_its_cases_and_is_removed(service: Indifferent):
    service.broken = "PUT /allocations"
    document = on_topology("wiring-saturated")
    outcomes = dict(granular.run(document, "http://memory"))
    assert outcomes.keys() == {case["id"] for case in document["cases"]}
    assert all("answered 503: out of order" in str(reason) for reason in outcomes.values()), outcomes
    (topology,) = document["topologies"].values()
    assert sum(call.startswith("DELETE /resource_providers/") for call in service.calls) == len(topology)


def test_leftovers_are_no_secret(service: Indifferent):
    service.broken = "DELETE /resource_providers"
    with pytest.raises(ServiceError, match="DELETE"):
        list(granular.run(on_topology("two-hosts"), "http://memory"))


def without_requests(value: Any, nothing: Any) -> Any:
    """The input of a case in which no pod requests anything."""
    if isinstance(value, dict):
        asked = ("requests", "containers")
        return {
            key: nothing if key in asked else without_requests(each, nothing) for key, each in value.items()
        }
    return [without_requests(each, nothing) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("nothing", [None, {}])
def test_cases_about_pods_without_requests_have_an_outcome(nothing: dict[str, Any] | None):
    document = json.loads((DATA / "koordinator-cpuset.json").read_text(encoding="utf-8"))
    for case in document["cases"]:
        case["input"] = without_requests(case["input"], nothing)
    crashes = {id_: why for id_, why in koordinator.run(document, None) if why and "Error: " in why}
    assert crashes == {}
