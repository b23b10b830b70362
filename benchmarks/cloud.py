"""A cloud as nova writes one: 300 hosts in three zones, 2,700 servers, and what years of use leave behind.

python -m benchmarks.cloud http://127.0.0.1:8778              fill an empty service
python -m benchmarks.cloud http://127.0.0.1:8778 --hosts 60
python -m benchmarks.cloud --instances servers.json           its servers, as the openstack client lists them

Zones and further aggregates overlap. Hosts are plain, of two NUMA nodes without shared CPUs, or have four
GPUs. Projects and users are hexadecimal digits, servers are UUIDs. Some hosts are disabled, some hold more
than they have, four migrations never ended, a server holds two hosts, a host is in no aggregate, and a
provider has no inventory. Each run makes the same.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

from benchmarks.wire import Wire

ZONES = ("az1", "az2", "az3")
GPU, HUGE_PAGES = "CUSTOM_PGPU_A100_80G", "CUSTOM_HUGEPAGES_1GI"
NFV, HAS_GPU, HAS_NVME, DISABLED = (
    *("CUSTOM_NFV", "CUSTOM_GPU_A100", "CUSTOM_LOCAL_NVME"),
    "COMPUTE_STATUS_DISABLED",
)
UNNAMED = "local-nvme"
"""The aggregate without a name in the service."""
Send = Callable[[str, str, Any], Any]
"""A call to a service: method, path and body. It raises an error unless the call succeeds."""

_HOSTS = 300
_PLAIN, _OF_NUMA_NODES, _OF_GPUS = "plain", "numa", "gpu"
_PREFIXES = {_PLAIN: "cmp", _OF_NUMA_NODES: "nfv", _OF_GPUS: "gpu"}
_SERVERS_PER_HOST = 7.25
_GPUS = 4
_DISABLED = (17, 18, 205)
_GIB = 1024
# As many consumers go to the service in one call.
_AT_ONCE = 100
# The hosts of this zone have CPUs left and little memory.
_FULL_ZONE, _MOST_LEFT_MB = "az2", 120 * _GIB
_SMALLER_MB = 384 * _GIB
_FIRST_DAY = datetime(2024, 3, 1, tzinfo=UTC)


class Flavor(NamedTuple):
    """A flavor of plain servers: memory in MiB, disk in GB."""

    name: str
    vcpus: int
    memory_mb: int
    disk_gb: int


FLAVORS = (
    Flavor("m1.small", 1, 2 * _GIB, 20),
    Flavor("m1.medium", 2, 4 * _GIB, 40),
    Flavor("m1.large", 4, 8 * _GIB, 80),
    Flavor("r1.large", 8, 32 * _GIB, 100),
    Flavor("r1.xlarge", 16, 64 * _GIB, 200),
    Flavor("r1.2xlarge", 32, 128 * _GIB, 400),
)
_WEIGHTS = (5, 8, 10, 6, 3, 1)
_OF_FULL_ZONE = Flavor("m2.3xlarge", 24, 34 * _GIB, 200)


class Amount(NamedTuple):
    """An inventory: units in all, reserved ones, and the allocation ratio."""

    total: int
    reserved: int = 0
    allocation_ratio: float = 1.0

    @property
    def capacity(self) -> int:
        """Return the units that may be allocated."""
        return int((self.total - self.reserved) * self.allocation_ratio)


@dataclass
class CloudProvider:
    """A provider with its inventories and traits; `uuid` is the same in each run."""

    name: str
    uuid: str
    inventories: dict[str, Amount]
    traits: list[str] = field(default_factory=list)


@dataclass
class CloudHost:
    """A host: the root of its tree, NUMA nodes or GPUs below it, its zone and aggregates by name."""

    kind: str
    zone: str
    root: CloudProvider
    children: list[CloudProvider]
    aggregates: list[str]

    @property
    def name(self) -> str:
        """Return the name of the host."""
        return self.root.name

    @property
    def is_disabled(self) -> bool:
        """Return whether nova gives it no new servers."""
        return DISABLED in self.root.traits


@dataclass(frozen=True)
class CloudConsumer:
    """A consumer: what it holds, by provider and class, and the server as nova lists it."""

    uuid: str
    name: str
    project: str
    user: str
    host: str
    held: Mapping[str, Mapping[str, int]]
    flavor: str
    created: datetime
    type: str = "INSTANCE"

    def claim(self) -> dict[str, Any]:
        """Return the body of `PUT /allocations/{uuid}`."""
        return {
            "allocations": {provider: {"resources": dict(held)} for provider, held in self.held.items()},
            "project_id": self.project,
            "user_id": self.user,
            "consumer_generation": None,
            "consumer_type": self.type,
        }


class Cloud:
    """The hosts, aggregates and consumers of a cloud of `count` hosts."""

    def __init__(self, count: int = _HOSTS) -> None:
        self._chance = random.Random(count)
        self._free: dict[tuple[str, str], int] = {}
        self.aggregates = {name: self._uuid() for name in (*ZONES, "nfv", "gpu-a100", UNNAMED)}
        self.projects = [self._hexadecimal() for _ in range(40)]
        self._users = {project: [self._hexadecimal() for _ in range(2)] for project in self.projects}
        self.hosts = [self._host(number) for number in range(count)]
        # A host that left the cloud keeps its provider: no inventory, no aggregate.
        self.without_inventory = CloudProvider("cmp-az1-r00-u01.prod.eu-west.example.org", self._uuid(), {})
        self.consumers = [*self._servers(round(count * _SERVERS_PER_HOST)), *self._servers_of_full_zone()]
        self.overfull = [host for host in self._plain() if host.zone == _FULL_ZONE][: max(1, count // 100)]
        self.migrations = self._left_migrations()
        self.on_two_hosts = self._on_two_hosts()

    def _uuid(self) -> str:
        return str(uuid.UUID(int=self._chance.getrandbits(128), version=4))

    def _hexadecimal(self) -> str:
        return f"{self._chance.getrandbits(128):032x}"

    # -- hosts ------------------------------------------------------------------------------------------

    def _host(self, number: int) -> CloudHost:
        rack, unit = divmod(number, 30)
        kind = _OF_NUMA_NODES if unit < 6 else _OF_GPUS if unit in (6, 7) else _PLAIN
        zone = ZONES[number % 3]
        name = f"{_PREFIXES[kind]}-{zone}-r{rack + 1:02}-u{unit + 1:02}.prod.eu-west.example.org"
        # One host was never put into its zone.
        aggregates = [zone] if unit != 28 or rack else []
        host = CloudHost(kind, zone, self._root(name, kind), [], aggregates)
        if kind == _OF_NUMA_NODES:
            host.aggregates.append("nfv")
            host.children += [self._numa_node(f"{name}_numa{node}") for node in range(2)]
        elif kind == _OF_GPUS:
            host.aggregates.append("gpu-a100")
            host.children += [
                self._provider(f"{name}_pci_0000_{0x41 + 0x20 * gpu:02x}_00_0", {GPU: Amount(1)}, HAS_GPU)
                for gpu in range(_GPUS)
            ]
        if number % 7 == 0 and host.aggregates:
            host.aggregates.append(UNNAMED)
            host.root.traits.append(HAS_NVME)
        if number in _DISABLED:
            host.root.traits.append(DISABLED)
        return host

    def _root(self, name: str, kind: str) -> CloudProvider:
        inventories = {"DISK_GB": Amount(3500, 50)}
        if kind != _OF_NUMA_NODES:
            memory = 768 * _GIB if kind == _OF_GPUS else 512 * _GIB
            inventories |= {"VCPU": Amount(96, 4, 4.0), "MEMORY_MB": Amount(memory, 8 * _GIB)}
        return self._provider(name, inventories, "COMPUTE_NODE", "HW_CPU_X86_AVX2", "COMPUTE_VOLUME_EXTEND")

    def _numa_node(self, name: str) -> CloudProvider:
        memory = Amount(128 * _GIB, 4 * _GIB)
        inventories = {
            "PCPU": Amount(44),
            "MEMORY_MB": memory,
            HUGE_PAGES: Amount(64),
            "SRIOV_NET_VF": Amount(16),
        }
        return self._provider(name, inventories, "HW_NUMA_ROOT", NFV)

    def _provider(self, name: str, inventories: dict[str, Amount], *traits: str) -> CloudProvider:
        provider = CloudProvider(name, self._uuid(), inventories, [*traits])
        for resource_class, amount in inventories.items():
            self._free[provider.uuid, resource_class] = amount.capacity
        return provider

    def _plain(self) -> list[CloudHost]:
        return [host for host in self.hosts if host.kind == _PLAIN and not host.is_disabled]

    # -- consumers --------------------------------------------------------------------------------------

    def _servers(self, count: int) -> Iterator[CloudConsumer]:
        hosts = [host for host in self.hosts if not host.is_disabled]
        made = 0
        while made < count:
            host = self._chance.choice(hosts)
            flavor = self._chance.choices(FLAVORS, _WEIGHTS)[0]
            held = self._held(host, flavor)
            if self._take(held):
                made += 1
                yield self._consumer(host, flavor.name, held)

    def _servers_of_full_zone(self) -> Iterator[CloudConsumer]:
        for host in self.hosts:
            is_filled = host.kind == _PLAIN and host.zone == _FULL_ZONE
            held = self._held(host, _OF_FULL_ZONE)
            memory = host.root.uuid, "MEMORY_MB"
            while is_filled and self._free[memory] > _MOST_LEFT_MB and self._take(held):
                yield self._consumer(host, _OF_FULL_ZONE.name, held)

    def _held(self, host: CloudHost, flavor: Flavor) -> dict[str, dict[str, int]]:
        """Return what a server of the flavor holds of a host; of a host with GPUs mostly one of them."""
        root = host.root.uuid
        if host.kind == _OF_NUMA_NODES:
            node = self._chance.choice(host.children)
            pinned = {"PCPU": min(flavor.vcpus, 16), "MEMORY_MB": flavor.memory_mb, "SRIOV_NET_VF": 1}
            return {root: {"DISK_GB": flavor.disk_gb}, node.uuid: pinned}
        held = {root: {"VCPU": flavor.vcpus, "MEMORY_MB": flavor.memory_mb, "DISK_GB": flavor.disk_gb}}
        if host.kind == _OF_GPUS and self._chance.random() < 0.7:
            held[self._chance.choice(host.children).uuid] = {GPU: 1}
        return held

    def _take(self, held: Mapping[str, Mapping[str, int]]) -> bool:
        """Take the amounts of what is free, all of them or none; return whether they were there."""
        amounts = {(provider, name): amount for provider, of in held.items() for name, amount in of.items()}
        if any(self._free[place] < amount for place, amount in amounts.items()):
            return False
        for place, amount in amounts.items():
            self._free[place] -= amount
        return True

    def _consumer(
        self, host: CloudHost, flavor: str, held: Mapping[str, Mapping[str, int]], type_: str = "INSTANCE"
    ) -> CloudConsumer:
        project = self._chance.choice(self.projects)
        user = self._chance.choice(self._users[project])
        created = _FIRST_DAY + timedelta(minutes=self._chance.randrange(900 * 24 * 60))
        uuid_ = self._uuid()
        return CloudConsumer(uuid_, f"vm-{uuid_[:6]}", project, user, host.name, held, flavor, created, type_)

    def _left_migrations(self) -> list[CloudConsumer]:
        """Return the consumers of migrations that never ended: each still holds the source host."""
        flavor = FLAVORS[2]
        sources = [host for host in self._plain() if host.zone != _FULL_ZONE and host.aggregates][:4]
        found = [(host, self._held(host, flavor)) for host in sources]
        return [
            self._consumer(host, flavor.name, held, "MIGRATION") for host, held in found if self._take(held)
        ]

    def _on_two_hosts(self) -> CloudConsumer:
        """Return a server that holds the host which it left and the one to which it went."""
        flavor = FLAVORS[2]
        left, right = [host for host in self._plain() if host.zone != _FULL_ZONE and host.aggregates][-2:]
        held = {**self._held(left, flavor), **self._held(right, flavor)}
        if not self._take(held):
            raise RuntimeError("the last hosts of the cloud are full")
        return self._consumer(right, flavor.name, held)

    # -- elsewhere --------------------------------------------------------------------------------------

    def fill(self, send: Send, *, shows: bool = False) -> None:
        """Send everything to an empty service, with bars of progress where `shows` asks for them."""
        for name in (GPU, HUGE_PAGES):
            send("PUT", f"/resource_classes/{name}", None)
        for name in (NFV, HAS_GPU, HAS_NVME):
            send("PUT", f"/traits/{name}", None)
        for host in tqdm(self.hosts, desc="hosts", unit="", disable=not shows):
            _create_host(send, host, [self.aggregates[name] for name in host.aggregates])
        _create(send, self.without_inventory, None)
        for name, uuid_ in self.aggregates.items():
            if name != UNNAMED:
                send("PUT", f"/ext/v1/aggregates/{uuid_}", {"name": name})
        consumers = [*self.consumers, *self.migrations, self.on_two_hosts]
        for start in tqdm(
            range(0, len(consumers), _AT_ONCE), desc="consumers", unit="batch", disable=not shows
        ):
            some = consumers[start : start + _AT_ONCE]
            send("POST", "/allocations", {each.uuid: each.claim() for each in some})
        for host in self.overfull:
            _lose_memory(send, host)

    def instances(self) -> list[dict[str, Any]]:
        """Return the servers as `openstack server list --all-projects --limit -1 --long -f json` prints them.

        Migrations are not among them, as nova lists servers only.
        """
        return [
            {
                "ID": each.uuid,
                "Name": each.name,
                "Status": "ACTIVE",
                "Task State": None,
                "Power State": "Running",
                "Networks": {"provider": ["192.0.2.10"]},
                "Image Name": "ubuntu-24.04",
                "Image ID": "6f0e9e3c-52b5-4f36-8f0d-7c0f2f6b3a10",
                "Flavor": each.flavor,
                "Availability Zone": next(host.zone for host in self.hosts if host.name == each.host),
                "Host": each.host,
                "Properties": {},
            }
            for each in [*self.consumers, self.on_two_hosts]
        ]


def _create_host(send: Send, host: CloudHost, aggregates: list[str]) -> None:
    generation = _create(send, host.root, None)
    for child in host.children:
        _create(send, child, host.root.uuid)
    if aggregates:
        body = {"resource_provider_generation": generation, "aggregates": aggregates}
        send("PUT", f"/resource_providers/{host.root.uuid}/aggregates", body)


def _create(send: Send, provider: CloudProvider, parent: str | None) -> int:
    """Create a provider with its inventories and traits; return its generation then."""
    below = {} if parent is None else {"parent_provider_uuid": parent}
    send("POST", "/resource_providers", {"name": provider.name, "uuid": provider.uuid, **below})
    path, generation = f"/resource_providers/{provider.uuid}", 0
    if provider.inventories:
        inventories = {name: _record(amount) for name, amount in provider.inventories.items()}
        body: dict[str, Any] = {"resource_provider_generation": generation, "inventories": inventories}
        send("PUT", f"{path}/inventories", body)
        generation += 1
    if provider.traits:
        body = {"resource_provider_generation": generation, "traits": provider.traits}
        send("PUT", f"{path}/traits", body)
        generation += 1
    return generation


def _record(amount: Amount) -> dict[str, Any]:
    return {**amount._asdict(), "min_unit": 1, "max_unit": amount.total, "step_size": 1}


def _lose_memory(send: Send, host: CloudHost) -> None:
    """Report a host with less memory than its servers hold, as after the loss of a module."""
    path = f"/resource_providers/{host.root.uuid}/inventories"
    known = send("GET", path, None)
    found = known if isinstance(known, dict) else json.loads(known)
    record = {**found["inventories"]["MEMORY_MB"], "total": _SMALLER_MB, "max_unit": _SMALLER_MB}
    body = {"resource_provider_generation": found["resource_provider_generation"], **record}
    send("PUT", f"{path}/MEMORY_MB", body)


def main() -> None:
    """Fill the service at the URL that is given, or write the list of servers."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cloud", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("url", nargs="?", help="of an empty service")
    parser.add_argument("--token", default="admin")
    parser.add_argument("--hosts", type=int, default=_HOSTS)
    parser.add_argument("--instances", type=Path, help="a file for the servers, as nova lists them")
    given = parser.parse_args()
    cloud = Cloud(given.hosts)
    if given.instances:
        given.instances.write_text(json.dumps(cloud.instances(), indent=2))
    if given.url:
        cloud.fill(Wire(given.url, token=given.token).must, shows=sys.stderr.isatty())
        print(f"{len(cloud.hosts)} hosts, {len(cloud.consumers)} servers")


if __name__ == "__main__":
    main()
