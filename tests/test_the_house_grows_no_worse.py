"""Size, fan-out and prose of the product get no worse than recorded."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.house import ROOT, recorded, worse

# In a process of its own: what other tests have warmed changes the way of a request.
_PRINTED = "import json; from tests.house import figures; print(json.dumps(figures()))"


def test_no_figure_is_worse_than_recorded():
    found = subprocess.run(
        [sys.executable, "-c", _PRINTED], cwd=ROOT, capture_output=True, text=True, check=True
    )
    now = json.loads(found.stdout.splitlines()[-1])
    assert now.keys() == recorded().keys(), "record the new figures with python -m tests.house --write"
    assert worse(now, recorded()) == {}, "make it simpler; what has to be is recorded by tests.house --write"


def test_a_figure_that_grows_is_found():
    assert worse(
        {"lines": 2, "median lines of a module": 9}, {"lines": 1, "median lines of a module": 10}
    ) == {
        "lines": (1, 2),
        "median lines of a module": (10, 9),
    }
    assert worse({"lines": 1}, {"lines": 1}) == {}
