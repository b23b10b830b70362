"""Benchmarks are not run here, but what they take from the product and the tests is there."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[1]
_OURS = {"benchmarks", "placement", "tests"}


@pytest.mark.parametrize("name", sorted(file.stem for file in (_ROOT / "benchmarks").glob("[a-z]*.py")))
def test_a_benchmark_can_be_imported(name: str):
    try:
        importlib.import_module(f"benchmarks.{name}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in _OURS:
            raise
        pytest.skip(f"{error.name} comes with the extra `bench`")
