"""Thousands of answers of this checkout, to compare with those of another one.

python -m benchmarks.recording answers.txt              record: a line per answer, the same in every run
python -m benchmarks.recording --compare A B            what differs between two recordings

Searches of random groups in nested trees, with shares and orders; pods of random shapes on two dozen kinds
of nodes, with previews and the calls of kube-scheduler in between; flavors. Everything that no two runs have
in common (times, random uuids) is left out. To compare with an earlier commit, check that out into a
directory of its own and give it this file.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_DNS, uuid5

from tqdm import tqdm

from placement.app import build
from placement.http.registry import registry_of
from placement.storage.database import Database
from tests.conftest import compatible
from tests.kubernetes import BIND, NUMA_POLICY, RATIO, node_manifests, pod_manifest
from tests.server import database_url

_SEARCHES, _PODS, _FLAVORS = 3000, 1200, 300
_UUID = re.compile(rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TIME = re.compile(rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)?")
_AMOUNTS = {
    "VCPU": (1, 8),
    "MEMORY_MB": (256, 20_000),
    "DISK_GB": (1, 600),
    "PCPU": (1, 6),
    "SRIOV_NET_VF": (1, 3),
    "CUSTOM_DEV": (1, 60),
    "CUSTOM_BIG": (1, 70),
}
_TRAITS = ("CUSTOM_A", "CUSTOM_B", "CUSTOM_C", "HW_NUMA_ROOT")
_VERSIONS = ("1.39",) * 6 + ("1.10", "1.12", "1.17", "1.25", "1.29", "1.33", "1.34", "1.36")
_ORDERS = ("", "&order_by=pack", "&order_by=spread", "&order_by=LeastAllocated", "&explain=1")


def main() -> None:
    """Record or compare, as the command line says."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recording", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--compare", action="store_true")
    given = parser.parse_args()
    if given.compare:
        _compare(*given.files)
        return
    with database_url("sqlite") as url:
        database = Database(url)
        recorder = _Recorder(build(database, compatible()))
        lines = [*_searches(recorder), *_pods(recorder), *_flavors(recorder)]
        recorder.close()
        database.dispose()
    given.files[0].write_text("\n".join(lines) + "\n")
    print(f"{len(lines)} answers, {sum(' 200 ' in line or ' 201 ' in line for line in lines)} of them good")


def _compare(before: Path, after: Path) -> None:
    pairs = list(itertools.zip_longest(before.read_text().splitlines(), after.read_text().splitlines()))
    differing = [pair for pair in pairs if pair[0] != pair[1]]
    for old, new in differing[:40]:
        print(f"- {old}\n+ {new}")
    print(f"{len(differing)} of {len(pairs)} answers differ")
    raise SystemExit(bool(differing))


class _Recorder:
    """Calls the application without a server."""

    def __init__(self, application: Any) -> None:
        self._application = application
        self._client = application.test_client()
        self._numbers: dict[bytes, bytes] = {}

    def call(self, method: str, path: str, body: Any = None, version: str = "1.39") -> Any:
        """The answer. Raises RuntimeError for one of 500 and above."""
        headers = {"X-Auth-Token": "admin", "OpenStack-API-Version": f"placement {version}"}
        answer = self._client.open(path, method=method, headers=headers, json=body)
        if answer.status_code >= 500:
            raise RuntimeError(f"{method} {path}: {answer.status} {answer.text[:500]}")
        return answer

    def line(self, method: str, path: str, body: Any = None, version: str = "1.39") -> str:
        """The answer in a line: status, what was asked, length and digest of the body."""
        answer = self.call(method, path, body, version)
        content = _TIME.sub(b"<time>", _UUID.sub(self._numbered, answer.data))
        sent = "" if body is None else json.dumps(body, sort_keys=True)
        asked = hashlib.sha256(sent.encode()).hexdigest()[:8] if sent else "-"
        digest = hashlib.sha256(content).hexdigest()[:16]
        return f"{version} {method} {path} {asked} : {answer.status_code} {len(content)} {digest}"

    def _numbered(self, found: re.Match[bytes]) -> bytes:
        """A uuid by when it came up first: some are different in every run."""
        return self._numbers.setdefault(found[0], b"uuid-%08d" % len(self._numbers))

    def close(self) -> None:
        """Give back what the application holds."""
        registry_of(self._application).close()


# -- searches ---------------------------------------------------------------------------------------------


