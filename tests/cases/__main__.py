"""Run a case file: the ids that fail with the reason, then `passed/total`.

Exit status: 0 if all passed, 1 if some failed, 2 if the file cannot be run at all.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.cases import CaseModule, module_for


class UnusableFile(Exception):
    """The case file cannot be read or nobody understands it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the file named on the command line and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.cases", description=__doc__)
    parser.add_argument("file", type=Path, help="case file, JSON")
    parser.add_argument("--url", help="base URL of a running service; without it one is started if needed")
    options = parser.parse_args(arguments)
    try:
        document, module = load(options.file)
    except UnusableFile as error:
        print(f"{options.file}: {error}", file=sys.stderr)
        return 2
    return report(module, document, options.url)


def load(path: Path) -> tuple[dict[str, Any], CaseModule]:
    """The document in the file and the module that runs it. Raises UnusableFile."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UnusableFile(error.strerror or str(error)) from error
    except ValueError as error:
        raise UnusableFile(f"not JSON: {error}") from error
    if not isinstance(document, dict) or not isinstance(document.get("format"), str):
        raise UnusableFile("not a case file: no format")
    module = module_for(document["format"])
    if module is None:
        raise UnusableFile(f"unknown format {document['format']!r}")
    return document, module


def report(module: CaseModule, document: dict[str, Any], url: str | None) -> int:
    """Run the cases and print what failed as it fails; the exit status."""
    passed = total = 0
    for case_id, reason in module.run(document, url):
        total += 1
        passed += reason is None
        if reason is not None:
            print(f"{case_id}: {reason}", flush=True)
    print(f"{passed}/{total}")
    return 0 if passed == total else 1


if __name__ == "__main__":
    sys.exit(main())
