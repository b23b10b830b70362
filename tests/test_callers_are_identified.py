"""Authentication strategies, CORS and proxy headers.

Source: placement-api.md, "Authentication", "Process and configuration".
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from placement.http.strategies.tokens import BadTokens, Tokens
from placement.storage.database import Database
from tests.client import Client, unique
from tests.conftest import application_of, configured, with_options

LET_ME_IN, LOOK_ONLY, HASHED = (f"{name}-{'x' * 32}" for name in ("let-me-in", "look-only", "hashed"))
TOKENS = {
    LET_ME_IN: {"user": "root", "project": "platform", "roles": ["admin"]},
    f"sha256:{hashlib.sha256(HASHED.encode()).hexdigest()}": {"user": "nova", "roles": ["Service"]},
    LOOK_ONLY: {"user": "eve", "project": "zoo", "roles": ["reader"]},
}


@contextmanager
def service(
    database: Database, text: str = "", directory: Path | None = None, **settings: Any
) -> Iterator[Any]:
    """The service with the text as its configuration file."""
    files = [] if directory is None else [directory / "placement.conf"]
    for file in files:
        file.write_text(text)
    options = {"auth_strategy": "noauth2", **settings}
    with application_of(database, with_options(configured(*files), **options)) as application:
        yield application.test_client()


# -- static tokens ---------------------------------------------------------------------------------------


@pytest.fixture
def tokens_file(tmp_path: Path) -> Path:
    path = tmp_path / "tokens.json"
    path.write_text(json.dumps(TOKENS))
    path.chmod(0o600)
    return path


def basic(user: str, password: str) -> str:
    """The header that comes of https://user:password@host."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"X-Auth-Token": LET_ME_IN}, 200),
        ({"Authorization": f"Bearer {LET_ME_IN}"}, 200),
        ({"Authorization": f"bearer  {HASHED}"}, 200),
        ({"X-Auth-Token": HASHED}, 200),
        ({"X-Auth-Token": LOOK_ONLY}, 403),
        ({"X-Auth-Token": LOOK_ONLY, "X-Roles": "admin"}, 403),
        ({"X-Auth-Token": "wrong"}, 401),
        ({"X-Auth-Token": ""}, 401),
        ({"X-Auth-Token": hashlib.sha256(HASHED.encode()).hexdigest()}, 401),
        ({"Authorization": f"Basic {LET_ME_IN}"}, 401),
        ({"Authorization": basic("", LET_ME_IN)}, 200),
        ({"Authorization": basic("anybody", HASHED)}, 200),
        ({"Authorization": basic(LET_ME_IN, "")}, 401),
        ({"Authorization": basic("", LOOK_ONLY)}, 403),
        ({}, 401),
    ],
)
def test_static_tokens(embedded_database: Database, tokens_file: Path, headers: dict, status: int):
    with service(embedded_database, auth_strategy="token", tokens_file=tokens_file) as http:
        answer = http.get("/resource_providers", headers=headers)
        assert answer.status_code == status
        assert ("WWW-Authenticate" in answer.headers) is (status == 401)
        assert http.get("/").status_code == 200
        reader = {"X-Auth-Token": LOOK_ONLY, "OpenStack-API-Version": "placement 1.39"}
        for project, expected in (("zoo", 200), ("farm", 403)):
            assert http.get(f"/usages?project_id={project}", headers=reader).status_code == expected


def test_token_files_that_others_may_read_or_that_are_missing_are_refused(
    tokens_file: Path, embedded_database: Database
):
    for mode in (0o640, 0o604, 0o660, 0o644):
        tokens_file.chmod(mode)
        with pytest.raises(BadTokens, match="chmod 600"):
            Tokens(tokens_file)
    with pytest.raises(BadTokens):
        Tokens(tokens_file.with_name("nothing"))
    with pytest.raises(BadTokens, match="tokens_file"), service(embedded_database, auth_strategy="token"):
        pass


# -- keystone --------------------------------------------------------------------------------------------


