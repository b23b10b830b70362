"""Figures of how the sources read: complexity, banners, aliases, and names of variables.

`python -m tests.readability` prints every place by figure. Paths after it, such as `placement/engine`,
leave the places below them.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import placement

ROOT = Path(placement.__file__).parents[1]
COMPLEXITIES = (15, 20)
# A step of the code that may be left out, repeated or taken in another way.
_BRANCHES = (
    ast.If,
    ast.For,
    ast.While,
    ast.ExceptHandler,
    ast.IfExp,
    ast.comprehension,
    ast.With,
    ast.Assert,
)
_WORD = re.compile(r"[A-Z]?[a-z]+")
_ALIAS = re.compile(r"_?[A-Z]\w*[a-z]\w*")
_ELEMENT = re.compile(r"(?:Sequence|list|tuple|Iterable|Collection|Iterator)\[(\w+)(?:, \.\.\.)?\]")
# Types of declarations: fields of schemas, parts of operations and the like have the names of what they
# declare, such as `limit = Integer()`.
_DECLARATIONS = frozenset(
    {
        *("Choice", "Field", "Given", "Integer", "Number", "Object", "Sequence", "String", "Uuid"),
        *("AnyOf", "Anything", "Boolean", "Content", "HttpRefusal", "Mapping", "Parameter"),
        *("ColumnKey", "Condition", "Diagnosis", "Feature", "Kind", "Lane", "Microversion"),
        *("RowStatement", "Rule", "Strategy"),
    }
)


class Module(NamedTuple):
    """A module of the product: its path from the root, its text, and what the text says."""

    path: str
    text: str
    tree: ast.Module


class Place(NamedTuple):
    """A place in the sources, and what there is."""

    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.text}"


def modules_below(folder: Path) -> list[Module]:
    """Return the modules in the folder and below it."""
    paths = ((path, path.read_text()) for path in sorted(folder.rglob("*.py")))
    return [Module(str(path.relative_to(ROOT)), text, ast.parse(text)) for path, text in paths]


def places_in(modules: Sequence[Module]) -> dict[str, list[Place]]:
    """Return the places that each figure counts."""
    early, single, banners = _banners_in(modules)
    complex_functions = _functions_in(modules)
    return {
        "banners before the first public name": early,
        "banners in modules with one class": single,
        "banners": banners,
        "aliases twice": _aliases_in(modules),
        **{
            f"functions above complexity {limit}": [
                place for complexity, place in complex_functions if complexity > limit
            ]
            for limit in COMPLEXITIES
        },
        "pairs of name and type without a common word": _pairs_in(modules),
    }


def complexity(function: ast.AST) -> int:
    """Return how many ways lead through the function: one, and one more for each branch."""
    return 1 + sum(map(_ways, ast.walk(function)))


def _ways(node: ast.AST) -> int:
    if isinstance(node, ast.BoolOp):
        return len(node.values) - 1
    return isinstance(node, (*_BRANCHES, ast.match_case))


def _functions_in(modules: Iterable[Module]) -> list[tuple[int, Place]]:
    """Return the functions by complexity, the highest first."""
    found = [
        (complexity(node), module.path, node)
        for module in modules
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef)
    ]
    found.sort(key=lambda function: -function[0])
    return [(number, Place(path, node.lineno, f"{node.name} {number}")) for number, path, node in found]


def _banners_in(modules: Iterable[Module]) -> tuple[list[Place], list[Place], list[Place]]:
    """Return the banners before the first public name, those in modules with one class, and all."""
    early, single, every = [], [], []
    for module in modules:
        found = list(banners_of(module))
        first = _first_public_line(module.tree)
        early += [banner for banner in found if banner.line < first]
        if sum(isinstance(node, ast.ClassDef) for node in module.tree.body) == 1:
            single += found
        every += found
    return early, single, every


def banners_of(module: Module) -> Iterator[Place]:
    """Yield the comments that stand alone at the margin, with an empty line before and after."""
    lines = ["", *module.text.splitlines(), ""]
    after = 0
    for line, text in enumerate(lines):
        if line < after or not text.startswith("# ") or lines[line - 1].strip():
            continue
        after = next(end for end in range(line, len(lines)) if not lines[end].startswith("#"))
        if line > 1 and not lines[after].strip() and not text.startswith("# --"):
            yield Place(module.path, line, text)


def _first_public_line(tree: ast.Module) -> float:
    lines = (
        min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        for node in tree.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_")
    )
    return next(lines, float("inf"))


def _aliases_in(modules: Iterable[Module]) -> list[Place]:
    """Return the names of aliases that stand in more than one place, or that a class has."""
    places: Mapping[str, list[Place]] = defaultdict(list)
    aliases = set()
    for module in modules:
        for node in module.tree.body:
            alias = _alias_of(node)
            name = node.name.lstrip("_") if isinstance(node, ast.ClassDef) else alias
            if name is not None:
                places[name].append(Place(module.path, node.lineno, name))
            if alias is not None:
                aliases.add(alias)
    twice = sorted(name for name in aliases if len(places[name]) > 1)
    return [
        Place(first.path, first.line, " ".join([name, *(f"{path}:{line}" for path, line, _ in rest)]))
        for name in twice
        for first, *rest in [places[name]]
    ]


def _alias_of(node: ast.stmt) -> str | None:
    """Return the name of the type that the statement names, such as `Rows` of `Rows = NDArray[np.intp]`."""
    match node:
        case ast.Assign(targets=[ast.Name(id=name)]) if _ALIAS.fullmatch(name):
            return name.lstrip("_")
        case ast.AnnAssign(target=ast.Name(id=name)) if "TypeAlias" in ast.unparse(node.annotation):
            return name.lstrip("_")
    return None


def _pairs_in(modules: Sequence[Module]) -> list[Place]:
    """Return the first place of each variable that shares no word with its class."""
    classes = {
        node.name for module in modules for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef)
    }
    places: dict[tuple[str, str], Place] = {}
    for module in modules:
        for node in ast.walk(module.tree):
            name, kind = _typed(node, classes)
            if kind not in classes or kind in _DECLARATIONS or name.isupper() or _words(name) & _words(kind):
                continue
            line = node.lineno if isinstance(node, ast.stmt | ast.arg) else 0
            places.setdefault((kind.strip("_"), name.strip("_")), Place(module.path, line, f"{name}: {kind}"))
    return list(places.values())


def _typed(node: ast.AST, classes: set[str]) -> tuple[str, str]:
    """Return the variable that the node names and the class of it, or of its elements; or empty texts."""
    match node:
        case ast.arg(arg=name, annotation=ast.expr() as annotation):
            return name, _class_in(annotation)
        case ast.AnnAssign(target=ast.Name(id=name) | ast.Attribute(attr=name), annotation=annotation):
            return name, _class_in(annotation)
        case ast.Assign(
            targets=[ast.Name(id=name) | ast.Attribute(attr=name)], value=ast.Call(func=ast.Name(id=kind))
        ):
            return name, kind
    return "", ""


def _class_in(annotation: ast.expr) -> str:
    text = ast.unparse(annotation).replace(" | None", "")
    element = _ELEMENT.fullmatch(text)
    return element[1] if element else text


def _words(name: str) -> set[str]:
    return {word.lower().rstrip("s") for word in _WORD.findall(name)}


def main() -> None:
    """Print the places of each figure, below the paths of the command line."""
    below = tuple(sys.argv[1:]) or ("placement/",)
    for figure, places in places_in(modules_below(Path(placement.__file__).parent)).items():
        shown = [str(place) for place in places if place.path.startswith(below)]
        sys.stdout.write("\n  ".join([f"\n{figure}: {len(shown)}", *shown, ""]))


if __name__ == "__main__":
    main()
