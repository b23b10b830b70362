"""The provider tree that an import makes of a host."""

import copy
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.common.manifest import ManifestError
from placement.pods.koordinator.node import import_node
from placement.pods.state.model import HostIdentity

X86 = {"HW_ARCH_X86_64"}


def test_a_host_has_numa_nodes_and_these_have_cores(imported):
    tree = imported().tree
    names = {provider.uuid: provider.name for provider in tree.providers}
    parents = {provider.name: names.get(provider.parent_uuid) for provider in tree.providers}
    assert parents == {
        "c1/node-1": None,
        "c1/node-1/numa-0": "c1/node-1",
        "c1/node-1/numa-1": "c1/node-1",
        "c1/node-1/core-0-0": "c1/node-1/numa-0",
        "c1/node-1/core-0-1": "c1/node-1/numa-0",
        "c1/node-1/core-1-2": "c1/node-1/numa-1",
        "c1/node-1/core-1-3": "c1/node-1/numa-1",
    }
    assert tree.root.name == "c1/node-1"
    assert list(parents)[:3] == ["c1/node-1", "c1/node-1/numa-0", "c1/node-1/numa-1"]


def test_importing_again_gives_the_same_value(a_node, an_nrt, imported):
    nrt = an_nrt()
    shuffled = copy.deepcopy(nrt)
    shuffled["zones"].reverse()
    assert imported(a_node(), nrt) == imported(a_node(), shuffled)


def test_uuids_depend_on_the_host_uid_and_on_its_name_only_without_one(a_node, imported):
    by_uid = imported().tree.root.uuid
    assert imported(a_node(uid="another")).tree.root.uuid != by_uid
    assert imported(a_node(uid=None)).tree.root.uuid == imported(a_node(uid="")).tree.root.uuid
    assert imported(a_node(uid=None)).tree.root.uuid != by_uid


def test_a_host_without_a_report_is_a_root_and_a_warning(a_node):
    result = import_node("c1", a_node(), None)
    assert [provider.name for provider in result.tree.providers] == ["c1/node-1"]
    assert result.tree.root.traits == X86 | {"CUSTOM_KOORD_NO_CPU_TOPOLOGY"}
    assert result.takeover == "blind"
    assert any("NodeResourceTopology: is missing" in warning for warning in result.warnings)


def test_the_message_stays_short_where_the_findings_do_not(a_node, an_nrt, imported, refused):
    with pytest.raises(ManifestError) as refusal:
        imported(a_node(allocatable={f"r{number}": "x" for number in range(25)}))
    assert len(refusal.value.findings) == 25
    assert str(refusal.value).endswith("; and 5 more")
    (finding,) = refused(nrt=an_nrt(annotations={"node.koordinator.sh/cpu-topology": "[" * 100_000}))
    assert finding.endswith("not JSON: nested too deeply")
    for cluster in ("", "a/b", "a\nb", "\ud800"):
        with pytest.raises(ManifestError, match="cluster: "):
            import_node(cluster, a_node(), None)


def test_reported_pools_are_shown_as_they_are(an_nrt, imported):
    pools = [{"socket": 1, "node": 1, "cpuset": "4-9"}, {"socket": 0, "node": 0, "cpuset": "0-3"}]
    of_best_effort = {"node.koordinator.sh/be-cpu-shared-pools": [{"socket": 0, "cpuset": "0"}]}
    nrt = an_nrt(annotations={"node.koordinator.sh/cpu-shared-pools": pools, **of_best_effort})
    result = imported(nrt=nrt)
    assert [(pool.numa, pool.cpus) for pool in result.ls_pools] == [(0, {*range(4)}), (1, {*range(4, 10)})]
    assert result.be_pools == ()


texts = st.text(st.characters(exclude_categories=["Cs"]))


@given(texts, texts, texts)
def test_uuids_are_those_that_every_release_has_given(cluster, key, path):
    """Stored providers are found by them: version 5 of a namespace that never changes."""
    namespace = uuid.uuid5(uuid.NAMESPACE_URL, "placement/koordinator/provider")
    identity = HostIdentity(cluster, "host", key)
    assert identity.uuid(path) == str(uuid.uuid5(namespace, f"{cluster}/{key}/{path}"))
