"""The CPUs and memory of a Kubernetes pod, and its requests as a whole."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Any

from placement.allocations.kubernetes_resources import HUGEPAGES, base_amount
from placement.common.manifest import Field, Manifest, ManifestReport, read_manifest
from placement.common.pod_identity import ENDED_PHASES, resize_is_infeasible
from placement.engine.numa.host import ResourceAmounts

Quantities = Mapping[str, Fraction]
"""Quantities by Kubernetes resource name, in the resource's base unit."""


@dataclass(frozen=True, slots=True)
class Container:
    """A container with its requests and limits; a limit without a request is also a request.

    `is_sidecar`: an init container that keeps running beside the others.
    """

    name: str
    requests: Quantities
    limits: Quantities
    is_sidecar: bool = False


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod as its manifest describes it; `requests` and `limits` are of the pod level, if it has any.

    `host` is the name of the node it runs on or is bound to, empty before that.
    """

    manifest: Manifest
    namespace: str
    name: str
    uid: str
    containers: tuple[Container, ...]
    init_containers: tuple[Container, ...]
    overhead: Quantities
    requests: Quantities
    limits: Quantities
    priority: int | None
    host: str
    phase: str
    reported_qos: str

    @property
    def is_assigned(self) -> bool:
        """Return whether the pod occupies a host."""
        return bool(self.host) and self.phase not in ENDED_PHASES

    @property
    def all_containers(self) -> tuple[Container, ...]:
        """Return init containers and containers."""
        return self.init_containers + self.containers

    def label(self, key: str) -> str:
        """Return the text of a label, empty if there is none."""
        return self.manifest.label(key).text() or ""


def read_pod(document: Mapping[str, Any], report: ManifestReport) -> Pod:
    """Return the pod of a parsed manifest; what breaks the schema is reported, also requests above limits.

    Annotations are left to the dialects. Source: Kubernetes pod schema.
    """
    manifest = read_manifest(document, "v1", "Pod", report)
    spec, status = manifest.root.member("spec"), manifest.root.member("status")
    containers = _read_containers(spec.member("containers"))
    if not containers:
        spec.member("containers").refuse("a pod needs at least one container")
    init_containers = _read_containers(spec.member("initContainers"))
    requested = {name for container in (*containers, *init_containers) for name in container.requests}
    requests, limits = _read_resources(spec.member("resources"), requested)
    priority = spec.member("priority")
    return Pod(
        manifest=manifest,
        namespace=manifest.root.member("metadata").member("namespace").text() or "default",
        name=manifest.name.text() or "",
        uid=manifest.uid.text() or "",
        containers=containers,
        init_containers=init_containers,
        overhead=_read_quantities(spec.member("overhead")),
        requests=requests,
        limits=limits,
        priority=None if priority.value is None else priority.integer(),
        host=spec.member("nodeName").text() or "",
        phase=status.member("phase").text() or "",
        reported_qos=status.member("qosClass").text() or "",
    )


def _read_containers(containers: Field) -> tuple[Container, ...]:
    found = []
    for each in containers.elements():
        requests, limits = _read_resources(each.member("resources"))
        is_sidecar = each.member("restartPolicy").text() == "Always"
        found.append(Container(each.member("name").text() or "", requests, limits, is_sidecar))
    return tuple(found)


def _read_resources(resources: Field, requested_below: Collection[str] = ()) -> tuple[Quantities, Quantities]:
    """Return requests and limits; a limit alone is a request unless containers of a pod request the resource.

    Huge pages are not overcommitted: their limit is the request. Source: KEP-2837, "Pod Level Resource
    Specifications".
    """
    requests = _read_quantities(resources.member("requests"))
    limits = _read_quantities(resources.member("limits"))
    for name, limit in limits.items():
        if requests.get(name, limit) > limit:
            field = resources.member("requests").member(name)
            ceiling = resources.member("limits").member(name)
            field.refuse(f"{field.value} is above its limit {ceiling.value}")
    implied = {
        name: limit
        for name, limit in limits.items()
        if name not in requested_below or name.startswith(HUGEPAGES)
    }
    return {**implied, **requests}, limits


def _read_quantities(quantities: Field) -> Quantities:
    read = {name: quantity.quantity_or_zero(name) for name, quantity in quantities.members().items()}
    return {name: quantity for name, quantity in read.items() if quantity is not None}


def pod_requests(pod: Pod) -> Quantities:
    """Return the requests of a whole pod: the larger of containers and init containers, plus overhead.

    Requests of the pod level replace the requests of its containers.
    Source: koordinator.md, "Bound pods"; Kubernetes effective requests.
    """
    return _effective(pod, lambda container: container.requests, pod.requests)


def occupied_amounts(pod: Pod) -> Quantities:
    """Return the quantities that a running pod occupies: its requests, or more during a resize in place."""
    status = pod.manifest.root.member("status").softly()
    is_infeasible = resize_is_infeasible(pod.manifest.root.mapping())
    by_name = {
        entry.member("name").text(): entry
        for statuses in ("containerStatuses", "initContainerStatuses")
        for entry in status.member(statuses).elements()
    }

    def occupied(container: Container) -> Quantities:
        entry = by_name.get(container.name)
        return container.requests if entry is None else _occupied(container.requests, entry, is_infeasible)

    of_the_pod_level = _occupied(pod.requests, status, is_infeasible) if pod.requests else {}
    return _effective(pod, occupied, of_the_pod_level)


def _occupied(requests: Quantities, status: Field, is_infeasible: bool) -> Quantities:
    """Return the largest of requested, admitted and effective amounts; without a resize the requests.

    A request that the node can never meet does not count, as in kube-scheduler.

    Source: KEP-1287, "In-place Update of Pod Resources".
    """
    in_effect = _read_quantities(status.member("resources").member("requests"))
    if not in_effect:
        return requests
    admitted = _read_quantities(status.member("allocatedResources"))
    wanted: Quantities = {} if is_infeasible else requests
    return _maximum(_maximum(in_effect, admitted), wanted)


def pod_limit(pod: Pod, resource: str) -> Fraction | None:
    """Return a whole pod's limit of a resource, found like its requests; None if a container has no limit."""
    if resource not in pod.limits and any(resource not in item.limits for item in pod.all_containers):
        return None
    return _effective(pod, lambda container: container.limits, pod.limits).get(resource, Fraction(0))


