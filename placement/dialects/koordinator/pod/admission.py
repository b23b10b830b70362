"""What no pod of a cluster may be or become."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction

from placement.dialects.koordinator import keys
from placement.dialects.koordinator.pod.priority import raw_priority
from placement.dialects.koordinator.profile import Profile
from placement.dialects.koordinator.qos import raw_qos
from placement.kubernetes.pod import Pod
from placement.kubernetes.pod_resources import names_resource, pod_limit, pod_requests

_COLOCATION = frozenset({"kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"})
_REQUESTS = "pod.spec.containers[*].resources.requests"
_LIMITS = "pod.spec.containers[*].resources.limits"


def admission_violations(
    pod: Pod, profile: Profile, old: Pod | None = None, check_sub_priority: bool = True
) -> list[str]:
    """Every admission rule that a pod breaks, in the words `<field>: <kind>: <text>`.

    `old` is the pod before an update. Source: Koordinator semantics, admission rules.
    """
    changes = change_violations(pod, old, check_sub_priority) if old else ()
    violations = [*changes, *_class_violations(pod), *_cpu_violations(pod)]
    if profile is Profile.DESIGN:
        violations.extend(unequal_cpu(pod))
    return violations


def unequal_cpu(pod: Pod) -> Iterator[str]:
    """That an LSE or LSR pod requests other CPUs than its limit, if it does.

    Refused under `design`, else a warning. Source: Koordinator semantics, profiles.
    """
    if not raw_qos(pod).owns_cpus:
        return
    requested, limit = _requested_cpu(pod), pod_limit(pod, "cpu")
    if requested and limit != requested:
        shown = "none" if limit is None else cpu_text(limit)
        must = f"must equal the requested CPUs {cpu_text(requested)}"
        yield f'{_LIMITS}: Invalid value: "{shown}": the CPU limit of {raw_qos(pod)} Pod {must}'


def cpu_text(quantity: Fraction) -> str:
    """A quantity of CPUs as Kubernetes writes it, in thousandths unless it is whole."""
    return str(quantity) if quantity.denominator == 1 else f"{-(-quantity * 1000 // 1)}m"


def change_violations(pod: Pod, old: Pod, check_sub_priority: bool = True) -> Iterator[str]:
    """What of a pod was changed that must not change, in the same words.

    Source: Koordinator semantics, admission rules.
    """
    checks: list[tuple[str, Callable[[Pod], str]]] = [
        (f"labels.{keys.QOS_CLASS}", raw_qos),
        ("spec.priority", raw_priority),
    ]
    if check_sub_priority:
        checks.append((f"labels.{keys.SUB_PRIORITY}", lambda pod: pod.label(keys.SUB_PRIORITY)))
    for field, value in checks:
        if value(pod) != value(old):
            yield f'{field}: Invalid value: "{value(pod)}": field is immutable'


def _class_violations(pod: Pod) -> Iterator[str]:
    qos, priority = raw_qos(pod), raw_priority(pod)
    if not qos.is_best_effort and names_resource(pod.all_containers, _COLOCATION):
        must = "must specify koordinator QoS BE with koordinator colocation resources"
        yield f"labels.{keys.QOS_CLASS}: Required value: {must}"
    if priority in qos.forbidden_priorities:
        pair = f"{keys.QOS_CLASS}={qos} and priorityClass={priority}"
        yield f"Pod: Forbidden: {pair} cannot be used in combination"


def _cpu_violations(pod: Pod) -> Iterator[str]:
    if not raw_qos(pod).owns_cpus:
        return
    requested = _requested_cpu(pod)
    if not requested:
        yield f"{_REQUESTS}: Required value: LSR Pod must declare the requested CPUs"
    elif requested.denominator != 1:
        must = "the requested CPUs of LSR Pod must be integer"
        yield f'{_REQUESTS}: Invalid value: "{cpu_text(requested)}": {must}'


def _requested_cpu(pod: Pod) -> Fraction:
    return pod_requests(pod).get("cpu", Fraction(0))
