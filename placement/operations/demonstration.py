"""The example clusters, loaded into an empty database, and the greeting that shows what to ask them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from placement.domain.allocation import ConsumerClaim
from placement.domain.inventory import Inventory
from placement.operations.client import VERSION
from placement.operations.secrets import shown
from placement.services.manifests import node_manifests, parse_yaml
from placement.services.placement.candidates import SearchSettings
from placement.services.use_cases import UseCases

_PACKAGE = Path(__file__).resolve().parents[1]


def examples() -> Path:
    """The example clusters beside the checkout, or inside an installed package."""
    installed = _PACKAGE / "examples"
    return installed if installed.is_dir() else _PACKAGE.parent / "etc" / "examples"


def load_into_empty(connection: str) -> None:
    """Load all example clusters unless the database holds providers already."""
    with UseCases.opened(connection, SearchSettings()) as use_cases:
        if not use_cases.providers.is_empty():
            return
        for directory in sorted(path for path in examples().iterdir() if path.is_dir()):
            _load_cluster(use_cases, directory)


def _load_cluster(use_cases: UseCases, directory: Path) -> None:
    settings = _document(directory / "cluster.yaml")
    name = settings.pop("name")
    use_cases.clusters.put(name, settings)
    nodes = sorted((directory / "nodes").glob("*.yaml"))
    for path in nodes:
        manifests = node_manifests(parse_yaml(path.read_bytes()))
        use_cases.nodes.put(name, path.stem, manifests.node, manifests.topology)
    beside = _document(directory / "placement.yaml")
    aggregate = use_cases.clusters.get(name).aggregate_uuid
    uuids: dict[str, str] = {}
    for provider in beside["resource_providers"]:
        _create_provider(use_cases, provider, uuids.get(provider.get("parent")), aggregate)
        uuids[provider["name"]] = provider["uuid"]
    for consumer in beside["allocations"]:
        _claim(use_cases, consumer)
    print(f"Loaded the example cluster {name}: {len(nodes)} nodes, {len(beside['allocations'])} consumers.")


def _document(path: Path) -> dict[str, Any]:
    (document,) = parse_yaml(path.read_bytes())
    found: dict[str, Any] = document
    return found


def _create_provider(
    use_cases: UseCases, provider: dict[str, Any], parent: str | None, aggregate: str
) -> None:
    uuid, traits = provider["uuid"], provider.get("traits", [])
    use_cases.providers.create(uuid, provider["name"], parent)
    inventories = {name: Inventory(**record) for name, record in provider["inventories"].items()}
    use_cases.inventories.replace_all(uuid, 0, inventories, zero_capacity=True)
    for trait in traits:
        use_cases.traits.create(trait)
    use_cases.memberships.replace_traits(uuid, traits, 1)
    if provider.get("in_cluster"):
        use_cases.memberships.replace_aggregates(uuid, [aggregate], 2)


def _claim(use_cases: UseCases, consumer: dict[str, Any]) -> None:
    uuids = use_cases.providers.uuids_of(consumer["allocations"])
    claim = ConsumerClaim(
        consumer_uuid=consumer["consumer_uuid"],
        resources={uuids[name]: amounts for name, amounts in consumer["allocations"].items()},
        project_id=consumer["project_id"],
        user_id=consumer["user_id"],
        generation=None,
        consumer_type=consumer["consumer_type"],
    )
    use_cases.claims.replace([claim])


_GREETING = """
Placement listens on {address}
  database: {connection}
  stop with Ctrl-C; the data stays
"""
_CALLS = """
Paste these into another terminal:

1. Which hosts of cluster edge can give 4 whole cores and 16 GiB on one NUMA node,
   next to an SR-IOV VF on physnet 1?

   curl -s -o candidates.json -H 'X-Auth-Token: admin' -H 'OpenStack-API-Version: placement {version}' \\
     '{address}/allocation_candidates?{query}&limit=3'; head -c 1500 candidates.json; echo

2. Claim the first of these answers for a consumer of your own:

   python3 -c 'import json, sys; c = json.load(open("candidates.json"))["allocation_requests"][0]; \\
   c.update(project_id="demo", user_id="me", consumer_generation=None, consumer_type="POD"); \\
   json.dump(c, sys.stdout)' | curl -s -i -X PUT --data-binary @- -H 'X-Auth-Token: admin' \\
     -H 'OpenStack-API-Version: placement {version}' -H 'Content-Type: application/json' \\
     {address}/allocations/{consumer}

3. What of node {node} is used now, core by core?

   curl -s -H 'X-Auth-Token: admin' {address}/ext/v1/clusters/edge/nodes/{node} \\
     | python3 -m json.tool | head -60
"""
_CONSUMER = "3f0c8a52-7a3c-4c56-9d6b-0a8b2f1e5d11"


def greet(host: str, port: int, connection: str, *, with_examples: bool) -> None:
    """Print the address and, with the examples, three calls to paste."""
    address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    print(_GREETING.format(address=address, connection=shown(connection)), flush=True)
    if with_examples:
        with UseCases.opened(connection, SearchSettings()) as use_cases:
            query = _query(use_cases)
        calls = {"address": address, "version": VERSION, "query": query, "consumer": _CONSUMER}
        print(_CALLS.format(**calls, node="edge-01"), flush=True)


def _query(use_cases: UseCases) -> str:
    """Four whole cores and 16 GiB below one NUMA node that has a VF, on a host of cluster edge."""
    aggregate = use_cases.clusters.get("edge").aggregate_uuid
    cores = [f"resources_core{number}=PCPU:2" for number in range(4)]
    together = ",".join(["_numa", *(f"_core{number}" for number in range(4))])
    return "&".join(
        [
            f"resources=CUSTOM_PODS:1&member_of={aggregate}",
            "resources_numa=MEMORY_MB:16384,CUSTOM_INTEL_COM_SRIOV_PHYSNET1:1",
            *cores,
            f"same_subtree={together}&group_policy=isolate",
        ]
    )
