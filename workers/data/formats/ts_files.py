"""Reader of `.ts` files: the text format of the UEA and UCR archives of time series.

A header of `@` lines with `@classLabel true NAME NAME ...` or, for regression, `@targetLabel true`, then
`@data` and a line per example: features separated by colons, each numbers separated by commas, at the end the
class or target. A missing number is `?`; `#` begins a comment.

Legend: F features, T_i steps of series i.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import NoReturn

import numpy as np

from assay.service.contract.problems import nearest
from assay.workers.data.formats.dataset import CorruptData, MissingData
from assay.workers.data.formats.folders import check_inside, find_folder
from assay.workers.data.formats.series import Values

MAX_FEATURES = 4096  # The archive's most: 963 features (PEMS-SF), 17,984 steps (EigenWorms)
MAX_STEPS = 65_536
MAX_CLASSES = 1000
MAX_VALUES = 2**28
MAX_LINE = 2**26  # characters
MISSING = ("?", "nan", "NaN", "NAN")
SHOWN = 60
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


@dataclass
class SeriesFile:
    """Content of a file."""

    class_names: tuple[str, ...] = ()
    values: list[Values] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    targets: list[float] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)


def read_series(path: Path, *, regression: bool = False) -> SeriesFile:
    """Read a whole file."""
    return _Reader(path, regression).read()


def is_for_regression(path: Path) -> bool:
    """Whether a file's header has `@targetLabel true`."""
    with path.open("rb") as file:
        while (raw := file.readline(MAX_LINE)) and not raw.strip().lower().startswith(b"@data"):
            if raw.lower().split()[:2] == [b"@targetlabel", b"true"]:
                return True
    return False


def read_both(
    root: Path | None, folder: str, dataset: str, name: str, *, regression: bool = False
) -> tuple[SeriesFile, SeriesFile]:
    """Training and test file of a set, of the same classes and features; `name` is for messages."""
    if not NAME.fullmatch(dataset):
        raise ValueError(f"dataset is {dataset[:100]!r}; allowed: letters, digits, hyphens and underscores")
    root, where = find_folder(root, folder)
    paths = [find_file(where, dataset, part, root, name) for part in ("TRAIN", "TEST")]
    train, test = (read_series(path, regression=regression) for path in paths)
    if set(train.class_names) != set(test.class_names):
        raise CorruptData(
            f"{paths[1]}: its classes are {', '.join(test.class_names)}, the training file has"
            f" {', '.join(train.class_names)}"
        )
    features, wanted = test.values[0].shape[1], train.values[0].shape[1]
    if features != wanted:
        raise CorruptData(
            f"{paths[1]}: its series have {features} features, the training file's have {wanted}"
        )
    return train, test


def find_file(where: Path, dataset: str, part: str, root: Path, name: str) -> Path:
    """WHERE/DATASET/DATASET_PART.ts, or the file of this name in the folder itself."""
    wanted = f"{dataset}_{part}.ts"
    for path in (where / dataset / wanted, where / wanted):
        if path.is_file():
            check_inside(path, root)
            return path
    there = series_files(where)
    near = nearest(dataset, there)
    guess = f" Did you mean {near!r}?" if near else ""
    raise MissingData(
        f"{wanted} not found in {where / dataset} or {where}.{guess} The data set {name!r} wants"
        f" DATASET_TRAIN.ts and DATASET_TEST.ts there; sets found: {', '.join(there[:20]) or 'none'}."
    )


def series_files(where: Path) -> list[str]:
    """Names of the sets with training files in a folder or its folders."""
    files = (*where.glob("*_TRAIN.ts"), *where.glob("*/*_TRAIN.ts"))
    return sorted({found.name.removesuffix("_TRAIN.ts") for found in files})


