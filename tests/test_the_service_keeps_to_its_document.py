"""What schemathesis asks of /openapi.json is answered as it says, and what it forbids is refused.

A handful of requests for each operation; `make fuzz` makes more of them.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from flask import Flask

from placement.api.route_guard import OWN_PATHS
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
    found = set[str]()
    # A third of them: what differs is mostly the same members, missing everywhere.
    for operation in operations(application, "1.12")[::3]:
        if not operation.path.startswith(OWN_PATHS):
            found |= findings(application, operation, "1.12", 1)
    assert not found, "\n\n".join(sorted(found))
