"""QoS and priority classes of pods, and the admission rules about them."""

import pytest

from placement.common.manifest import Profile
from placement.pods.koordinator.admission import admission_violations
from placement.pods.koordinator.policies import (
    KubeletPolicy,
    PriorityClass,
    QosClass,
    kubernetes_qos,
    qos_with_default,
    raw_priority,
    raw_qos,
    running_qos,
)
from tests.unit.pods.koordinator.pods import PRIORITY, QOS, build_pod, container, lsr, read

SUB_PRIORITY = "koordinator.sh/priority"
GUARANTEED = build_pod(container(cpu="2", memory="1Gi"))
BURSTABLE = build_pod(container(requests={"cpu": "1"}, limits={"cpu": "2"}))
BEST_EFFORT = build_pod(container())


@pytest.mark.parametrize(
    ("label", "qos"),
    [("LSE", "LSE"), ("SYSTEM", "SYSTEM"), ("lse", ""), ("", ""), (None, ""), ("Guaranteed", "")],
)
def test_only_the_label_names_a_class(label, qos):
    assert raw_qos(read(build_pod(qos=label))) == qos
    assert raw_qos(read(build_pod(annotations={QOS: "LSE"}))) is QosClass.UNSET


@pytest.mark.parametrize(
    ("document", "kubernetes", "default"),
    [
        (GUARANTEED, "Guaranteed", "LSR"),
        (BURSTABLE, "Burstable", "LS"),
        (BEST_EFFORT, "BestEffort", "BE"),
        (build_pod(container(cpu="1")), "Burstable", "LS"),
        (build_pod(container(cpu="2", memory="1"), container()), "Burstable", "LS"),
        (build_pod(container(gpu="1")), "BestEffort", "BE"),
        (build_pod(container(), qosClass="Guaranteed"), "Guaranteed", "LSR"),
    ],
)
def test_the_class_of_kubernetes_gives_the_default(document, kubernetes, default):
    assert kubernetes_qos(read(document)) == kubernetes
    assert qos_with_default(read(document)) == default


def test_what_guaranteed_stands_for_is_a_setting():
    assert qos_with_default(read(GUARANTEED), guaranteed=QosClass.LS) == "LS"
    assert qos_with_default(read(lsr()), guaranteed=QosClass.LS) == "LSR"


@pytest.mark.parametrize(
    ("priority", "labels", "expected"),
    [
        (9000, {}, "koord-prod"),
        (9999, {}, "koord-prod"),
        (10000, {}, ""),
        (8999, {}, ""),
        (7000, {}, "koord-mid"),
        (5999, {}, "koord-batch"),
        (3000, {}, "koord-free"),
        (None, {}, ""),
        (5000, {PRIORITY: "koord-prod"}, "koord-prod"),
        (9500, {PRIORITY: "unheard-of"}, ""),
        (9500, {PRIORITY: ""}, ""),
    ],
)
def test_the_label_beats_the_band_of_the_number(priority, labels, expected):
    assert raw_priority(read(build_pod(priority=priority, labels=labels))) == expected


@pytest.mark.parametrize("qos", QosClass)
def test_an_unset_priority_class_follows_from_the_qos_class(qos):
    expected = "koord-batch" if qos is QosClass.BE else "koord-prod"
    assert qos.default_priority == expected


def test_each_class_answers_what_its_pods_may():
    def those(answer):
        return {str(qos) for qos in QosClass if answer(qos)}

    assert those(lambda qos: qos.owns_cpus) == {"LSE", "LSR"}
    assert those(lambda qos: not qos.shares_with_best_effort) == {"LSE"}
    assert those(lambda qos: qos.uses_ls_pools) == {"LS"}
    assert those(lambda qos: qos.uses_system_cpus) == {"SYSTEM"}
    assert those(lambda qos: PriorityClass.PROD in qos.forbidden_priorities) == {"BE"}
    assert those(lambda qos: PriorityClass.BATCH in qos.forbidden_priorities) == {"LSR"}


