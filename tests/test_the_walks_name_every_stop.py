"""docs/design.md gives a reason for every module that a candidate query, a claim and a pod pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.journeys import stops
from tests.server import BACKENDS

DESIGN = Path(__file__).parents[1] / "docs" / "design.md"


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_module_is_named(backend: str):
    walks = DESIGN.read_text().partition("## The forest")[0]
    for journey, modules in stops(backend).items():
        unnamed = [module for module in sorted(modules) if f"`{module.replace('.', '/')}.py`" not in walks]
        assert len(modules) > 20, f"{journey}: the trace saw too little to show anything"
        assert unnamed == [], f"{journey}: nobody tells what these are for"