def _uuid(name: str) -> str:
    return str(uuid5(NAMESPACE_DNS, f"{name}.recording"))


class _World:
    """Creates providers through the API."""

    def __init__(self, recorder: _Recorder) -> None:
        self._call = recorder.call

    def provider(
        self,
        name: str,
        parent: str | None = None,
        inventories: dict[str, Any] | None = None,
        traits: list[str] | None = None,
        aggregates: list[str] | None = None,
    ) -> None:
        """A provider; an inventory may be only its total."""
        body = {"name": name, "uuid": _uuid(name)}
        self._call(
            "POST",
            "/resource_providers",
            {**body, **({"parent_provider_uuid": _uuid(parent)} if parent else {})},
        )
        path, generation = f"/resource_providers/{_uuid(name)}", 0
        parts = {
            "inventories": {
                key: value if isinstance(value, dict) else {"total": value}
                for key, value in (inventories or {}).items()
            },
            "traits": traits,
            "aggregates": [_uuid(aggregate) for aggregate in aggregates or []],
        }
        for what, value in parts.items():
            if value:
                sent = {"resource_provider_generation": generation, what: value}
                generation = self._call("PUT", f"{path}/{what}", sent).json["resource_provider_generation"]

    def fill(self, chance: random.Random) -> None:
        """Flat hosts, NUMA hosts with devices, shared storage, and some allocations."""
        for name in (
            "resource_classes/CUSTOM_DEV",
            "resource_classes/CUSTOM_BIG",
            *(f"traits/{t}" for t in _TRAITS[:3]),
        ):
            self._call("PUT", f"/{name}")
        for host in range(40):
            large = {"VCPU": {"total": 16, "allocation_ratio": 4.0}, "MEMORY_MB": 65_536, "DISK_GB": 500}
            self.provider(
                f"flat{host}",
                inventories=large if host % 3 else {"VCPU": 8, "MEMORY_MB": 32_768},
                traits=[trait for trait in _TRAITS[:2] if chance.random() < 0.5],
                aggregates=[aggregate for aggregate in ("one", "two") if chance.random() < 0.5],
            )
        for host in range(25):
            self._numa_host(f"numa{host}", host, chance)
        shares = "MISC_SHARES_VIA_AGGREGATE"
        self.provider("shared1", None, {"DISK_GB": 5000, "CUSTOM_BIG": 9}, [shares], ["one"])
        self.provider("shared2", None, {"DISK_GB": 3000}, [shares, "CUSTOM_A"], ["two"])
        self.provider("box", None, {"DISK_GB": 10})
        for number in range(8):
            self.provider(f"box-{number}", "box", {"CUSTOM_BIG": 100})
        for number in range(30):
            amounts = {"VCPU": chance.randrange(1, 5), "MEMORY_MB": 1024}
            claim = {
                "allocations": {_uuid(f"flat{chance.randrange(40)}"): {"resources": amounts}},
                "project_id": "p",
                "user_id": "u",
                "consumer_generation": None,
                "consumer_type": "INSTANCE",
            }
            self._call("PUT", f"/allocations/{_uuid(f'consumer{number}')}", claim)

    def _numa_host(self, name: str, number: int, chance: random.Random) -> None:
        traits, aggregates = ["CUSTOM_C"] if number % 2 else [], ["one"] if number % 4 == 0 else []
        self.provider(name, None, {"DISK_GB": 1000}, traits, aggregates)
        for numa in range(2):
            amounts = {"VCPU": 8, "PCPU": 8, "MEMORY_MB": 16_384 if number % 5 else 8192}
            self.provider(f"{name}-{numa}", name, amounts, ["HW_NUMA_ROOT"])
            for device in range(2):
                offered = {"SRIOV_NET_VF": 4, "CUSTOM_DEV": chance.choice([2, 10, 100])}
                self.provider(f"{name}-{numa}-{device}", f"{name}-{numa}", offered, [_TRAITS[device]])


def _searches(recorder: _Recorder) -> Iterator[str]:
    _World(recorder).fill(random.Random(7))
    chance = random.Random(99)
    for number in tqdm(range(_SEARCHES), desc="searches"):
        version, query = _query(chance)
        if number % 6 == 0 and version == "1.39":
            yield recorder.line("GET", f"/ext/v1/allocation_candidates?{query}{chance.choice(_ORDERS)}")
        else:
            yield recorder.line("GET", f"/allocation_candidates?{query}", version=version)


