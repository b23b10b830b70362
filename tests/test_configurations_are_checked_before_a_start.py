"""`placement config check` lists what is well and what is not, of configuration, files and database."""

from __future__ import annotations

import json
import secrets
from pathlib import Path

import pytest
import sqlalchemy as sa

from placement.server import diagnosis, settings
from placement.storage import schema
from placement.storage.database import Database
from tests import commands
from tests.certificates import Authority
from tests.server import database_url, free_port


def checked(directory: Path, connection: str, text: str = "") -> tuple[int, dict[str, tuple[str, str]]]:
    """The exit code, and severity and sentence by subject, with tokens and this text in the configuration."""
    tokens, file = directory / "tokens.yaml", directory / "placement.conf"
    tokens.write_text(f"{secrets.token_urlsafe(32)}: {{user: u, roles: [admin]}}\n")
    tokens.chmod(0o600)
    file.write_text(
        f"[api]\nauth_strategy = token\ntokens_file = {tokens}\n"
        f"[placement_database]\nconnection = {connection}\n{text}"
    )
    finished = commands.run("config", "check", "--config-file", str(file), "-f", "json")
    rows = json.loads(finished.stdout)
    return finished.returncode, {row["subject"]: (row["severity"], row["sentence"]) for row in rows}


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_what_would_start_is_well(tmp_path: Path, backend: str):
    with database_url(backend) as connection:
        code, found = checked(tmp_path, connection)
    assert (code, {severity for severity, _ in found.values()}) == (0, {"ok"})
    subjects = {"options", "callers", "rules", "TLS", "database", "schema"}
    assert set(found) == subjects | ({"clock"} if backend == "postgresql" else set())
    assert found["callers"][1] == f"1 tokens in {tmp_path}/tokens.yaml"


def test_all_errors_are_listed_beside_what_is_well(tmp_path: Path):
    text = "[DEFAULT]\nlog_config_append = none.ini\n"
    text += "[scoring]\norder_by = nothing\n[oslo_policy]\npolicy_file = none.json\n[ssl]\nkey_file = none\n"
    code, found = checked(tmp_path, f"postgresql://u@127.0.0.1:{free_port()}/placement", text)
    assert code == 1
    assert {subject for subject, (severity, _) in found.items() if severity == "error"} == {
        "logging",
        "rules",
        "scoring",
        "TLS",
        "database",
    }
    assert found["callers"][0] == "ok"
    assert found["rules"] == ("error", "[oslo_policy] policy_file: there is no none.json.")
    assert "Start it" in found["database"][1]


def test_a_rule_that_has_no_effect_is_a_warning(tmp_path: Path):
    policy = tmp_path / "policy.yaml"
    policy.write_text('"placement:resource_provider:list": "role:reader"\n"reads": "role:reader"\n')
    code, found = checked(tmp_path, f"sqlite:///{tmp_path}/none", f"[oslo_policy]\npolicy_file = {policy}\n")
    assert (code, found["rules"][0]) == (0, "warning")
    assert "no rule placement:resource_provider:list; did you mean placement:" in found["rules"][1]


def test_a_schema_that_an_upgrade_has_to_change_is_an_error(tmp_path: Path):
    with database_url("postgresql") as connection:
        database = Database(connection)
        with database.write() as transaction:
            transaction.execute(sa.text("UPDATE alembic_version SET version_num = '0001'"))
        newest = schema.newest(database)
        database.dispose()
        code, found = checked(tmp_path, connection)
    assert (code, found["schema"][0]) == (1, "error")
    assert f"this service needs {newest}. Run `placement db upgrade`" in found["schema"][1]


def test_a_database_that_is_made_at_the_start_is_a_warning_and_not_made_here(tmp_path: Path):
    code, found = checked(tmp_path, f"sqlite:///{tmp_path}/none.sqlite")
    assert (code, found["database"][0]) == (0, "warning")
    assert not (tmp_path / "none.sqlite").exists()
    # Where no directory can be, no file can be made.
    code, found = checked(tmp_path, f"sqlite:///{tmp_path}/tokens.yaml/none.sqlite")
    assert (code, found["database"][0]) == (1, "error")
    assert found["database"][1].endswith(f"{tmp_path}/tokens.yaml cannot be written")


