"""How many statements each route sends to the database, and the file that records it.

`python -m tests.statements` measures again and writes the file; a change of a count shows in the review.
"""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg2.extensions
import sqlalchemy as sa

from placement.pods.services.binding import Binder
from placement.storage.database import Database
from tests.client import Client
from tests.conftest import application_of
from tests.kubernetes import node_manifests, pod_manifest
from tests.patience import unhurried
from tests.server import BACKENDS, database_url

RECORD = Path(__file__).with_name("statement_counts.json")
_CLUSTER = "/ext/v1/clusters/edge"
_RACK = "0a000000-0000-4000-8000-000000000001"
TRANSACTION = ("BEGIN", "COMMIT", "ROLLBACK")
_SETTINGS = ("PRAGMA JOURNAL_MODE", "PRAGMA SYNCHRONOUS", "PRAGMA FOREIGN_KEYS")

Call = tuple[str, str, Callable[[], Any]]
"""Method, path, body."""


class Counter:
    """Counts what goes to the database of an engine that has not connected yet, transaction control aside.

    What bypasses SQLAlchemy counts, too. The settings of a new connection do not.
    """

    def __init__(self, engine: sa.Engine) -> None:
        self.count = 0
        if engine.dialect.name == "postgresql":
            sa.event.listen(engine, "connect", self._watch)
        else:
            sa.event.listen(engine, "do_connect", self._watch_file)

    def _watch(self, connection: Any, _record: Any) -> None:
        seen = self._seen

        class Watched(psycopg2.extensions.cursor):
            def execute(self, query: Any, vars: Any = None) -> None:
                seen(query.decode() if isinstance(query, bytes) else query)
                super().execute(query, vars)

        connection.cursor_factory = Watched

    def _watch_file(self, _dialect: Any, _record: Any, _arguments: Any, options: dict[str, Any]) -> None:
        seen = self._seen

        class Cursor(sqlite3.Cursor):
            def execute(self, statement: str, *parameters: Any) -> Any:
                seen(statement)
                return super().execute(statement, *parameters)

            def executemany(self, statement: str, *parameters: Any) -> Any:
                seen(statement)
                return super().executemany(statement, *parameters)

        class Watched(sqlite3.Connection):
            def cursor(self, *_: Any) -> Any:
                return super().cursor(Cursor)

            def execute(self, statement: str, *parameters: Any) -> Any:
                return self.cursor().execute(statement, *parameters)

        options["factory"] = Watched

    def _seen(self, statement: str) -> None:
        if not statement.lstrip().upper().startswith((*TRANSACTION, *_SETTINGS)):
            self.count += 1


class _BindsAnything(Binder):
    """An API server that has every pod, and binds it without a word."""

    def pod(self, namespace: str, name: str) -> dict[str, Any]:
        pod = pod_manifest(uid=f"uid-{name}", phase="Pending")
        pod["metadata"].update(namespace=namespace, name=name)
        return pod

    def bind(self, *_: Any) -> None:
        """Done."""

    def of(self, cluster: str) -> Binder:
        """It is that of every cluster."""
        return self


