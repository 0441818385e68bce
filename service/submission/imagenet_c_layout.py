"""Checks folders of stored corrupted images, CORRUPTION/SEVERITY/CLASS/IMAGE as in ImageNet-C, for gaps.

Sets of small images have an array for each corruption, CORRUPTION.npy, as CIFAR-10-C. All cells (a corruption
at a severity) need the same images, else their accuracies have no meaningful mean. Hendrycks and Dietterich
2019, "Benchmarking Neural Network Robustness to Common Corruptions and Perturbations".
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from assay.service.catalog.catalog import Checked
from assay.service.catalog.class_lists import class_list
from assay.service.contract.corruption_cells import TASK, Cell, cells_of
from assay.service.contract.problems import Loc, Problems
from assay.service.submission.class_order import in_order
from assay.service.submission.data_folders import IMAGE_SUFFIXES, check_folder, check_inside, is_ignored

# Names of the archives of ImageNet-C; some users keep their folders in folders of these names.
GROUPS = ("noise", "blur", "weather", "digital", "extra")
LAYOUT = "CORRUPTION/SEVERITY/CLASS/IMAGE"
LABELS_FILE = "labels.npy"  # As CIFAR-10-C has it: an array has all severities, one after the other.
ARRAY_LAYOUT = f"CORRUPTION.npy and {LABELS_FILE}"
LISTED = 5  # Number of names, and of cells, that a message lists of each kind.

# ImageNet-C has 3.75 million files. A request compares this many names; the plan compares all of them.
MAX_NAMES_AT_SUBMISSION = 200_000


@dataclass(frozen=True)
class WantedLayout:
    """What is wanted of a folder."""

    folder: Path
    base: Path
    cells: Sequence[Cell]
    classes: Sequence[str] | None = None


class CellNames:
    """Missing or unexpected names per cell."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.count = 0
        self.of_cells: dict[str, tuple[int, list[str]]] = {}

    def add(self, cell: str, names: Iterable[str]) -> None:
        """Counts names; each cell keeps a few."""
        for name in names:
            self.count += 1
            count, kept = self.of_cells.get(cell, (0, []))
            self.of_cells[cell] = (count + 1, [*kept, name] if len(kept) < LISTED else kept)

    def text(self) -> str:
        """The count and the names, shortened."""
        parts = []
        for cell, (count, kept) in list(self.of_cells.items())[:LISTED]:
            names = ", ".join(kept) + (f" and {count - len(kept)} more" if count > len(kept) else "")
            parts.append(f"{cell}: {names}" if cell else names)
        more = len(self.of_cells) - len(parts)
        return f"{self.count} {self.what} ({'; '.join(parts)}{f'; and in {more} more' if more else ''})"


def find_gaps(tree: WantedLayout, max_names: int | None = None) -> str | None:
    """Missing and surplus files of a tree, in one text; None where every cell has the same images."""
    gaps = {
        key: CellNames(what)
        for key, what in (
            ("folders", "corruptions are missing"),
            ("severities", "severities are missing"),
            ("everywhere", "classes are missing in every corruption and severity"),
            ("classes", "class folders are missing"),
            ("empty", "classes have no image"),
            ("images", "images are missing that another corruption or severity has"),
            ("unexpected", "folders are none of the classes"),
            ("nested", "folders lie inside a class"),
        )
    }
    present = _find_cells(tree, gaps)
    folders = {cell: set(_folders(_cell_folder(tree, cell), tree.base)) for cell in present}
    known = set().union(*folders.values())
    classes = sorted(tree.classes or known)
    if present and (missing := [name for name in classes if name not in known]):
        gaps["everywhere"].add("", missing)
    for cell, names in folders.items():
        gaps["classes"].add(_text(cell), [name for name in classes if name in known and name not in names])
        gaps["unexpected"].add(_text(cell), sorted(names.difference(classes)))
    _compare_names(tree, folders, classes, gaps, max_names)
    listed = [names.text() for names in gaps.values() if names.count]
    return "; ".join(listed) + _hint(tree) if listed else None


def array_file(corruption: str) -> str:
    """Name of the file with the images of a corruption at all severities."""
    return f"{corruption}.npy"


def find_missing_arrays(folder: Path, base: Path, cells: Sequence[Cell]) -> str | None:
    """Files that a folder of arrays lacks, in one text; None where all are there."""
    wanted = [LABELS_FILE, *(array_file(name) for name in dict(cells))]
    for name in wanted:
        check_inside(folder / name, base)
    missing = CellNames("files are missing")
    missing.add("", [name for name in wanted if not (folder / name).is_file()])
    if not missing.count:
        return None
    inner = next((name for name in sorted(_names(folder)) if (folder / name / LABELS_FILE).is_file()), None)
    return missing.text() + (f". Is the folder {inner!r} in it meant?" if inner is not None else "")


def folder_names(folder: Path, base: Path) -> list[str]:
    """Names of the visible folders in a folder, in the order of classes."""
    return in_order(_folders(folder, base))


