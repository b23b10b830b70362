"""Classes, members, modules and errors that docstrings, comments and documents name are in the sources."""

from __future__ import annotations

import ast
import builtins
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "placement"
SOURCES = [
    path
    for folder in ("placement", "tests", "benchmarks", "migrations", "constraints")
    for path in sorted((ROOT / folder).rglob("*.py"))
]
# The reference has the words of its sources, the list of changes the names of their time.
DOCUMENTS = [
    *sorted(path for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "reference"),
    *sorted((ROOT / "placement").rglob("*.md")),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
]
# Names of Kubernetes, kube-scheduler and browsers that no source has.
OF_OTHERS = {
    *("DaemonSets", "NodeResourceTopologies", "StatefulSets", "EventSource"),
    *("ExtenderFilterResult", "ExtenderPreemptionArgs", "ExtenderPreemptionResult"),
    *("ExtenderBindingArgs", "ExtenderBindingResult", "HostPriorityList", "MicroTime", "PodGroups"),
    *("NodePorts", "DeleteOptions", "ObjectReference", "OutOfcpu", "ElasticQuota", "DeviceShare"),
    "MutatingAdmissionPolicy",
}
ERRORS_OF_OTHERS = {
    *("ArgumentTypeError", "ClientException", "HaltServer", "HTTPException", "SSLError", "YAMLError"),
}
# Objects of Kubernetes with members, such as Pod.spec.
KINDS = {"Pod", "Node", "Reservation"}

_CAMEL = re.compile(r"\b_?[A-Z][a-z]+(?:[A-Z][a-z]+)+\b")
_MEMBER = re.compile(r"\b(_?[A-Z]\w*[a-z])\.([a-z_]\w+)\b")
_MODULE = re.compile(r"(?<![\w./*{}<-])[\w./-]+\.py\b")
# A module of ours by its dotted name, with what it has: `storage.tables`, `pods.store.rows.FORMAT`.
_DOTTED = re.compile(r"(?<![\w./@:\"'-])((?:placement\.)?[a-z_]+(?:\.[a-z_]+)+)(\.[A-Z]\w+)?(?![\w/(-])")
_RAISES = re.compile(r"\bRaises ((?:[A-Z]\w+(?:, and |, | and )?)+)")
_CODE_BLOCK = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)


def prose(source: str, tree: ast.AST) -> Iterator[str]:
    """The docstrings and comments of a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def words(source: str, tree: ast.AST) -> Iterator[str]:
    """The words of a module outside its docstrings and the comments at the start of a line."""
    lines = source.splitlines()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            for at in range(node.lineno - 1, node.end_lineno or node.lineno):
                lines[at] = ""
    for line in lines:
        if not line.lstrip().startswith("#"):
            yield from re.findall(r"\w+", line)


def unknown(text: str, names: set[str], classes: set[str]) -> list[str]:
    """The names in a text that are nowhere."""
    camel = [word for word in _CAMEL.findall(text) if word not in names and word not in OF_OTHERS]
    members = [
        f"{owner}.{member}"
        for owner, member in _MEMBER.findall(text)
        if owner not in KINDS and (owner not in classes or member not in names)
    ]
    modules = [path for path in _MODULE.findall(text) if not _is_module(path)]
    return [*camel, *members, *modules]


def unknown_of_code(text: str, classes: set[str]) -> list[str]:
    """The dotted modules and the errors in a docstring or comment that are nowhere."""
    dotted = [
        path + name
        for path, name in _DOTTED.findall(text)
        if _is_of_ours(path) and not _is_in_sources(path + name)
    ]
    errors = [
        word
        for raised in _RAISES.findall(text)
        for word in re.findall(r"\b[A-Z]\w+", raised)
        if word not in classes and word not in ERRORS_OF_OTHERS and not hasattr(builtins, word)
    ]
    return [*dotted, *errors]


def _is_of_ours(path: str) -> bool:
    return (PACKAGE / path.removeprefix("placement.").split(".")[0]).is_dir()


def _is_in_sources(path: str) -> bool:
    """Whether it is a module or a package of ours, or something in one."""
    above, found = PACKAGE, ""
    for step in path.removeprefix("placement.").split("."):
        if (above / step).is_dir():
            above = above / step
        elif (module := above / f"{step}.py").is_file():
            above, found = above / step, module.read_text()
        elif not re.search(rf"\b{step}\b", found):
            return False
    return True


def _is_module(path: str) -> bool:
    end = "/" + re.sub(r"^(?:\.\.?/)+", "", path)
    return any(str(source).endswith(end) for source in SOURCES)


MODULES = {path: (source := path.read_text(), ast.parse(source)) for path in SOURCES}
NAMES = {word for module in MODULES.values() for word in words(*module)}
CLASSES = {
    node.name for _, tree in MODULES.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
}


def unknown_in_code(text: str) -> list[str]:
    """All names in a docstring or comment that are nowhere."""
    return [*unknown(text, NAMES, CLASSES), *unknown_of_code(text, CLASSES)]


def test_docstrings_and_comments_name_what_exists():
    found = {
        str(path.relative_to(ROOT)): missing
        for path, module in MODULES.items()
        if path.is_relative_to(PACKAGE)
        if (missing := [name for text in prose(*module) for name in unknown_in_code(text)])
    }
    assert found == {}


def test_documents_name_what_exists():
    found = {
        str(path.relative_to(ROOT)): missing
        for path in DOCUMENTS
        if (missing := unknown(_CODE_BLOCK.sub("", path.read_text()), NAMES, CLASSES))
    }
    assert found == {}


def test_a_name_that_is_nowhere_is_found():
    text = "As CandidateWishes, ClaimWish.put, Pod.spec and engine/no_such_module.py have it."
    assert unknown(text, NAMES - {"CandidateWishes"}, CLASSES) == [
        *("CandidateWishes", "ClaimWish.put", "engine/no_such_module.py")
    ]


def test_a_module_or_an_error_that_is_nowhere_is_found():
    text = "See `http.hooks`, storage.tables.CONTENT and metadata.name. Raises Unfound, BadRequest."
    assert unknown_of_code(text, CLASSES) == ["http.hooks", "Unfound"]
