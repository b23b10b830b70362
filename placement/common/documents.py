"""Documents as text: JSON or YAML, one or several, of limited depth and size."""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Any, NamedTuple

import orjson
import yaml

from placement.common.gang import POD_GROUP
from placement.common.manifest import shown
from placement.common.pod_groups import POD_GROUP_KINDS, PodGroupKind, pod_group_kind, with_pod_groups
from placement.engine.domain.errors import BODY, BadRequest, RequestPlace

DEEPEST = 100
# One Pod or Node has some hundred values.
MOST_MANIFEST_BYTES = 2**20
MOST_MANIFEST_VALUES = 50_000
# A form of the web pages holds one manifest at most, and no page has more than 30 fields.
MOST_FORM_BYTES, MOST_FORM_FIELDS = 2**20, 100
# The factor by which manifests of many objects may be larger.
MOST_MANIFESTS = 16
# Python needs hundreds of bytes for a value that takes two in the text; real documents have longer values.
_FREE_VALUES, _BYTES_PER_VALUE = 100_000, 24
# An unterminated string reaches to the end: such a document is malformed anyway.
_TEXT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
# The parser compares each of these with all earlier ones.
_TAG_DIRECTIVE, _MOST_TAG_DIRECTIVES = "%TAG", 100


def check_json(text: bytes) -> None:
    """Raise BadRequest if the text is nested too deep or has too many values for its size."""
    opened = text.count(b"[") + text.count(b"{")
    if opened + text.count(b",") > _FREE_VALUES + len(text) // _BYTES_PER_VALUE:
        raise BadRequest("Malformed JSON: too many values")
    if opened > DEEPEST:
        brackets = _TEXT.sub(b"", text).translate(None, _NO_BRACKETS)
        if max(accumulate(map(_STEPS.__getitem__, brackets)), default=0) > DEEPEST:
            raise BadRequest(f"Malformed JSON: nested deeper than {DEEPEST} levels")


def check_yaml(text: str, loader: type, most_values: int | None) -> None:
    """Raise BadRequest for nesting that is too deep, too many values, and aliases; or YAMLError.

    The events of the parser are read one by one, without recursion; building values from them recurses.
    """
    if text.count(_TAG_DIRECTIVE) > _MOST_TAG_DIRECTIVES:
        raise BadRequest(f"Malformed YAML: more than {_MOST_TAG_DIRECTIVES} directives")
    depth = values = 0
    for event in yaml.parse(text, Loader=loader):
        if isinstance(event, yaml.AliasEvent):
            # Aliases could expand a small text to any size.
            raise BadRequest("Malformed YAML: aliases are not supported")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if isinstance(event, yaml.NodeEvent):
            values += 1
        if depth > DEEPEST:
            raise BadRequest(f"Malformed YAML: nested deeper than {DEEPEST} levels")
        if most_values is not None and values > most_values:
            raise BadRequest(f"Malformed YAML: more than {most_values} values")


_LONGEST_NUMBER = 100
# A prefix of 253 characters, a slash and a name of 63.
_LONGEST_KEY = 317
# A number beyond 64 bits has at least this many digits.
_LONG_NUMBER = re.compile(rb"[0-9]{19}")
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]{1,63}")


class _OddKey:
    """A stand-in for a key other than a text: any number of such keys could have equal hashes."""

    def __init__(self, key: object) -> None:
        self.kind = type(key).__name__


