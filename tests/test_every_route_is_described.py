"""/openapi.json tells of every route and method there is, in each microversion that has it."""

from __future__ import annotations

import jsonschema_rs
import pytest
from flask import Flask

from placement.common.microversions import HEADER
from placement.http.openapi import routes, versions
from placement.http.openapi_operations import PATH_PARAMETER
from placement.http.operations import guard_of, operation_of
from tests.client import Client

_WHAT_TO_DO = """
{routes}: not described. Give `route(...)` of http/gate.py, in the routes of its feature,

    described=Operation({{200: <Answer>}}, errors=[409], query=<Parameters>, body=<Schema>)

of http/operations.py; a route without a token has @describes(Operation(...)) below Flask's own decorator.
 * <Answer> is an AnswerSchema of its feature, with a field for each member of the body (metadata
   OPTIONAL where it may be missing, since(Feature...) where a version brought it); EMPTY without a body.
 * <Parameters> is a tuple of Parameter that the handler checks with refuse_unknown(..., names_of(...)), too.
 * <Schema> is a VersionedSchema there; validated() checks the body against it.
 * errors are the statuses that do not follow from the guard: usually 404 (of a name in the query) and 409.
Step by step, and what else there is to do: "A route" in docs/contributing.md."""


def document(api: Client, version: str | None = None) -> dict:
    answer = api.as_(None).at(None).get("/openapi.json" + (f"?microversion={version}" if version else ""))
    assert answer.status_code == 200, answer.text
    return answer.json


def test_every_route_says_what_it_takes_and_gives(embedded_application: Flask):
    silent = [
        f"{method} {rule.rule}"
        for rule, method, view in routes(embedded_application)
        if operation_of(view) is None
    ]
    assert not silent, _WHAT_TO_DO.format(routes=", ".join(silent))


@pytest.mark.parametrize("version", list(map(str, versions())))
def test_each_version_has_the_routes_that_are_there(
    embedded_application: Flask, embedded: Client, version: str
):
    number = next(each for each in versions() if str(each) == version)
    there = {
        (PATH_PARAMETER.sub(r"{\1}", rule.rule), method.lower())
        for rule, method, view in routes(embedded_application)
        if (guard := guard_of(view)) is None or guard.exists(number)
    }
    paths = document(embedded, version)["paths"]
    assert {(path, method) for path, found in paths.items() for method in found} == there


@pytest.mark.parametrize("version", ["1.0", "1.12", "1.39"])
def test_all_schemas_are_schemas_and_all_references_lead_somewhere(embedded: Client, version: str):
    found = document(embedded, version)
    components = found["components"]
    assert found["openapi"].startswith("3.1.")
    for name in components["schemas"]:
        # Raises ValidationError for what is no schema, and for what refers to nothing.
        jsonschema_rs.validator_for({"$ref": f"#/components/schemas/{name}", "components": components})
    waiting, references = [found], set()
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            references |= {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
    for reference in references:
        _, kind, name = reference.removeprefix("#/").split("/")
        assert name in components[kind], reference
    # Generators of clients make a class of each schema that has no name.
    refusals = [each["content"]["application/json"]["schema"] for each in components["responses"].values()]
    assert all("$ref" in part for schema in refusals for part in schema.get("oneOf", [schema]))
    names = [each["operationId"] for path in found["paths"].values() for each in path.values()]
    assert len(set(names)) == len(names)


def test_the_version_is_that_of_the_query_or_the_header_or_the_newest(embedded: Client):
    new, old = document(embedded), document(embedded, "1.12")
    assert new == document(embedded, "latest") == document(embedded, "1.39")
    assert embedded.at("1.12").get("/openapi.json").json == old
    assert embedded.at("1.12").get("/openapi.json?microversion=latest").json == new
    assert "/reshaper" in new["paths"]
    assert "/reshaper" not in old["paths"]
    assert new["paths"]["/reshaper"]["post"]["x-openstack"] == {"min-ver": "1.30", "max-ver": "1.39"}
    assert HEADER in new["paths"]["/usages"]["get"]["responses"]["200"]["headers"]


@pytest.mark.parametrize("version", ["1.12", "1.39"])
def test_a_client_made_of_the_document_sends_its_version(embedded: Client, version: str):
    chosen = document(embedded, version)["components"]["parameters"]["Microversion"]
    assert chosen["name"].lower() == HEADER
    sent = chosen["schema"]["default"]
    answer = embedded.at(None).get("/usages?project_id=p", **{chosen["name"]: sent})
    assert answer.headers[HEADER] == f"placement {version}"


def test_what_a_version_brought_is_not_in_the_one_before(embedded: Client):
    def members(version: str, name: str) -> set[str]:
        return set(document(embedded, version)["components"]["schemas"][name]["properties"])

    assert members("1.14", "Provider") - members("1.13", "Provider") == {
        "parent_provider_uuid",
        "root_provider_uuid",
    }
    assert members("1.38", "Allocations") - members("1.37", "Allocations") == {"consumer_type"}

    def parameters(version: str) -> set[str]:
        listed = document(embedded, version)["paths"]["/allocation_candidates"]["get"]["parameters"]
        return {each["name"] for each in listed if each.get("in") == "query"}

    assert parameters("1.16") - parameters("1.15") == {"limit"}
    assert parameters("1.25") - parameters("1.24") == {
        "group_policy",
        "resources{S}",
        "required{S}",
        "member_of{S}",
    }


def test_a_client_of_the_document_of_a_prefix_asks_below_it(embedded: Client):
    answer = embedded.http.get("/openapi.json", environ_overrides={"SCRIPT_NAME": "/placement"})
    assert answer.json["servers"] == [{"url": "/placement"}]
