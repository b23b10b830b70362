"""What anybody may ask a running service without a token: its health, and its figures for Prometheus."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

from tests.patience import PATIENCE_SECONDS

Figures = Mapping[tuple[str, frozenset[tuple[str, str]]], float]


def probed(url: str, path: str, method: str = "GET", **headers: str) -> tuple[int, str]:
    """Status and text of an answer, asked without any token."""
    request = urllib.request.Request(url + path, method=method, headers=headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=PATIENCE_SECONDS) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def is_ready(url: str) -> bool:
    """Whether the service says that it is ready."""
    return probed(url, "/readyz")[0] == 200


def figures(url: str) -> Figures:
    """Every figure by its name and labels."""
    status, text = probed(url, "/metrics")
    assert status == 200
    return parsed(text)


def parsed(text: str) -> Figures:
    """Every figure of such a text by its name and labels."""
    families = text_string_to_metric_families(text)
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def figure(url: str, name: str, **labels: str) -> float:
    """One figure; 0 if there is none with exactly these labels."""
    return figures(url).get((name, frozenset(labels.items())), 0)
