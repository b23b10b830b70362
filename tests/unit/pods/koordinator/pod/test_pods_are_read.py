"""What a pod's manifest says, and everything that is wrong with it at once."""

from fractions import Fraction

import pytest

from placement.common.manifest import ManifestError
from placement.pods.manifests.pod import pod_limit, pod_requests, request_amounts
from tests.unit.pods.koordinator.pods import (
    HINT,
    KOORD,
    PRIORITY,
    QOS,
    SPEC,
    STATUS,
    admitted,
    build_pod,
    container,
    lsr,
    read,
)


def findings(document, settings=KOORD):
    with pytest.raises(ManifestError) as refused:
        admitted(document, settings)
    return refused.value.findings


def test_containers_add_up_and_init_containers_run_before_them():
    pod = build_pod(
        container(cpu="500m", memory="1Gi"),
        container(cpu="1500m"),
        initContainers=[container(cpu="3"), container(cpu="1", memory="4Gi")],
        overhead={"cpu": "250m", "memory": "100"},
    )
    assert pod_requests(read(pod)) == {"cpu": Fraction("3.25"), "memory": 4 * 2**30 + 100}


def test_sidecars_run_beside_containers_and_later_init_containers():
    sidecar = {**container(cpu="1"), "restartPolicy": "Always"}
    pod = build_pod(container(cpu="2"), initContainers=[container(cpu="3"), sidecar, container(cpu="4")])
    assert pod_requests(read(pod))["cpu"] == 5
    pod = build_pod(container(cpu="9"), initContainers=[sidecar])
    assert pod_requests(read(pod))["cpu"] == 10


def test_requests_of_the_pod_level_stand_in_for_those_of_containers():
    pod = build_pod(container(cpu="2", memory="1"), resources={"requests": {"cpu": "6"}})
    assert pod_requests(read(pod)) == {"cpu": 6, "memory": 1}


def test_a_limit_without_request_is_a_request():
    assert pod_requests(read(build_pod(container(limits={"cpu": "2"}))))["cpu"] == 2


def test_the_limit_of_a_pod_needs_a_limit_on_every_container():
    assert pod_limit(read(build_pod(container(cpu="2"), container(cpu="1"))), "cpu") == 3
    assert pod_limit(read(build_pod(container(cpu="2"), container(requests={"cpu": "1"}))), "cpu") is None
    pod = build_pod(container(requests={"cpu": "1"}), resources={"limits": {"cpu": "4"}})
    assert pod_limit(read(pod), "cpu") == 4


def test_amounts_are_rounded_up_and_nothing_is_no_request():
    quantities = {"cpu": Fraction("0.0001"), "memory": Fraction(5, 2), "gpu": Fraction(0)}
    assert request_amounts(quantities) == {"cpu": 1, "memory": 3}


def test_everything_that_is_wrong_is_said_at_once():
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "labels": {QOS: "LSR", "n": 5},
            "annotations": {SPEC: "not json", HINT: '{"extensions": {"NodeNUMAResource": {}}}', STATUS: "["},
        },
        "spec": {
            "containers": [
                {"resources": {"requests": {"cpu": "x", "memory": "-1"}}},
                {"resources": {"requests": {"cpu": "3"}, "limits": {"cpu": "2"}}},
            ],
            "overhead": [],
            "priority": "high",
        },
    }
    said = findings(document)
    for beginning in (
        "Pod.metadata.name: is missing",
        "Pod.metadata.labels.n: must be a text",
        "Pod.spec.containers[0].resources.requests.cpu: 'x' is not a Kubernetes quantity",
        "Pod.spec.containers[0].resources.requests.memory: '-1' is negative",
        "Pod.spec.containers[1].resources.requests.cpu: 3 is above its limit 2",
        "Pod.spec.overhead: must be a mapping",
        "Pod.spec.priority: must be an integer",
        f"Pod.metadata.annotations[{SPEC}]: not JSON",
        f"Pod.metadata.annotations[{STATUS}]: not JSON",
        "Pod: Forbidden: koordinator.sh/qosClass=LSR and priorityClass= cannot be used in combination",
    ):
        assert any(finding.startswith(beginning) for finding in said), beginning


@pytest.mark.parametrize(
    ("document", "finding"),
    [
        ({}, "Pod.kind: must be 'Pod', not null"),
        ([], "Pod: must be a mapping, not a list"),
        (build_pod(spec=[]), f"Pod.metadata.annotations[{SPEC}]: must be a mapping, not a list"),
        (build_pod(spec={"requiredCPUBindPolicy": 5}), "requiredCPUBindPolicy: must be a text, not 5"),
        (build_pod(numa={"numaTopologyPolicy": "Strict"}), "numaTopologyPolicy: 'Strict' is none of"),
        (build_pod(numa={"singleNUMANodeExclusive": "Yes"}), "singleNUMANodeExclusive: 'Yes' is none of"),
        (
            lsr(container(cpu="1500m")),
            'Invalid value: "1500m": the requested CPUs of LSR Pod must be integer',
        ),
        (lsr(container(memory="1")), "Required value: LSR Pod must declare the requested CPUs"),
        (build_pod(containers=None), "Pod.spec.containers: a pod needs at least one container"),
    ],
)
def test_bad_manifests_are_refused(document, finding):
    assert any(finding in said for said in findings(document))


@pytest.mark.parametrize(
    ("document", "warning"),
    [
        (build_pod(qos="lsr"), "unknown QoS class 'lsr' counts as unset"),
        (build_pod(annotations={QOS: "LSR"}), "ignored: the QoS class is a label"),
        (build_pod(qos="BE", priority=5000), "BE on a pod that is Guaranteed for Kubernetes"),
        (build_pod(labels={PRIORITY: "x"}), "unknown priority class 'x' counts as unset"),
        (lsr(spec={"preferredCPUBindPolicy": "Full"}), "unknown bind policy 'Full'"),
        (lsr(spec={"preferredCPUBindPolicy": "Full"}), "no known bind policy applies"),
        (lsr(spec={"preferredCPUExclusivePolicy": "All"}), "unknown exclusive policy 'All' counts as None"),
        (lsr(qos="LSE", priority=5500), "only given CPUs of their own with priority class koord-prod"),
        (build_pod(status={"cpuset": "0-3"}), "ignored: no scheduling hint names this mechanism"),
        (
            lsr(container(requests={"cpu": "4"}, limits={"cpu": "8"})),
            'Invalid value: "8": the CPU limit of LSR Pod must equal the requested CPUs 4',
        ),
    ],
)
def test_what_is_hardly_meant_is_a_warning(document, warning):
    warnings = admitted(document, KOORD).warnings
    assert any(warning in said for said in warnings), warnings


def test_a_pod_as_it_should_be_has_no_warnings():
    pod = admitted(
        lsr(spec={"preferredCPUBindPolicy": "Default", "preferredCPUExclusivePolicy": "PCPULevel"})
    )
    assert pod.warnings == ()
    assert (pod.qos, pod.kubernetes_qos) == ("LSR", "Guaranteed")
    assert pod.spec.preferred_bind == "Default"
