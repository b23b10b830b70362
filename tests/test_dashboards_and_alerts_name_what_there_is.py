"""Every figure that a dashboard or an alert rule of etc/ names is one that /metrics tells."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from prometheus_client import REGISTRY

from placement.metrics import catalog
from placement.scheduling import figures as scheduling_figures
from placement.server import routes
from placement.sync import figures
from tests.patience import PATIENCE_SECONDS

ETC = Path(__file__).resolve().parents[1] / "etc"
ALERTS = ETC / "prometheus" / "alerts.yaml"
DASHBOARDS = sorted((ETC / "grafana").glob("*.json"))
_NAME = re.compile(r"\b(?:openstack_)?placement_[a-z_]+\b")
_STRINGS = re.compile(r'"[^"]*"')


def told() -> set[str]:
    """The names of all samples that the service, the synchronization and the loop can tell."""
    assert catalog.REQUESTS
    assert figures.WRITES
    assert scheduling_figures.WRITES
    found = {f"openstack_placement_resource_{name}" for name in routes._CAPACITY}
    for collector in REGISTRY._collector_to_names:
        found |= set(REGISTRY._collector_to_names[collector])
    return found


def expressions() -> Iterator[tuple[str, str]]:
    """(where it stands, expression of PromQL)."""
    for group in yaml.safe_load(ALERTS.read_text())["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]
    for file in DASHBOARDS:
        dashboard = json.loads(file.read_text())
        for panel in dashboard["panels"]:
            for target in panel["targets"]:
                yield f"{file.name}: {panel['title']}", target["expr"]
        for variable in dashboard["templating"]["list"]:
            yield f"{file.name}: {variable['name']}", variable["query"]


def test_there_is_a_dashboard_for_the_service_and_one_for_capacity():
    assert [file.stem for file in DASHBOARDS] == ["capacity", "service"]
    for file in DASHBOARDS:
        panels = json.loads(file.read_text())["panels"]
        assert len({panel["id"] for panel in panels}) == len(panels)
        assert len({(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}) == len(panels)


@pytest.mark.parametrize(("where", "expression"), list(expressions()))
def test_every_figure_that_is_named_is_told(where: str, expression: str):
    named = set(_NAME.findall(_STRINGS.sub("", expression)))
    assert named or "up{" in expression or expression == "prometheus"
    assert named <= told(), where


def test_every_figure_of_the_service_is_on_a_dashboard():
    named = {
        name
        for where, expression in expressions()
        if ".json" in where
        for name in _NAME.findall(_STRINGS.sub("", expression))
    }
    shown = {re.sub(r"_(bucket|count|sum|total)$", "", name) for name in named}
    there = {
        re.sub(r"_(bucket|count|sum|total|created)$", "", name) for name in told() if "placement_" in name
    }
    assert there - shown == set()


def test_promtool_accepts_the_rules_and_every_expression(tmp_path: Path):
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed")
    # Dashboards have variables of Grafana's where Prometheus wants values.
    rules = [
        {"record": f"test:number_{number}", "expr": re.sub(r"\$__rate_interval", "5m", expression)}
        for number, (_, expression) in enumerate(expressions())
        if not expression.startswith(("label_values", "prometheus"))
    ]
    file = tmp_path / "expressions.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "expressions", "rules": rules}]}))
    for checked in (ALERTS, file):
        finished = subprocess.run(
            [promtool, "check", "rules", str(checked)],
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
        )
        assert finished.returncode == 0, finished.stdout + finished.stderr
