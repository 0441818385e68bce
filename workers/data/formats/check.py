"""Data sets visible to a worker, with counts and content hashes: `assay data check`."""

from __future__ import annotations

import argparse
import functools
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, cast

from assay.service.contract.corruption_cells import SEVERITIES, TASK
from assay.workers import catalog
from assay.workers.data.digits import digits
from assay.workers.data.formats.dataset import CorruptedSet, ExampleSet, MissingData
from assay.workers.data.formats.imagenet_classes import ALL
from assay.workers.data.formats.imagenet_sets import IMAGENETS, set_of_imagenet
from assay.workers.data.formats.known_sets import known_set, of_tiny_imagenet
from assay.workers.data.formats.stored_corruptions import corruption_names
from assay.workers.data.formats.tables import set_of_table
from assay.workers.data.formats.ts_files import is_for_regression, series_files
from assay.workers.data.image_folder import image_folder
from assay.workers.data.imdb import imdb
from assay.workers.data.motions import motions
from assay.workers.data.pydoc import pydoc
from assay.workers.data.sst import sst
from assay.workers.data.wikitext import wikitext

# Long Range Arena's sets, by their folders in lra_release.
LRA = {
    "lra_listops": "listops-1000",
    "lra_retrieval": "tsv_data",
    "pathfinder": "pathfinder32/curv_contour_length_14",
}

Build = Callable[[Path, Literal["train", "test"]], ExampleSet]


@dataclass(frozen=True)
class SplitReport:
    """Size and hash of one split, or why it is unusable."""

    split: str
    examples: int | None
    sha256: str | None
    problem: str | None


@dataclass(frozen=True)
class SetReport:
    """One data set as a job would name it; `classes` is null if no split is usable."""

    name: str
    folder: str | None
    classes: int | None
    splits: list[SplitReport]


def list_sets(root: Path | None, *, hashes: bool = True) -> list[SetReport]:
    """Data sets that a worker with this data root can load.

    Args:
        root: ASSAY_DATA_ROOT, or None for only the bundled sets.
        hashes: read every file for its content hash.

    Returns:
        `digits`, `shapes`, `pydoc`, `motions` and `pulses`, then those of each visible folder of the root,
        recognised as one of `known_sets.py`, `wikitext`, `sst`, `imdb`, `uea` and `tser` (each set), a table,
        Long Range Arena's release, one of ImageNet's sets or stored corrupted images, or else taken as an
        `image_folder`.
    """
    reports = [
        _report("digits", None, lambda split: digits(root, split), hashes),
        _report("shapes", None, functools.partial(catalog.build("data", "shapes", {}), root), hashes),
        _report("pydoc", None, lambda split: pydoc(root, split), hashes),
        _report("motions", None, lambda split: motions(root, split), hashes),
        _report("pulses", None, functools.partial(catalog.build("data", "pulses", {}), root), hashes),
    ]
    if root is None or not root.is_dir():
        return reports
    names = sorted(p.name for p in root.iterdir() if p.is_dir() and not p.name.startswith("."))
    return reports + [
        report
        for name in names
        for report in _file_reports(root, name, hashes) or [_folder_report(root, name, hashes)]
    ]


def _file_reports(root: Path, name: str, hashes: bool) -> list[SetReport]:
    """Sets of text or time series in a folder: none, or one per number of classes or file of series."""
    folder, found = root / name, []
    for dataset in series_files(folder):
        place = f"{name}/{dataset}" if (folder / dataset).is_dir() else name
        title = "tser" if is_for_regression(root / place / f"{dataset}_TRAIN.ts") else "uea"
        build = catalog.build("data", title, {"folder": place, "dataset": dataset})
        found += [_report(title, place, functools.partial(build, root), hashes)]
    if next(folder.glob("wiki.*.tokens"), None) is not None:
        found.append(_report("wikitext", name, lambda split: wikitext(root, split, folder=name), hashes))
    numbers: tuple[Literal[2, 5], ...] = (2, 5)
    for classes in numbers:
        if next(folder.glob(f"sst{classes}.*"), None) is not None:
            load = functools.partial(sst, root, folder=name, classes=classes)
            found.append(_report("sst", name, load, hashes))
    if (folder / "train" / "neg").is_dir() and (folder / "train" / "pos").is_dir():
        found.append(_report("imdb", name, lambda split: imdb(root, split, folder=name), hashes))
    for title, inner in LRA.items():
        if (folder / inner).is_dir():
            place = f"{name}/{inner}"
            load = functools.partial(catalog.build("data", title, {"folder": place}), root)
            found.append(_report(title, place, load, hashes))
    if not found and (table := set_of_table(folder)) is not None:
        load = functools.partial(catalog.build("data", table, {"folder": name}), root)
        found.append(_report(table, name, load, hashes))
    return found


