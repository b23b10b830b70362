"""Case files run against a service: `python -m tests.cases FILE [--url URL]`.

A case file is JSON with a `format`. Every module here that is listed in MODULES understands one format: it
has a FORMAT and `run(document, url)`, which yields the id of every case with None if it passed, else a
one-line reason. Without a URL the module starts the service itself, if it needs one at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol, cast

MODULES = ("granular", "flavor", "koordinator", "scoring", "clusters")

Outcome = tuple[str, str | None]
"""Case id, and None if it passed, else the reason."""


class CaseModule(Protocol):
    """What a module that runs the cases of one format offers."""

    FORMAT: str

    def run(self, document: dict[str, Any], url: str | None) -> Iterator[Outcome]:
        """Run all cases of the document, against the URL if there is one."""


def modules() -> Iterator[CaseModule]:
    """The modules of MODULES that exist, imported one by one."""
    for name in MODULES:
        full_name = f"{__name__}.{name}"
        if find_spec(full_name) is not None:
            yield cast(CaseModule, import_module(full_name))


def module_for(format_name: str) -> CaseModule | None:
    """The module whose FORMAT it is."""
    return next((module for module in modules() if format_name == module.FORMAT), None)
