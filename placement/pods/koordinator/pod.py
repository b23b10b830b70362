"""A Kubernetes pod as values: what it asks of any host, and all else that its manifest says."""

from __future__ import annotations

import marshal
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from placement.common.gang import read_gang
from placement.common.manifest import Field, ManifestError, ManifestReport
from placement.engine.numa.amounts import Amounts
from placement.engine.numa.demand import BindPolicy, ExclusiveLevel, PodRefused, RefusalClass
from placement.pods.koordinator import annotations as keys
from placement.pods.koordinator.admission import admission_violations, warn_of_pod
from placement.pods.koordinator.annotations import (
    CONSTRAINED_BURST,
    DEFAULT,
    is_bound_eligible,
    kubernetes_qos,
    qos_with_default,
    raw_qos,
    read_numa_topology_spec,
    read_resource_spec,
    read_resource_status,
)
from placement.pods.manifests.affinity import read_pod_rules
from placement.pods.manifests.pod import Pod, pod_limit, pod_requests, read_pod, request_amounts
from placement.pods.manifests.selection import (
    read_node_selection,
    read_term,
)
from placement.pods.model import (
    PodRequest,
    PodSpec,
    QosClass,
    ReservationAffinity,
    ResourceSpec,
    ResourceStatus,
    SchedulerSettings,
)

# Pods that must use a reservation, and which ones they accept.


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def read_reservation_affinity(annotation: Field) -> ReservationAffinity | None:
    """Return the affinity of a reservation-affinity annotation, None if there is none.

    With an affinity the pod must use a reservation. What does not parse is reported.
    Source: koordinator.md, "Keys on the pod".
    """
    parsed = annotation.json()
    if parsed.value is None:
        return None
    selector = parsed.member("reservationSelector").members()
    required = parsed.member(_REQUIRED)
    terms = required.member("reservationSelectorTerms").elements()
    return ReservationAffinity(
        name=parsed.member("name").text() or "",
        selector=tuple(sorted((key, text.text() or "") for key, text in selector.items())),
        terms=None if required.value is None else tuple(map(read_term, terms)),
    )


CPUS_MUST_BE_INTEGER = "the requested CPUs must be integer"
MECHANISM = "NodeNUMAResource"


def interpret_pod(pod: Pod, settings: SchedulerSettings) -> PodRequest | None:
    """Return what a pod asks of any host; None if it requests nothing at all.

    Annotations that do not parse are reported where the pod's manifest is. Raises PodRefused if no host can
    take the pod. Source: koordinator.md, "Bound pods".
    """
    amounts = request_amounts(pod_requests(pod))
    spec = read_resource_spec(pod.manifest.annotation(keys.RESOURCE_SPEC))
    numa = read_numa_topology_spec(pod.manifest.annotation(keys.NUMA_TOPOLOGY_SPEC))
    designated = _read_designated(pod)
    if not amounts:
        return None
    required, preferred = _bind_policies(pod, spec, amounts, settings)
    return PodRequest(
        amounts=amounts,
        need=amounts.get("cpu", 0) // 1000,
        bound=bool(required or preferred),
        required_bind=required,
        preferred_bind=preferred,
        exclusive=exclusive_level(spec, settings),
        numa=numa,
        designated=designated,
        ignores_reservations=pod.label(keys.RESERVATION_IGNORED) == "true",
        uses_ls_pools=settings.follows_design and _is_latency_sensitive(pod),
        burst_limit=_burst_limit(pod, spec, settings),
        group=exclusivity_group(pod, settings) if required or preferred else "",
    )