def image_names(folder: Path, base: Path) -> tuple[list[str], list[str]]:
    """The names of the image files in a class folder, sorted, and of unexpected folders."""
    images, nested = [], []
    with os.scandir(folder) as entries:
        for entry in entries:
            if is_ignored(entry.name):
                continue
            if entry.is_symlink():
                check_inside(Path(entry.path), base)
            if entry.is_dir():
                nested.append(entry.name)
            elif entry.name.lower().endswith(IMAGE_SUFFIXES):
                images.append(entry.name)
    return sorted(images), sorted(nested)


def _find_cells(tree: WantedLayout, gaps: Mapping[str, CellNames]) -> list[Cell]:
    present = []
    for cell in tree.cells:
        check_inside(_cell_folder(tree, cell), tree.base)  # First: no message describes files outside it.
        if _cell_folder(tree, cell).is_dir():
            present.append(cell)
        elif (tree.folder / cell[0]).is_dir():
            gaps["severities"].add("", [_text(cell)])
    missing = [name for name in dict(tree.cells) if not (tree.folder / name).is_dir()]
    gaps["folders"].add("", missing)
    return present


def _compare_names(
    tree: WantedLayout,
    folders: Mapping[Cell, set[str]],
    classes: Iterable[str],
    gaps: Mapping[str, CellNames],
    max_names: int | None,
) -> None:
    """Compares images between cells, one class at a time: a set may have millions of images."""
    read = 0
    for name in classes:
        found: dict[Cell, set[str]] = {}
        for cell in (cell for cell, names in folders.items() if name in names):
            images, nested = image_names(_cell_folder(tree, cell) / name, tree.base)
            found[cell] = set(images)
            gaps["nested"].add(_text(cell), [f"{name}/{one}" for one in nested])
            read += len(images)
        every = set().union(*found.values())
        if found and not every:
            gaps["empty"].add("", [name])
        for cell, names in found.items():
            gaps["images"].add(_text(cell), [f"{name}/{image}" for image in sorted(every - names)])
        if max_names is not None and read >= max_names:
            return


def _hint(tree: WantedLayout) -> str:
    there, wanted = _names(tree.folder), {name for name, _ in tree.cells}
    groups = [name for name in GROUPS if name in there and wanted & _names(tree.folder / name)]
    if groups:
        return f". Some lie in {', '.join(groups)}: move these folders up by one level"
    if wanted & there:
        return ""
    inner = next((name for name in sorted(there) if wanted & _names(tree.folder / name)), None)
    if inner is not None:
        return f". Is the folder {inner!r} in it meant?"
    names = ", ".join(sorted(there)[:LISTED]) + (" and more" if len(there) > LISTED else "")
    return f". It holds {names or 'no folder'}"


def _names(folder: Path) -> set[str]:
    try:
        with os.scandir(folder) as entries:
            names = {entry.name for entry in entries if entry.is_dir(follow_symlinks=False)}
            return {name for name in names if not is_ignored(name)}
    except OSError:
        return set()


def _folders(folder: Path, base: Path) -> Iterable[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if not is_ignored(entry.name) and entry.is_dir():
                if entry.is_symlink():
                    check_inside(Path(entry.path), base)
                yield entry.name


def _cell_folder(tree: WantedLayout, cell: Cell) -> Path:
    return tree.folder / cell[0] / str(cell[1])


def _text(cell: Cell) -> str:
    return f"{cell[0]}/{cell[1]}"


def check_stored(
    evaluation: Checked, data: Checked, data_root: Path | None, problems: Problems, loc: Loc
) -> None:
    """Report gaps in a folder of stored corrupted images, where the data root is visible."""
    folder = data.params.get("folder")
    stored = TASK in data.component.tasks and evaluation.params.get("source") == "stored"
    if not stored or not isinstance(folder, str) or data_root is None or not data_root.is_dir():
        return
    if check_folder(folder, data_root) is not None:  # reported already
        return
    facts, cells = data.component.facts or {}, cells_of(evaluation.params)
    listed, arrays = facts.get("class_list"), bool(facts.get("corruption_arrays"))
    place, base = (data_root / folder).resolve(), data_root.resolve()
    tree = WantedLayout(place, base, cells, None if listed is None else class_list(listed))
    layout = ARRAY_LAYOUT if arrays else LAYOUT
    try:
        missing = find_missing_arrays(place, base, cells) if arrays else None
        gaps = missing if arrays else find_gaps(tree, MAX_NAMES_AT_SUBMISSION)
    except ValueError:
        gaps = "a symbolic link in it leads out of the data root"
    except OSError as error:
        gaps = f"it cannot be read ({error.strerror})"
    if gaps is not None:
        problems.add(
            (*loc, "params", "folder"),
            f"{folder!r} is wanted as {layout}: {gaps}",
            given=folder,
            allowed=layout,
        )
