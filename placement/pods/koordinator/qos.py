"""QoS classes of pods, Koordinator's and Kubernetes' own, and their priority classes."""

from __future__ import annotations

from enum import StrEnum
from fractions import Fraction

from placement.pods.koordinator import keys
from placement.pods.koordinator.keys import KubeletPolicy
from placement.pods.manifests.pod import Pod, pod_requests

_COMPUTE = ("cpu", "memory")


class PriorityClass(StrEnum):
    """The importance of a pod; `UNSET` if the pod does not say."""

    PROD = "koord-prod"
    MID = "koord-mid"
    BATCH = "koord-batch"
    FREE = "koord-free"
    UNSET = ""


_BANDS = {
    PriorityClass.PROD: range(9000, 10000),
    PriorityClass.MID: range(7000, 8000),
    PriorityClass.BATCH: range(5000, 6000),
    PriorityClass.FREE: range(3000, 4000),
}


def raw_priority(pod: Pod) -> PriorityClass:
    """Return the class of the label, even if it names none that exists, else of the band of `spec.priority`.

    Source: koordinator.md, "Priority class".
    """
    label = pod.label(keys.PRIORITY_CLASS)
    if pod.manifest.label(keys.PRIORITY_CLASS).value is not None:
        return PriorityClass(label) if label in set(PriorityClass) else PriorityClass.UNSET
    bands = (priority for priority, band in _BANDS.items() if pod.priority in band)
    return next(bands, PriorityClass.UNSET)


class QosClass(StrEnum):
    """A class: what a pod may expect of its CPUs, and which pods share them; `UNSET` if its label names none.

    Every rule that depends on the class is a question that the class answers.
    Source: koordinator.md, "QoS class".
    """

    LSE = "LSE"
    LSR = "LSR"
    LS = "LS"
    BE = "BE"
    SYSTEM = "SYSTEM"
    UNSET = ""

    @property
    def owns_cpus(self) -> bool:
        """Return whether its pods get CPUs of their own, so that they must request whole ones."""
        return self in (QosClass.LSE, QosClass.LSR)

    @property
    def shares_with_best_effort(self) -> bool:
        """Return whether best-effort pods may run on the CPUs that its pods own."""
        return self is not QosClass.LSE

    @property
    def uses_ls_pools(self) -> bool:
        """Return whether its pods run in the pools of latency-sensitive pods."""
        return self is QosClass.LS

    @property
    def uses_system_cpus(self) -> bool:
        """Return whether its pods run on the CPUs that a node keeps for the system."""
        return self is QosClass.SYSTEM

    @property
    def is_best_effort(self) -> bool:
        """Return whether its pods run on what others leave, and may request batch resources."""
        return self is QosClass.BE

    @property
    def default_priority(self) -> PriorityClass:
        """Return the priority class of its pods that name none."""
        return PriorityClass.BATCH if self.is_best_effort else PriorityClass.PROD

    @property
    def forbidden_priorities(self) -> frozenset[PriorityClass]:
        """Return the priority classes that its pods must not have; some must name one."""
        return _FORBIDDEN_PRIORITIES.get(self, frozenset())

    @property
    def contradicting_priorities(self) -> frozenset[PriorityClass]:
        """Return the priority classes that its pods must not name, where the label alone selects the class.

        Source: koordinator.md, "The label alone".
        """
        if self.owns_cpus:
            return frozenset(PriorityClass) - {PriorityClass.PROD, PriorityClass.UNSET}
        return self.forbidden_priorities - {PriorityClass.UNSET}


_FORBIDDEN_PRIORITIES = {
    QosClass.BE: frozenset({PriorityClass.UNSET, PriorityClass.PROD}),
    QosClass.LSR: frozenset(PriorityClass) - {PriorityClass.PROD},
}


class KubernetesQos(StrEnum):
    """The class Kubernetes derives from requests and limits."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


def raw_qos(pod: Pod) -> QosClass:
    """Return the class a pod's label names; UNSET if it names none that exists. Annotations do not count.

    Source: koordinator.md, "QoS class".
    """
    label = pod.label(keys.QOS_CLASS)
    return QosClass(label) if label in set(QosClass) else QosClass.UNSET


def kubernetes_qos(pod: Pod) -> KubernetesQos:
    """Return the class its status reports, else the one that follows from cpu and memory of all containers.

    Source: koordinator.md, "QoS class".
    """
    if pod.reported_qos in set(KubernetesQos):
        return KubernetesQos(pod.reported_qos)
    requests = limits = Fraction(0)
    guaranteed = True
    for resource in _COMPUTE:
        asked = sum((item.requests.get(resource, Fraction(0)) for item in pod.all_containers), Fraction(0))
        capped = sum((item.limits.get(resource, Fraction(0)) for item in pod.all_containers), Fraction(0))
        limited = all(item.limits.get(resource) for item in pod.all_containers)
        guaranteed = guaranteed and limited and asked == capped
        requests, limits = requests + asked, limits + capped
    if not requests and not limits:
        return KubernetesQos.BEST_EFFORT
    return KubernetesQos.GUARANTEED if guaranteed else KubernetesQos.BURSTABLE


def qos_with_default(pod: Pod, guaranteed: QosClass = QosClass.LSR) -> QosClass:
    """Return the class of the label, else what the Kubernetes class stands for, never UNSET.

    Source: koordinator.md, "QoS class".
    """
    defaults = {
        KubernetesQos.GUARANTEED: guaranteed,
        KubernetesQos.BURSTABLE: QosClass.LS,
        KubernetesQos.BEST_EFFORT: QosClass.BE,
    }
    return raw_qos(pod) or defaults[kubernetes_qos(pod)]


def running_qos(pod: Pod, kubelet: KubeletPolicy) -> QosClass:
    """Return how a pod is treated on the host it runs on, where kubelet has that policy.

    Without a label a Guaranteed pod with whole CPUs counts as LSR where kubelet is static and pins them, and
    otherwise runs in the LS pool like a Burstable one. Source: koordinator.md, "QoS class".
    """
    cpu = pod_requests(pod).get("cpu", Fraction(0))
    pinned = kubelet.is_static and cpu > 0 and cpu.denominator == 1
    return qos_with_default(pod, guaranteed=QosClass.LSR if pinned else QosClass.LS)


def is_bound_eligible(pod: Pod, guaranteed: QosClass) -> bool:
    """Return whether a pod may get CPUs of its own wherever it runs: LSE and LSR pods of class prod may.

    `guaranteed` is what Guaranteed stands for where the priority class is derived.
    Source: koordinator.md, "Bound pods".
    """
    priority = raw_priority(pod) or qos_with_default(pod, guaranteed).default_priority
    return raw_qos(pod).owns_cpus and priority is PriorityClass.PROD
