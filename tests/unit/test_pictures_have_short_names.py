"""Pictures of pages have short names that are unique, whatever the addresses of the pages are."""

from __future__ import annotations

import json
import re
from urllib.parse import urlencode

from benchmarks import cluster
from tests import test_questions_about_a_cluster_are_answered as of_cluster
from tests.screenshots import names

_LONGEST = 80


def test_pages_with_whole_manifests_have_short_names():
    paths = of_cluster.pages([cluster.node(number)["node"] for number in range(20)])
    assert max(map(len, paths)) > 255, "an address holds a manifest"
    found = [name for _, name in names(paths)]
    assert all(re.fullmatch(r"[\w-]+", name) and len(name) <= _LONGEST for name in found), found
    assert found[0] == "01-overview"


def test_pages_that_differ_in_a_manifest_have_names_of_their_own():
    pods = ({"metadata": {"name": name}} for name in ("one", "other"))
    paths = [f"/ui/why?{urlencode({'kind': 'pod', 'pod': json.dumps(pod)})}" for pod in pods]
    assert [name for _, name in names(paths)] == ["01-why-pod", "02-why-pod"]
