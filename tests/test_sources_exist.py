"""Every "Source:" in the code names a heading of docs/reference, or a source outside that is listed here.

The form is in docs/contributing.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs" / "reference"
FOLDERS = ("placement", "tests", "benchmarks", "migrations")

OUTSIDE = (
    "Kubernetes defaults of pods",
    'Kubernetes documentation, "Kubernetes Metrics Reference"',
    "Kubernetes nodeSelector, required node affinity, tolerations, host ports",
    "kube-scheduler, plugin NodePorts",
    'OWASP, "CSV Injection"',
    "the text protocol of memcached, `protocol.txt`",
    "RFC 6761, section 6.3",
    "RFC 6901",
    "RFC 7396",
    "RFC 9112, section 7.1",
    "RFC 9112, section 8",
    "RFC 9562, section 5.5",
    "flock(2)",
    'SQLite documentation, "Register A Callback To Handle SQLITE_BUSY Errors"',
    'PostgreSQL documentation, "COPY", "Binary Format"',
    'PostgreSQL documentation, "Array Value Input"',
    'PostgreSQL documentation, "Read Committed Isolation Level"',
    'Identity API v3, "Validate and show information for token"',
    "k8s.io/kube-scheduler, extender/v1",
    "kube-scheduler, pkg/scheduler/extender.go",
    'KEP-1287, "In-place Update of Pod Resources"',
    'KEP-2837, "Pod Level Resource Specifications"',
    "the scheduler configuration of Kubernetes 1.16 to 1.31",
    'Kubernetes documentation, "Kubernetes API Concepts"',
    "Kubernetes effective requests",
    "Kubernetes podAffinity, podAntiAffinity",
    "Kubernetes topologySpreadConstraints",
    "kube-scheduler, plugin DefaultPreemption",
    "kube-scheduler, plugin InterPodAffinity",
    "kube-scheduler, plugin PodTopologySpread",
    "Kubernetes nodeSelector, required node affinity",
    "Kubernetes nodeSelector, required node affinity, tolerations",
    "Kubernetes pod schema",
    "Kubernetes resource quantities",
    "kubelet's static CPU manager",
    "Martello and Toth, Lower bounds for the bin packing problem (L2)",
    "Fekete and Schepers, New classes of fast lower bounds for bin packing problems "
    "(dual feasible functions)",
)

# A source is the end of its paragraph in a docstring or comment.
_SOURCE = re.compile(r'(?<!class )\bSource(?: of [^:"]+)?:\s(.*?)(?="""|\n[ \t#]*\n|\Z)', re.DOTALL)
_DOCUMENT = re.compile(r'\b([\w-]+\.md)((?:, "[^"]+")+)')
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def headings() -> dict[str, set[str]]:
    """The headings of each document of docs/reference, by its file name."""
    return {path.name: set(_HEADING.findall(path.read_text())) for path in REFERENCE.glob("*.md")}


def unknown_sources(text: str, known: dict[str, set[str]]) -> Iterator[str]:
    """The sources in a module that lead nowhere, and mentions of headings that do not exist."""
    for match in _SOURCE.finditer(text):
        for source in _plain(match[1]).removesuffix(".").split("; "):
            if source not in OUTSIDE and not _DOCUMENT.fullmatch(source):
                yield source
    for document, titles in _DOCUMENT.findall(_plain(text)):
        for title in re.findall(r'"([^"]+)"', titles):
            if title not in known.get(document, ()):
                yield f'{document}, "{title}"'


def _plain(text: str) -> str:
    """The text on one line, without the signs of comments."""
    return re.sub(r"\s+(?:# )?", " ", text).strip()


def modules() -> list[Path]:
    """Every Python file but this one, whose sources are examples, and what others wrote."""
    found = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    return sorted(path for path in found if path != Path(__file__) and not _is_hidden(path))


def _is_hidden(path: Path) -> bool:
    """Whether it is in a folder that is hidden, as installed packages are."""
    return any(part.startswith(".") for part in path.relative_to(ROOT).parts)


def test_every_source_leads_somewhere() -> None:
    known = headings()
    wrong = [
        f"{path.relative_to(ROOT)}: {source}"
        for path in modules()
        for source in unknown_sources(path.read_text(), known)
    ]
    assert wrong == []


def test_sources_are_found_at_all() -> None:
    cited = {document for path in modules() for document, _ in _DOCUMENT.findall(_plain(path.read_text()))}
    assert cited == set(headings()), "a document of docs/reference that nothing cites, or the other way round"


@pytest.mark.parametrize(
    "text",
    [
        '"""What it is. Source: koordinator.md, "No such heading"."""',
        '"""What it is. Source: no-such-document.md, "Score"."""',
        '"""What it is.\n\n    Source: koordinator.md, "Score",\n    "No such heading".\n    """',
        '"""What it is (koordinator.md, "No such heading")."""',
        '"""What it is. Source: Koordinator semantics, score."""',
        '"""What it is. Source of the rules: Bin packing.\n"""',
        '"""What it is. Source: koordinator.md, "Score"; a letter to a friend."""',
        "# What it is. Source: RFC 1, section 2.\n",
    ],
)
def test_a_source_that_leads_nowhere_is_found(text: str) -> None:
    assert list(unknown_sources(text, headings()))


@pytest.mark.parametrize(
    "text",
    [
        '"""What it is. Source: koordinator.md, "Score", "Part B: spread"."""',
        '"""What it is.\n\n    Source: koordinator.md, "Score",\n "Filter"; RFC 9112, section 8.\n    """',
        '"""What it is (scoring.md, "RTCR")."""',
    ],
)
def test_a_source_that_exists_is_let_pass(text: str) -> None:
    assert not list(unknown_sources(text, headings()))
