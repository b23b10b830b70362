"""/docs shows the document without asking any other server, and says what is missing where it cannot."""

from __future__ import annotations

import re

import pytest

from placement.http import openapi
from tests.client import Client, detail


def test_the_page_and_its_files_come_from_here_and_need_no_token(embedded: Client):
    anybody = embedded.as_(None)
    shown = anybody.get("/docs")
    assert shown.status_code == 200
    assert shown.mimetype == "text/html"
    assert anybody.get("/docs?microversion=1.12").status_code == 200
    assert anybody.get("/docs?microversion=9").status_code == 400
    addresses = re.findall(r'(?:src|href)="([^"]*)"', shown.text)
    assert len(addresses) == 10
    assert addresses.count("ui/") == 2, "the way back to the pages"
    for address in set(addresses) - {"ui/"}:
        assert re.fullmatch("[a-z]+[a-z0-9./-]*", address), "an address of another server, or an absolute one"
        assert anybody.get(f"/{address}").status_code == 200
    assert "<script>" not in shown.text
    assert not re.search(r"\son[a-z]+=|style=", shown.text)


def test_nothing_is_allowed_that_comes_from_elsewhere(embedded: Client):
    for path in ("/docs", "/docs/start.js", "/docs/swagger-ui-bundle.js"):
        headers = embedded.get(path).headers
        rules = dict(rule.strip().split(" ", 1) for rule in headers["Content-Security-Policy"].split(";"))
        assert rules.pop("img-src") == "'self' data:"
        assert set(rules.values()) == {"'self'", "'none'"}
        assert rules["default-src"] == rules["frame-ancestors"] == "'none'"
        assert headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("name", ["../__init__.py", "%2e%2e/__init__.py", "README.md", "swagger-ui.js", "x"])
def test_there_are_no_other_files(embedded: Client, name: str):
    assert embedded.get(f"/docs/{name}").status_code == 404
    assert embedded.as_(None).get(f"/docs/{name}").status_code in (401, 404)


def test_without_the_package_it_says_so(embedded: Client, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(openapi, "_PACKAGE", "no_such_package")
    answer = embedded.as_(None).get("/docs")
    assert answer.status_code == 404
    assert detail(answer) == openapi.MISSING
    assert "pip install '.[docs]'" in openapi.MISSING
    assert embedded.as_(None).get("/openapi.json").status_code == 200
