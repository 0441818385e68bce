"""Evidence: what the papers claim, tested by studies whose outcomes are kept in docs/evidence.

    python -m benchmarks.evidence collect NAME STUDY [STUDY ...] [--state FOLDER]
    python -m benchmarks.evidence write
    python -m benchmarks.evidence check

`collect` writes finished studies of an embedded service, of one design and other seeds, into
docs/evidence/NAME.json.gz; a STUDY may also be such a file, of an earlier session. `write` makes tables and
pictures of the pages from these files; `check` computes the results again from the outcomes, and compares
results, tables and pictures.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import Any

from benchmarks.evidence.archive import FOLDER, joined, load, save
from benchmarks.evidence.collected import collected
from benchmarks.evidence.pages import stale


def main() -> int:
    """The command; 1 where something does not agree."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.evidence")
    actions = parser.add_subparsers(dest="action", required=True)
    collect = actions.add_parser("collect")
    collect.add_argument("name")
    collect.add_argument("studies", nargs="+")
    collect.add_argument("--state", type=Path)
    actions.add_parser("write")
    actions.add_parser("check")
    given = parser.parse_args()
    if given.action == "collect":
        if given.state is None and not all(study.endswith(".gz") for study in given.studies):
            collect.error("a study of a service needs --state, the service's folder")
        parts = [
            load(Path(study))[0] if study.endswith(".gz") else collected(given.state, study)
            for study in given.studies
        ]
        save(FOLDER / f"{given.name}.json.gz", joined(parts) if len(parts) > 1 else parts[0])
        return 0
    failed = [problem for path in sorted(FOLDER.glob("*.json.gz")) for problem in differences(path)]
    failed += stale(FOLDER, write=given.action == "write")
    sys.stderr.writelines(f"{problem}\n" for problem in failed)
    return 1 if failed else 0


def differences(path: Path) -> list[str]:
    """What in the stated results of a file does not follow from its outcomes, to nine digits.

    The sentence that answers a primary question is in the words of its day, and the power by its formula of
    that day; pages have both as they are told now.
    """
    archive, stated = load(path)
    of_day: dict[str, Any] = {
        "primary": {"text"},
        "cells": {"__all__": {"comparisons": {"__all__": {"power"}}}},
    }
    told, found = (one.model_dump(mode="json", exclude=of_day) for one in (stated, archive.results()))
    return [
        f"{path.name}: {name} does not follow from the outcomes"
        for name in told
        if not same(told[name], found[name])
    ]


def same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal; numbers to nine digits, as libraries of mathematics differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)
    return bool(one == other)


if __name__ == "__main__":
    sys.exit(main())
