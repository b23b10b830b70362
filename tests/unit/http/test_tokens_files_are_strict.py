"""A file of tokens says exactly who may come in, or it is refused with the number of the line."""

import hashlib
import re
from pathlib import Path

import pytest

from placement.http.strategies.tokens import BadTokens, Tokens

ROOT = Path(__file__).resolve().parents[3]
SECRET = "an-example-of-a-token-that-is-long-enough"
HASH = hashlib.sha256(SECRET.encode()).hexdigest()
OTHER = "f" * 64


def tokens(directory: Path, text: str | bytes) -> Tokens:
    path = directory / "tokens.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(0o600)
    return Tokens(path)


def refusal(directory: Path, text: str | bytes) -> str:
    with pytest.raises(BadTokens) as refused:
        tokens(directory, text)
    said = str(refused.value)
    assert "tokens.yaml" in said
    assert SECRET not in said
    assert "\n" not in said
    return said


@pytest.mark.parametrize("key", [SECRET, f"sha256:{HASH}", f"sha256:{HASH.upper()}"])
def test_a_token_stands_for_its_owner_and_what_is_left_out_is_not_made_up(tmp_path: Path, key: str):
    everything = '{user: u, project: p, roles: [Service, reader], clusters: [edge, "1"]}'
    for entry, known in (
        (everything, ("u", "p", {"service", "reader"}, {"edge", "1"})),
        ("{user: farm}", ("farm", None, set(), None)),
        # Bound to no cluster is not bound to none in particular.
        ("{user: u, clusters: []}", ("u", None, set(), set())),
    ):
        caller = tokens(tmp_path, f'"{key}": {entry}').caller(SECRET)
        assert caller is not None
        assert (caller.user_id, caller.project_id, caller.roles, caller.clusters) == known


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
    assert "UTF-8" in refusal(tmp_path, b"\xff\xfe\xfa")


def test_examples_let_none_in_until_a_token_of_ones_own_is_there(tmp_path: Path):
    """Copied as they are they are refused, and no hash of a token that is known stands in them."""
    sample, guide = ((ROOT / name).read_text() for name in ("etc/tokens.yaml.sample", "docs/operating.md"))
    assert not re.search("[0-9a-fA-F]{64}", sample + guide)
    assert "64 hexadecimal digits" in refusal(tmp_path, sample)
    own = sample.replace("PUT-THE-64-DIGITS-OF-THE-SHA-256-OF-YOUR-OWN-TOKEN-HERE", HASH)
    caller = tokens(tmp_path, own).caller(SECRET)
    assert caller is not None
    assert caller.clusters == {"edge"}