def test_guaranteed_under_static_is_lsr():
    static = KubeletPolicy("static")
    assert running_qos(read(GUARANTEED), static) == "LSR"
    fractional = build_pod(container(cpu="1500m", memory="1Gi"))
    assert running_qos(read(fractional), static) == "LS"  # kubelet pins whole CPUs only
    assert running_qos(read(BURSTABLE), static) == "LS"
    assert running_qos(read(BEST_EFFORT), static) == "BE"


def test_guaranteed_under_none_is_ls():
    assert running_qos(read(GUARANTEED), KubeletPolicy("none")) == "LS"
    assert running_qos(read(lsr()), KubeletPolicy("none")) == "LSR"


# -- admission


def violations(document, old=None, profile=Profile.KOORD_SCHEDULER, **options):
    return admission_violations(read(document), profile, old and read(old), **options)


@pytest.mark.parametrize(
    ("qos", "priority", "refused"),
    [
        ("BE", None, "koordinator.sh/qosClass=BE and priorityClass="),
        ("BE", 9000, "koordinator.sh/qosClass=BE and priorityClass=koord-prod"),
        ("BE", 7000, None),
        ("BE", 3000, None),
        ("LSR", None, "koordinator.sh/qosClass=LSR and priorityClass="),
        ("LSR", 5000, "koordinator.sh/qosClass=LSR and priorityClass=koord-batch"),
        ("LSR", 9000, None),
        ("LSE", 5000, None),
        ("LS", None, None),
        (None, 3000, None),
    ],
)
def test_classes_that_cannot_be_combined(qos, priority, refused):
    expected = [f"Pod: Forbidden: {refused} cannot be used in combination"] if refused else []
    assert violations(build_pod(qos=qos, priority=priority)) == expected


@pytest.mark.parametrize("member", ["requests", "limits"])
@pytest.mark.parametrize("resource", ["kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"])
def test_colocation_resources_are_for_be(member, resource):
    asks = container(**{member: {resource: "1"}})
    (violation,) = violations(build_pod(container(), initContainers=[asks]))
    assert violation == (
        "labels.koordinator.sh/qosClass: Required value: "
        "must specify koordinator QoS BE with koordinator colocation resources"
    )
    assert violations(build_pod(asks, qos="BE", priority=5000)) == []


@pytest.mark.parametrize("qos", ["LSE", "LSR"])
def test_lse_and_lsr_need_whole_cpus(qos):
    where = "pod.spec.containers[*].resources.requests"
    assert violations(build_pod(container(memory="1"), qos=qos, priority=9000)) == [
        f"{where}: Required value: LSR Pod must declare the requested CPUs"
    ]
    assert violations(build_pod(container(cpu="100m"), qos=qos, priority=9000)) == [
        f'{where}: Invalid value: "100m": the requested CPUs of LSR Pod must be integer'
    ]
    halves = build_pod(container(cpu="500m"), container(cpu="500m"), qos=qos, priority=9000)
    assert violations(halves) == []


def test_an_update_changes_no_class_and_all_violations_are_collected():
    old = build_pod(qos="LSE", priority=9000, labels={SUB_PRIORITY: "7"})
    new = build_pod(container(cpu="1500m"), qos="LSR", priority=5000)
    assert violations(new, old) == [
        'labels.koordinator.sh/qosClass: Invalid value: "LSR": field is immutable',
        'spec.priority: Invalid value: "koord-batch": field is immutable',
        'labels.koordinator.sh/priority: Invalid value: "": field is immutable',
        "Pod: Forbidden: koordinator.sh/qosClass=LSR and priorityClass=koord-batch "
        "cannot be used in combination",
        'pod.spec.containers[*].resources.requests: Invalid value: "1500m": '
        "the requested CPUs of LSR Pod must be integer",
    ]


def test_a_priority_within_its_class_may_change_and_the_sub_priority_if_that_is_not_checked():
    old, new = build_pod(priority=9000, labels={SUB_PRIORITY: "7"}), build_pod(priority=9500)
    assert len(violations(new, old)) == 1
    assert violations(new, old, check_sub_priority=False) == []