def _folder_report(root: Path, name: str, hashes: bool) -> SetReport:
    if (known := known_set(root / name)) is not None:
        build = catalog.build("data", known, {"folder": name})
        return _report(known, name, functools.partial(_load_checked, build, root), hashes)
    if places := [root / name / one for one in corruption_names() if (root / name / one).is_dir()]:
        return _stored_report(root, name, places, hashes)
    title = set_of_imagenet(root / name)
    if title is not None:
        load = IMAGENETS[title]
        return _report(title, name, lambda split: load(root, split, folder=name), hashes)
    return _report("image_folder", name, lambda split: image_folder(root, split, folder=name), hashes)


def _stored_report(root: Path, name: str, places: Sequence[Path], hashes: bool) -> SetReport:
    """Stored corrupted images: the corruptions and severities present, compared with each other."""
    cells = [place / str(severity) for place in places for severity in SEVERITIES]
    title = next((found for cell in cells if (found := set_of_imagenet(cell)) is not None), None)
    known = "imagenet_c" if title == ALL else "corrupted_folder"
    if title is None and any(map(of_tiny_imagenet, cells)):
        known = "tiny_imagenet_c"
    build = catalog.build("data", known, {"folder": name})
    return _report(known, name, functools.partial(_load_checked, build, root), hashes)


def _load_checked(build: Build, root: Path, split: Literal["train", "test"]) -> ExampleSet:
    """A split; of stored corrupted images all that is there, compared."""
    data = build(root, split)
    if data.task == TASK:
        cast(CorruptedSet, data).check()
    return data


def _report(
    name: str, folder: str | None, load: Callable[[Literal["train", "test"]], ExampleSet], hashes: bool
) -> SetReport:
    splits, classes = [], None
    both: tuple[Literal["train", "test"], ...] = ("train", "test")
    for split in both:
        try:
            data = load(split)
            digest = data.content_sha256() if hashes else None
        except (MissingData, ValueError, OSError) as error:
            splits.append(SplitReport(split, None, None, str(error)))
        else:
            classes = data.classes
            splits.append(SplitReport(split, len(data), digest, None))
    return SetReport(name, folder, classes, splits)


def describe(reports: list[SetReport], root: Path | None) -> str:
    """Human-readable text of the reports."""
    lines = [_root_line(root)]
    for report in reports:
        place = f"  folder {report.folder}" if report.folder else ""
        classes = f"  {report.classes} classes" if report.classes else ""
        lines.append(f"{report.name}{place}{classes}")
        for part in report.splits:
            if part.problem:
                lines.append(f"  {part.split:<5} not available: {part.problem}")
            else:
                digest = f"  sha256 {part.sha256}" if part.sha256 else ""
                lines.append(f"  {part.split:<5} {part.examples:>8} examples{digest}")
    return "\n".join(lines) + "\n"


def _root_line(root: Path | None) -> str:
    if root is None:
        return "data root: none (set ASSAY_DATA_ROOT or pass --data-root to see folders of data)"
    return f"data root: {root}{'' if root.is_dir() else ' (this directory does not exist)'}"


def main(arguments: list[str] | None = None) -> int:
    """Run the command; always 0, since missing data are a valid answer."""
    parser = argparse.ArgumentParser(
        prog="python -m assay.workers.data.formats.check",
        description="List the data sets that a worker sees, with counts and content hashes.",
        epilog="example: python -m assay.workers.data.formats.check --data-root ~/data --no-hash",
    )
    environment = os.environ.get("ASSAY_DATA_ROOT")
    parser.add_argument(
        "--data-root",
        type=Path,
        default=Path(environment) if environment else None,
        help="data root (default: the environment variable ASSAY_DATA_ROOT)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--no-hash", action="store_true", help="do not read all files for their hash")
    options = parser.parse_args(arguments)
    reports = list_sets(options.data_root, hashes=not options.no_hash)
    if options.json:
        body = {
            "root": str(options.data_root) if options.data_root else None,
            "sets": [asdict(r) for r in reports],
        }
        sys.stdout.write(json.dumps(body, indent=2) + "\n")
    else:
        sys.stdout.write(describe(reports, options.data_root))
    return 0


if __name__ == "__main__":
    sys.exit(main())