def _amounts(chance: random.Random) -> str:
    names = chance.sample(sorted(_AMOUNTS), chance.choice([1, 1, 2, 2, 3]))
    return ",".join(f"{name}:{chance.randint(*_AMOUNTS[name])}" for name in names)


def _query(chance: random.Random) -> tuple[str, str]:
    """Return a microversion, and a query that it mostly understands."""
    version = chance.choice(_VERSIONS)
    minor = int(version.split(".")[1])
    groups = chance.choice([0, 0, 1, 1, 2, 3, 4]) if minor >= 25 else 0
    suffixes = [str(n + 1) if minor < 33 or chance.random() < 0.5 else f"_g{n}" for n in range(groups)]
    parts: list[str] = []
    if not groups or chance.random() < 0.7:
        parts += _unsuffixed_group(chance, minor)
    for suffix in suffixes:
        parts += _suffixed_group(chance, suffix)
    parts += _between_groups(chance, minor, suffixes)
    if minor >= 16 and (groups >= 3 or chance.random() < 0.6):
        parts.append(f"limit={chance.choice([1, 2, 5, 10, 100, 1000])}")
    return version, "&".join(parts)


def _unsuffixed_group(chance: random.Random, minor: int) -> Iterator[str]:
    yield f"resources={_amounts(chance)}"
    if minor >= 17 and chance.random() < 0.3:
        sign = "!" if minor >= 22 and chance.random() < 0.3 else ""
        yield f"required={sign}{chance.choice(_TRAITS)}"
    if minor >= 21 and chance.random() < 0.15:
        yield f"member_of={_uuid(chance.choice(['one', 'two']))}"


def _suffixed_group(chance: random.Random, suffix: str) -> Iterator[str]:
    usual = ["SRIOV_NET_VF:1", "CUSTOM_BIG:51", "CUSTOM_DEV:1", "VCPU:1,MEMORY_MB:512", "PCPU:1"]
    yield f"resources{suffix}={_amounts(chance) if chance.random() < 0.4 else chance.choice(usual)}"
    if chance.random() < 0.4:
        yield f"required{suffix}={chance.choice(_TRAITS)}"
    if chance.random() < 0.1:
        yield f"member_of{suffix}={_uuid('one')}"


def _between_groups(chance: random.Random, minor: int, suffixes: Sequence[str]) -> Iterator[str]:
    if len(suffixes) > 1:
        yield f"group_policy={chance.choice(['none', 'isolate'])}"
        if minor >= 36 and chance.random() < 0.3:
            yield f"same_subtree={','.join(chance.sample(suffixes, 2))}"


# -- pods -------------------------------------------------------------------------------------------------

_CLUSTER = "/ext/v1/clusters/recorded"