def _effective(
    pod: Pod, quantities: Callable[[Container], Quantities], of_the_pod_level: Quantities
) -> Quantities:
    together = _sum(quantities(container) for container in pod.containers)
    sidecars: Quantities = {}
    largest: Quantities = {}
    for container in pod.init_containers:
        running = _sum((sidecars, quantities(container)))
        sidecars = running if container.is_sidecar else sidecars
        largest = _maximum(largest, running)
    effective = _maximum(_sum((together, sidecars)), largest)
    return _sum(({**effective, **of_the_pod_level}, pod.overhead))


def request_amounts(quantities: Quantities) -> ResourceAmounts:
    """Return requests in the units of NUMA accounts, rounded up, without requests of nothing."""
    amounts = {name: base_amount(name, quantity, ceil) for name, quantity in quantities.items()}
    return {name: amount for name, amount in amounts.items() if amount}


def quantities(amounts: ResourceAmounts) -> dict[str, str]:
    """Return the amounts as Kubernetes writes them."""
    texts = {name: str(amount) for name, amount in amounts.items()}
    if "cpu" in amounts:
        milli = amounts["cpu"]
        texts["cpu"] = f"{milli}m" if milli % 1000 else str(milli // 1000)
    return texts


def _sum(parts: Iterable[Quantities]) -> dict[str, Fraction]:
    total: dict[str, Fraction] = {}
    for part in parts:
        for name, quantity in part.items():
            total[name] = total.get(name, Fraction(0)) + quantity
    return total


def _maximum(one: Quantities, other: Quantities) -> dict[str, Fraction]:
    nothing = Fraction(0)
    return {name: max(one.get(name, nothing), other.get(name, nothing)) for name in {**one, **other}}
