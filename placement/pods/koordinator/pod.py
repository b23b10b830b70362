"""A Kubernetes pod in the words of Koordinator: what it asks of any host, and what it holds where it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

from placement.common.gang import read_gang
from placement.common.manifest import Field, Manifest, ManifestReport, Profile
from placement.engine.domain.errors import RequestPlace, pointer_of
from placement.engine.numa.host import (
    BindPolicy,
    ExclusiveLevel,
    Holding,
    PodRefused,
    RefusalClass,
    ResourceAmounts,
)
from placement.pods.koordinator import annotations as keys
from placement.pods.manifests.affinity import read_pod_rules
from placement.pods.manifests.pod import Pod, occupied_amounts, pod_limit, pod_requests, request_amounts
from placement.pods.manifests.ports import read_host_ports
from placement.pods.manifests.selection import read_node_selection, read_term
from placement.pods.manifests.undecided import read_undecided
from placement.pods.state import model

MECHANISM = "NodeNUMAResource"


def read_incoming(
    pod: Pod, old_pod: Pod | None, settings: model.SchedulerSettings, report: ManifestReport
) -> model.PodSpec:
    """Return the demand of a pod under its cluster's settings; `old_pod` is the pod before an update.

    Raises ManifestError with all findings of the report: broken schema, contradictions, admission rules.
    Source: koordinator.md, "Bound pods", "Admission rules".
    """
    for violation in admission_violations(pod, settings.profile, old_pod, settings.keeps_sub_priority):
        report.refuse(violation, _place_of(violation))
    try:
        request = interpret_pod(pod, settings)
    except PodRefused:
        request = model.NO_REQUEST  # admission has a finding about every pod that no host can take
    selection = read_node_selection(pod.manifest.root.member("spec"))
    spec = keys.read_resource_spec(pod.manifest.annotation(keys.RESOURCE_SPEC))
    affinity = read_reservation_affinity(pod.manifest.annotation(keys.RESERVATION_AFFINITY))
    parts = _pod_parts(pod, pod.manifest.root)
    report.raise_findings()
    undecided = read_undecided(pod.manifest.root.softly())
    warn_of_pod(pod, spec, settings, request)
    return model.PodSpec(
        **parts,
        treated_as=keys.qos_with_default(pod, guaranteed_qos=model.QosClass.LS),
        warnings=report.warnings,
        request=request,
        spec=spec,
        selection=selection,
        reservation_affinity=affinity,
        undecided=undecided,
    )


def _pod_parts(pod: Pod, root: Field) -> dict[str, Any]:
    return {
        "qos": keys.raw_qos(pod),
        "kubernetes_qos": keys.kubernetes_qos(pod),
        "containers": tuple(container.name for container in pod.all_containers),
        "rules": read_pod_rules(root, pod.namespace),
        "gang": read_gang(Manifest(root), pod.namespace),
    }


def read_reservation_affinity(annotation: Field) -> model.ReservationAffinity | None:
    """Return the affinity of a reservation-affinity annotation, None if there is none.

    With an affinity the pod must use a reservation. Text that does not parse is reported.
    Source: koordinator.md, "Keys on the pod".
    """
    parsed = annotation.json()
    if parsed.value is None:
        return None
    selector = parsed.member("reservationSelector").members()
    required = parsed.member(keys.REQUIRED_TERMS)
    terms = required.member("reservationSelectorTerms").elements()
    return model.ReservationAffinity(
        name=parsed.member("name").text() or "",
        selector=tuple(sorted((key, text.text() or "") for key, text in selector.items())),
        terms=None if required.value is None else tuple(map(read_term, terms)),
    )


def interpret_pod(pod: Pod, settings: model.SchedulerSettings) -> model.PodRequest:
    """Return the request of a pod to any host.

    Annotations that do not parse are reported where the pod's manifest is. Raises PodRefused if no host can
    take the pod. Source: koordinator.md, "Bound pods", "ConstrainedBurst".
    """
    amounts = request_amounts(pod_requests(pod))
    spec = keys.read_resource_spec(pod.manifest.annotation(keys.RESOURCE_SPEC))
    numa = keys.read_numa_topology_spec(pod.manifest.annotation(keys.NUMA_TOPOLOGY_SPEC))
    # It comes with a status if a scheduling hint names this mechanism and no host is chosen.
    designated, hint = None, pod.manifest.annotation(keys.SCHEDULING_HINT).json()
    if not pod.host and MECHANISM in hint.member("extensions").mapping():
        designated = keys.read_resource_status(pod.manifest.annotation(keys.RESOURCE_STATUS))
    if not amounts:
        return model.NO_REQUEST
    required, preferred = _bind_policies(pod, spec, amounts, settings)
    is_bound, burst_limit = bool(required or preferred), None
    bursts = keys.CONSTRAINED_BURST in (spec.required_bind, spec.preferred_bind)
    if settings.follows_design and bursts and keys.qos_with_default(pod).uses_ls_pools:
        limit = pod_limit(pod, "cpu")
        if limit is None:
            containers = pod.manifest.root.member("spec").member("containers")
            containers.refuse(f"{keys.CONSTRAINED_BURST} needs a limit of cpu on every container")
        else:
            burst_limit = request_amounts({"cpu": limit}).get("cpu", 0)
    return model.PodRequest(
        amounts=amounts,
        need=amounts.get("cpu", 0) // 1000,
        bound=is_bound,
        required_bind=required,
        preferred_bind=preferred,
        exclusive=exclusive_level(spec, settings),
        numa=numa,
        designated_status=None if designated is None or designated.is_empty else designated,
        ignores_reservations=pod.label(keys.RESERVATION_IGNORED) == "true",
        uses_ls_pools=settings.follows_design and keys.qos_with_default(pod, model.QosClass.LS).uses_ls_pools,
        burst_limit=burst_limit,
        group=exclusivity_group(pod, settings) if is_bound else "",
    )


def _bind_policies(
    pod: Pod, spec: model.ResourceSpec, amounts: ResourceAmounts, settings: model.SchedulerSettings
) -> tuple[BindPolicy, BindPolicy]:
    """Return the required and the preferred policy of a pod that is bound, else none.

    No preference means the default; no requirement stays none. Source: koordinator.md, "Bound pods".
    """
    default, known, none = str(settings.default_bind_policy), set(BindPolicy), BindPolicy.NONE
    required = default if spec.required_bind == keys.DEFAULT else spec.required_bind
    preferred = default if spec.preferred_bind in ("", keys.DEFAULT) else spec.preferred_bind
    effective = required or preferred
    if not keys.is_bound_eligible(pod, settings.guaranteed_qos) or not effective or effective not in known:
        return none, none
    milli_cpus = amounts.get("cpu", 0)
    if milli_cpus % 1000:
        raise PodRefused(model.CPUS_MUST_BE_INTEGER, refusal_class=RefusalClass.UNRESOLVABLE)
    if not milli_cpus:
        return none, none
    return (
        BindPolicy(required) if required in known else none,
        BindPolicy(preferred) if preferred in known else none,
    )


def exclusive_level(spec: model.ResourceSpec, settings: model.SchedulerSettings) -> ExclusiveLevel:
    """Return the level of a pod with that spec; unknown ones behave as none.

    Source: koordinator.md, "Keys on the pod", "Profiles".
    """
    if spec.exclusive in ("", keys.DEFAULT) and settings.follows_design:
        return settings.default_exclusive_level
    return ExclusiveLevel(spec.exclusive) if spec.exclusive in set(ExclusiveLevel) else ExclusiveLevel.NONE


def exclusivity_group(pod: Pod, settings: model.SchedulerSettings) -> str:
    """Return the group that a pod names, empty if none; what cannot be read is reported.

    Source: koordinator.md, "Exclusivity groups".
    """
    named = pod.manifest.annotation(keys.EXCLUSIVITY_GROUP).text() or ""
    return named if settings.follows_design else ""


_COLOCATION = frozenset({"kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"})
_REQUESTS = "pod.spec.containers[*].resources.requests"
_LIMITS = "pod.spec.containers[*].resources.limits"
_BINARY_SUFFIXES = ("Ki", "Mi", "Gi", "Ti", "Pi")
_BINDING_POLICIES = (keys.DEFAULT, str(BindPolicy.FULL_PCPUS), str(BindPolicy.SPREAD_BY_PCPUS))
_BIND_POLICIES = frozenset({*BindPolicy, keys.DEFAULT, keys.CONSTRAINED_BURST})
_EXCLUSIVE_POLICIES = frozenset({*ExclusiveLevel, keys.DEFAULT, ""})
_NOT_PROD = frozenset(keys.PriorityClass) - {keys.PriorityClass.PROD}
# The priority classes that pods of a class must not have; some must name one.
_FORBIDDEN = {
    model.QosClass.BE: {keys.PriorityClass.UNSET, keys.PriorityClass.PROD},
    model.QosClass.LSR: _NOT_PROD,
}

# The priority classes that pods of a class must not name where the label alone selects the class.
_CONTRADICTING = {
    model.QosClass.BE: {keys.PriorityClass.PROD},
    **dict.fromkeys((model.QosClass.LSE, model.QosClass.LSR), _NOT_PROD - {keys.PriorityClass.UNSET}),
}


def admission_violations(
    pod: Pod, profile: Profile, old_pod: Pod | None = None, check_sub_priority: bool = True
) -> list[str]:
    """Return every admission rule that a pod breaks, in the form `<field>: <kind>: <text>`.

    `old_pod` is the pod before an update. Source: koordinator.md, "Admission rules", "The label alone",
    "Profiles".
    """
    violations = list(change_violations(pod, old_pod, check_sub_priority)) if old_pod else []
    is_design, qos, priority = profile is Profile.DESIGN, keys.raw_qos(pod), keys.raw_priority(pod)
    # Reading it warns of what it should not hold, whatever the class is.
    spec = (
        keys.read_resource_spec(pod.manifest.annotation(keys.RESOURCE_SPEC).softly()) if is_design else None
    )
    containers = () if qos.is_best_effort else pod.all_containers
    if any(_COLOCATION & {*each.requests, *each.limits} for each in containers):
        must = "must specify koordinator QoS BE with koordinator colocation resources"
        violations.append(f"labels.{keys.QOS_CLASS}: Required value: {must}")
    if priority in (_CONTRADICTING if is_design else _FORBIDDEN).get(qos, ()):
        pair = f"{keys.QOS_CLASS}={qos} and priorityClass={priority}"
        violations.append(f"Pod: Forbidden: {pair} cannot be used in combination")
    if not qos.owns_cpus:
        return violations
    requested = pod_requests(pod).get("cpu", Fraction(0))
    if not requested:
        violations.append(f"{_REQUESTS}: Required value: LSR Pod must declare the requested CPUs")
    elif requested.denominator != 1:
        must = "the requested CPUs of LSR Pod must be integer"
        violations.append(f'{_REQUESTS}: Invalid value: "{cpu_text(requested)}": {must}')
    if spec is not None:
        violations.extend((*unequal_limit(pod, "cpu"), *unequal_limit(pod, "memory")))
        policy = spec.required_bind or spec.preferred_bind
        if policy and policy not in _BINDING_POLICIES:
            must = f"the CPU bind policy of {qos} Pod must be one of {', '.join(_BINDING_POLICIES)}"
            violations.append(f'annotations.{keys.RESOURCE_SPEC}: Invalid value: "{policy}": {must}')
    return violations


def _place_of(violation: str) -> RequestPlace:
    """Return where in a manifest the field is that a violation begins with; its words name it already."""
    field = violation.partition(": ")[0]
    kind, _, key = field.partition(".")
    if kind in ("labels", "annotations"):
        return RequestPlace("", pointer_of(("metadata", kind, key)))
    if field in (_REQUESTS, _LIMITS):
        return RequestPlace("", "/spec/containers")
    return RequestPlace("", pointer_of(field.split(".")) if kind == "spec" else "")


def unequal_limit(pod: Pod, resource: str) -> Iterator[str]:
    """Yield the violation of an LSE or LSR pod with a request of cpu or memory that differs from its limit.

    It is refused under `design`, else a warning if about cpu. Source: koordinator.md, "Profiles".
    """
    requested, limit = pod_requests(pod).get(resource), pod_limit(pod, resource)
    if keys.raw_qos(pod).owns_cpus and requested and limit != requested:
        text = cpu_text if resource == "cpu" else memory_text
        one, many = ("CPU", "CPUs") if resource == "cpu" else ("memory", "memory")
        shown = "none" if limit is None else text(limit)
        must = f"must equal the requested {many} {text(requested)}"
        yield f'{_LIMITS}: Invalid value: "{shown}": the {one} limit of {keys.raw_qos(pod)} Pod {must}'


def memory_text(quantity: Fraction) -> str:
    """Return bytes as Kubernetes writes them, with the largest binary suffix that leaves them whole."""
    size = -(-quantity // 1)
    for power in range(len(_BINARY_SUFFIXES), 0, -1):
        if not size % 1024**power:
            return f"{size // 1024**power}{_BINARY_SUFFIXES[power - 1]}"
    return str(size)


def cpu_text(quantity: Fraction) -> str:
    """Return a quantity of CPUs as Kubernetes writes it, in thousandths unless it is whole."""
    return str(quantity) if quantity.denominator == 1 else f"{-(-quantity * 1000 // 1)}m"


def change_violations(pod: Pod, old_pod: Pod, check_sub_priority: bool = True) -> Iterator[str]:
    """Yield the forbidden changes between two versions of a pod, in the form of `admission_violations`.

    Source: koordinator.md, "Admission rules".
    """
    checks: list[tuple[str, Callable[[Pod], str]]] = [
        (f"labels.{keys.QOS_CLASS}", keys.raw_qos),
        ("spec.priority", keys.raw_priority),
    ]
    if check_sub_priority:
        checks.append((f"labels.{keys.SUB_PRIORITY}", lambda pod: pod.label(keys.SUB_PRIORITY)))
    for field, value in checks:
        if value(pod) != value(old_pod):
            yield f'{field}: Invalid value: "{value(pod)}": field is immutable'


def warn_of_pod(
    pod: Pod, spec: model.ResourceSpec, settings: model.SchedulerSettings, request: model.PodRequest
) -> None:
    """Warn of settings that have no effect or a surprising one, each at its place in the manifest.

    Source: koordinator.md, "QoS class", "Priority class", "Bound pods", "Warnings and remarks".
    """
    _warn_of_classes(pod)
    _warn_of_policies(pod, spec)
    _warn_of_missing_cpus(pod, settings, request)
    keys.warn_of_unknown(pod)
    status = pod.manifest.annotation(keys.RESOURCE_STATUS)
    if status.value is not None and not pod.host and request.designated_status is None:
        status.warn("ignored: no scheduling hint names this mechanism")
    if not settings.follows_design:
        for inequality in unequal_limit(pod, "cpu"):
            pod.manifest.root.warn(inequality)


def _warn_of_classes(pod: Pod) -> None:
    manifest, label, qos = pod.manifest, pod.manifest.label(keys.QOS_CLASS), keys.raw_qos(pod)
    if label.value is not None and not qos:
        label.warn(f"unknown QoS class {label.value!r} counts as unset")
    if manifest.annotation(keys.QOS_CLASS).value is not None:
        manifest.annotation(keys.QOS_CLASS).warn("ignored: the QoS class is a label")
    if qos.is_best_effort and keys.kubernetes_qos(pod) is model.KubernetesQos.GUARANTEED:
        label.warn("BE on a pod that is Guaranteed for Kubernetes")
    priority = manifest.label(keys.PRIORITY_CLASS)
    if priority.value is not None and keys.raw_priority(pod) is keys.PriorityClass.UNSET:
        priority.warn(f"unknown priority class {priority.value!r} counts as unset")


def _warn_of_policies(pod: Pod, spec: model.ResourceSpec) -> None:
    annotation = pod.manifest.annotation(keys.RESOURCE_SPEC)
    for policy in (spec.required_bind, spec.preferred_bind):
        if policy not in _BIND_POLICIES:
            annotation.warn(f"unknown bind policy {policy!r}: the pod gets no CPUs of its own for it")
    if spec.exclusive not in _EXCLUSIVE_POLICIES:
        annotation.warn(f"unknown exclusive policy {spec.exclusive!r} counts as None")


def _warn_of_missing_cpus(pod: Pod, settings: model.SchedulerSettings, request: model.PodRequest) -> None:
    """Warn where a pod gets no CPUs of its own although its settings are about them."""
    label, qos = pod.manifest.label(keys.QOS_CLASS), keys.raw_qos(pod)
    group = pod.manifest.annotation(keys.EXCLUSIVITY_GROUP)
    if group.value is not None and not qos.owns_cpus:
        group.warn("has no effect: the pod gets no CPUs of its own")
    if not request.amounts or request.bound or not qos.owns_cpus:
        return
    if keys.is_bound_eligible(pod, settings.guaranteed_qos):
        label.warn("no known bind policy applies: the pod gets no CPUs of its own")
    else:
        must = f"only given CPUs of their own with priority class {keys.PriorityClass.PROD}"
        label.warn(f"{qos} pods are {must}")


def read_running(
    pod: Pod,
    old_pod: Pod | None,
    settings: model.SchedulerSettings,
    kubelet: model.KubeletPolicy,
    report: ManifestReport,
) -> model.RunningPod:
    """Return a pod as it is placed on a host with that kubelet; `old_pod` is its former version.

    Raises ManifestError if its schema is broken or an update changes what must not change; an unreadable
    resource-status is part of the result. Source: koordinator.md, "Recovery from pods", "Admission rules".
    """
    if old_pod is not None:
        for violation in change_violations(pod, old_pod, settings.keeps_sub_priority):
            report.refuse(violation, _place_of(violation))
    report.raise_findings()
    for violation in admission_violations(pod, settings.profile):
        report.warn(violation)
    status = pod.manifest.annotation(keys.RESOURCE_STATUS)
    # The NUMA nodes of the shared pools count if they are readable (koordinator.md, "CPU lists of
    # containers").
    pools = status.reported_to(ManifestReport()).json().member("cpuSharedPools").elements()
    numa_ids = {entry.member("node").integer() for entry in pools}
    holding, unreadable = read_holding(pod, settings)
    return model.RunningPod(
        **_pod_parts(pod, pod.manifest.root.softly()),
        treated_as=keys.running_qos(pod, kubelet),
        host_ports=read_host_ports(pod.manifest.root.softly().member("spec")),
        phase=pod.phase,
        requests=request_amounts(occupied_amounts(pod)) if pod.is_assigned else {},
        holding=holding,
        unreadable=unreadable,
        has_status=bool(status.value),
        warnings=report.warnings,
        pools=tuple(sorted(numa for numa in numa_ids if numa is not None)),
    )


def read_holding(pod: Pod, settings: model.SchedulerSettings) -> tuple[Holding, tuple[str, ...]]:
    """Return the holding of a pod on its host, and findings if it cannot be read.

    It is nothing before it has a host, after it ended, or if it got nothing. A resource-status is taken as it
    is. Source: koordinator.md, "Recovery from pods".
    """
    if not pod.is_assigned:
        return model.NO_HOLDING, ()
    own_report = ManifestReport()
    status = keys.read_resource_status(pod.manifest.annotation(keys.RESOURCE_STATUS).reported_to(own_report))
    if own_report.findings or status.is_empty:
        return model.NO_HOLDING, tuple(map(str, own_report.findings))
    spec = keys.read_resource_spec(pod.manifest.annotation(keys.RESOURCE_SPEC).softly())
    level, group = exclusive_level(spec, settings), exclusivity_group(pod, settings)
    return status.holding(level, keys.raw_qos(pod), group), ()
