"""The memory of credentials is bounded, and a user with many pushes out none of a user with few."""

from __future__ import annotations

import base64
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from placement.http.credentials import KnownCredentials, SharedMemory, digest_of
from placement.http.worker import connection, exchange

SESSION = "t.2c1f"


def basic(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_the_user_with_the_most_makes_room():
    memory: SharedMemory[int] = SharedMemory(10)
    memory.keep(b"first", "quiet", 0)
    for number in range(100):
        memory.keep(b"%d" % number, "greedy", number)
    assert len(memory) == 10
    assert memory.get(b"first") == 0
    assert [memory.get(b"%d" % number) for number in range(90, 100)] == [None, *range(91, 100)]


def test_the_latest_used_of_a_user_stay():
    memory: SharedMemory[int] = SharedMemory(3)
    for number in range(3):
        memory.keep(b"%d" % number, "one", number)
    memory.get(b"0")
    memory.keep(b"3", "one", 3)
    assert [memory.get(b"%d" % number) for number in range(4)] == [0, None, 2, 3]


def test_a_credential_has_one_user():
    known = KnownCredentials()
    known.note(b"same", "former", "p")
    known.note(b"same", "present", "q")
    assert known.get(b"same") == ("present", "q")
    assert len(known) == 1


FORMS: list[dict[str, Any]] = [
    {"HTTP_X_AUTH_TOKEN": "TOKEN"},
    {"HTTP_X_AUTH_TOKEN": "TOKEN", "HTTP_AUTHORIZATION": "Bearer other", "HTTP_COOKIE": "x=1"},
    {"HTTP_AUTHORIZATION": "Bearer TOKEN"},
    {"HTTP_AUTHORIZATION": "BEARER   TOKEN ", "HTTP_COOKIE": f"placement_session={SESSION}"},
    {"HTTP_AUTHORIZATION": f"Basic {basic('anything:TOKEN')}"},
    {"HTTP_AUTHORIZATION": f"bAsIc   {basic(':TOKEN')}"},
]


@pytest.mark.parametrize("form", FORMS)
def test_all_forms_of_a_token_are_one_credential(form: dict[str, str]):
    assert digest_of({"PATH_INFO": "/traits", **form}) == digest_of({"PATH_INFO": "/", **FORMS[0]})


@pytest.mark.parametrize(
    "cookie",
    [
        f"placement_session={SESSION}",
        f"a=1; placement_session={SESSION}; b=2",
        f'placement_session="{SESSION}"',
        f"__Host-placement_session={SESSION}; placement_session=t.other",
    ],
)
def test_all_forms_of_a_session_are_one_credential(cookie: str):
    plain = {"PATH_INFO": "/ui/", "HTTP_COOKIE": f"placement_session={SESSION}"}
    beside = {"PATH_INFO": "/ui/", "HTTP_COOKIE": cookie, "HTTP_AUTHORIZATION": "Bearer other"}
    assert digest_of(beside) == digest_of(plain) is not None


def test_what_identifies_no_caller_is_no_credential():
    for given in (
        {},
        {"HTTP_AUTHORIZATION": "Basic !"},
        {"HTTP_COOKIE": "a=b; placement_session=a.anonymous"},
    ):
        assert digest_of({"PATH_INFO": "/ui/", **given}) is None


def calls_of_a_new_credential(users: int) -> int:
    """How many calls it takes to remember one more credential where the memory of so many users is full."""
    memory: SharedMemory[int] = SharedMemory(users)
    for number in range(users):
        memory.keep(number.to_bytes(8), f"user-{number}", number)
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        memory.keep(b"new", "new", 0)
    finally:
        sys.setprofile(None)
    return calls


def test_a_full_memory_of_many_users_takes_no_more_steps_than_one_of_few():
    assert calls_of_a_new_credential(2000) == calls_of_a_new_credential(20)


@pytest.mark.parametrize(
    ("headers", "variable", "expected"),
    [
        ([], "", "/placement/ui/hosts"),
        ([("SCRIPT_NAME", "/placement")], "", "/ui/hosts"),
        ([], "/placement", "/ui/hosts"),
    ],
)
def test_a_session_is_found_below_the_prefix_of_a_proxy(monkeypatch, headers, variable: str, expected: str):
    monkeypatch.setenv("SCRIPT_NAME", variable)
    request: Any = SimpleNamespace(
        path="/placement/ui/hosts", headers=[*headers, ("COOKIE", f"placement_session={SESSION}")]
    )
    assert connection.path_of(request) == expected
    assert (exchange.credential_of(request) is not None) == (expected == "/ui/hosts")
