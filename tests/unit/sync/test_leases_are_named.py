"""`--lease` and `--lease-duration` take what Kubernetes takes."""

from __future__ import annotations

import argparse

import pytest

from placement.sync.command import SyncKubernetes


def parsed(*arguments: str) -> argparse.Namespace:
    parser = SyncKubernetes(None, None).get_parser("sync kubernetes")
    return parser.parse_args(["--cluster", "edge", *arguments])


def test_a_lease_is_a_namespace_and_a_name():
    assert str(parsed("--lease", "placement/placement-sync-edge").lease) == "placement/placement-sync-edge"
    assert parsed().lease is None
    assert parsed("--lease-duration", "3").lease_duration == 3


@pytest.mark.parametrize("text", ["edge", "a/b/c", "/edge", "placement/", "Placement/edge", "placement/-x"])
def test_other_names_are_refused(text, capsys):
    with pytest.raises(SystemExit):
        parsed("--lease", text)
    assert "is not NAMESPACE/NAME" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["2", "3601", "1.5", "-5", "soon", "٣"])
def test_other_durations_are_refused(text, capsys):
    with pytest.raises(SystemExit):
        parsed("--lease-duration", text)
    assert "--lease-duration" in capsys.readouterr().err