def test_keystone_refuses_unknown_callers_and_says_where_to_go(embedded_database: Database, tmp_path: Path):
    pytest.importorskip("keystonemiddleware")
    identity = "http://127.0.0.1:1/v3"
    text = f"[keystone_authtoken]\nwww_authenticate_uri = {identity}\nauth_url = {identity}\n"
    text += "auth_type = password\nusername = u\npassword = p\n"
    with service(embedded_database, text, tmp_path, auth_strategy="keystone") as http:
        answer = http.get("/resource_providers")
        assert answer.status_code == 401
        assert answer.headers["WWW-Authenticate"] == f'Keystone uri="{identity}"'
        assert answer.headers["x-openstack-request-id"].startswith("req-")
        assert answer.json["error"]["code"] == 401
        assert http.get("/").status_code == 200
        assert (
            http.get("/resource_providers", headers={"X-User-Id": "u", "X-Roles": "admin"}).status_code == 401
        )


# -- CORS ------------------------------------------------------------------------------------------------

ORIGIN = "https://dashboard.example.org"
PREFLIGHT = {"Access-Control-Request-Method": "PUT", "Access-Control-Request-Headers": "X-Auth-Token"}


def test_cors_answers_preflights_of_allowed_origins(embedded_database: Database, tmp_path: Path):
    with service(embedded_database, f"[cors]\nallowed_origin = {ORIGIN}\n", tmp_path) as http:
        allowed = http.options("/resource_providers", headers={"Origin": ORIGIN, **PREFLIGHT})
        assert allowed.status_code == 200
        assert allowed.headers["Access-Control-Allow-Origin"] == ORIGIN
        assert "PUT" in allowed.headers["Access-Control-Allow-Methods"]
        other = http.options("/resource_providers", headers={"Origin": "https://x.example", **PREFLIGHT})
        assert other.status_code == 200
        assert "Access-Control-Allow-Origin" not in other.headers
        read = http.get("/resource_providers", headers={"Origin": ORIGIN, "X-Auth-Token": "admin"})
        assert read.status_code == 200
        assert read.headers["Access-Control-Allow-Origin"] == ORIGIN
        assert "Origin" in read.headers["Vary"]
        assert "OpenStack-API-Version" in read.headers["Access-Control-Expose-Headers"]


def test_without_cors_there_are_no_preflights(embedded_database: Database):
    with service(embedded_database) as http:
        answer = http.options(
            "/resource_providers",
            headers={"Origin": "http://localhost:9000", "X-Auth-Token": "admin", **PREFLIGHT},
        )
        assert answer.status_code == 405
        assert "Access-Control-Allow-Origin" not in answer.headers


# -- proxies ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("enabled", "start"), [(True, "https://api.example.org/"), (False, "http://localhost/")]
)
def test_forwarded_headers_count_only_if_enabled(
    embedded_database: Database, tmp_path: Path, tokens_file: Path, enabled: bool, start: str
):
    text = f"[oslo_middleware]\nenable_proxy_headers_parsing = {enabled}\n"
    with service(embedded_database, text, tmp_path, auth_strategy="token", tokens_file=tokens_file) as http:
        headers = {
            "X-Auth-Token": LET_ME_IN,
            "X-Forwarded-Proto": "https",
            "X-Forwarded-Host": "api.example.org",
        }
        answer = http.post("/resource_providers", json={"name": unique()}, headers=headers)
        assert answer.headers["Location"].startswith(start)


# -- the log line ----------------------------------------------------------------------------------------


def test_log_line_is_one_line_whatever_the_path(embedded: Client, caplog):
    with caplog.at_level(logging.INFO, logger="placement.requests"):
        embedded.as_(None).get("/a%0AINFO forged")
    (record,) = [record for record in caplog.records if record.name == "placement.requests"]
    assert "\n" not in record.getMessage()
    assert "status: 401" in record.getMessage()
    assert "microversion: -" in record.getMessage()
    with caplog.at_level(logging.DEBUG, logger="placement.requests"):
        embedded.get("/")
    assert 'Starting request: "GET /"' in [record.getMessage() for record in caplog.records]
