"""The example clusters, loaded into an empty database, and the greeting that shows what to ask them."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from placement.allocations.candidates import SearchSettings
from placement.allocations.claims import Claims
from placement.common.documents import node_manifests, parse_yaml
from placement.common.secrets import shown
from placement.engine.domain.claims import ConsumerClaim
from placement.engine.domain.errors import PlacementError
from placement.engine.domain.inventories import Inventory
from placement.http.registry import Registry
from placement.pods.services.clusters import Clusters
from placement.pods.services.nodes import NodeImports
from placement.pods.services.pods import Pods
from placement.pods.services.reservations import Reservations
from placement.providers.inventories import Inventories
from placement.providers.service import ProviderMemberships, Providers, Traits
from placement.providers.statements.names import SHARING_TRAIT
from placement.server.settings import DEMONSTRATION
from placement.wiring import opened

_PACKAGE = Path(__file__).resolve().parents[1]


def examples() -> Path:
    """Return the directory of the example clusters, beside the checkout or inside an installed package."""
    installed = _PACKAGE / "examples"
    return installed if installed.is_dir() else _PACKAGE.parent / "etc" / "examples"


def load_into_empty(connection: str) -> None:
    """Load all example clusters unless the database holds providers already."""
    with opened(connection, SearchSettings()) as registry:
        if not registry[Providers].is_empty():
            return
        for directory in sorted(path for path in examples().iterdir() if path.is_dir()):
            _load_cluster(registry, directory)


def _load_cluster(registry: Registry, directory: Path) -> None:
    settings = _document(directory / "cluster.yaml")
    name = settings.pop("name")
    registry[Clusters].put(name, settings)
    nodes = {
        path.stem: node_manifests(parse_yaml(path.read_bytes()))
        for path in sorted((directory / "nodes").glob("*.yaml"))
    }
    for node, manifests in nodes.items():
        registry[NodeImports].put(name, node, *manifests)
    beside = _document(directory / "placement.yaml")
    _load_providers(registry, beside["resource_providers"], registry[Clusters].get(name).aggregate_uuid)
    for consumer in beside["allocations"]:
        named = registry[Providers].uuids_of(consumer["allocations"])
        claim = ConsumerClaim(
            consumer_uuid=consumer["consumer_uuid"],
            resources={named[key]: amounts for key, amounts in consumer["allocations"].items()},
            project_id=consumer["project_id"],
            user_id=consumer["user_id"],
            generation=None,
            consumer_type=consumer["consumer_type"],
        )
        registry[Claims].put([claim], is_counted=False)
    print(f"Loaded the example cluster {name}: {_summary(nodes, beside)}.")
    pods = directory / "pods.yaml"
    if pods.is_file():
        print(f"  {_load_pods(registry, name, parse_yaml(pods.read_bytes()))}.")
    changes = directory / "changes.yaml"
    for node, change in (_document(changes) if changes.is_file() else {}).items():
        registry[NodeImports].put(name, node, _merged(nodes[node].node, change), nodes[node].topology)


def _summary(nodes: Collection[str], beside: Mapping[str, Any]) -> str:
    """Return how many hosts and consumers a cluster has, and the names of its shared storage."""
    roots = [each for each in beside["resource_providers"] if "parent" not in each]
    storage = [each["name"] for each in roots if SHARING_TRAIT in each.get("traits", ())]
    hosts = f"{len(nodes)} nodes" if nodes else f"{len(roots) - len(storage)} hosts"
    kind = "consumers" if nodes else "instances"
    return ", ".join(
        [hosts, f"{len(beside['allocations'])} {kind}", *(f"storage {each}" for each in storage)]
    )


def _load_providers(registry: Registry, providers: Iterable[Mapping[str, Any]], aggregate: str) -> None:
    uuids: dict[str, str] = {}
    for provider in providers:
        uuid, traits, parent = provider["uuid"], provider.get("traits", []), provider.get("parent")
        uuids[provider["name"]] = uuid
        registry[Providers].create(uuid, provider["name"], uuids[parent] if parent else None)
        inventories = {kind: Inventory(**record) for kind, record in provider["inventories"].items()}
        registry[Inventories].replace_all(uuid, 0, inventories, zero_capacity=True)
        for trait in traits:
            registry[Traits].create(trait)
        registry[ProviderMemberships].replace_traits(uuid, traits, 1)
        if provider.get("in_cluster"):
            registry[ProviderMemberships].replace_aggregates(uuid, [aggregate], 2)


def _load_pods(registry: Registry, cluster: str, documents: Sequence[Mapping[str, Any]]) -> str:
    """Place the reservations, then the pods; return how many. Raises PlacementError for a refused one."""
    reservations = [each for each in documents if each["kind"] == "Reservation"]
    for each in reservations:
        registry[Reservations].put(cluster, each["metadata"]["name"], each)
    pods = [each for each in documents if each["kind"] == "Pod"]
    for outcome in registry[Pods].put_all(cluster, pods):
        if isinstance(outcome, PlacementError):
            raise outcome
    kept = f" and {len(reservations)} reservations" if reservations else ""
    return f"Placed {len(pods)} pods{kept} on its nodes"


def _merged(target: Any, patch: Any) -> Any:
    """Return the target with the patch merged into it; null removes nothing. Source: RFC 7396."""
    if not isinstance(target, Mapping) or not isinstance(patch, Mapping):
        return patch
    return {**target, **{key: _merged(target.get(key), value) for key, value in patch.items()}}


def _document(path: Path) -> dict[str, Any]:
    (document,) = parse_yaml(path.read_bytes())
    found: dict[str, Any] = document
    return found


_GREETING = """
Placement listens on {address}
  database: {connection}
  to look at: {address}/ui/
  stop with Ctrl-C; the data stays{anew}
