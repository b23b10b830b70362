"""Once a request has ended, its thread acts for no caller."""

from __future__ import annotations

from contextvars import Context

import pytest
from flask import Flask

from placement.http import context


@pytest.mark.parametrize(
    ("path", "status"),
    [("/resource_providers", 200), ("/resource_providers/x", 404), ("/ext/v1/events?wait=0", 200)],
)
def test_no_request_is_current_after_an_answer(embedded_application: Flask, path: str, status: int):
    def ask() -> None:
        headers = {"X-Auth-Token": "admin", "Accept": "text/event-stream, application/json;q=0.5"}
        assert embedded_application.test_client().get(path, headers=headers).status_code == status
        with pytest.raises(LookupError):
            context.current()

    # Other tests of this process leave requests in its own context.
    Context().run(ask)
