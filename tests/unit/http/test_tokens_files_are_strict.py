"""A file of tokens says exactly who may come in, or it is refused with the number of the line."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from placement.http.auth import BadTokens, Tokens

ROOT = Path(__file__).resolve().parents[3]
SECRET = "an-example-of-a-token-that-is-long-enough"
HASH = hashlib.sha256(SECRET.encode()).hexdigest()
OTHER = "f" * 64


def tokens(directory: Path, text: str) -> Tokens:
    path = directory / "tokens.yaml"
    path.write_text(text)
    path.chmod(0o600)
    return Tokens(path)


def refusal(directory: Path, text: str) -> str:
    with pytest.raises(BadTokens) as refused:
        tokens(directory, text)
    said = str(refused.value)
    assert "tokens.yaml" in said
    assert SECRET not in said
    assert "\n" not in said
    return said


@pytest.mark.parametrize("key", [SECRET, f"sha256:{HASH}", f"sha256:{HASH.upper()}"])
def test_a_token_stands_for_its_owner(tmp_path: Path, key: str):
    text = f'"{key}":\n  user: u\n  project: p\n  roles: [Service, reader]\n  clusters: [edge, "1"]\n'
    caller = tokens(tmp_path, text).caller(SECRET)
    assert caller is not None
    assert (caller.user_id, caller.project_id) == ("u", "p")
    assert caller.roles == {"service", "reader"}
    assert caller.clusters == {"edge", "1"}


def test_what_is_left_out_is_not_made_up(tmp_path: Path):
    caller = tokens(tmp_path, f"{SECRET}: {{user: farm}}").caller(SECRET)
    assert caller is not None
    assert caller.project_id is None
    assert caller.roles == frozenset()
    assert caller.clusters is None


def test_bound_to_no_cluster_is_not_bound_to_none_in_particular(tmp_path: Path):
    caller = tokens(tmp_path, f"{SECRET}: {{user: u, clusters: []}}").caller(SECRET)
    assert caller is not None
    assert caller.clusters == frozenset()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (f"{SECRET}: {{user: u}}\nyes: {{user: v}}\n", 2),
        (f"{SECRET}: {{user: u}}\n\n12345678901234567890123456789012: {{user: v}}\n", 3),
        ("null: {user: u}\n", 1),
        ("[a]: {user: u}\n", 1),
        ("? {a: b}\n: {user: u}\n", 1),
        ('"": {user: u}\n', 1),
        ("x: {user: u}\n", 1),
        (f"{'x' * 31}: {{user: u}}\n", 1),
        (f'"{"x y" * 20}": {{user: u}}\n', 1),
        (f'"{"ü" * 40}": {{user: u}}\n', 1),
        ("sha256:short: {user: u}\n", 1),
        (f"sha256:{OTHER}0: {{user: u}}\n", 1),
        (f"sha256:{'g' * 64}: {{user: u}}\n", 1),
        (f"sha256:{hashlib.sha256(b'test').hexdigest()}: {{user: u}}\n", 1),
        (f"sha256:{hashlib.sha256(b'').hexdigest()}: {{user: u}}\n", 1),
        (f"{SECRET}: {{user: u}}\n{SECRET}: {{user: v}}\n", 2),
        (f"{SECRET}: {{user: u}}\nsha256:{HASH}: {{user: v}}\n", 2),
        (f"sha256:{HASH}: {{user: u}}\nsha256:{HASH.upper()}: {{user: v}}\n", 2),
        (f"{SECRET}: 5\n", 1),
        (f"{SECRET}:\n", 1),
        (f"{SECRET}: {{roles: [admin]}}\n", 1),
        (f"{SECRET}:\n  user: 5\n", 2),
        (f"{SECRET}:\n  user: yes\n", 2),
        (f'{SECRET}:\n  user: ""\n', 2),
        (f'{SECRET}:\n  user: "a b"\n', 2),
        (f'{SECRET}:\n  user: "a\\nb"\n', 2),
        (f"{SECRET}:\n  user: u\n  user: v\n", 3),
        (f"{SECRET}:\n  user: u\n  project: [p]\n", 3),
        (f"{SECRET}:\n  user: u\n  roles: admin\n", 3),
        (f"{SECRET}:\n  user: u\n  roles:\n  - admin\n  - no\n", 5),
        (f"{SECRET}:\n  user: u\n  clusters: edge\n", 3),
        (f"{SECRET}:\n  user: u\n  clusters:\n", 3),
        (f"{SECRET}:\n  user: u\n  clusters: [1]\n", 3),
        (f"{SECRET}:\n  user: u\n  role: [admin]\n", 3),
        (f"{SECRET}:\n  user: u\n  yes: no\n", 3),
        (f"{SECRET}:\n  <<: {{user: u}}\n", 2),
        ("- a\n", 1),
        ("text\n", 1),
        ("{}\n", 1),
        (f"{SECRET}: {{user: u}}\n{SECRET} x: [\n", 3),
        (f"{SECRET}: {{user: *nobody}}\n", 1),
    ],
)
def test_anything_else_is_refused_by_its_line(tmp_path: Path, text: str, line: int):
    assert f"line {line}:" in refusal(tmp_path, text)


@pytest.mark.parametrize(
    "text", ["", "# nothing\n", "- " * 5000, "\0", f"{SECRET}: {{user: u}}\n---\n{SECRET}: {{user: u}}\n"]
)
def test_what_is_no_file_of_tokens_is_refused(tmp_path: Path, text: str):
    refusal(tmp_path, text)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path):
    path = tmp_path / "tokens.yaml"
    path.write_bytes(b"\xff\xfe\xfa")
    path.chmod(0o600)
    with pytest.raises(BadTokens, match="UTF-8"):
        Tokens(path)


@pytest.mark.parametrize("name", ["etc/tokens.yaml.sample", "docs/operating.md"])
def test_examples_let_nobody_in(tmp_path: Path, name: str):
    """Copied as they are they are refused, and no hash of a token that somebody knows stands in them."""
    text = (ROOT / name).read_text()
    assert not re.search("[0-9a-fA-F]{64}", text)
    if name.endswith(".sample"):
        assert "64 hexadecimal digits" in refusal(tmp_path, text)


def test_the_sample_with_a_token_of_ones_own_works(tmp_path: Path):
    text = (ROOT / "etc/tokens.yaml.sample").read_text()
    text = text.replace("PUT-THE-64-DIGITS-OF-THE-SHA-256-OF-YOUR-OWN-TOKEN-HERE", HASH)
    caller = tokens(tmp_path, text).caller(SECRET)
    assert caller is not None
    assert caller.clusters == {"edge"}
