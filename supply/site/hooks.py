"""Hooks of MkDocs: pages from the code, links that hold on GitHub and on the site, nothing from other hosts.

`python -m mkdocs` from the root of the repository runs them (mkdocs.yml). A page of docs/ with the line
`<!-- generated: NAME -->` gets a generated part in its place; further pages are added below the index pages.
"""

from __future__ import annotations

import logging
import os
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from supply.site import (
    catalog_pages,
    command_page,
    errors_page,
    metrics_page,
    notebook_pages,
    rest_pages,
    settings_page,
    warnings_page,
)
from supply.site.markdown import for_python_markdown

ROOT = Path(__file__).resolve().parents[2]
logger = logging.getLogger("mkdocs.hooks.assay")

# Pages at the root of the repository, by their place on the site.
ROOT_PAGES = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security-policy.md",
}
DECISIONS = "What was chosen where the choice was not obvious, and why."
PARTS = {
    "rest": rest_pages.overview,
    "catalog": catalog_pages.overview,
    "command-line": command_page.page,
    "settings": settings_page.page,
    "errors": errors_page.page,
    "metrics": metrics_page.page,
    "warnings": warnings_page.page,
    "warning-anchors": warnings_page.old_anchors,
}
PLACEHOLDER = re.compile(r"^<!-- generated: ([a-z-]+) -->$", re.MULTILINE)
LINK = re.compile(r"(!?\[[^\]\n]*\])\(([^)\s]+)\)")
FENCE = re.compile(r"^( *)(```+).*?^\1\2\s*?$", re.MULTILINE | re.DOTALL)
REMOTE = re.compile(
    r"""<(?:script|img|iframe|source|video)\b[^>]*\bsrc=["']?(?:https?:)?//[^\s"'>]+"""
    r"""|<link\b(?=[^>]*\brel=["']?(?:stylesheet|preconnect|preload|icon))[^>]*\bhref=["']?(?:https?:)?//[^\s"'>]+"""
)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Puts the generated pages into the navigation, behind the index page of their folder."""
    below = {
        "reference/rest/index.md": rest_pages.titles(),
        "reference/catalog/index.md": catalog_pages.titles(),
        "decisions/index.md": _decisions(),
    }
    config.nav = [_expanded(item, below) for item in config.nav]
    return config


def _expanded(item: Any, below: dict[str, dict[str, str]]) -> Any:
    if isinstance(item, dict):
        return {title: _expanded(value, below) for title, value in item.items()}
    if not isinstance(item, list):
        return item
    found: list[Any] = []
    for one in item:
        found.append(_expanded(one, below))
        if isinstance(one, str) and one in below:
            folder = posixpath.dirname(one)
            found += [{title: f"{folder}/{name}.md"} for name, title in below[one].items()]
    return found


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that are made from the code, from notebooks and from the root of the repository."""
    for name, place in ROOT_PAGES.items():
        _add(files, config, place, (ROOT / name).read_text(encoding="utf-8"))
    for name, text in rest_pages.pages().items():
        _add(files, config, f"reference/rest/{name}.md", text)
    for name, text in catalog_pages.pages().items():
        _add(files, config, f"reference/catalog/{name}.md", text)
    decisions = "\n".join(f"- [{title}]({name}.md)" for name, title in _decisions().items())
    _add(files, config, "decisions/index.md", f"# Decisions\n\n{DECISIONS}\n\n{decisions}\n")
    for path in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        _add(files, config, f"notebooks/{path.stem}.md", notebook_pages.page(path))
    return files


def _add(files: Files, config: MkDocsConfig, place: str, text: str) -> None:
    files.append(File.generated(config, place, content=text))


def _decisions() -> dict[str, str]:
    """Name of each decision record to its heading."""
    records = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    return {path.stem: path.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ") for path in records}


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fills in generated parts, turns links of the repository into links of the site, and indents lists."""
    text = PLACEHOLDER.sub(lambda found: PARTS[found[1]](), markdown)
    place = page.file.src_uri
    on_disk = next((name for name, site in ROOT_PAGES.items() if site == place), f"docs/{place}")
    text = _outside_fences(
        text, lambda part: LINK.sub(lambda found: _link(found, on_disk, place, config), part)
    )
    return for_python_markdown(text)


def _outside_fences(text: str, change: Any) -> str:
    parts, end = [], 0
    for fence in FENCE.finditer(text):
        parts += [change(text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, change(text[end:])])


def _link(found: re.Match[str], on_disk: str, place: str, config: MkDocsConfig) -> str:
    """A link as the site has it: to a page of the site, to the source on GitHub, or text without one."""
    label, target = found[1], found[2]
    path, mark, anchor = target.partition("#")
    if not path or re.match(r"[a-z][a-z0-9+.-]*:", path):
        return found[0]
    goal = posixpath.normpath(posixpath.join(posixpath.dirname(on_disk), path))
    if goal in ROOT_PAGES:
        site = ROOT_PAGES[goal]
    elif goal == "docs/decisions":
        site = "decisions/index.md"
    elif goal == "README.md":
        site = "index.md"
    elif goal.startswith("docs/"):
        site = re.sub(r"\.ipynb$", ".md", goal.removeprefix("docs/"))
    elif (ROOT / goal).exists():
        text = label.removeprefix("!")
        if not config.repo_url:
            return text[1:-1]
        kind = "tree" if (ROOT / goal).is_dir() else "blob"
        return f"{text}({config.repo_url.rstrip('/')}/{kind}/{os.environ.get('GITHUB_SHA', 'main')}/{goal})"
    else:
        return found[0]  # MkDocs says that it leads nowhere
    return f"{label}({posixpath.relpath(site, posixpath.dirname(place) or '.')}{mark}{anchor})"


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Warns of anything that a page would load from another host: `--strict` makes that an error."""
    for found in REMOTE.findall(output):
        logger.warning("%s loads from another host: %s", page.file.src_uri, found)
    return output