def _node(number: int, chance: random.Random) -> tuple[str, dict[str, Any]]:
    """A node of one of many kinds: sizes, threads, policies, amplification, labels, taints."""
    name = f"node-{number:02}"
    numa_nodes, threads = chance.choice([(1, 2), (2, 2), (4, 2), (2, 1)])
    cores = chance.choice([8, 16, 32])
    rows = tuple(
        (core * threads + thread, core, core * numa_nodes // cores, core * numa_nodes // cores)
        for core in range(cores)
        for thread in range(threads)
    )
    labels = {"zone": chance.choice("ab")}
    if number % 3 == 0:
        labels[NUMA_POLICY] = chance.choice(["SingleNUMANode", "Restricted", "BestEffort"])
    if number % 7 == 1:
        labels[BIND] = chance.choice(["FullPCPUsOnly", "SpreadByPCPUs"])
    annotations = {RATIO: {"cpu": 1.5}} if number % 8 == 5 else {}
    taints = [{"key": "dedicated", "value": "x", "effect": "NoSchedule"}] if number % 6 == 2 else []
    spec = {"taints": taints, **({"unschedulable": True} if number % 11 == 9 else {})}
    return name, node_manifests(name, labels=labels, annotations=annotations, rows=rows, spec=spec)


def _pod(chance: random.Random) -> dict[str, Any]:
    """A pod of any class and policy; some ask for more than there is."""
    qos = chance.choice(["LSE", "LSR", "LSR", "LS", "BE", None])
    cpu = (
        chance.choice(["1", "2", "4", "4", "6", "8", "24"])
        if qos in ("LSE", "LSR")
        else chance.choice(["500m", "1500m", "3"])
    )
    members: dict[str, Any] = {}
    if chance.random() < 0.2:
        members["nodeSelector"] = {"zone": chance.choice("ab")}
    if chance.random() < 0.2:
        members["tolerations"] = [{"key": "dedicated", "operator": "Exists"}]
    spec: dict[str, Any] = {}
    if qos in ("LSE", "LSR") and chance.random() < 0.5:
        spec["preferredCPUBindPolicy"] = chance.choice(["FullPCPUs", "SpreadByPCPUs"])
    if qos in ("LSE", "LSR") and chance.random() < 0.2:
        spec["preferredCPUExclusivePolicy"] = chance.choice(["PCPULevel", "NUMANodeLevel"])
    numa = (
        {"numaTopologyPolicy": chance.choice(["SingleNUMANode", "Restricted"])}
        if chance.random() < 0.1
        else None
    )
    priority = {"LSE": 9500, "LSR": 9500, "BE": 5500}.get(qos or "", 9000)
    return pod_manifest(
        cpu,
        chance.choice(["512Mi", "2Gi", "10Gi"]),
        qos=qos,
        spec=spec or None,
        numa=numa,
        priority=priority,
        **members,
    )


def _pods(recorder: _Recorder) -> Iterator[str]:
    chance = random.Random(5)
    recorder.call("PUT", _CLUSTER, {})
    names = []
    for number in range(24):
        name, manifests = _node(number, chance)
        names.append(name)
        yield recorder.line("PUT", f"{_CLUSTER}/nodes/{name}", manifests)
    present: list[str] = []
    for number in tqdm(range(_PODS), desc="pods"):
        pod, name = _pod(chance), f"pod-{number}"
        pod["metadata"]["name"] = name
        what = chance.random()
        if what < 0.15:
            yield recorder.line("POST", f"{_CLUSTER}/pods/preview", {"pod": pod})
        elif what < 0.3:
            pod["metadata"].update(namespace="default", uid=f"uid-{number}")
            call = chance.choice(["filter", "prioritize"])
            yield recorder.line("POST", f"{_CLUSTER}/extender/{call}", {"Pod": pod, "NodeNames": names})
        elif what < 0.35:
            yield recorder.line("POST", f"{_CLUSTER}/pods/translation", {"pod": pod})
        elif what < 0.55 and present:
            gone = present.pop(chance.randrange(len(present)))
            yield recorder.line("DELETE", f"{_CLUSTER}/pods/default/{gone}")
        else:
            yield recorder.line("PUT", f"{_CLUSTER}/pods/default/{name}", pod)
            if recorder.call("GET", f"{_CLUSTER}/pods/default/{name}").status_code == 200:
                present.append(name)
        if number % 25 == 0:
            yield recorder.line("GET", f"{_CLUSTER}/nodes/{chance.choice(names)}")
    for name in names:
        yield recorder.line("GET", f"{_CLUSTER}/nodes/{name}")


# -- flavors ----------------------------------------------------------------------------------------------

_SPECS: dict[str, tuple[str, ...]] = {
    "hw:cpu_policy": ("dedicated", "shared", "mixed"),
    "hw:cpu_dedicated_mask": ("^0-1", "0-1", "2"),
    "hw:cpu_thread_policy": ("require", "isolate", "prefer"),
    "hw:numa_nodes": ("1", "2", "3"),
    "hw:mem_page_size": ("large", "2048", "small"),
    "hw:emulator_threads_policy": ("isolate", "share"),
    "resources:CUSTOM_BIG": ("1", "51"),
    "resources1:SRIOV_NET_VF": ("1", "2"),
    "trait:CUSTOM_A": ("required", "forbidden"),
    "group_policy": ("none", "isolate"),
}


def _flavors(recorder: _Recorder) -> Iterator[str]:
    chance = random.Random(11)
    for _ in tqdm(range(_FLAVORS), desc="flavors"):
        keys = chance.sample(sorted(_SPECS), chance.randrange(4))
        flavor = {
            "vcpus": chance.choice([1, 2, 4, 6]),
            "memory_mb": chance.choice([512, 4096]),
            "root_gb": chance.choice([0, 10]),
            "extra_specs": {key: chance.choice(_SPECS[key]) for key in keys},
        }
        call = chance.choice(["translation", "candidates"])
        yield recorder.line("POST", f"/ext/v1/flavors/{call}", {"flavor": flavor})


if __name__ == "__main__":
    main()
