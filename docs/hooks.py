"""Links of the documents to files of the repository outside of `docs`: the site has these files, too.

In the repository `../etc/placement.conf.sample` leads to the sample. In the site it is
`etc/placement.conf.sample`, and a README beside the code is a page.
"""

from __future__ import annotations

import re
from pathlib import Path
from posixpath import dirname, join, normpath, relpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)\s#]+)")
_ELSEWHERE = re.compile(r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=\"?(?:https?:)?//[^>]*>")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files outside of `docs` that a document links, and those that these link."""
    _add(files, config.theme["logo"], config)
    for page in files.documentation_pages():
        _add_linked(files, page.src_uri, config)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return the page with links as they are in the site."""
    here = page.file.src_uri
    return _LINK.sub(lambda link: relpath(_target(here, link[1]), dirname(here) or "."), markdown)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Return the page. Raise PluginError if a browser would load a part of it from another host."""
    if elsewhere := _ELSEWHERE.search(output):
        raise PluginError(f"{page.file.src_uri} loads from another host: {elsewhere[0]}")
    return output


def _add_linked(files: Files, page: str, config: MkDocsConfig) -> None:
    for link in _LINK.findall((ROOT / _in_repository(page)).read_text()):
        target = _target(page, link)
        # The README of the repository would be the first page; the site has its own.
        if files.get_file_from_path(target) is None and (ROOT / target).is_file() and target != "README.md":
            _add(files, target, config)
            if target.endswith(".md"):
                _add_linked(files, target, config)


def _add(files: Files, target: str, config: MkDocsConfig) -> None:
    files.append(File.generated(config, target, abs_src_path=str(ROOT / target)))


def _in_repository(page: str) -> str:
    """Return where a page of the site is in the repository."""
    return f"docs/{page}" if (ROOT / "docs" / page).exists() else page


def _target(page: str, link: str) -> str:
    """Return where a link of this page leads to in the site."""
    return normpath(join(dirname(_in_repository(page)), link)).removeprefix("docs/")
