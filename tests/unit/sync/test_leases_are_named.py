"""`--lease` and `--lease-duration` take what Kubernetes takes, `--cluster` what the service takes."""

from __future__ import annotations

import argparse

import pytest

from placement.client.client import Client, ServiceError
from placement.sync.command import SyncKubernetes
from placement.sync.service import ServiceCluster


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


@pytest.mark.parametrize("name", ["a/b", "..", ""])
def test_a_cluster_that_none_can_be_is_refused_before_anything_is_tried_again(name):
    with pytest.raises(ServiceError, match="is not a name: it is empty, only dots"):
        ServiceCluster(Client("http://127.0.0.1:9", "admin"), name)
