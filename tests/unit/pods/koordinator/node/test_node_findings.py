"""What refuses a node: everything at once, each finding with the path of its field."""

import json

import pytest

from placement.common.manifest import ManifestError
from placement.engine.domain.errors import BadRequest
from placement.pods.koordinator.node import import_node

TOPOLOGY = "NodeResourceTopology.metadata.annotations[node.koordinator.sh/cpu-topology]"


def test_all_findings_are_raised_at_once_in_one_line(a_node, an_nrt, imported):
    node, nrt = a_node(allocatable={"cpu": "8 cores", "two\nlines": "x"}), an_nrt(rows=[(-1, 0, 0, 0)])
    nrt["zones"][0]["resources"][0]["allocatable"] = "-4"
    with pytest.raises(ManifestError) as refusal:
        imported(node, nrt)
    assert isinstance(refusal.value, BadRequest)
    assert set(refusal.value.findings) == {
        "Node.status.allocatable.cpu: '8 cores' is not a Kubernetes quantity",
        "Node.status.allocatable[two\\nlines]: 'x' is not a Kubernetes quantity",
        f"{TOPOLOGY}.detail[0].id: -1 is negative",
        "NodeResourceTopology.zones[0].resources[0].allocatable: '-4' is negative",
    }
    assert str(refusal.value) == "; ".join(refusal.value.findings)
    assert "\n" not in str(refusal.value)


def test_the_message_stays_short_where_the_findings_do_not(a_node, imported):
    with pytest.raises(ManifestError) as refusal:
        imported(a_node(allocatable={f"r{number}": "x" for number in range(25)}))
    assert len(refusal.value.findings) == 25
    assert str(refusal.value).endswith("; and 5 more")


@pytest.mark.parametrize(
    ("rows", "finding"),
    [
        ([(0, 0, 0, 0), (0, 1, 0, 0)], "detail[1].id: CPU 0 is listed twice"),
        ([(-3, 0, 0, 0)], "detail[0].id: -3 is negative"),
        ([(5000, 0, 0, 0)], "detail[0].id: 5000 is above 4096"),
        ([(0, 5000, 0, 0)], "detail[0].core: 5000 is above 4096"),
        ([(0, 0, 0, 0), (1, 0, 1, 0)], "detail[1].node: core 0 of socket 0 lies in NUMA nodes 0 and 1"),
        ([(0, 0, 0, 0), (1, 1, 0, 1)], "detail[1].socket: NUMA node 0 lies in sockets 0 and 1"),
        ([(n, n, n, 0) for n in range(65)], "detail[64].node: there are more than 64 NUMA nodes"),
    ],
)
def test_a_contradictory_topology_is_refused_at_its_row(rows, finding, an_nrt, refused):
    assert refused(nrt=an_nrt(rows=rows)) == (f"{TOPOLOGY}.{finding}",)


@pytest.mark.parametrize(
    ("annotation", "finding"),
    [
        ("{", f"{TOPOLOGY}: not JSON: "),
        ("[" * 100_000, f"{TOPOLOGY}: not JSON: nested too deeply"),
        ('{"detail": NaN}', f"{TOPOLOGY}: not JSON: NaN is not a JSON value"),
        ("[]", f"{TOPOLOGY}: must be a mapping, not a list"),
        ('{"detail": {}}', f"{TOPOLOGY}.detail: must be a list, not a mapping"),
        ('{"detail": [7]}', f"{TOPOLOGY}.detail[0]: must be a mapping, not 7"),
        (
            '{"detail": [{"id": 0, "core": 1.5, "socket": 0, "node": 0}]}',
            f"{TOPOLOGY}.detail[0].core: must be an integer, not 1.5",
        ),
        (
            '{"detail": [{"id": 0, "core": 0, "socket": true, "node": 0}]}',
            f"{TOPOLOGY}.detail[0].socket: must be an integer, not True",
        ),
        (
            '{"detail": [{"id": 0, "core": 0, "socket": 0}]}',
            f"{TOPOLOGY}.detail[0].node: must be an integer, not null",
        ),
    ],
)
def test_an_unreadable_topology_is_refused(annotation, finding, an_nrt, refused):
    findings = refused(nrt=an_nrt(annotations={"node.koordinator.sh/cpu-topology": annotation}))
    assert findings[0].startswith(finding)


