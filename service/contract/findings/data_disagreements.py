"""Data sets that workers have with several contents: which, and how it is said."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

PREFIX = 12
MAX_NAMES = 5

# Names of workers, by the label of a data set and the sha256 of its content.
Disagreements = dict[str, dict[str, list[str]]]


def disagreements(told: Iterable[tuple[str, Mapping[str, str]]]) -> Disagreements:
    """The sets with several contents, from the names of workers and their hashes by label."""
    found: Disagreements = {}
    for name, hashes in sorted(told, key=lambda one: one[0]):
        for label, sha256 in sorted(hashes.items()):
            found.setdefault(label, {}).setdefault(sha256, []).append(name)
    return {label: by_hash for label, by_hash in sorted(found.items()) if len(by_hash) > 1}


def on_workers(by_hash: Mapping[str, Sequence[str]]) -> str:
    """Each content with its workers by name."""
    return "; ".join(f"{sha256[:PREFIX]} on {first_names(names)}" for sha256, names in by_hash.items())


def counted(label: str, by_hash: Mapping[str, Sequence[str]]) -> str:
    """Each content with the number of its workers, without what a job wrote into the label: for anybody."""
    name = re.split("[( ]", label)[0]
    return f"{name}: " + "; ".join(
        f"{sha[:PREFIX]} on {len(names)} workers" for sha, names in by_hash.items()
    )


def first_names(names: Sequence[str]) -> str:
    """The first five names, and the number of others."""
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return ", ".join(names[:MAX_NAMES]) + more
