"""Forms, guides, decisions, releases and the commits that blame passes over are there, and hold."""

from __future__ import annotations

import re
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
GITHUB = ROOT / ".github"
FORMS = sorted(path for path in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")
DECISIONS = sorted(path for path in (ROOT / "docs" / "decisions").glob("*.md") if path.name != "index.md")
# What a repository that is published has to replace, each where contributing.md says so.
PLACEHOLDERS = re.compile(r"OWNER/REPOSITORY|conduct@example\.org")
_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)


def git(*arguments: str) -> str | None:
    """What git prints; None if it fails, as in an unpacked archive."""
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
    return None if done.returncode else done.stdout.strip()


@pytest.mark.parametrize(
    "path",
    [*GITHUB.rglob("*.y*ml"), ROOT / ".pre-commit-config.yaml"],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_settings_are_mappings_in_yaml(path: Path):
    assert isinstance(yaml.safe_load(path.read_text()), dict)


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_forms_of_issues_are_forms(path: Path):
    """GitHub shows no form with a field that it does not know, or two fields of one id."""
    form: dict[str, Any] = yaml.safe_load(path.read_text())
    assert form.keys() == {"name", "description", "labels", "body"}
    fields = [each for each in form["body"] if each["type"] != "markdown"]
    assert {each["type"] for each in fields} <= {"checkboxes", "dropdown", "input", "textarea"}
    assert all(each["attributes"]["label"] for each in fields)
    ids = [each["id"] for each in fields]
    assert len(set(ids)) == len(ids) > 0
    assert "SECURITY.md" in form["body"][0]["attributes"]["value"]


def test_there_is_a_form_for_faults_and_one_for_wishes():
    assert [path.stem for path in FORMS] == ["bug", "feature"]
    chooser = yaml.safe_load((GITHUB / "ISSUE_TEMPLATE" / "config.yml").read_text())
    assert chooser["blank_issues_enabled"] is False
    assert [each["url"].endswith("/security/policy") for each in chooser["contact_links"]] == [True]


def test_what_is_to_be_replaced_is_listed():
    listed = (ROOT / "docs" / "contributing.md").read_text()
    places = [*ROOT.glob("*.md"), *(path for path in GITHUB.rglob("*") if path.is_file())]
    found = {path: PLACEHOLDERS.findall(path.read_text()) for path in places}
    assert {path.name for path, words in found.items() if words} == {"CODE_OF_CONDUCT.md", "config.yml"}
    assert {word for words in found.values() for word in words} <= set(PLACEHOLDERS.findall(listed))


def test_dependencies_and_actions_are_watched():
    updates = yaml.safe_load((GITHUB / "dependabot.yml").read_text())["updates"]
    assert {each["package-ecosystem"] for each in updates} == {"pip", "github-actions"}


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.stem)
def test_decisions_are_short_and_have_one_shape(path: Path):
    text = path.read_text()
    assert _HEADING.findall(text) == ["Context", "Decision", "What it costs", "What would change our mind"]
    assert 150 <= len(re.findall(r"\w\S*", text)) <= 350


def test_every_decision_is_in_their_index():
    links = re.findall(r"\]\(([\w-]+\.md)\)", (ROOT / "docs" / "decisions" / "index.md").read_text())
    assert sorted(links) == [path.name for path in DECISIONS]


def test_commits_to_pass_over_are_in_the_history():
    lines = (ROOT / ".git-blame-ignore-revs").read_text().splitlines()
    hashes = [line for line in lines if line and not line.startswith("#")]
    assert hashes
    assert [each for each in hashes if not re.fullmatch(r"[0-9a-f]{40}", each)] == []
    # Each has its reason in the line before.
    assert [line for before, line in pairwise(["", *lines]) if line in hashes and before[:2] != "# "] == []
    if git("rev-parse", "--is-shallow-repository") == "false":
        assert [each for each in hashes if git("merge-base", "--is-ancestor", each, "HEAD") is None] == []


def test_changes_are_listed_by_release():
    """A release has its day, and a tag has its release; what came before the first one has neither."""
    text = (ROOT / "CHANGELOG.md").read_text()
    unreleased, *headings, before = _HEADING.findall(text)
    assert (unreleased, before) == ("Unreleased", "0.1.0, not released")
    releases = {version: day for version, _, day in (heading.partition(" - ") for heading in headings)}
    assert [each for each in releases if not re.fullmatch(r"\d+\.\d+\.\d+", each)] == []
    days = list(releases.values())
    assert [each for each in days if not re.fullmatch(r"\d{4}-\d\d-\d\d", each)] == []
    assert days == sorted(days, reverse=True)
    kinds = set(re.findall(r"^### (.+)$", text, re.MULTILINE))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    if git("rev-parse", "--is-shallow-repository") == "false":
        assert set((git("tag", "--list", "v[0-9]*") or "").split()) <= {f"v{each}" for each in releases}


def test_the_guide_names_the_module_that_lists_the_commands():
    guide = (ROOT / "docs" / "contributing.md").read_text()
    (row,) = re.findall(r"^\| a command \| .*$", guide, re.MULTILINE)
    (path,) = re.findall(r"its name in `([\w/]+\.py)`", row)
    assert "client.commands.status:ShowStatus" in (ROOT / "placement" / path).read_text()


def test_files_are_as_the_editor_is_asked_to_leave_them():
    """`.editorconfig` says so of all files that end in these; pictures are as their programs write them."""
    wanted = (ROOT / ".editorconfig").read_text()
    for setting in ("charset = utf-8", "end_of_line = lf", "insert_final_newline = true"):
        assert setting in wanted
    folders = ("placement", "tests", "docs", "etc", "benchmarks", "migrations", "constraints", ".github")
    texts = [
        path
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".py", ".yaml", ".yml", ".md", ".html", ".css", ".js"}
        and ".incumbent" not in path.parts
    ]
    assert len(texts) > 500
    wrong = [path for path in texts if b"\r" in (text := path.read_bytes()) or (text and text[-1:] != b"\n")]
    assert wrong == []
