"""QoS classes of pods: Koordinator's and Kubernetes' own."""

from __future__ import annotations

from enum import StrEnum
from fractions import Fraction

from placement.dialects.koordinator import keys
from placement.dialects.koordinator.node.kubelet import KubeletPolicy
from placement.kubernetes.pod import Pod
from placement.kubernetes.pod_resources import pod_requests


class QosClass(StrEnum):
    """What a pod may expect of its CPUs, and with whom it shares them."""

    LSE = "LSE"
    LSR = "LSR"
    LS = "LS"
    BE = "BE"
    SYSTEM = "SYSTEM"


class KubernetesQos(StrEnum):
    """The class Kubernetes derives from requests and limits."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


BOUND_CLASSES = frozenset({QosClass.LSE, QosClass.LSR})

_COMPUTE = ("cpu", "memory")


def raw_qos(pod: Pod) -> QosClass | None:
    """The class a pod's label names; None if it names none that exists. Annotations do not count.

    Source: koordinator.md, "QoS class".
    """
    label = pod.label(keys.QOS_CLASS)
    return QosClass(label) if label in set(QosClass) else None


def kubernetes_qos(pod: Pod) -> KubernetesQos:
    """The class its status reports, else the one that follows from cpu and memory of all containers.

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
    """The class of the label, else what the Kubernetes class stands for; only to derive a priority class.

    Source: koordinator.md, "QoS class".
    """
    defaults = {
        KubernetesQos.GUARANTEED: guaranteed,
        KubernetesQos.BURSTABLE: QosClass.LS,
        KubernetesQos.BEST_EFFORT: QosClass.BE,
    }
    return raw_qos(pod) or defaults[kubernetes_qos(pod)]


def running_qos(pod: Pod, kubelet: KubeletPolicy) -> QosClass:
    """How a pod is treated on the host it runs on, where kubelet has that policy.

    Without a label a Guaranteed pod with whole CPUs counts as LSR where kubelet is static and pins them, and
    otherwise runs in the LS pool like a Burstable one. Source: koordinator.md, "QoS class".
    """
    cpu = pod_requests(pod).get("cpu", Fraction(0))
    pinned = kubelet.is_static and cpu > 0 and cpu.denominator == 1
    return qos_with_default(pod, guaranteed=QosClass.LSR if pinned else QosClass.LS)