def _bind_policies(
    pod: Pod, spec: ResourceSpec, amounts: Amounts, settings: SchedulerSettings
) -> tuple[BindPolicy, BindPolicy]:
    """Return the required and the preferred policy of a pod that is bound, else none.

    No preference is the default, too; no requirement stays none. Source: koordinator.md, "Bound pods".
    """
    default: str = settings.default_bind_policy
    required = default if spec.required_bind == DEFAULT else spec.required_bind
    preferred = default if spec.preferred_bind in ("", DEFAULT) else spec.preferred_bind
    effective = required or preferred
    if (
        not is_bound_eligible(pod, settings.guaranteed_qos)
        or not effective
        or effective not in set(BindPolicy)
    ):
        return BindPolicy.NONE, BindPolicy.NONE
    if amounts.get("cpu", 0) % 1000:
        raise PodRefused(CPUS_MUST_BE_INTEGER, status=RefusalClass.UNRESOLVABLE)
    if not amounts.get("cpu", 0):
        return BindPolicy.NONE, BindPolicy.NONE
    return _known_policy(required), _known_policy(preferred)


def _known_policy(policy: str) -> BindPolicy:
    return BindPolicy(policy) if policy in set(BindPolicy) else BindPolicy.NONE


def exclusive_level(spec: ResourceSpec, settings: SchedulerSettings) -> ExclusiveLevel:
    """Return the level of a pod with that spec; unknown ones behave as none.

    Source: koordinator.md, "Keys on the pod", "Profiles".
    """
    if spec.exclusive in ("", DEFAULT) and settings.follows_design:
        return settings.default_exclusive_level
    return ExclusiveLevel(spec.exclusive) if spec.exclusive in set(ExclusiveLevel) else ExclusiveLevel.NONE


def exclusivity_group(pod: Pod, settings: SchedulerSettings) -> str:
    """Return the group that a pod names, empty if none; what cannot be read is reported.

    Source: koordinator.md, "Exclusivity groups".
    """
    named = pod.manifest.annotation(keys.EXCLUSIVITY_GROUP).text() or ""
    return named if settings.follows_design else ""


def _is_latency_sensitive(pod: Pod) -> bool:
    """Return whether the pod runs in the LS pools (koordinator.md, "QoS class")."""
    return qos_with_default(pod, guaranteed=QosClass.LS).uses_ls_pools


def _burst_limit(pod: Pod, spec: ResourceSpec, settings: SchedulerSettings) -> int | None:
    """Return the limit that a shared pool has to cover (koordinator.md, "ConstrainedBurst")."""
    bursts = CONSTRAINED_BURST in (spec.required_bind, spec.preferred_bind)
    if not (settings.follows_design and bursts and qos_with_default(pod).uses_ls_pools):
        return None
    limit = pod_limit(pod, "cpu")
    if limit is None:
        containers = pod.manifest.root.member("spec").member("containers")
        containers.refuse(f"{CONSTRAINED_BURST} needs a limit of cpu on every container")
        return None
    return request_amounts({"cpu": limit}).get("cpu", 0)


def _read_designated(pod: Pod) -> ResourceStatus | None:
    """Return the status a pod comes with, if a scheduling hint names this mechanism and no host is chosen."""
    hint = pod.manifest.annotation(keys.SCHEDULING_HINT).json()
    if pod.host or not _names_mechanism(hint):
        return None
    status = read_resource_status(pod.manifest.annotation(keys.RESOURCE_STATUS))
    return None if status.is_empty else status


def _names_mechanism(hint: Field) -> bool:
    return MECHANISM in hint.member("extensions").mapping()


def import_pod(
    document: Mapping[str, Any], settings: SchedulerSettings, old: Mapping[str, Any] | None = None
) -> PodSpec:
    """Return what a parsed Pod asks of hosts under its cluster's settings; `old` is the Pod before an update.

    Raises ManifestError with everything that is wrong: broken schema, contradictions, admission rules.
    Source: koordinator.md, "Bound pods", "Admission rules".
    """
    report = ManifestReport()
    pod = read_pod(document, report)
    before = None if old is None else read_pod(old, ManifestReport())
    for violation in admission_violations(pod, settings.profile, before, settings.keeps_sub_priority):
        report.refuse(violation)
    request = _interpret(pod, settings)
    selection = read_node_selection(pod.manifest.root.member("spec"))
    spec = read_resource_spec(pod.manifest.annotation(keys.RESOURCE_SPEC))
    affinity = read_reservation_affinity(pod.manifest.annotation(keys.RESERVATION_AFFINITY))
    rules, gang = read_pod_rules(pod.manifest.root, pod.namespace), read_gang(pod.manifest, pod.namespace)
    report.raise_findings()
    warn_of_pod(
        pod,
        spec,
        settings,
        unbound=request is not None and not request.bound,
        designated=request is not None and request.designated is not None,
    )
    return PodSpec(
        qos=raw_qos(pod),
        kubernetes_qos=kubernetes_qos(pod),
        request=request,
        spec=spec,
        selection=selection,
        containers=tuple(container.name for container in pod.all_containers),
        warnings=report.warnings,
        treated_as=qos_with_default(pod, guaranteed=QosClass.LS),
        rules=rules,
        gang=gang,
        reservation_affinity=affinity,
    )


