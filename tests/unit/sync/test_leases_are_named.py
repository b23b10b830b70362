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


def test_other_names_and_durations_are_refused(capsys):
    names = ("edge", "a/b/c", "/edge", "placement/", "Placement/edge", "placement/-x")
    for option, texts, words in (
        ("--lease", names, "is not NAMESPACE/NAME"),
        ("--lease-duration", ("2", "3601", "1.5", "-5", "soon", "٣"), "--lease-duration"),
    ):
        for text in texts:
            with pytest.raises(SystemExit):
                parsed(option, text)
            assert words in capsys.readouterr().err
