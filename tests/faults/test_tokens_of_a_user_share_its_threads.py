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


@pytest.mark.parametrize("form", FORMS)
def test_no_form_of_a_credential_makes_a_caller_of_its_own(form: str):
    """Three of four threads are its share, so another caller always finds the fourth."""
    path = "/ui/any" if "session" in form else "/any"
    with lane_server.running(read_threads=4) as server, ExitStack() as stack:
        heads = [FORMS[form](number) for number in range(12)]
        with Wire(server.url) as wire:
            for head in (OTHER, *heads):
                assert wire.send(request("GET", path, b"", known=f"{head}\r\n")).answer().status == 200
        names = [unique() for _ in heads]
        greedy = [stack.enter_context(Wire(server.url)) for _ in heads]
        for wire, head, name in zip(greedy, heads, names, strict=True):
            wire.send(request("GET", f"{path}?sleep=20&name={name}", b"", known=f"{head}\r\n"))
        # They have got all threads that they get.
        assert eventually(lambda: sum(server.has_noted("begun", name) for name in names) >= 3)
        for _ in range(3):
            with Wire(server.url) as wire:
                assert wire.send(request("GET", "/any", b"", known=f"{OTHER}\r\n")).answer().status == 200
        assert sum(server.has_noted("begun", name) for name in names) == 3
        assert all(wire.is_open() for wire in greedy)


def test_tokens_of_a_user_take_turns_in_its_share():
    """A token with many requests does not hold up another one of the user, as that of a second process."""
    with lane_server.running(read_threads=1) as server, ExitStack() as stack:

        def ask(token: str, name: str, seconds: float) -> Wire:
            wire = stack.enter_context(Wire(server.url))
            known = f"X-Auth-Token: {token}\r\n"
            return wire.send(request("GET", f"/any?sleep={seconds}&name={name}", b"", known=known))

        for token in ("known-one/a", "known-one/b"):
            assert ask(token, unique(), 0).answer().status == 200
        first = unique()
        ask("known-one/a", first, 2)
        assert eventually(lambda: server.has_noted("begun", first))
        many = [unique() for _ in range(10)]
        for name in many:
            ask("known-one/a", name, 2)
        # All of them wait by now, for the server answers a request that came after them.
        with Wire(server.url) as wire:
            assert wire.get("/").answer().status == 200
        assert ask("known-one/b", unique(), 0).answer().status == 200
        assert sum(server.has_noted("begun", name) for name in many) <= 2