def _interpret(pod: Pod, settings: SchedulerSettings) -> PodRequest | None:
    try:
        return interpret_pod(pod, settings)
    except PodRefused:
        return None  # admission has a finding about every pod that no host can take


# Reading pods that are like pods read before.
#
# Pods of one controller differ in their names and uids, and in much that says nothing about where they may
# go; and an extender asks about the same pod several times.


_READINGS_KEPT = 512
_LONGEST_KEPT = 2**14
# The last format of marshal in which equal values are equal bytes, whatever else refers to them.
_PLAIN_FORMAT = 2

# Members by name, with what is read of each: all of it (None), members, or members of each element of a list.
_CONTAINERS = [dict.fromkeys(("name", "resources", "restartPolicy"))]
_READ: dict[str, Any] = {
    "apiVersion": None,
    "kind": None,
    "metadata": dict.fromkeys(("namespace", "labels", "annotations")),
    "spec": {
        "affinity": None,
        "containers": _CONTAINERS,
        "initContainers": _CONTAINERS,
        "nodeName": None,
        "nodeSelector": None,
        "overhead": None,
        "priority": None,
        "resources": None,
        "tolerations": None,
        "topologySpreadConstraints": None,
    },
    "status": dict.fromkeys(("phase", "qosClass")),
}
# Only the presence of these matters.
_NAMES = {"name": "any", "uid": "any"}


def reading_of(document: Mapping[str, Any], settings: SchedulerSettings) -> PodSpec:
    """Return what `import_pod` returns for a Pod, remembered for equal ones; only to be read.

    It is read from the very bytes that are its key, and in these no two types look alike. So pods
    that differ in anything that is read never share it, as long as `what_is_read` leaves out none of that.
    Raises ManifestError, which is never remembered.
    """
    try:
        text = marshal.dumps(what_is_read(document), _PLAIN_FORMAT)
        if len(text) <= _LONGEST_KEPT:
            return _read(text, settings)
    except (ManifestError, ValueError):
        pass  # Errors are about the manifest as it came, and marshal knows only what JSON may hold.
    return import_pod(document, settings)


@lru_cache(_READINGS_KEPT)
def _read(text: bytes, settings: SchedulerSettings) -> PodSpec:
    return import_pod(marshal.loads(text), settings)


def what_is_read(document: Mapping[str, Any]) -> Any:
    """Return a Pod without what `import_pod` ignores; if it has both a name and a uid, with fixed ones."""
    read = _part(document, _READ)
    metadata = document.get("metadata")
    if not isinstance(metadata, dict):
        return read
    own = {key: metadata.get(key) for key in _NAMES}
    named = all(isinstance(text, str) and text for text in own.values())
    return {**read, "metadata": {**read["metadata"], **(_NAMES if named else own)}}


def _part(value: Any, wanted: Any) -> Any:
    if isinstance(wanted, list) and isinstance(value, list):
        return [_part(element, wanted[0]) for element in value]
    if not isinstance(wanted, dict) or not isinstance(value, dict):
        return value
    # Keys that are no texts are errors wherever they are.
    return {
        key: _part(member, wanted.get(key))
        for key, member in value.items()
        if key in wanted or not isinstance(key, str)
    }