class _Reader:
    def __init__(self, path: Path, regression: bool) -> None:
        self.path = path
        self.regression = regression
        self.has_targets = False
        self.number = 0
        self.features: int | None = None
        self.total = 0
        self.found = SeriesFile()

    def refuse(self, message: str) -> NoReturn:
        raise CorruptData(f"{self.path} line {self.number}: {message}")

    def read(self) -> SeriesFile:
        in_data = False
        for line in self._lines():
            if in_data:
                self._example(line)
            elif line.lower() == "@data":
                if self.regression and not self.has_targets:
                    self.refuse("no line '@targetLabel true' comes before @data")
                if not self.regression and not self.found.class_names:
                    self.refuse("no line '@classLabel true NAME NAME ...' comes before @data")
                in_data = True
            else:
                self._header(line)
        if not self.found.values:
            raise CorruptData(f"{self.path} has no examples after a line '@data'")
        return self.found

    def _lines(self) -> Iterator[str]:
        with self.path.open("rb") as file:
            while raw := file.readline(MAX_LINE + 1):
                self.number += 1
                if len(raw) > MAX_LINE:
                    self.refuse(f"it is longer than {MAX_LINE} characters")
                try:
                    line = raw.decode("utf-8-sig").strip()
                except UnicodeDecodeError as error:
                    self.refuse(f"it is not UTF-8: {error}")
                if line and not line.startswith("#"):
                    yield line

    def _header(self, line: str) -> None:
        if not line.startswith("@"):
            self.refuse(f"{line[:SHOWN]!r} is neither a comment (#) nor a header (@), and @data has not come")
        key, *words = line.split()
        key, given = key.lower(), words[0].lower() if words else ""
        if key == "@timestamps" and given == "true":
            self.refuse("series with time stamps are not read: allowed is '@timeStamps false'")
        if key == "@targetlabel" and given == "true":
            if not self.regression:
                self.refuse(
                    "the file is for regression: allowed are files with '@classLabel true NAME ...'; the data"
                    " set 'tser' reads this one"
                )
            self.has_targets = True
        if key == "@dimensions":
            if not given.isdecimal() or not 1 <= int(given) <= MAX_FEATURES:
                self.refuse(f"@dimensions is {given[:SHOWN]!r}; allowed: 1 to {MAX_FEATURES}")
            self.features = int(given)
        if key == "@classlabel" and self.regression and given == "true":
            self.refuse(
                "the file is for classification: allowed are files with '@targetLabel true'; the data"
                " set 'uea' reads this one"
            )
        if key == "@classlabel" and not self.regression:
            self._classes(given, words[1:])

    def _classes(self, given: str, names: list[str]) -> None:
        if given != "true" or not 2 <= len(names) <= MAX_CLASSES or len(set(names)) < len(names):
            self.refuse(f"@classLabel must be 'true' and 2 to {MAX_CLASSES} different names")
        self.found.class_names = tuple(names)

    def _example(self, line: str) -> None:
        *parts, label = line.split(":")
        self._truth(label.strip())
        if self.features is None:
            self.features = len(parts)
        if len(parts) != self.features or not 1 <= self.features <= MAX_FEATURES:
            self.refuse(f"it has {len(parts)} features; allowed: {self.features}, as in the lines before")
        columns = [self._numbers(part) for part in parts]
        steps = {len(column) for column in columns}
        if len(steps) > 1:
            self.refuse(f"its features have from {min(steps)} to {max(steps)} steps; allowed: all the same")
        values = self._cut(np.stack(columns, axis=1))  # (T_i, F)
        self.total += values.size
        if self.total > MAX_VALUES:
            self.refuse(f"the file has more than {MAX_VALUES} numbers")
        self.found.values.append(values)
        self.found.lines.append(self.number)

    def _truth(self, label: str) -> None:
        if not self.regression:
            if label not in self.found.class_names:
                names = ", ".join(self.found.class_names)
                self.refuse(f"{label[:SHOWN]!r} is no class; allowed: {names[:500]}")
            self.found.labels.append(self.found.class_names.index(label))
            return
        try:
            target = float(label)
        except ValueError:
            target = float("nan")
        if not isfinite(target):
            self.refuse(f"the target is {label[:SHOWN]!r}; allowed: a finite number")
        self.found.targets.append(target)

    def _numbers(self, part: str) -> Values:
        words = part.split(",", MAX_STEPS)
        if len(words) > MAX_STEPS:
            self.refuse(f"a feature has more than {MAX_STEPS} steps")
        words = [word.strip() for word in words]
        missing = np.array([word in MISSING for word in words])
        try:
            numbers = np.array(["0" if gap else word for word, gap in zip(words, missing, strict=True)])
            with np.errstate(over="ignore"):  # infinite numbers are refused below
                found = numbers.astype(np.float64).astype(np.float32)
        except ValueError as error:
            self.refuse(f"{str(error)[:SHOWN]}; allowed: numbers separated by commas, ? where one is missing")
        if not np.isfinite(found).all():
            self.refuse("a number is not finite in float32; allowed: finite numbers, ? where one is missing")
        found[missing] = np.nan
        return found

    def _cut(self, values: Values) -> Values:
        """The series without unknown steps at its end, some files' padding."""
        known = np.flatnonzero((~np.isnan(values)).any(axis=1))
        if len(known) == 0:
            self.refuse("every number of the series is missing")
        cut: Values = values[: known[-1] + 1]
        return cut