class _Loader(yaml.CSafeLoader):
    """A loader that reads YAML as Kubernetes does: dates stay text."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """Return the mapping, with odd keys in place of keys other than texts. Raises YAMLError."""
        if not isinstance(node, yaml.MappingNode):
            return super().construct_mapping(node, deep)
        self.flatten_mapping(node)
        mapping = {}
        for key_node, value_node in node.value:
            key = self.construct_object(key_node, deep=deep)
            if not isinstance(key, Hashable):
                raise yaml.constructor.ConstructorError(None, None, "unhashable key", key_node.start_mark)
            key = key if isinstance(key, str) else _OddKey(key)
            mapping[key] = self.construct_object(value_node, deep=deep)
        return mapping


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


def _text(loader: _Loader, node: yaml.ScalarNode) -> Any:
    return loader.construct_scalar(node)


def _number(loader: _Loader, node: yaml.ScalarNode) -> Any:
    # The time to read base-60 numbers grows with the square of their length.
    if len(loader.construct_scalar(node)) > _LONGEST_NUMBER:
        raise ValueError("a number is too long; put it in quotes if it is text")
    kind = node.tag.rpartition(":")[2]
    return loader.construct_yaml_int(node) if kind == "int" else loader.construct_yaml_float(node)


_Loader.add_constructor("tag:yaml.org,2002:timestamp", _text)
_Loader.add_constructor("tag:yaml.org,2002:int", _number)
_Loader.add_constructor("tag:yaml.org,2002:float", _number)


def parse_json(text: bytes) -> list[Any]:
    """Return the document of a JSON text, as a list of one. Raises BadRequest."""
    check_json(text)
    try:
        document = orjson.loads(text)
    except ValueError as error:
        raise BadRequest(f"Malformed JSON: {error}") from None
    # Nothing else in JSON can be odd, as the parser accepts finite numbers only.
    if rb"\u0000" in text or _LONG_NUMBER.search(text):
        _check_storable([document])
    return [document]


def parse_yaml(text: bytes, most_values: int | None = None) -> list[Any]:
    """Return all documents of a YAML text, of at most `most_values` values. Raises BadRequest."""
    try:
        decoded = text.decode()
        check_yaml(decoded, _Loader, most_values)
        documents = list(yaml.load_all(decoded, Loader=_Loader))
    except (yaml.YAMLError, ValueError, LookupError) as error:
        reason = " ".join(str(error).split()).replace('in "<unicode string>", ', "in ")
        raise BadRequest(f"Malformed YAML: {reason}") from None
    _check_storable(documents)
    return [document for document in documents if document is not None]


def _check_storable(documents: list[Any]) -> None:
    """Raise BadRequest naming the field that JSON or a database could not store.

    YAML has kinds of values that JSON lacks, and other keys than texts. Some databases cannot store NUL
    characters, numbers beyond 64 bits, infinity or NaN.
    """
    waiting: list[tuple[Any, _ValuePlace]] = [
        (document, _ValuePlace(_kind(document), None)) for document in documents
    ]
    while waiting:
        value, place = waiting.pop()
        wrong = _what_is_wrong(value)
        if wrong is not None:
            raise BadRequest(wrong, place=_request_place(place))
        if isinstance(value, dict):
            waiting.extend((member, _ValuePlace(key, place)) for key, member in value.items())
        elif isinstance(value, list):
            waiting.extend((member, _ValuePlace(number, place)) for number, member in enumerate(value))


class _ValuePlace(NamedTuple):
    """The place of a value; written out only for errors, because there are many values."""

    key: str | int
    inner_place: _ValuePlace | None


def _request_place(place: _ValuePlace | None) -> RequestPlace:
    keys: list[str | int] = []
    while place is not None:
        keys.append(place.key)
        place = place.inner_place
    kind, *members = reversed(keys)
    request_place = RequestPlace(str(kind))
    for key in members:
        request_place /= key if isinstance(key, int) else key[:_LONGEST_KEY]
    is_cut = any(isinstance(key, str) and len(key) > _LONGEST_KEY for key in members)
    return RequestPlace(request_place.text or "the manifest", "" if is_cut else request_place.field)


def _what_is_wrong(value: Any) -> str | None:
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, str):
        return "contains a NUL character" if "\0" in value else None
    if isinstance(value, int):
        return None if -(2**63) <= value < 2**63 else "the number does not fit into 64 bits"
    if isinstance(value, float):
        return None if math.isfinite(value) else f"must be a finite number, not {value}"
    if not isinstance(value, (dict, list)):
        return f"{type(value).__name__} is not a JSON value; put it in quotes if it is text"
    for key in value if isinstance(value, dict) else ():
        if isinstance(key, _OddKey):
            return f"every key must be text, not {key.kind}; put it in quotes"
        if "\0" in key:
            return "a key contains a NUL character"
    return None


def _kind(document: Any) -> str:
    kind = document.get("kind") if isinstance(document, dict) else None
    return kind if isinstance(kind, str) and _PLAIN_KEY.fullmatch(kind) else ""


# Kubernetes manifests among documents: which of them describe a node, a pod or a reservation.

RESERVATION_API_VERSION = "scheduling.koordinator.sh/v1alpha1"
# Koordinator writes the first, Node Feature Discovery and others the second.
TOPOLOGY_API_VERSIONS = ("topology.node.k8s.io/v1alpha1", "topology.node.k8s.io/v1alpha2")
_TOPOLOGY = "NodeResourceTopology"


class NodeManifests(NamedTuple):
    """The manifests that describe one node."""

    node: Mapping[str, Any]
    topology: Mapping[str, Any] | None


def node_manifests(documents: list[Any]) -> NodeManifests:
    """Return the Node and the NodeResourceTopology among the documents, List objects opened.

    Also takes one object {"node": ..., "nodeResourceTopology": ...}. Raises BadRequest.
    """
    return _paired(_flattened(documents))


def nodes_manifests(documents: list[Any]) -> dict[str, NodeManifests]:
    """Return the manifests of any number of nodes by name, in order of appearance. Raises BadRequest."""
    by_name: dict[str, list[Mapping[str, Any]]] = {}
    for manifest in _flattened(documents):
        metadata = manifest.get("metadata")
        name = metadata.get("name") if isinstance(metadata, Mapping) else None
        if not isinstance(name, str):
            kind = manifest.get("kind")
            what = f"a {kind}" if isinstance(kind, str) else "a document without a kind"
            raise BadRequest(f"{what} has none", place=BODY / "metadata" / "name")
        by_name.setdefault(name, []).append(manifest)
    if not by_name:
        raise BadRequest("the Node is missing", place=BODY / "kind")
    return {name: _paired(manifests) for name, manifests in by_name.items()}


def pods_manifests(documents: list[Any]) -> list[Mapping[str, Any]]:
    """Return any number of Pods, List objects opened, with what PodGroups among them say of their gangs.

    Raises BadRequest for anything else.
    """
    found = list(_flattened(documents))
    groups = [
        (_kind_of_pod_group(manifest), manifest) for manifest in found if manifest.get("kind") == POD_GROUP
    ]
    others = [manifest for manifest in found if manifest.get("kind") != POD_GROUP]
    return with_pod_groups(manifests_of_kind("Pod", others), groups)


def _kind_of_pod_group(manifest: Mapping[str, Any]) -> PodGroupKind:
    kind = pod_group_kind(manifest)
    if kind is None:
        known = ", ".join(each.api_group for each in POD_GROUP_KINDS)
        given = shown(manifest.get("apiVersion"))
        raise BadRequest(f"expected a {POD_GROUP} of {known}, got {given}", place=BODY / "apiVersion")
    return kind


def manifest_of_kind(kind: str, documents: list[Any]) -> Mapping[str, Any]:
    """Return the one manifest among the documents, which is of that kind. Raises BadRequest."""
    found = manifests_of_kind(kind, documents)
    if len(found) != 1:
        raise BadRequest(f"expected one {kind}, got {len(found)} manifests")
    return found[0]


def manifests_of_kind(kind: str, documents: list[Any]) -> list[Mapping[str, Any]]:
    """Return any number of manifests of one kind, List objects opened. Raises BadRequest for others."""
    found = list(_flattened(documents))
    for manifest in found:
        if manifest.get("kind") != kind:
            given = f", got {manifest['kind']!r}" if "kind" in manifest else "; it is missing"
            raise BadRequest(f"expected {kind}{given}", place=BODY / "kind")
    return found


def _paired(manifests: Iterable[Mapping[str, Any]]) -> NodeManifests:
    found: dict[str, Mapping[str, Any]] = {}
    for manifest in manifests:
        kind = manifest.get("kind")
        if kind not in ("Node", _TOPOLOGY):
            raise BadRequest(f"expected Node or {_TOPOLOGY}, got {kind!r}", place=BODY / "kind")
        if kind in found:
            raise BadRequest(f"more than one {kind}", place=BODY / "kind")
        found[kind] = manifest
    if "Node" not in found:
        raise BadRequest("the Node is missing", place=BODY / "kind")
    return NodeManifests(found["Node"], found.get(_TOPOLOGY))


def _flattened(documents: list[Any]) -> Iterator[Mapping[str, Any]]:
    for document in documents:
        if not isinstance(document, Mapping):
            raise BadRequest(f"expected a manifest, got {type(document).__name__}")
        if document.get("kind") == "List" and isinstance(document.get("items"), list):
            yield from _flattened(document["items"])
        elif "kind" not in document and "node" in document:
            parts = [document["node"], document.get("nodeResourceTopology")]
            yield from _flattened([part for part in parts if part is not None])
        else:
            yield document
