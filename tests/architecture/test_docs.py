"""The documents say what is there: links resolve, commands exist, code blocks of the right kind parse."""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").rglob("*.md")])
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
INLINE_COMMAND = re.compile(r"`make ([a-z][a-z-]*)")
SHELL_COMMAND = re.compile(r"^(?:\$ )?make ([a-z][a-z-]*)", re.MULTILINE)
FENCE = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
DECISION_LINES = 40


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def make_commands(page: Path) -> set[str]:
    text = page.read_text()
    shell = [block for language, block in FENCE.findall(text) if language in ("sh", "bash", "console")]
    return set(INLINE_COMMAND.findall(text)).union(*map(SHELL_COMMAND.findall, shell))


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_relative_links_resolve() -> None:
    missing = [
        (name_of(page), link)
        for page in PAGES
        for link in LINK.findall(page.read_text())
        if not re.match(r"[a-z]+:|#", link) and not (page.parent / link.partition("#")[0]).exists()
    ]
    assert not missing


def test_make_commands_exist() -> None:
    unknown = {name_of(page): found for page in PAGES if (found := make_commands(page) - make_targets())}
    assert not unknown


def test_code_blocks_parse() -> None:
    for page in PAGES:
        for language, block in FENCE.findall(page.read_text()):
            if language == "python":
                compile(block, str(page), "exec")
            if language == "json":
                try:
                    json.loads(block)
                except ValueError as error:
                    raise AssertionError(f"{name_of(page)}: {error}") from error


def test_readme_has_the_two_commands() -> None:
    assert {"demo", "test"} <= make_commands(ROOT / "README.md")


def test_every_make_target_is_explained() -> None:
    makefile = (ROOT / "Makefile").read_text()
    unexplained = [
        name for name in make_targets() if not re.search(rf"^{name}:.*## \w", makefile, re.MULTILINE)
    ]
    assert not unexplained


def test_decision_records_are_short_and_numbered_without_gaps() -> None:
    records = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    assert [int(record.name[:4]) for record in records] == list(range(1, len(records) + 1))
    assert all(len(record.read_text().splitlines()) <= DECISION_LINES for record in records)