@pytest.mark.parametrize(
    ("changes", "finding"),
    [
        ({"kind": "Pod"}, "Node.kind: must be 'Node', not 'Pod'"),
        ({"apiVersion": None}, "Node.apiVersion: must be 'v1', not null"),
        ({"metadata": None}, "Node.metadata.name: is missing"),
        ({"metadata": {"name": 7}}, "Node.metadata.name: must be a text, not 7"),
        ({"metadata": {"name": "a/b"}}, "Node.metadata.name: 'a/b' is not a DNS name"),
        ({"metadata": {"name": "node-1", "uid": "\ud800"}}, "Node.metadata.uid: '\\ud800' is not a uid"),
        (
            {"metadata": {"name": "node-1", "labels": {"a": True}}},
            "Node.metadata.labels.a: must be a text, not True",
        ),
        (
            {"metadata": {"name": "node-1", "annotations": []}},
            "Node.metadata.annotations: must be a mapping, not a list",
        ),
        (
            {"metadata": {"name": "n" * 190}},
            "Node.metadata.name: names of its providers would be longer than 200 characters",
        ),
    ],
)
def test_a_node_that_is_none_is_refused(changes, finding, a_node, refused):
    assert finding in refused({**a_node(), **changes})


def test_a_report_about_another_node_is_refused(an_nrt, refused):
    nrt = an_nrt()
    nrt["metadata"]["name"] = "node-2"
    assert refused(nrt=nrt) == (
        "NodeResourceTopology.metadata.name: must be the name of the node, 'node-1', not 'node-2'",
    )


def test_a_report_of_another_version_is_refused(an_nrt, refused):
    (finding,) = refused(nrt={**an_nrt(), "apiVersion": "topology.node.k8s.io/v1alpha2"})
    assert finding.startswith("NodeResourceTopology.apiVersion: must be 'topology.node.k8s.io/v1alpha1'")


@pytest.mark.parametrize("cluster", ["", "a/b", "a\nb", "\ud800"])
def test_a_cluster_that_cannot_be_part_of_a_name_is_refused(cluster, a_node):
    with pytest.raises(ManifestError, match="cluster: "):
        import_node(cluster, a_node(), None)


def test_an_unknown_profile_is_refused(a_node):
    with pytest.raises(ManifestError, match="profile: must be one of design and koord-scheduler, not 'both'"):
        import_node("c1", a_node(), None, "both")


@pytest.mark.parametrize(
    ("allocatable", "finding"),
    [
        (
            {"example.com/a-b": 1, "example.com/a_b": 1},
            "Node.status.allocatable[example.com/a_b]: 'example.com/a_b' and 'example.com/a-b' would both be "
            "the resource class CUSTOM_EXAMPLE_COM_A_B",
        ),
        (
            {"batch-cpu": 1},
            "Node.status.allocatable.batch-cpu: 'batch-cpu' and 'kubernetes.io/batch-cpu' would both be "
            "the resource class CUSTOM_BATCH_CPU",
        ),
        ({"r" * 249: 1}, f"Node.status.allocatable.{'r' * 249}: its resource class would be longer than 255"),
        ({"": 1}, "Node.status.allocatable[]: a resource needs a name"),
    ],
)
def test_resources_that_cannot_become_classes_are_refused(allocatable, finding, a_node, refused):
    assert any(found.startswith(finding) for found in refused(a_node(allocatable=allocatable)))


def test_resource_names_collide_across_host_and_zones(a_node, a_zone, an_nrt, refused):
    nrt = an_nrt(zones=[a_zone(0, **{"vendor/nic.1": 1})])
    (finding,) = refused(a_node(allocatable={"vendor/nic-1": 1}), nrt)
    assert finding.endswith("would both be the resource class CUSTOM_VENDOR_NIC_1")


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        (lambda zones: zones.append(zones[0]), "zones[2].name: NUMA node 0 is listed twice"),
        (
            lambda zones: zones[0]["resources"].append(zones[0]["resources"][0]),
            "zones[0].resources[2].name: 'cpu' is listed twice",
        ),
        (
            lambda zones: zones[0]["resources"][0].pop("allocatable"),
            "zones[0].resources[0].allocatable: null is not a Kubernetes quantity",
        ),
        (
            lambda zones: zones[0]["resources"][0].pop("name"),
            "zones[0].resources[0].name: a resource needs a name",
        ),
        (lambda zones: zones[1].update(name="node-5000"), "zones[1].name: 5000 is above 4096"),
        (lambda zones: zones.append("node-2"), "zones[2]: must be a mapping, not 'node-2'"),
        (
            lambda zones: zones.extend({"name": f"node-{number}", "type": "Node"} for number in range(2, 65)),
            "zones: there are more than 64 NUMA nodes",
        ),
    ],
)
def test_contradictory_zones_are_refused(change, finding, an_nrt, refused):
    nrt = json.loads(json.dumps(an_nrt()))
    change(nrt["zones"])
    assert refused(nrt=nrt)[0] == f"NodeResourceTopology.{finding}"


def test_topology_policies_must_be_a_list_of_texts(an_nrt, refused):
    (finding,) = refused(nrt={**an_nrt(), "topologyPolicies": [1]})
    assert finding == "NodeResourceTopology.topologyPolicies[0]: must be a text, not 1"
