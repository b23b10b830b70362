"""All tokens of a user have the threads of one caller, in whatever form they are sent, and take turns."""

from __future__ import annotations

import base64
from contextlib import ExitStack

import pytest

from tests import lane_server
from tests.client import unique
from tests.faults.test_slow_clients_stop_nobody import eventually
from tests.hostile import Wire, request

TOKEN = "known-greedy"
OTHER = "X-Auth-Token: known-other"
SESSION = "t.known-greedy"


def basic(number: int, token: str = TOKEN) -> str:
    return f"Authorization: Basic {base64.b64encode(f'user-{number}:{token}'.encode()).decode()}"


# Ways to send credentials of one user, a new one for each number.
FORMS = {
    "user names of Basic": basic,
    "spellings of Basic": lambda number: basic(number).replace("Basic", "bAsIc" + " " * (number + 1)),
    "blanks behind Bearer": lambda number: f"Authorization: Bearer{' ' * (number + 1)}{TOKEN}",
    "other headers beside the token": lambda number: (
        f"X-Auth-Token: {TOKEN}\r\nAuthorization: Bearer {number}\r\nCookie: placement_session=t.{number}"
    ),
    "cookies beside the session": lambda number: f"Cookie: x={number}; placement_session={SESSION}",
    "cookies behind the session": lambda number: f'Cookie: placement_session="{SESSION}"; x={number}',
    "a session beside Basic": lambda number: f"Cookie: placement_session={SESSION}\r\n{basic(number, 'no')}",
    "tokens of the user": lambda number: f"X-Auth-Token: {TOKEN}/{number}",
}


def ask(stack: ExitStack, server: lane_server.Running, head: str, name: str = "any", query: str = "") -> Wire:
    """Begin a request with these lines in its head; without a query it is answered at once."""
    path = "/ui/any" if "session" in head else "/any"
    wire = stack.enter_context(Wire(server.url))
    return wire.send(request("GET", f"{path}?name={name}&{query}", b"", known=f"{head}\r\n"))


@pytest.mark.parametrize("form", FORMS)
def test_no_form_of_a_credential_makes_a_caller_of_its_own(form: str):
    """Three of four threads are its share, so another caller always finds the fourth."""
    with lane_server.running(read_threads=4) as server, ExitStack() as stack:
        heads = [FORMS[form](number) for number in range(12)]
        for head in (OTHER, *heads):
            assert ask(stack, server, head).answer().status == 200
        names = [unique() for _ in heads]
        greedy = [ask(stack, server, head, name, "held=all") for head, name in zip(heads, names, strict=True)]
        # They have got all threads that they get.
        assert eventually(lambda: sum(server.has_noted("begun", name) for name in names) >= 3)
        for _ in range(3):
            assert ask(stack, server, OTHER).answer().status == 200
        assert sum(server.has_noted("begun", name) for name in names) == 3
        assert all(wire.is_open() for wire in greedy)


def test_tokens_of_a_user_take_turns_in_its_share():
    """A token with many requests does not hold up another one of the user, as that of a second process."""
    with lane_server.running(read_threads=1) as server, ExitStack() as stack:
        one, another = (f"X-Auth-Token: known-one/{token}" for token in "ab")
        for head in (one, another):
            assert ask(stack, server, head).answer().status == 200
        first = unique()
        ask(stack, server, one, first, "held=first")
        assert eventually(lambda: server.has_noted("begun", first))
        many = [unique() for _ in range(10)]
        for name in many:
            ask(stack, server, one, name, "sleep=2")
        last = ask(stack, server, another)
        # All of them wait by now, for the server answers a request that came after them.
        with Wire(server.url) as wire:
            assert wire.get("/").answer().status == 200
        server.free("first")
        assert last.answer().status == 200
        assert sum(server.has_noted("begun", name) for name in many) <= 2


# Credentials of one user, a new one for each number, that were never accepted before.
FRESH = {
    "tokens": lambda number: f"X-Auth-Token: {TOKEN}/{number}",
    "sessions": lambda number: f"Cookie: placement_session={SESSION}/{number}",
}


@pytest.mark.parametrize("form", FRESH)
def test_credentials_seen_for_the_first_time_have_the_threads_of_their_user(form: str):
    """Its known token holds the share of the user, so requests with new ones wait for their turn."""
    with lane_server.running(read_threads=4) as server, ExitStack() as stack:
        for head in (OTHER, f"X-Auth-Token: {TOKEN}"):
            assert ask(stack, server, head).answer().status == 200
        names = [unique() for _ in range(3)]
        known = [ask(stack, server, f"X-Auth-Token: {TOKEN}", name, "held=known") for name in names]
        assert eventually(lambda: all(server.has_noted("begun", name) for name in names))
        later = [unique() for _ in range(6)]
        fresh = [ask(stack, server, FRESH[form](number), name) for number, name in enumerate(later)]
        for _ in range(3):
            assert ask(stack, server, OTHER).answer().status == 200
        assert not any(server.has_noted("begun", name) for name in later)
        server.free("known")
        assert [wire.answer().status for wire in (*known, *fresh)] == [200] * 9


def test_a_request_that_waits_for_its_user_has_no_more_time_than_others():
    limits = {"read_threads": 2, "request_seconds": 4}
    with lane_server.running(**limits) as server, ExitStack() as stack:
        assert ask(stack, server, f"X-Auth-Token: {TOKEN}").answer().status == 200
        first, late = unique(), unique()
        ask(stack, server, f"X-Auth-Token: {TOKEN}", first, "held=first")
        assert eventually(lambda: server.has_noted("begun", first))
        assert ask(stack, server, FRESH["tokens"](1), late).answer().status == 503
        assert not server.has_noted("begun", late)


def test_new_credentials_of_several_users_do_not_count_for_their_address():
    """The fourth of four threads is for others than an address, and these users are others."""
    with lane_server.running(read_threads=4) as server, ExitStack() as stack:
        names = [unique() for _ in range(4)]
        for number, name in enumerate(names):
            ask(stack, server, f"X-Auth-Token: known-{number}/new", name, "held=all")
        assert eventually(lambda: all(server.has_noted("begun", name) for name in names))


def test_new_credentials_have_the_quota_of_their_user():
    with lane_server.running(requests_per_caller=2) as server, ExitStack() as stack:
        assert ask(stack, server, f"X-Auth-Token: {TOKEN}").answer().status == 200
        for _ in range(2):
            server.hold(stack, "GET", f"X-Auth-Token: {TOKEN}")
        for number in range(3):
            assert ask(stack, server, FRESH["tokens"](number)).answer().status == 429
        assert ask(stack, server, OTHER).answer().status == 200
        server.free("all")
        # What is refused counts no longer.
        assert eventually(lambda: ask(stack, server, FRESH["tokens"](9)).answer().status == 200)
