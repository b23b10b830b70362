"""What is allowed in a pod but hardly meant."""

from __future__ import annotations

from placement.dialects.koordinator import keys
from placement.dialects.koordinator.pod.admission import unequal_cpu
from placement.dialects.koordinator.pod.pod_request import PodRequest, is_bound_eligible
from placement.dialects.koordinator.pod.priority import PriorityClass, raw_priority
from placement.dialects.koordinator.pod.resource_spec import CONSTRAINED_BURST, DEFAULT, ResourceSpec
from placement.dialects.koordinator.qos import KubernetesQos, kubernetes_qos, raw_qos
from placement.dialects.koordinator.settings.settings import SchedulerSettings
from placement.kubernetes.pod import Pod
from placement.numa.policies import BindPolicy, ExclusiveLevel

_BIND_POLICIES = frozenset({*BindPolicy, DEFAULT, CONSTRAINED_BURST})
_EXCLUSIVE_POLICIES = frozenset({*ExclusiveLevel, DEFAULT, ""})


def warn_of_pod(
    pod: Pod, spec: ResourceSpec, request: PodRequest | None, settings: SchedulerSettings
) -> None:
    """Report what has no effect or another one than it seems, at the place where it stands in the manifest.

    Source: Koordinator semantics, QoS class, priority class, who is bound and what users trip over.
    """
    _warn_of_classes(pod)
    _warn_of_policies(pod, spec)
    _warn_of_binding(pod, request, settings)
    status = pod.manifest.annotation(keys.RESOURCE_STATUS)
    if status.value is not None and not pod.host and (request is None or request.designated is None):
        status.warn("ignored: no scheduling hint names this mechanism")
    if not settings.follows_design:
        for inequality in unequal_cpu(pod):
            pod.manifest.root.warn(inequality)


def _warn_of_classes(pod: Pod) -> None:
    label, qos = pod.manifest.label(keys.QOS_CLASS), raw_qos(pod)
    if label.value is not None and not qos:
        label.warn(f"unknown QoS class {label.value!r} counts as unset")
    if pod.manifest.annotation(keys.QOS_CLASS).value is not None:
        pod.manifest.annotation(keys.QOS_CLASS).warn("ignored: the QoS class is a label")
    if qos.is_best_effort and kubernetes_qos(pod) is KubernetesQos.GUARANTEED:
        label.warn("BE on a pod that is Guaranteed for Kubernetes")
    priority = pod.manifest.label(keys.PRIORITY_CLASS)
    if priority.value is not None and raw_priority(pod) is PriorityClass.UNSET:
        priority.warn(f"unknown priority class {priority.value!r} counts as unset")


def _warn_of_policies(pod: Pod, spec: ResourceSpec) -> None:
    annotation = pod.manifest.annotation(keys.RESOURCE_SPEC)
    for policy in (spec.required_bind, spec.preferred_bind):
        if policy not in _BIND_POLICIES:
            annotation.warn(f"unknown bind policy {policy!r}: the pod gets no CPUs of its own for it")
    if spec.exclusive not in _EXCLUSIVE_POLICIES:
        annotation.warn(f"unknown exclusive policy {spec.exclusive!r} counts as None")


def _warn_of_binding(pod: Pod, request: PodRequest | None, settings: SchedulerSettings) -> None:
    label, qos = pod.manifest.label(keys.QOS_CLASS), raw_qos(pod)
    if request is None or request.bound:
        return
    if qos.owns_cpus and not is_bound_eligible(pod, settings):
        label.warn(f"{qos} pods are only given CPUs of their own with priority class {PriorityClass.PROD}")
    elif qos.owns_cpus:
        label.warn("no known bind policy applies: the pod gets no CPUs of its own")
