"""Admission: the rules that a new or updated pod must keep, and warnings about settings without effect."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction

from placement.common.manifest import Profile
from placement.engine.numa.demand import BindPolicy, ExclusiveLevel
from placement.pods.koordinator import annotations as keys
from placement.pods.manifests.pod import Pod, pod_limit, pod_requests
from placement.pods.model import KubernetesQos, QosClass, ResourceSpec, SchedulerSettings

_COLOCATION = frozenset({"kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"})
_REQUESTS = "pod.spec.containers[*].resources.requests"
_LIMITS = "pod.spec.containers[*].resources.limits"
_BINARY_SUFFIXES = ("Ki", "Mi", "Gi", "Ti", "Pi")
_BINDING_POLICIES = (keys.DEFAULT, str(BindPolicy.FULL_PCPUS), str(BindPolicy.SPREAD_BY_PCPUS))
_BIND_POLICIES = frozenset({*BindPolicy, keys.DEFAULT, keys.CONSTRAINED_BURST})
_EXCLUSIVE_POLICIES = frozenset({*ExclusiveLevel, keys.DEFAULT, ""})
_NOT_PROD = frozenset(keys.PriorityClass) - {keys.PriorityClass.PROD}
# The priority classes that pods of a class must not have; some must name one.
_FORBIDDEN = {QosClass.BE: {keys.PriorityClass.UNSET, keys.PriorityClass.PROD}, QosClass.LSR: _NOT_PROD}
# What they must not name where the label alone selects the class. Source: koordinator.md, "The label alone".
_CONTRADICTING = {
    QosClass.BE: {keys.PriorityClass.PROD},
    **dict.fromkeys((QosClass.LSE, QosClass.LSR), _NOT_PROD - {keys.PriorityClass.UNSET}),
}


def admission_violations(
    pod: Pod, profile: Profile, old: Pod | None = None, check_sub_priority: bool = True
) -> list[str]:
    """Return every admission rule that a pod breaks, in the form `<field>: <kind>: <text>`.

    `old` is the pod before an update. Source: koordinator.md, "Admission rules", "Profiles".
    """
    violations = list(change_violations(pod, old, check_sub_priority)) if old else []
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


def change_violations(pod: Pod, old: Pod, check_sub_priority: bool = True) -> Iterator[str]:
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
        if value(pod) != value(old):
            yield f'{field}: Invalid value: "{value(pod)}": field is immutable'


def warn_of_pod(
    pod: Pod, spec: ResourceSpec, settings: SchedulerSettings, *, unbound: bool, designated: bool
) -> None:
    """Warn of settings that have no effect or a surprising one, each at its place in the manifest.

    `unbound`: it asks for something, but not for CPUs of its own. `designated`: it was given CPUs elsewhere.
    Source: koordinator.md, "QoS class", "Priority class", "Bound pods", "Warnings and remarks".
    """
    manifest, label, qos = pod.manifest, pod.manifest.label(keys.QOS_CLASS), keys.raw_qos(pod)
    if label.value is not None and not qos:
        label.warn(f"unknown QoS class {label.value!r} counts as unset")
    if manifest.annotation(keys.QOS_CLASS).value is not None:
        manifest.annotation(keys.QOS_CLASS).warn("ignored: the QoS class is a label")
    if qos.is_best_effort and keys.kubernetes_qos(pod) is KubernetesQos.GUARANTEED:
        label.warn("BE on a pod that is Guaranteed for Kubernetes")
    priority = manifest.label(keys.PRIORITY_CLASS)
    if priority.value is not None and keys.raw_priority(pod) is keys.PriorityClass.UNSET:
        priority.warn(f"unknown priority class {priority.value!r} counts as unset")
    annotation = manifest.annotation(keys.RESOURCE_SPEC)
    for policy in (spec.required_bind, spec.preferred_bind):
        if policy not in _BIND_POLICIES:
            annotation.warn(f"unknown bind policy {policy!r}: the pod gets no CPUs of its own for it")
    if spec.exclusive not in _EXCLUSIVE_POLICIES:
        annotation.warn(f"unknown exclusive policy {spec.exclusive!r} counts as None")
    group = manifest.annotation(keys.EXCLUSIVITY_GROUP)
    if group.value is not None and not qos.owns_cpus:
        group.warn("has no effect: the pod gets no CPUs of its own")
    if unbound and qos.owns_cpus:
        if keys.is_bound_eligible(pod, settings.guaranteed_qos):
            label.warn("no known bind policy applies: the pod gets no CPUs of its own")
        else:
            must = f"only given CPUs of their own with priority class {keys.PriorityClass.PROD}"
            label.warn(f"{qos} pods are {must}")
    status = manifest.annotation(keys.RESOURCE_STATUS)
    if status.value is not None and not pod.host and not designated:
        status.warn("ignored: no scheduling hint names this mechanism")
    if not settings.follows_design:
        for inequality in unequal_limit(pod, "cpu"):
            manifest.root.warn(inequality)
