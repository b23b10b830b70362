"""An error has a place, a value and what that was meant to be; sentences and pointers follow from them."""

from __future__ import annotations

import pytest

from placement.engine.domain.errors import (
    BODY,
    MOST_FINDINGS,
    BadRequest,
    BadValues,
    Finding,
    RequestPlace,
    parameter,
)
from placement.engine.scoring.parameters import ScoringRefused


@pytest.mark.parametrize(
    ("place", "text", "field"),
    [
        (BODY, "", ""),
        (BODY / "members" / 2 / "query", "members[2].query", "/members/2/query"),
        ((BODY / "kinds").entry("a/b~c"), "kinds['a/b~c']", "/kinds/a~1b~0c"),
        (RequestPlace("Pod") / "labels" / "a.io/b", "Pod.labels[a.io/b]", "/labels/a.io~1b"),
        (parameter("limit"), "limit", "limit"),
        (parameter("order_by") / "resources" / 0, "order_by.resources[0]", "order_by"),
        (RequestPlace("Pod") / "spec", "Pod.spec", "/spec"),
    ],
)
def test_a_place_is_a_text_for_people_and_a_field_for_programs(place: RequestPlace, text: str, field: str):
    assert (str(place), place.field) == (text, field)


@pytest.mark.parametrize(
    ("outer", "inner", "text", "field"),
    [
        (BODY / "query", parameter("limit"), "query: limit", "/query"),
        (BODY / "pod", RequestPlace("Pod") / "spec", "pod: Pod.spec", "/pod/spec"),
        (BODY / "query", BODY, "query", "/query"),
        (BODY, parameter("limit"), "limit", "limit"),
        (parameter("world"), BODY / "without" / 0, "world: without[0]", "world"),
    ],
)
def test_a_place_in_a_text_or_document_is_below_where_that_stands(
    outer: RequestPlace, inner: RequestPlace, text: str, field: str
):
    place = outer.around(inner)
    assert (place.text, place.field) == (text, field)


def test_an_error_that_is_placed_stays_what_it_is():
    refused = ScoringRefused("shape_invalid", BODY / "shape", "is odd", ["order"]).within(BODY / "kinds" / 1)
    assert (type(refused), refused.code, refused.reasons) == (ScoringRefused, "shape_invalid", ["order"])
    assert str(refused) == "kinds[1]: shape: is odd"
    first = BadRequest("no", "placement.some_code", place=parameter("a"), value="x", known=lambda: ["y"])
    (finding,) = first.within(BODY / "b").findings
    assert (finding.value, finding.place.field, finding.known and finding.known()) == ("x", "/b", ["y"])
    assert str(first) == "a: no"


def test_an_error_shows_its_first_findings():
    many = BadValues(
        Finding(f"is odd {number}", BODY / "list" / number) for number in range(MOST_FINDINGS + 5)
    )
    assert len(many.findings) == MOST_FINDINGS + 5
    assert str(many).endswith("list[19]: is odd 19; and 5 more")
