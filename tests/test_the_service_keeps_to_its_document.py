"""What schemathesis asks of /openapi.json is answered as it says, and what it forbids is refused.

One request that keeps to the document and one that does not for each operation, which shows that nothing
breaks; `make fuzz` makes more of them. That answers of success are as described is seen where tests succeed
(tests.described).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from flask import Flask

from placement.http.gate import OWN_PATHS
from tests.described_service import described_service
from tests.fuzzing import findings, operations

# So that no test takes long, the operations are dealt out to several.
PARTS = 8
EXAMPLES = 1


@pytest.fixture(scope="module")
def application(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flask]:
    with described_service(tmp_path_factory.mktemp("described")) as application:
        yield application


@pytest.mark.parametrize("part", range(PARTS))
def test_the_newest_version(application: Flask, part: int):
    found = set[str]()
    for operation in operations(application, "1.39")[part::PARTS]:
        found |= findings(application, operation, "1.39", EXAMPLES)
    assert not found, "\n\n".join(sorted(found))


def test_an_older_version(application: Flask):
    newest = {operation.label: operation.definition.raw for operation in operations(application, "1.39")}
    older = [
        operation
        for operation in operations(application, "1.12")
        if not operation.path.startswith(OWN_PATHS)
        and _asked(operation.definition.raw) != _asked(newest.get(operation.label, {}))
    ]
    assert len(older) >= 5
    found = set[str]()
    for operation in older:
        found |= findings(application, operation, "1.12", 1)
    assert not found, "\n\n".join(sorted(found))


def _asked(description: dict[str, Any]) -> list[Any]:
    """What there is to be asked; what is answered is held against the document wherever it is asked."""
    return [description.get(name) for name in ("parameters", "requestBody")]