class Scene:
    """Some providers and consumers, and one call per route."""

    def __init__(self, api: Client) -> None:
        self.api = api
        self.root = api.provider("root", VCPU=100, DISK_GB=100)
        self.child = api.provider("child", self.root, VGPU=4)
        self.leaf = api.provider("leaf", self.child)
        self.holder, self.new = str(uuid.UUID(int=1)), str(uuid.UUID(int=2))
        self.many = [str(uuid.UUID(int=number)) for number in range(100, 150)]
        for generation in (None, 1):
            api.claim({self.root: {"VCPU": 1}, self.child: {"VGPU": 1}}, self.holder, generation=generation)
        api.join(self.leaf, _RACK)
        for name in ("CUSTOM_A", "CUSTOM_IDLE"):
            api.put(f"/traits/{name}")
            api.put(f"/resource_classes/{name}")
        api.put(_CLUSTER)
        for node in ("n1", "n2"):
            api.put(f"{_CLUSTER}/nodes/{node}", node_manifests(node))
        self.node = api.get(f"{_CLUSTER}/nodes/n1").json["tree"]["uuid"]
        for name in ("known", "gone"):
            api.put(f"{_CLUSTER}/pods/default/{name}", pod_manifest())

    def pages(self) -> dict[str, str]:
        """The pages."""
        paths = {
            "": "",
            "map": "map?by=use&class=VCPU",
            "hosts": "hosts?by=use&class=VCPU",
            "hosts/{uuid}": f"hosts/{self.child}",
            "hosts/{uuid}/providers": f"hosts/{self.child}/providers",
            "hosts/{uuid} of a node": f"hosts/{self.node}",
            "why": "why?kind=query&query=resources%3DVCPU:1",
            "room": "room?kind=query&query=resources%3DVCPU:1",
            "consumers": "consumers",
            "consumers/{uuid}": f"consumers/{self.holder}",
            "pods": "pods?cluster=edge",
            "pods/{name}": "pods/edge/default/known",
            "changes": "changes",
            "changes?target": f"changes?target={self.root}&target=edge/n1",
            "refusals": "refusals",
            "search": "search?q=edge",
        }
        return {f"GET /ui/{name}": f"/ui/{path}" for name, path in paths.items()}

    def entry(self, amount: int = 1, generation: int | None = None) -> dict[str, Any]:
        return Client.allocations({self.root: {"VCPU": amount}}, generation)

    def claim(self, count: int) -> dict[str, Any]:
        members = [{"consumer_uuid": str(uuid.UUID(int=1000 * count + number))} for number in range(count)]
        common = {"project_id": "project", "user_id": "user", "consumer_type": "TYPE"}
        return {**common, "query": "resources=VCPU:1", "members": members}

    def bound(self, prefix: str, count: int) -> dict[str, Any]:
        """Pods of that prefix that were placed, each with its node."""
        found = self.api.get(f"{_CLUSTER}/pods?scheduled=true").json["pods"]
        members = ("namespace", "name", "uid", "node")
        pods = [{each: pod[each] for each in members} for pod in found if pod["name"].startswith(prefix)]
        assert len(pods) == count
        return {"pods": pods}

    def calls(self) -> dict[str, Call]:
        """Writes come last and in an order in which each works."""
        place, many = f"/resource_providers/{self.root}", self.many
        leaf = f"/resource_providers/{self.leaf}"
        claims, pods = "/ext/v1/claims", f"{_CLUSTER}/pods/default"
        search = "/allocation_candidates?resources=VCPU:1"

        def guarded(provider: str, **members: Any) -> Callable[[], Any]:
            return lambda: {**members, "resource_provider_generation": self.api.generation(provider)}

        def reshaped() -> dict[str, Any]:
            offered = guarded(self.root, inventories={"VCPU": {"total": 200}, "MEMORY_MB": {"total": 1}})
            return {
                "inventories": {self.root: offered()},
                "allocations": {each: self.entry(2, 2) for each in many},
            }

        return _calls(
            {
                "GET /": "/",
                "GET /resource_classes": "/resource_classes",
                "GET /resource_classes/{name}": "/resource_classes/VCPU",
                "GET /traits": "/traits",
                "GET /traits/{name}": "/traits/HW_CPU_X86_VMX",
                "GET /resource_providers": "/resource_providers",
                "GET /resource_providers?resources": "/resource_providers?resources=VCPU:1",
                "GET /resource_providers/{uuid}": place,
                "GET inventories": f"{place}/inventories",
                "GET inventories/{class}": f"{place}/inventories/VCPU",
                "GET usages of a provider": f"{place}/usages",
                "GET aggregates": f"{place}/aggregates",
                "GET /ext/v1/aggregates": "/ext/v1/aggregates",
                "GET traits of a provider": f"{place}/traits",
                "GET allocations of a provider": f"{place}/allocations",
                "GET /allocations/{consumer}": f"/allocations/{self.holder}",
                "GET /usages": "/usages?project_id=project",
                "GET /allocation_candidates": search,
                "GET /allocation_candidates?member_of": f"{search}&member_of={self.root}",
                "PUT /allocations/{consumer} new": (f"/allocations/{self.new}", self.entry),
                "GET /allocation_candidates after a claim": search,
                "PUT /allocations/{consumer} again": (f"/allocations/{self.new}", lambda: self.entry(2, 1)),
                "POST /allocations 50 new": ("/allocations", lambda: {each: self.entry() for each in many}),
                "POST /allocations 50 again": (
                    "/allocations",
                    lambda: {each: self.entry(1, 1) for each in many},
                ),
                "POST /reshaper 1 provider, 50 consumers": ("/reshaper", reshaped),
                "POST /ext/v1/claims": (claims, lambda: self.claim(1)),
                "POST /ext/v1/claims 50 new": (claims, lambda: self.claim(50)),
                "POST /ext/v1/claims 50 again": (claims, lambda: self.claim(50)),
                "DELETE /allocations/{consumer}": f"/allocations/{self.new}",
                "POST /resource_providers": ("/resource_providers", lambda: {"name": "fresh"}),
                "POST /resource_providers below a parent": (
                    "/resource_providers",
                    lambda: {"name": "below", "parent_provider_uuid": self.root},
                ),
                "PUT /resource_providers/{uuid}": (place, lambda: {"name": "renamed"}),
                "POST inventories": (
                    f"{place}/inventories",
                    lambda: {"resource_class": "FPGA", "total": 1},
                ),
                "PUT inventories/{class}": (f"{place}/inventories/FPGA", guarded(self.root, total=2)),
                "PUT inventories": (
                    f"{leaf}/inventories",
                    guarded(self.leaf, inventories={"FPGA": {"total": 1}, "PGPU": {"total": 1}}),
                ),
                "DELETE inventories/{class}": f"{place}/inventories/FPGA",
                "DELETE inventories": f"{leaf}/inventories",
                "PUT aggregates": (f"{place}/aggregates", guarded(self.root, aggregates=[self.root])),
                "PUT traits of a provider": (f"{place}/traits", guarded(self.root, traits=["CUSTOM_A"])),
                "DELETE traits of a provider": f"{place}/traits",
                "PUT /traits/{name}": "/traits/CUSTOM_NEW",
                "DELETE /traits/{name}": "/traits/CUSTOM_IDLE",
                "PUT /resource_classes/{name}": "/resource_classes/CUSTOM_NEW",
                "POST /resource_classes": ("/resource_classes", lambda: {"name": "CUSTOM_POSTED"}),
                "DELETE /resource_classes/{name}": "/resource_classes/CUSTOM_IDLE",
                "PUT node again": (f"{_CLUSTER}/nodes/n1", lambda: node_manifests("n1")),
                "PUT pod new": (f"{pods}/web", pod_manifest),
                "PUT pod again": (f"{pods}/known", pod_manifest),
                "PUT pod that runs": (
                    f"{pods}/runs",
                    lambda: pod_manifest(node="n1", status={"cpuset": "12-15"}),
                ),
                "GET pod": f"{pods}/web",
                "GET pods": f"{_CLUSTER}/pods",
                "POST preview": (f"{_CLUSTER}/pods/preview", pod_manifest),
                "POST preemption": (
                    f"{_CLUSTER}/pods/preemption",
                    lambda: {"pod": pod_manifest("16", uid="uid-urgent", priority=9999)},
                ),
                "DELETE pod": f"{pods}/gone",
                "POST nodes 2 new": (f"{_CLUSTER}/nodes", lambda: _nodes("few", 2)),
                "POST nodes 20 new": (f"{_CLUSTER}/nodes", lambda: _nodes("many", 20)),
                "POST nodes 20 again": (f"{_CLUSTER}/nodes", lambda: _nodes("many", 20)),
                "POST nodes 20 changed": (f"{_CLUSTER}/nodes", lambda: _nodes("many", 20, memory="8Gi")),
                "POST pods 2 new": (f"{_CLUSTER}/pods", lambda: _pods("few", 2)),
                "POST pods 40 new": (f"{_CLUSTER}/pods", lambda: _pods("many", 40)),
                "POST pods bound 1": (f"{_CLUSTER}/pods/bound", lambda: self.bound("few", 1)),
                "POST pods bound 20": (f"{_CLUSTER}/pods/bound", lambda: self.bound("many", 20)),
                "PUT /ext/v1/aggregates/{uuid}": (f"/ext/v1/aggregates/{_RACK}", lambda: {"name": "rack"}),
                "DELETE /resource_providers/{uuid}": leaf,
                **self.pages(),
            }
        )

    def extender(self) -> dict[str, Call]:
        """What kube-scheduler asks, when the calls above have been made."""
        asked = {"Pod": pod_manifest(uid="uid-bound"), "NodeNames": ["few-0", "few-1"]}
        names = {"PodName": "bound", "PodNamespace": "default", "PodUID": "uid-bound", "Node": "few-0"}
        bodies = {"filter": asked, "prioritize": asked, "bind new": names, "bind again": names}
        return {
            f"POST {name}": ("POST", f"{_CLUSTER}/extender/{name.split()[0]}", lambda body=body: body)
            for name, body in bodies.items()
        }


