"""Deep, large and odd texts are refused before they cost anything; manifests hold what JSON holds."""

import json
from functools import partial

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.common import documents
from placement.common.documents import (
    DEEPEST,
    check_json,
    manifest_of_kind,
    node_manifests,
    nodes_manifests,
    parse_json,
    parse_yaml,
    pods_manifests,
)
from placement.engine.domain.errors import BadRequest
from tests.synchronizing import node_manifests as node_manifests_of

NODE, POD = {"kind": "Node", "metadata": {"name": "n"}}, {"kind": "Pod", "metadata": {"name": "p"}}
TOPOLOGY = {"kind": "NodeResourceTopology", "metadata": {"name": "n"}}


def nested(depth):
    return b"[" * depth + b"]" * depth


def test_json_may_be_nested_so_deep_and_no_deeper_but_brackets_in_texts_do_not_count():
    check_json(nested(DEEPEST))
    check_json(json.dumps(["[" * 1000, '"[' * 1000, "\\", "{" * 1000]).encode())
    for text in nested(DEEPEST + 1), b'["a", "\\"", ' + nested(DEEPEST) + b"]":
        with pytest.raises(BadRequest, match=f"deeper than {DEEPEST} levels"):
            check_json(text)


def test_many_values_need_a_large_text(monkeypatch):
    monkeypatch.setattr(documents, "_FREE_VALUES", 10)
    check_json(json.dumps([0] * 10).encode())
    check_json(json.dumps(["a text of twenty-four bytes"] * 50).encode())
    with pytest.raises(BadRequest, match="too many values"):
        check_json(json.dumps([0] * 50).encode())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"a: &x [1]\nb: *x", "aliases are not supported"),
        (nested(DEEPEST + 1), "nested deeper"),
        (b"%TAG ! x\n" * 101 + b"--- a", "directives"),
        (b"[1, 2, 3, 4, 5, 6]", "more than 5 values"),
        (b"a: [", "Malformed YAML"),
        (b"\xff", "Malformed YAML"),
    ],
)
def test_yaml_is_bounded_too(text, said):
    with pytest.raises(BadRequest, match=said):
        parse_yaml(text, most_values=5 if said.startswith("more") else None)


def test_yaml_is_read_as_kubernetes_reads_it():
    assert parse_yaml(b"a: 2024-05-06\n---\n---\nb: 1.5\nc: yes") == [
        {"a": "2024-05-06"},
        {"b": 1.5, "c": True},
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"kind: Pod\nspec: {a: .nan}", "Pod.spec.a: must be a finite number"),
        (b"kind: Pod\nspec: [{1: 2}]", r"Pod.spec\[0\]: every key must be text, not int"),
        (b"x: !!binary aGVsbG8=", "x: bytes is not a JSON value"),
        (b'{"a": [9223372036854775808]}', r"a\[0\]: the number does not fit into 64 bits"),
        (b'a: "x\\0y"', "a: contains a NUL character"),
    ],
)
def test_values_that_cannot_be_stored_are_refused_by_their_place(text, said):
    with pytest.raises(BadRequest, match=f"^{said}"):
        parse_yaml(text)


def test_json_is_one_document_of_what_can_be_stored():
    assert parse_json(b'{"a": 9223372036854775807}') == [{"a": 2**63 - 1}]
    for text in (b"{} {}", b"", b'{"a": 9223372036854775808}', b'["\\u0000"]'):
        with pytest.raises(BadRequest):
            parse_json(text)


spaces = st.sampled_from(["", " ", "\n\t "])
numbers = "1 -1 -0 0.5 1e5 1.5e+300 1e400 -1E400 9223372036854775807 9223372036854775808 -9223372036854775809"
words = r'"" "1e400" "9223372036854775808" "\u0000" "\\u0000" "a\u0000b" true null 18446744073709551616'
scalars = st.sampled_from([*numbers.split(), *words.split()])


def in_list(drawn):
    space, items = drawn
    return f"[{space}{f',{space}'.join(items)}{space}]"


def in_object(drawn):
    space, key, value = drawn
    return f"{{{space}{key}{space}:{space}{value}{space}}}"


keys = st.sampled_from(['"k"', '"\\u0000"'])
texts = st.recursive(
    scalars,
    lambda inner: (
        st.tuples(spaces, st.lists(inner, max_size=3)).map(in_list)
        | st.tuples(spaces, keys, inner).map(in_object)
    ),
    max_leaves=8,
)


@given(texts, spaces)
def test_what_cannot_be_stored_is_found_wherever_it_stands(text, around):
    """A text is only looked at value by value if it looks odd."""
    given_text = f"{around}{text}{around}".encode()

    def outcome(parse):
        try:
            return parse()
        except (BadRequest, ValueError) as error:
            return str(error).removeprefix("Malformed JSON: ")

    def looked_at():
        found = [orjson.loads(given_text)]
        documents._check_storable(found)
        return found

    assert outcome(lambda: parse_json(given_text)) == outcome(looked_at)


def test_a_usual_manifest_is_not_looked_at_value_by_value(monkeypatch):
    looked: list[object] = []
    monkeypatch.setattr(documents, "_check_storable", looked.append)
    usual = [
        *node_manifests_of("n"),
        {"uid": "4e123456-1e40-4e00-8e00-3e1111111111", "n": [1, -2, 0.5, "1e9"]},
    ]
    assert parse_json(json.dumps(usual).encode()) == [usual]
    assert looked == []
    parse_json(b'{"a": 9223372036854775807}')
    assert len(looked) == 1


def test_nodes_with_their_topologies_and_pods_are_found_in_whatever_they_come():
    both, other = (NODE, TOPOLOGY), {"kind": "Node", "metadata": {"name": "m"}}
    assert node_manifests([TOPOLOGY, NODE]) == both
    assert node_manifests([{"kind": "List", "items": [NODE, {"kind": "List", "items": [TOPOLOGY]}]}]) == both
    assert node_manifests([{"node": NODE, "nodeResourceTopology": TOPOLOGY}]) == both
    assert node_manifests([{"node": NODE}]) == (NODE, None)
    assert nodes_manifests([other, TOPOLOGY, NODE]) == {"m": (other, None), "n": both}
    assert manifest_of_kind("Pod", [{"kind": "List", "items": [POD]}]) == POD
    assert pods_manifests([POD, {"kind": "List", "items": [POD]}]) == [POD, POD]


@pytest.mark.parametrize(
    ("read", "given_documents", "said"),
    [
        (node_manifests, [TOPOLOGY], "the Node is missing"),
        (node_manifests, [NODE, NODE], "more than one Node"),
        (node_manifests, [NODE, POD], "expected Node or NodeResourceTopology, got 'Pod'"),
        (node_manifests, [NODE, 5], "expected a manifest, got int"),
        (nodes_manifests, [{"kind": "Node", "metadata": {}}], "a Node has none"),
        (partial(manifest_of_kind, "Pod"), [POD, POD], "expected one Pod, got 2"),
        (pods_manifests, [NODE], "expected Pod, got 'Node'"),
    ],
)
def test_what_is_not_asked_for_is_refused(read, given_documents, said):
    with pytest.raises(BadRequest, match=said):
        read(given_documents)