"""
_REQUEST = (
    "cluster=edge",
    "resources_cell=MEMORY_MB:16384,CUSTOM_INTEL_COM_SRIOV_PHYSNET1:1,PCPU:8",
    "split_cell=PCPU",
)
_CALLS = """
Paste these into another terminal, as often as you like. First, to find the command and the service:

   export PATH="{folder}:$PATH" PLACEMENT_URL={address}

1. Which NUMA nodes of cluster edge can give 16 GiB, 4 whole cores and an SR-IOV VF on physnet 1?

   placement candidates {request} limit=2 -c '#' -c Provider -c Amounts

2. Claim the first of these for a consumer of your own:

   placement claim --consumer {consumer} --project demo {request}

3. Which cores of node edge-01 are in use now?

   placement node show edge edge-01

4. Release it.

   placement allocation delete {consumer}

The same over HTTP:

   curl -s -H 'X-Auth-Token: admin' '{address}/ext/v1/allocation_candidates?{query}&limit=1' \\
     | python3 -m json.tool | head -30

   curl -s -H 'X-Auth-Token: admin' -H 'Content-Type: application/json' {address}/ext/v1/claims \\
     -d '{{"consumer_uuid": "{consumer}", "project_id": "demo", "user_id": "operator",
          "consumer_type": "INSTANCE", "query": "{query}"}}'

   curl -s -H 'X-Auth-Token: admin' {address}/ext/v1/clusters/edge/nodes/edge-01 \\
     | python3 -m json.tool | head -30

   curl -s -H 'X-Auth-Token: admin' -X DELETE {address}/allocations/{consumer}
"""
_CONSUMER = "3f0c8a52-7a3c-4c56-9d6b-0a8b2f1e5d11"


def greet(host: str, port: int, connection: str, *, with_examples: bool, encrypted: bool = False) -> None:
    """Print the address and, with the examples, calls to paste; repeating them changes nothing more."""
    scheme = "https" if encrypted else "http"
    address = f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
    anew = "; `rm -r var` starts afresh" if connection == DEMONSTRATION else ""
    print(_GREETING.format(address=address, connection=shown(connection), anew=anew), flush=True)
    if with_examples:
        calls = {"request": " ".join(_REQUEST), "query": "&".join(_REQUEST), "consumer": _CONSUMER}
        print(_CALLS.format(address=address, folder=Path(sys.executable).parent, **calls), flush=True)
