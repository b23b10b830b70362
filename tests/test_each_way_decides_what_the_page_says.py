"""The table of docs/kubernetes.md is what comes of real pods, and none of its cells is silent."""

from __future__ import annotations

import pytest

from benchmarks.kubernetes_matrix import BEGIN, END, LEFT, PAGE, YES, matrix, table
from placement.pods.manifests.undecided import UNDECIDED, note_on_undecided

pytestmark = pytest.mark.one_database


def test_the_page_has_what_comes_of_a_pod_for_each_feature() -> None:
    cells = matrix()
    assert all(cell in (YES, LEFT) or cell.startswith("no: ") for row in cells for cell in row), cells
    assert PAGE.read_text().split(BEGIN)[1].split(END)[0].strip() == table(cells).strip()


def test_a_note_names_each_kind_once_and_none_that_kube_scheduler_decides() -> None:
    kinds = ["volume claim", "quota", "quota", "GPU share"]
    alone = note_on_undecided(kinds, beside_kube_scheduler=False)
    assert alone == "not looked at: volume claim, quota, GPU share"
    assert note_on_undecided(kinds, beside_kube_scheduler=True) == "not looked at: quota, GPU share"
    left = [kind.what for kind in UNDECIDED if kind.by_kube_scheduler]
    assert note_on_undecided(left, beside_kube_scheduler=True) == ""
