"""`placement db` finds its database, and says what is wrong with it."""

from __future__ import annotations

import pytest

from tests.commands import refusal, run


def test_upgrade_prints_the_version_and_version_shows_it(tmp_path):
    url = f"sqlite:///{tmp_path}/new/placement.sqlite"
    assert run("db", "version", "--database", url).stdout.strip() == "None"
    upgraded = run("db", "upgrade", "--database", url)
    assert upgraded.returncode == 0, upgraded.stderr
    assert run("db", "version", "--database", url).stdout.strip() == upgraded.stdout.split()[-1]


def test_the_connection_comes_from_a_file_or_the_environment(tmp_path):
    url = f"sqlite:///{tmp_path}/configured.sqlite"
    file = tmp_path / "placement.conf"
    file.write_text(f"[placement_database]\nconnection = {url}\n")
    upgraded = run("db", "upgrade", "--config-file", str(file))
    assert upgraded.returncode == 0
    found = run("db", "version", OS_PLACEMENT_DATABASE__CONNECTION=url)
    assert found.stdout.strip() == upgraded.stdout.split()[-1]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--config-file", "/nonexistent.conf"],
        ["--database", "nonsense"],
        ["--database", "mysql://localhost/x"],
        ["--database", "postgresql://nobody@127.0.0.1:1/none"],
    ],
)
def test_unusable_databases_are_one_clear_line(arguments):
    assert refusal("db", "version", *arguments)
