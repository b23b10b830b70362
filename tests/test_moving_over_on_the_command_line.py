"""`placement import` and `placement export` as operators type them: what they print and what they refuse."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import run
from tests.incumbent import Incumbent, incumbent_database
from tests.server import database_url
from tests.test_databases_of_the_incumbent_move_over import filled

ALIKE = "Compared with the source and equal: 3 providers, 2 consumers.\n"


@pytest.fixture(scope="module")
def there() -> Iterator[Incumbent]:
    with incumbent_database("sqlite") as made:
        filled(made)
        yield made


@pytest.fixture
def here() -> Iterator[str]:
    with database_url("sqlite") as url:
        yield url


def test_there_and_back(there: Incumbent, here: str, tmp_path: Path):
    """The incumbent is named by its own configuration; other options there are its own business."""
    file = tmp_path / "placement.conf"
    file.write_text(f"[placement_database]\nconnection = {there.url}\nsomething = else\n")
    rehearsed = run("import", str(file), "--database", here, "--dry-run")
    assert rehearsed.stdout.endswith(f"{ALIKE}Nothing was stored: --dry-run.\n"), rehearsed.stderr
    assert "|        providers        |   3   |    0    |    0    |" in rehearsed.stdout
    assert "consumers compared: 2 of 2" in rehearsed.stderr
    stored = run("import", str(file), "--database", here)
    assert stored.stdout == rehearsed.stdout.replace("Nothing was stored: --dry-run.", "Stored.")
    with incumbent_database("sqlite") as back:
        assert run("export", back.url, "--database", here).stdout.endswith(f"{ALIKE}Stored.\n")
        assert len(back.rows("SELECT uuid FROM resource_providers")) == 3


def test_what_would_be_lost_is_refused(there: Incumbent, here: str):
    run("import", there.url, "--database", here)
    with incumbent_database("sqlite") as empty:
        refused = run("import", empty.url, "--database", here)
        assert refused.returncode == 1
        assert "3 providers (Häuschen, pool, cell) and 2 consumers (c0000000-" in refused.stderr
        assert "--remove" in refused.stderr
        emptied = run("import", empty.url, "--database", here, "--remove").stdout
        assert "The source has nothing: is its connection right?\nStored.\n" in emptied


def test_a_file_without_a_connection_is_told(here: str, tmp_path: Path):
    file = tmp_path / "placement.conf"
    file.write_text("[placement_database]\n")
    refused = run("import", str(file), "--database", here)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "there is no connection in [placement_database]" in refused.stderr


def test_a_password_on_the_command_line_is_warned_of(here: str):
    refused = run("import", "mysql+pymysql://nova:secret@127.0.0.1:1/placement", "--database", here)
    assert refused.returncode == 1
    assert "any user of this machine sees its password" in refused.stderr
    assert "secret" not in refused.stderr
