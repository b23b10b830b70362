"""The wheel alone, and with each extra alone, has what its commands, its service and that extra need."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import installations
from tests.installations import NO_EXTRA

EXTRAS = ["docs", "keystone", "kubernetes", "mysql", "openstackclient"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installations.build_wheel(tmp_path_factory.mktemp("wheel"))


def test_these_are_all_extras(wheel: Path):
    assert installations.extras_of(wheel) == [NO_EXTRA, *EXTRAS]


def test_a_clean_environment_without_extras_serves_and_answers(wheel: Path, tmp_path: Path):
    try:
        made = installations.installed(tmp_path / "environment", wheel, NO_EXTRA)
    except installations.Unreachable:
        pytest.skip("NOT RUN: no package index can be reached")
    installations.try_commands(made)
    installations.try_service(made)
    installations.try_extras(made, EXTRAS)


@pytest.mark.parametrize("extra", EXTRAS)
def test_nothing_beyond_the_extra_is_needed(wheel: Path, tmp_path: Path, extra: str):
    made = installations.linked(tmp_path / "environment", wheel, extra)
    installations.try_commands(made)
    # Of what is served, the extras change this alone.
    if extra == "docs":
        installations.try_service(made)
    installations.try_extras(made, [extra])
