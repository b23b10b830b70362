from placement.engine.domain.groups import SplitRule
from tests.unit.flavors.nova.samples import translated

DEDICATED = {"hw:cpu_policy": "dedicated"}


def asked(specs, **fields):
    query = translated(specs, **fields).core_tree_query
    return None if query is None else {group.suffix: group for group in query.groups}


def test_a_trait_that_is_written_out_stays():
    groups = asked({**DEDICATED, "trait:HW_CPU_HYPERTHREADING": "forbidden"})
    assert groups[""].forbidden == {"HW_CPU_HYPERTHREADING"}
    assert groups["_numa0"].split_rule is SplitRule.ISOLATE


def test_core_trees_are_asked_the_same_where_cells_cannot_be_told():
    untold = {
        "a cell without memory": {"resources:MEMORY_MB": "0"},
        "a suffix like a cell's": {"resources_numa7:VGPU": "1"},
        "overridden": {"hw:numa_nodes": "2", "resources:MEMORY_MB": "2048"},
        "asked for elsewhere": {"hw:numa_nodes": "2", "resources1:MEMORY_MB": "1024"},
    }
    for specs in ({}, *({**DEDICATED, **more} for more in untold.values())):
        assert translated(specs, vcpus=4, memory_mb=1024).core_tree_query is None, specs
    # An overridden amount counts where there is one cell.
    groups = asked({**DEDICATED, "resources:MEMORY_MB": "4096"}, vcpus=4, memory_mb=1024)
    assert groups["_numa0"].resources == {"PCPU": 4, "MEMORY_MB": 4096}
