"""What runs with `make test` of cases of laws and of costly tests: a sixteenth, chosen by the commit.

Cases are those of one test marked `sampled`; tests marked `costly` are taken together by folder. The
others get the mark `slow`. Each sixteen neighbours in the collection give one case to each part, in an order
of their own: every part has cases of all kinds, and no part has, say, the causal forms alone.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PARTS = 16
NEW = 8  # commits in which the file of a component counts as new


def git(*arguments: str) -> str:
    """What git says of this checkout; "" outside a repository or without git."""
    try:
        return subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""


def part_of_commit() -> int:
    """The part of this commit, as `.ci/run` reckons it for the slow tests."""
    return int(git("rev-parse", "--short=6", "HEAD").strip() or "0", 16) % PARTS


def changed_files() -> frozenset[str]:
    """Names, without suffixes, of files changed since the commit before, or added within eight commits."""
    changed = git("diff", "--name-only", "HEAD~1") + git("ls-files", "--others", "--exclude-standard")
    # Of a shallow clone the oldest commit would have added every file.
    shallow = git("rev-parse", "--is-shallow-repository").strip() == "true"
    added = "" if shallow else git("log", f"-{NEW}", "--diff-filter=A", "--name-only", "--format=")
    return frozenset(Path(line).stem for line in (changed + added).splitlines() if line.endswith(".py"))


def positions(name: str, cases: int, part: int) -> set[int]:
    """One of each sixteen neighbours; tests of one file get the same neighbours.

    What tests of one case share, for example the run of an attack, is then computed once.
    """
    first = range(0, cases, PARTS)
    file = name.partition("::")[0]
    return {one for start in first if (one := start + (part + _shift(file, start)) % PARTS) < cases}


def _shift(file: str, start: int) -> int:
    return hashlib.sha256(f"{file} {start}".encode()).digest()[0]


def left_out(names: Sequence[str], part: int, changed: Iterable[str] = ()) -> set[str]:
    """The cases, of these names of cases of any tests, that are neither in the part nor of a changed file."""
    cases: defaultdict[str, list[str]] = defaultdict(list)
    for name in names:
        cases[name.partition("[")[0]].append(name)
    kept = {
        of_test[position]
        for test, of_test in cases.items()
        for position in {0} | positions(test, len(of_test), part)
    }
    changed = set(changed)
    return {
        name
        for name in names
        if name not in kept and changed.isdisjoint(re.findall(r"\w+", name.partition("[")[2]))
    }


def costly_left_out(names: Sequence[str], part: int, changed: Iterable[str] = ()) -> set[str]:
    """The tests, of these names of costly tests, that are neither in the part nor of a changed file."""
    tests: defaultdict[str, list[str]] = defaultdict(list)
    for name in names:
        tests[name.partition("::")[0].rpartition("/")[0]].append(name)
    changed = set(changed)
    found = set()
    for folder, of_folder in tests.items():
        kept = positions(folder, len(of_folder), part)
        for position, name in enumerate(of_folder):
            stem = Path(name.partition("::")[0]).stem
            if position not in kept and changed.isdisjoint({stem, stem.removeprefix("test_")}):
                found.add(name)
    return found
