"""How far a reader goes who follows a call: the files of ours that it enters, in the order of first calls."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("service", "workers", "models", "attacks")


@dataclass
class Trip:
    """The functions of ours that ran, each once, in the order of their first calls."""

    functions: list[CodeType] = field(default_factory=list)
    _seen: set[CodeType] = field(default_factory=set)

    @property
    def visits(self) -> list[str]:
        """The files in that order, consecutive functions of a file once."""
        return [file for file, _ in groupby(map(_file, self.functions))]

    @property
    def rooms(self) -> int:
        """Files with a function that ran."""
        return len(set(self.visits))

    @property
    def returns(self) -> int:
        """Visits of a file that was left before."""
        return len(self.visits) - self.rooms

    def called(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code not in self._seen:
            self._seen.add(code)
            if _ours(code):
                self.functions.append(code)


def _file(code: CodeType) -> str:
    return str(Path(code.co_filename).resolve().relative_to(ROOT))


def _ours(code: CodeType) -> bool:
    """Whether it is a function with a name, in a file of ours."""
    path = Path(code.co_filename)
    if code.co_name.startswith("<") or not path.is_absolute():
        return False
    path = path.resolve()
    return path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in PACKAGES


@contextmanager
def followed() -> Iterator[Trip]:
    """Follows what this thread calls within the block."""
    trip = Trip()
    before = sys.getprofile()
    sys.setprofile(trip.called)
    try:
        yield trip
    finally:
        sys.setprofile(before)
