"""The ports of its node that a pod takes, and which of them two pods cannot have at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from placement.common.manifest import Field, shown

PROTOCOLS = ("TCP", "UDP", "SCTP")
LARGEST_PORT = 65535
_DEFAULT_PROTOCOL = PROTOCOLS[0]
# Each is all addresses of the node.
_ANY_ADDRESS = ("", "0.0.0.0", "::")


class HostPort(NamedTuple):
    """A port of a node; without `host_ip` it is on all addresses of the node."""

    protocol: str
    number: int
    host_ip: str = ""

    def __str__(self) -> str:
        """Return the port in readable form."""
        return f"{self.host_ip and f'{self.host_ip}:'}{self.number}/{self.protocol}"


HostPorts = tuple[HostPort, ...]
"""Distinct ports in ascending order."""
UsedPorts = Mapping[tuple[str, int], frozenset[str]]
"""The addresses on which ports are taken, by protocol and number; "" is all addresses."""


def read_host_ports(spec: Field) -> HostPorts:
    """Return the ports of its node that a pod with this `Pod.spec` takes; what breaks the schema is reported.

    These are the ports of its containers and sidecars. On the network of the host the port of a container is
    that of the host. Source: kube-scheduler, plugin NodePorts; Kubernetes defaults of pods.
    """
    is_on_host = bool(spec.member("hostNetwork").flag(default=False))
    found = set[HostPort]()
    for container in _keep_running(spec):
        for port in container.member("ports").elements():
            found.update(_host_port(port, is_on_host=is_on_host))
    return tuple(sorted(found))


def _keep_running(spec: Field) -> Iterator[Field]:
    yield from spec.member("containers").elements()
    for container in spec.member("initContainers").elements():
        if container.member("restartPolicy").value == "Always":
            yield container


def _host_port(port: Field, *, is_on_host: bool) -> Iterator[HostPort]:
    """Yield the port of the node, if there is one that can be read."""
    field = port.member("hostPort")
    number = 0 if field.value is None else field.integer()
    if number == 0:
        if not is_on_host:
            return
        field = port.member("containerPort")
        number = field.integer()
    if number is None:
        return
    if not 1 <= number <= LARGEST_PORT:
        field.complain(f"must be from 1 to {LARGEST_PORT}, not {shown(number)}")
        return
    protocol, host_ip = port.member("protocol"), port.member("hostIP")
    if protocol.value not in (None, "", *PROTOCOLS):
        protocol.complain(f"must be one of {', '.join(PROTOCOLS)}, not {shown(protocol.value)}")
        return
    address = "" if host_ip.value is None else host_ip.text()
    if address is not None:
        yield HostPort(
            protocol.value or _DEFAULT_PROTOCOL, number, "" if address in _ANY_ADDRESS else address
        )


def used_ports(pods_ports: Iterable[HostPorts]) -> UsedPorts:
    """Return the ports that pods with these ports take together."""
    found: dict[tuple[str, int], set[str]] = defaultdict(set)
    for ports in pods_ports:
        for port in ports:
            found[port.protocol, port.number].add(port.host_ip)
    return {key: frozenset(addresses) for key, addresses in found.items()}


def conflicting(ports: HostPorts, used: UsedPorts) -> Iterator[HostPort]:
    """Yield the ports that are taken: by protocol and number on the same address, or on all of either pod."""
    for port in ports:
        addresses = used.get((port.protocol, port.number))
        if addresses and (not port.host_ip or port.host_ip in addresses or "" in addresses):
            yield port


def stored_ports(document: object) -> HostPorts:
    """Return the ports in stored JSON. Raises ValueError for what is no list of ports."""
    if not isinstance(document, list):
        raise ValueError("ports are not a list")
    found = set[HostPort]()
    for protocol, number, host_ip in document:
        is_port = type(number) is int and 1 <= number <= LARGEST_PORT
        if not (is_port and protocol in PROTOCOLS and isinstance(host_ip, str)):
            raise ValueError("a port cannot be read")
        found.add(HostPort(protocol, number, host_ip))
    return tuple(sorted(found))