def _calls(rows: Mapping[str, str | tuple[str, Callable[[], Any]]]) -> dict[str, Call]:
    """The calls of rows that have a path, or a path and a body; the method is the first word of the name."""
    bodied = {name: (row, lambda: None) if isinstance(row, str) else row for name, row in rows.items()}
    return {name: (name.split()[0], *row) for name, row in bodied.items()}


def _nodes(prefix: str, count: int, **members: str) -> dict[str, Any]:
    bodies = [node_manifests(f"{prefix}-{number}", **members) for number in range(count)]
    return {"kind": "List", "items": [part for body in bodies for part in body.values()]}


def _pods(prefix: str, count: int) -> dict[str, Any]:
    """Half of them look for a place."""
    items = []
    for number in range(count):
        pod = pod_manifest("100m", qos="LS", node="n1" if number % 2 else None)
        pod["metadata"].update(name=f"{prefix}-{number}", uid=f"uid-{prefix}-{number}")
        items.append(pod)
    return {"kind": "List", "items": items}


@contextmanager
def _scene(backend: str) -> Iterator[tuple[Scene, Counter]]:
    with database_url(backend) as url:
        database = Database(url)
        counter = Counter(database.engine)
        with application_of(database, binders=_BindsAnything()) as application:
            yield Scene(Client(application.test_client())), counter
        database.dispose()


def measured(backend: str) -> dict[str, int]:
    """Statements per route. Caches are warm: searches have run and labels are known."""
    with unhurried(), _scene(backend) as (scene, counter):
        scene.api.get("/allocation_candidates?resources=VCPU:1")
        found = {}
        for name, (method, path, body) in {**scene.calls(), **scene.extender()}.items():
            content = body()
            before = counter.count
            answer = scene.api.call(method, path, content)
            found[name] = counter.count - before
            assert answer.status_code < 300, (name, answer.text)
        return found


def recorded() -> dict[str, dict[str, int]]:
    """The counts in the file, by backend."""
    found: dict[str, dict[str, int]] = json.loads(RECORD.read_text())
    return found


def main() -> None:
    """Measure and write the file."""
    RECORD.write_text(json.dumps({backend: measured(backend) for backend in BACKENDS}, indent=2) + "\n")


if __name__ == "__main__":
    main()
