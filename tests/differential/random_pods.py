"""Random small clusters and pods as Kubernetes takes them, made so that nodes both fit and refuse."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

HOSTNAME = "kubernetes.io/hostname"
NAMESPACE_NAME = "kubernetes.io/metadata.name"
NAMESPACES = {"default": {}, "other": {"team": "red"}, "third": {"team": "blue"}}
OVERHEADS = {"light": {"cpu": "100m", "memory": "64Mi"}, "heavy": {"cpu": "1", "example.com/gpu": "1"}}
NEVER_PREEMPTS = "waits"
"""The priority class of pods that wait. kube-scheduler nominates no node for them, so none counts others."""
# The first minor versions that have a field, and look at it in their default configuration.
_NAMESPACE_SELECTOR, _SPREAD_POLICIES, _SPREAD_KEYS = 24, 26, 27
_SIDECARS, _AFFINITY_KEYS, _POD_LEVEL = 29, 31, 34
# Later ones take only what can be the value of a label.
_ANY_BOUND = 33
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_MARK = "placement.test/mark"

_Amounts = dict[str, tuple[float, tuple[str, ...]]]
"""The chance that a resource is requested, and the amounts."""
_CPU = ("250m", "0.5", ".5", "5e-1", "1", "1.", "+1", "1000m", "1500m", "100n", "1E0", "2", "0", "0.0001")
_MEMORY = ("128Mi", "1Gi", "1.5Gi", "1e9", "1G", "129e6", "0.5Gi", "500k", "2048Mi", "100m", "1", "0", "3Gi")
_STORAGE = ("1Gi", "2Gi", "1G", "100Mi", "0", "3e9")
_PIECES = ("1", "2", "1e0", "1000m", "0", "3")
_PAGES = ("2Mi", "4Mi", "32Mi", "4194304", "0")
_BIG = ("1G", "3G", "5")
_REQUESTS = {
    "cpu": (0.6, _CPU),
    "memory": (0.5, _MEMORY),
    "ephemeral-storage": (0.2, _STORAGE),
    "example.com/gpu": (0.15, _PIECES),
    "example.com/big": (0.03, _BIG),
    "hugepages-2Mi": (0.12, _PAGES),
}
# Those of a pod as a whole must be as much as those of its containers.
_POD_LEVEL_REQUESTS = {
    "cpu": (0.6, ("2", "3", "2500m", "4", "6")),
    "memory": (0.5, ("3Gi", "4G", "5Gi", "4e9")),
    "hugepages-2Mi": (0.1, ("32Mi", "64Mi")),
}
# A limit of these is also the request.
_WITHOUT_OVERCOMMIT = ("example.com/gpu", "example.com/big", "hugepages-2Mi")
_ALLOCATABLE = {
    "cpu": ("4", "3500m", "2", "16", "8", "6", "4", "8", "0", None),
    "memory": ("8Gi", "4G", "1000000Ki", "7999999999", "2Gi", "500M", "16Gi", "12e9", None),
    "ephemeral-storage": ("10Gi", "5G", "2Gi", "20G", None),
    "hugepages-2Mi": ("64Mi", "8Mi", "128Mi", "0", None),
    "example.com/gpu": ("1", "2", "8", "4", None),
    "example.com/big": ("5G", "10", None),
    "pods": (*["110"] * 8, "5", "2", "0", None),
}
_TAINT_KEYS, _TAINT_VALUES = ("dedicated", "gpu"), ("", "a", "b")
_EFFECTS = ("NoSchedule", "NoSchedule", "PreferNoSchedule", "NoExecute")
_CORDON = "node.kubernetes.io/unschedulable"
_NODE_LABELS = {
    "zone": ("a", "b", "c", "a", None),
    "rack": ("1", "2", "", None),
    "disk": ("ssd", "hdd", "", None),
    "generation": ("5", "05", "12", "x", "9223372036854775808", None),
}
_POD_LABELS = {"app": ("web", "db", "cache"), "tier": ("a", "b", None), "version": ("1", "2", None)}
_TOPOLOGY_KEYS = ("zone", "zone", "rack", HOSTNAME, "generation")


@dataclass(frozen=True)
class RandomPod:
    """The manifest of a pod that waits for a node, and what it asks for."""

    manifest: dict[str, Any]
    features: tuple[str, ...]

    @property
    def name(self) -> str:
        """Its namespace and name."""
        metadata = self.manifest["metadata"]
        return f"{metadata['namespace']}/{metadata['name']}"


@dataclass(frozen=True)
class RandomCluster:
    """Nodes and running pods; `ended` and `leaving` are pods of these that are over or being deleted."""

    nodes: list[dict[str, Any]]
    running: list[dict[str, Any]]
    ended: set[str] = field(default_factory=set)
    leaving: set[str] = field(default_factory=set)


class Chances:
    """Random manifests of a cluster whose names begin with `prefix`, for a minor version of Kubernetes."""

    def __init__(self, seed: str, minor: int, prefix: str) -> None:
        self._random = random.Random(seed)
        self._minor = minor
        self._prefix = prefix

    def _perhaps(self, chance: float) -> bool:
        return self._random.random() < chance

    def _of(self, choices: Any) -> Any:
        return self._random.choice(choices)

    def _picked(self, choices: dict[str, Any]) -> dict[str, Any]:
        picked = {key: self._of(values) for key, values in choices.items()}
        return {key: value for key, value in picked.items() if value is not None}

    def cluster(self) -> RandomCluster:
        """Six to ten nodes, and pods that run there, some with a label that is theirs alone."""
        names = [f"{self._prefix}-n{number}" for number in range(self._random.randint(6, 10))]
        found = RandomCluster([self._node(name) for name in names], [])
        for number in range(self._random.randint(6, 18)):
            pod = self._pod(f"{self._prefix}-r{number}", running=True).manifest
            pod["spec"]["nodeName"] = self._of(names)
            found.running.append(pod)
            if self._perhaps(0.25):
                # A pod that is over may still be listed, one that is being deleted runs on.
                self._of((found.ended, found.leaving)).add(pod["metadata"]["name"])
        return found

    def _node(self, name: str) -> dict[str, Any]:
        labels = self._picked(_NODE_LABELS)
        if self._perhaps(0.9):
            labels[HOSTNAME] = name
        taints = {}
        for _ in range(self._of((0, 0, 0, 1, 2))):
            taint = (self._of(_TAINT_KEYS), self._of(_EFFECTS))
            taints[taint] = {"key": taint[0], "value": self._of(_TAINT_VALUES), "effect": taint[1]}
        spec: dict[str, Any] = {"taints": list(taints.values())}
        if self._perhaps(0.1):
            spec["unschedulable"] = True
            if self._perhaps(0.5):
                spec["taints"].append({"key": _CORDON, "effect": "NoSchedule"})
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "spec": spec,
            "status": {"allocatable": self._picked(_ALLOCATABLE)},
        }

    def pod(self, name: str) -> RandomPod:
        """A pod that waits for a node."""
        return self._pod(name, running=False)

    def _pod(self, name: str, *, running: bool) -> RandomPod:
        namespace = self._of(("default", "default", *NAMESPACES))
        metadata = {"name": name, "namespace": namespace, "labels": self._picked(_POD_LABELS)}
        spec: dict[str, Any] = {"containers": [self._container("main")]}
        features = []
        adding = {
            "container": self._add_container,
            "several containers": self._add_containers,
            "init container": self._add_init_containers,
            "overhead": self._add_overhead,
            "pod level": self._add_pod_level,
            "pod affinity": self._add_pod_affinity,
            "pod anti-affinity": self._add_pod_anti_affinity,
            "host port": self._add_host_port,
        }
        if not running:
            adding |= {
                "node selector": self._add_node_selector,
                "node affinity": self._add_node_affinity,
                "toleration": self._add_tolerations,
                "topology spread": self._add_spread,
                "several spreads": self._add_spreads,
            }
        for feature in self._random.sample(list(adding), self._of((0, 1, 1, 2, 2, 3, 4))):
            if adding[feature](spec, metadata):
                features.append(feature)
        if "toleration" not in features and self._perhaps(0.6):
            spec["tolerations"] = [{"operator": "Exists"}]
        if not running:
            spec["priorityClassName"] = NEVER_PREEMPTS
        manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        return RandomPod(manifest, tuple(features) or ("nothing",))

    def _container(self, name: str) -> dict[str, Any]:
        return {"name": name, "image": "example.org/none"}

    def _resources(self, amounts_of: _Amounts = _REQUESTS) -> dict[str, Any]:
        """Requests, limits, or both, of some resources."""
        requests, limits = {}, {}
        for name, (chance, amounts) in amounts_of.items():
            if not self._perhaps(chance):
                continue
            amount, how = self._of(amounts), self._of(("request", "limit", "both"))
            if how != "request" or name in _WITHOUT_OVERCOMMIT:
                limits[name] = amount
            if how != "limit":
                is_less = name not in _WITHOUT_OVERCOMMIT and "0" in amounts and self._perhaps(0.3)
                requests[name] = "0" if is_less else amount
        found = {"requests": requests, "limits": limits}
        if "hugepages-2Mi" in limits:
            # Kubernetes takes huge pages only beside one of these.
            requests.setdefault("cpu", limits.get("cpu", "100m"))
        return {key: amounts for key, amounts in found.items() if amounts}

    def _add_container(self, spec: dict[str, Any], _: Any) -> bool:
        spec["containers"][0]["resources"] = self._resources()
        return True

    def _add_containers(self, spec: dict[str, Any], _: Any) -> bool:
        for name in ("second", "third"):
            spec["containers"].append({**self._container(name), "resources": self._resources()})
        return True

    def _add_init_containers(self, spec: dict[str, Any], _: Any) -> bool:
        spec["initContainers"] = [
            {**self._container(f"init-{number}"), "resources": self._resources()}
            for number in range(self._random.randint(1, 3))
        ]
        for container in spec["initContainers"]:
            if self._minor >= _SIDECARS and self._perhaps(0.5):
                container["restartPolicy"] = "Always"
        return True

    def _add_overhead(self, spec: dict[str, Any], _: Any) -> bool:
        name = self._of(list(OVERHEADS))
        spec |= {"runtimeClassName": name, "overhead": dict(OVERHEADS[name])}
        return True

    def _add_pod_level(self, spec: dict[str, Any], _: Any) -> bool:
        if self._minor < _POD_LEVEL:
            return False
        spec["resources"] = self._resources(_POD_LEVEL_REQUESTS)
        return True

    def _add_node_selector(self, spec: dict[str, Any], _: Any) -> bool:
        key = self._of(("zone", "rack", "disk"))
        spec["nodeSelector"] = {key: self._of([value for value in _NODE_LABELS[key] if value is not None])}
        return True

    def _add_node_affinity(self, spec: dict[str, Any], _: Any) -> bool:
        terms = [self._node_term() for _ in range(self._random.randint(1, 3))]
        affinity = spec.setdefault("affinity", {})
        affinity["nodeAffinity"] = {_REQUIRED: {"nodeSelectorTerms": terms}}
        return True

    def _node_term(self) -> dict[str, Any]:
        term: dict[str, Any] = {}
        expressions = [self._node_expression() for _ in range(self._of((0, 1, 1, 1, 2)))]
        if expressions:
            term["matchExpressions"] = expressions
        if self._perhaps(0.15):
            name = f"{self._prefix}-n{self._random.randint(0, 7)}"
            term["matchFields"] = [
                {"key": "metadata.name", "operator": self._of(("In", "NotIn")), "values": [name]}
            ]
        return term

    def _node_expression(self) -> dict[str, Any]:
        operator = self._of(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
        if operator in ("Gt", "Lt"):
            odd = ("+4", "-1") if self._minor < _ANY_BOUND else ()
            bound = self._of((*odd, "5", "4", "011", "9223372036854775807", "many", "12"))
            return {"key": "generation", "operator": operator, "values": [bound]}
        key = self._of(list(_NODE_LABELS))
        if operator in ("Exists", "DoesNotExist"):
            return {"key": key, "operator": operator}
        known = [value for value in _NODE_LABELS[key] if value is not None]
        return {
            "key": key,
            "operator": operator,
            "values": [self._of(known) for _ in range(self._of((1, 2)))],
        }

    def _add_tolerations(self, spec: dict[str, Any], _: Any) -> bool:
        spec["tolerations"] = [self._toleration() for _ in range(self._random.randint(1, 3))]
        return True

    def _toleration(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self._perhaps(0.5):
            found["effect"] = self._of(_EFFECTS)
        if found.get("effect") == "NoExecute" and self._perhaps(0.3):
            found["tolerationSeconds"] = 60
        operator = self._of((None, "Equal", "Exists", "Exists"))
        if operator is not None:
            found["operator"] = operator
        if operator != "Exists" or self._perhaps(0.6):
            found["key"] = self._of((*_TAINT_KEYS, *_TAINT_KEYS, _CORDON))
        if operator != "Exists":
            found["value"] = self._of(_TAINT_VALUES)
        return found

    def _add_pod_affinity(self, spec: dict[str, Any], metadata: dict[str, Any]) -> bool:
        self._add_pod_terms(spec, metadata, "podAffinity")
        return True

    def _add_pod_anti_affinity(self, spec: dict[str, Any], metadata: dict[str, Any]) -> bool:
        self._add_pod_terms(spec, metadata, "podAntiAffinity")
        return True

    def _add_pod_terms(self, spec: dict[str, Any], metadata: dict[str, Any], side: str) -> None:
        terms = [self._pod_term(metadata) for _ in range(self._of((1, 1, 2)))]
        spec.setdefault("affinity", {})[side] = {_REQUIRED: terms}

    def _pod_term(self, metadata: dict[str, Any]) -> dict[str, Any]:
        term: dict[str, Any] = {"topologyKey": self._of(_TOPOLOGY_KEYS)}
        if self._perhaps(0.95):
            term["labelSelector"] = self._label_selector(metadata)
        if self._perhaps(0.25):
            term["namespaces"] = [self._of(list(NAMESPACES)) for _ in range(self._of((1, 1, 2)))]
        if self._minor >= _NAMESPACE_SELECTOR and self._perhaps(0.25):
            term["namespaceSelector"] = self._namespace_selector()
        if self._minor >= _AFFINITY_KEYS and "labelSelector" in term:
            selected = {*term["labelSelector"].get("matchLabels", {})}
            selected |= {each["key"] for each in term["labelSelector"].get("matchExpressions", [])}
            free = [key for key in _POD_LABELS if key not in selected]
            for name in ("matchLabelKeys", "mismatchLabelKeys"):
                if free and self._perhaps(0.15):
                    term[name] = [free.pop()]
        return term

    def _namespace_selector(self) -> dict[str, Any]:
        if self._perhaps(0.4):
            return {}
        if self._perhaps(0.15):
            return {"matchLabels": {"team": self._of(("red", "blue"))}}
        operator, names = self._of(("In", "NotIn")), [self._of(list(NAMESPACES))]
        return {"matchExpressions": [{"key": NAMESPACE_NAME, "operator": operator, "values": names}]}

    def _label_selector(self, metadata: dict[str, Any]) -> dict[str, Any]:
        if self._perhaps(0.1):
            return {}
        if self._perhaps(0.3):
            # Its own label: rules about replicas are like that.
            return {"matchLabels": {"app": metadata["labels"]["app"]}}
        key = self._of(list(_POD_LABELS))
        values = [value for value in _POD_LABELS[key] if value is not None]
        if self._perhaps(0.5):
            return {"matchLabels": {key: self._of(values)}}
        operator = self._of(("In", "NotIn", "Exists", "DoesNotExist"))
        expression = {"key": key, "operator": operator}
        if operator in ("In", "NotIn"):
            expression["values"] = self._random.sample(values, self._of((1, 2)))
        return {"matchExpressions": [expression]}

    def _add_spread(self, spec: dict[str, Any], metadata: dict[str, Any]) -> bool:
        spec.setdefault("topologySpreadConstraints", [self._constraint(self._of(_TOPOLOGY_KEYS), metadata)])
        return True

    def _add_spreads(self, spec: dict[str, Any], metadata: dict[str, Any]) -> bool:
        keys = self._random.sample(("zone", "rack", HOSTNAME), 2)
        spec["topologySpreadConstraints"] = [self._constraint(key, metadata) for key in keys]
        return True

    def _constraint(self, key: str, metadata: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {
            "topologyKey": key,
            "maxSkew": self._of((1, 1, 2, 3)),
            "whenUnsatisfiable": "DoNotSchedule",
        }
        if self._perhaps(0.95):
            found["labelSelector"] = self._label_selector(metadata)
        if self._minor >= _SPREAD_POLICIES:
            found |= self._picked(
                {
                    "minDomains": (None, None, 1, 2, 3, 5),
                    "nodeAffinityPolicy": (None, "Honor", "Ignore"),
                    "nodeTaintsPolicy": (None, "Honor", "Ignore"),
                }
            )
        if self._minor >= _SPREAD_KEYS and "labelSelector" in found and self._perhaps(0.25):
            selected = str(found["labelSelector"])
            free = [key for key in _POD_LABELS if f"'{key}'" not in selected]
            found["matchLabelKeys"] = [self._of(free)]
        return found

    def _add_host_port(self, spec: dict[str, Any], _: Any) -> bool:
        port = self._of((8080, 8081))
        found = {"containerPort": port, "hostPort": port, "protocol": self._of(("TCP", "TCP", "UDP"))}
        spec["containers"][0]["ports"] = [found]
        return True


def marker(prefix: str) -> Iterator[dict[str, Any]]:
    """Yield a node and a pod on it, which are created last; only `probe` tolerates the node."""
    name = f"{prefix}-last"
    yield {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {HOSTNAME: name}},
        "spec": {"taints": [{"key": _MARK, "effect": "NoSchedule"}]},
        "status": {"allocatable": {"pods": "2"}},
    }
    yield _marked(name, name, {"nodeName": name})


def probe(prefix: str, number: int) -> dict[str, Any]:
    """Return a pod that fits once the scheduler has seen the marker, and so all that was created before."""
    term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {_MARK: f"{prefix}-last"}}}
    members = {
        "priorityClassName": NEVER_PREEMPTS,
        "tolerations": [{"key": _MARK, "operator": "Exists"}],
        "affinity": {"podAffinity": {_REQUIRED: [term]}},
    }
    return _marked(f"{prefix}-probe{number}", f"{prefix}-probe", members)


def _marked(name: str, mark: str, members: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {_MARK: mark}},
        "spec": {"containers": [{"name": "main", "image": "example.org/none"}], **members},
    }
