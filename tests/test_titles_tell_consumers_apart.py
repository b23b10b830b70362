"""Consumers are called by their type and UUID, and ids of projects are short, with the whole beside them."""

from __future__ import annotations

import uuid

import pytest

from placement.common.titles import consumer_title, short_id
from tests.client import Client

PROJECT, USER = "8d116ece4f0e4f0c9a430d5f2f3f1c11", "c05d7b62d137264b16646a40a2592559"
FIRST, SECOND = "f81d4fae-7dec-4d0a-a765-00a0c91e6bf6", "1b4e28ba-2fa1-4d2a-883f-0016d3cca427"


@pytest.mark.parametrize(
    ("kind", "title"),
    [
        ("INSTANCE", "server f81d4fae"),
        ("MIGRATION", "migration f81d4fae"),
        ("unknown", "consumer f81d4fae"),
        (None, "consumer f81d4fae"),
    ],
)
def test_a_title_has_type_and_digits(kind: str | None, title: str):
    assert consumer_title(kind, FIRST) == title


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (PROJECT, "8d116ece"),
        (FIRST.upper(), "F81D4FAE"),
        ("web", "web"),
        ("0123456789abcdef", "0123456789abcdef"),
        ("", ""),
    ],
)
def test_ids_are_shortened_and_names_are_not(text: str, shown: str):
    assert short_id(text) == shown


@pytest.fixture
def servers(api: Client) -> str:
    """A host with two servers of one user; its uuid."""
    host = api.provider("host", VCPU=8)
    for consumer in (FIRST, SECOND):
        claimed = api.claim({host: {"VCPU": 1}}, consumer, project_id=PROJECT, user_id=USER)
        assert claimed.status_code == 204
    return host


def test_pages_tell_two_servers_of_one_user_apart(api: Client, servers: str):
    for path in ("consumers", f"hosts/{servers}", f"search?q={PROJECT[:6]}", "changes", ""):
        page = api.get(f"/ui/{path}").text
        for title in ("server f81d4fae", "server 1b4e28ba"):
            assert title in page, path
        assert f">{USER}" not in page, path
        assert f">{PROJECT}" not in page, path
    assert f'title="{PROJECT}"' in api.get("/ui/consumers").text
    own = api.get(f"/ui/consumers/{FIRST}").text
    assert "<h1>server f81d4fae</h1>" in own
    assert f'<span title="{PROJECT}">8d116ece</span>' in own


def test_programs_read_whole_ids(api: Client, servers: str):
    listed = api.get("/ui/consumers?format=json").json["consumers"]
    assert {(each["project_id"], each["user_id"]) for each in listed} == {(PROJECT, USER)}
    assert PROJECT in api.get("/ui/consumers?format=csv").text


def test_a_name_in_place_of_an_id_stays_whole(api: Client):
    host = api.provider("host", VCPU=8)
    assert api.claim({host: {"VCPU": 1}}, str(uuid.uuid4()), project_id="a&b").status_code == 204
    assert ">a&amp;b<" in api.get("/ui/consumers").text
