"""The host ports of a pod are the ones that Kubernetes sees, and odd ones are named."""

from __future__ import annotations

from typing import Any

import pytest

from placement.common.manifest import Field, ManifestReport
from placement.pods.manifests.ports import (
    HostPort,
    HostPorts,
    conflicting,
    read_host_ports,
    stored_ports,
    used_ports,
)

WEB = HostPort("TCP", 80)


def read(spec: Any, *, soft: bool = False) -> tuple[HostPorts, ManifestReport]:
    report = ManifestReport()
    return read_host_ports(Field("spec", spec, report, soft)), report


def of_port(**port: Any) -> dict[str, Any]:
    return {"containers": [{"ports": [port]}]}


@pytest.mark.parametrize(
    ("spec", "ports"),
    [
        ({}, ()),
        (None, ()),
        (of_port(containerPort=80), ()),
        (of_port(containerPort=80, hostPort=0), ()),
        (of_port(containerPort=80, hostPort=None), ()),
        (of_port(hostPort=80), (WEB,)),
        (of_port(hostPort=80, protocol="", hostIP=""), (WEB,)),
        (of_port(hostPort=80, protocol=None, hostIP=None), (WEB,)),
        (of_port(hostPort=80, hostIP="0.0.0.0"), (WEB,)),
        (of_port(hostPort=80, hostIP="::"), (WEB,)),
        (of_port(hostPort=65535, protocol="UDP", hostIP="10.0.0.1"), (HostPort("UDP", 65535, "10.0.0.1"),)),
        ({**of_port(containerPort=80), "hostNetwork": True}, (WEB,)),
        ({**of_port(containerPort=80, hostPort=0), "hostNetwork": True}, (WEB,)),
        ({**of_port(containerPort=8080, hostPort=80), "hostNetwork": True}, (WEB,)),
        ({**of_port(containerPort=80), "hostNetwork": False}, ()),
        (
            {"containers": [{}, {"ports": [{"hostPort": 443}, {"hostPort": 80}, {"hostPort": 80}]}]},
            (WEB, HostPort("TCP", 443)),
        ),
        ({"initContainers": [{"ports": [{"hostPort": 80}]}]}, ()),
        ({"initContainers": [{"restartPolicy": "Always", "ports": [{"hostPort": 80}]}]}, (WEB,)),
    ],
    ids=str,
)
def test_ports_of_the_host_are_those_of_kubernetes(spec: Any, ports: HostPorts) -> None:
    found, report = read(spec)
    assert found == ports
    assert not report.findings
    assert stored_ports([list(port) for port in found]) == found


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        *(
            (of_port(hostPort=odd), "spec.containers[0].ports[0].hostPort")
            for odd in ("80", -1, 65536, 10**5000, 80.0, True, [], {}, "")
        ),
        ({**of_port(containerPort="x"), "hostNetwork": True}, "spec.containers[0].ports[0].containerPort"),
        ({**of_port(containerPort=0), "hostNetwork": True}, "spec.containers[0].ports[0].containerPort"),
        ({**of_port(), "hostNetwork": True}, "spec.containers[0].ports[0].containerPort"),
        *(
            (of_port(hostPort=80, protocol=odd), "spec.containers[0].ports[0].protocol")
            for odd in ("tcp", "ICMP", 5, [], {})
        ),
        *(
            (of_port(hostPort=80, hostIP=odd), "spec.containers[0].ports[0].hostIP")
            for odd in (5, [], {}, False)
        ),
        ({"containers": [{"ports": [5]}]}, "spec.containers[0].ports[0]"),
        ({"containers": [{"ports": "80"}]}, "spec.containers[0].ports"),
        ({**of_port(containerPort=80), "hostNetwork": "yes"}, "spec.hostNetwork"),
    ],
    ids=lambda value: str(value)[:60] if not isinstance(value, dict) else "spec",
)
def test_odd_ports_are_named(spec: Any, field: str) -> None:
    found, report = read(spec)
    assert found == ()
    assert {each.place.text for each in report.findings} == {field}
    # Of a pod that runs they are ignored, and all others count.
    spec["containers"].append({"ports": [{"hostPort": 443}]})
    found, report = read(spec, soft=True)
    assert found == (HostPort("TCP", 443),)
    assert not report.findings
    assert [warning.split(": ")[0] for warning in report.warnings] == [field]


@pytest.mark.parametrize(
    ("port", "other", "conflicts"),
    [
        (WEB, WEB, True),
        (WEB, HostPort("UDP", 80), False),
        (WEB, HostPort("TCP", 81), False),
        (WEB, HostPort("TCP", 80, "10.0.0.1"), True),
        (HostPort("TCP", 80, "10.0.0.2"), HostPort("TCP", 80, "10.0.0.1"), False),
        (HostPort("TCP", 80, "10.0.0.1"), HostPort("TCP", 80, "10.0.0.1"), True),
    ],
    ids=str,
)
def test_which_ports_two_pods_cannot_have_at_once(port: HostPort, other: HostPort, conflicts: bool) -> None:
    for mine, taken in ((port, other), (other, port)):
        found = list(conflicting((mine,), used_ports([(taken,), (HostPort("TCP", 443),)])))
        assert found == ([mine] if conflicts else [])


def test_ports_are_told_as_people_write_them() -> None:
    assert list(map(str, (WEB, HostPort("UDP", 53, "10.0.0.1")))) == ["80/TCP", "10.0.0.1:53/UDP"]


@pytest.mark.parametrize(
    "odd",
    [
        *(None, 5, "x", {}, [5], [[]], ["TCP"], [["TCP", 80]], [["TCP", 80, "", 1]], [["TCP", "80", ""]]),
        *(
            [["TCP", True, ""]],
            [["TCP", 10**30, ""]],
            [["ICMP", 80, ""]],
            [["TCP", 80, None]],
            [[[], 80, ""]],
        ),
    ],
    ids=str,
)
def test_stored_ports_of_another_kind_cannot_be_read(odd: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        stored_ports(odd)