@pytest.mark.parametrize(("days", "severity", "code"), [(90, "ok", 0), (10, "warning", 0), (-1, "error", 1)])
def test_the_end_of_a_certificate_is_told(tmp_path: Path, days: int, severity: str, code: int):
    pair = Authority(tmp_path).sign("service", days)
    text = f"[ssl]\ncert_file = {pair.certificate}\nkey_file = {pair.key}\n"
    with database_url("sqlite") as connection:
        ended, found = checked(tmp_path, connection, text)
    assert (ended, found["TLS"][0]) == (code, severity)
    assert ("expired" if days < 0 else f"for {days - 1} days") in found["TLS"][1]


def test_a_clock_that_differs_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(diagnosis, "_CLOCKS_DIFFER_SECONDS", -1.0)
    with database_url("postgresql") as connection:
        assert checked(tmp_path, connection)[1]["clock"][0] == "warning"


def test_files_with_secrets_that_others_may_read_are_warnings(tmp_path: Path):
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("{}")
    kubeconfig.chmod(0o644)
    with database_url("sqlite") as connection:
        code, found = checked(tmp_path, connection, f"[kubernetes]\nkubeconfig = {kubeconfig}\n")
    assert (code, found["secrets"][0]) == (0, "warning")
    assert str(kubeconfig) in found["secrets"][1]


OF_DATABASE, OF_KEYSTONE = "[placement_database]", "[keystone_authtoken]"


@pytest.mark.parametrize(
    ("group", "line", "is_secret"),
    [
        (OF_DATABASE, "connection = postgresql://u:p@127.0.0.1:1/d", True),
        (OF_DATABASE, "connection = postgresql://u@127.0.0.1:1/d", False),
        (OF_DATABASE, "connection_parameters = sslpassword=p", True),
        (OF_DATABASE, "connection_parameters = sslmode=require", False),
        (OF_KEYSTONE, "password = p", True),
        (OF_KEYSTONE, "password =", False),
        (OF_KEYSTONE, "application_credential_secret = p", True),
        (OF_KEYSTONE, "memcache_secret_key = p", True),
        (OF_KEYSTONE, "username = placement", False),
        ("[api]", "auth_strategy = token", False),
    ],
)
def test_a_configuration_with_secrets_is_for_its_owner(
    tmp_path: Path, group: str, line: str, *, is_secret: bool
):
    file = tmp_path / "placement.conf"
    file.write_text(f"{group}\n{line}\n")
    loaded, _ = settings.read([str(file)])
    for mode, is_open in ((0o600, False), (0o640, True), (0o644, True)):
        file.chmod(mode)
        shown = [found.sentence for found in diagnosis._open_secrets(loaded)]
        what = f"{file}: others than its owner may use {group} {line.partition(' ')[0]} in it"
        assert [sentence.partition(";")[0] for sentence in shown] == [what] * (is_secret and is_open)


def test_a_configuration_in_a_directory_and_behind_a_link_is_looked_at(tmp_path: Path):
    real, link = tmp_path / "real.conf", tmp_path / "more" / "10.conf"
    real.write_text("[keystone_authtoken]\npassword = p\n")
    real.chmod(0o644)
    link.parent.mkdir()
    link.symlink_to(real)
    loaded, _ = settings.read([], [str(link.parent)])
    (found,) = diagnosis._open_secrets(loaded)
    assert str(link) in found.sentence


def test_without_a_format_findings_are_sentences():
    printed = commands.run("config", "check", "--config-file", "none")
    assert printed.stderr == "placement: --config-file: none is not a file\n"
    printed = commands.run("config", "check", OS_API__AUTH_STRATEGY="noauth2", OS_API__REQUEST_TIMEOUT="0")
    assert printed.returncode == 1
    lines = printed.stdout.splitlines()
    assert lines[0].startswith("error: options: OS_API__REQUEST_TIMEOUT: [api] request_timeout: ")
    assert any(line.startswith("warning: callers: [api] auth_strategy noauth2") for line in lines)
