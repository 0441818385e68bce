"""Data sets visible to a worker, with counts, content hashes, and what is wrong: `assay data check`."""

from __future__ import annotations

import argparse
import functools
import json
import os
import resource
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from assay.service.catalog.catalog import load as load_catalog
from assay.service.contract.corruption_cells import SEVERITIES
from assay.service.contract.errors import InvalidSpec
from assay.service.contract.problems import Problems
from assay.service.fitted_text import fitted, say
from assay.service.submission.class_folders import has_images
from assay.service.submission.data_folders import is_ignored
from assay.workers import catalog
from assay.workers.data.formats.dataset import ExampleSet, MissingData
from assay.workers.data.formats.images.imagenet_classes import ALL
from assay.workers.data.formats.images.known_sets import known_set, of_tiny_imagenet, set_of_imagenet
from assay.workers.data.formats.images.labels_files import find_labels
from assay.workers.data.formats.look import Look, look_at
from assay.workers.data.formats.stored_corruptions import corruption_names
from assay.workers.data.formats.tables import set_of_table
from assay.workers.data.formats.ts_files import is_for_regression, series_files
from assay.workers.data.image_folder import image_folder
from assay.workers.data.imdb import imdb
from assay.workers.data.sst import sst
from assay.workers.data.wikitext import wikitext

# By their folders in lra_release.
LRA = {
    "lra_listops": "listops-1000",
    "lra_retrieval": "tsv_data",
    "pathfinder": "pathfinder32/curv_contour_length_14",
}

SECONDS = 10.0  # For decoding a part's examples, unless stated

# In a service's state folder.
STATE = ("assay.sqlite", "artifacts", "data-hashes", "plots", "signing", "spool")
UNUSABLE = 1  # Exit code where a set cannot be used as it is

Split = Literal["train", "test"]
Build = Callable[[Path, Split], ExampleSet]


@dataclass(frozen=True)
class SplitReport:
    """Size, hash and content of a split, or why it is unusable."""

    split: str
    examples: int | None
    sha256: str | None
    problem: str | None
    look: Look | None = None
    absent: bool = False


@dataclass(frozen=True)
class Depth:
    """What is done with each split: hash all files, decode, for so many seconds, what a job evaluates."""

    hashes: bool = True
    seconds: float = 0
    limit: int | None = None
    splits: tuple[Split, ...] = ("train", "test")


@dataclass(frozen=True)
class SetReport:
    """A data set as a job names it; `classes` is null if no split is usable."""

    name: str
    folder: str | None
    classes: int | None
    splits: list[SplitReport]

    @property
    def usable(self) -> bool:
        """Whether a split is there, and nothing that is there is broken."""
        broken = (
            (one.problem and not one.absent) or (one.look and one.look.unreadable) for one in self.splits
        )
        return not any(broken) and any(one.problem is None for one in self.splits)


def list_sets(root: Path | None, *, hashes: bool = True, seconds: float = 0) -> list[SetReport]:
    """Data sets that a worker can load: bundled sets, then sets in `root`'s visible folders."""
    depth = Depth(hashes, seconds)
    reports = [
        _report(name, None, functools.partial(catalog.build("data", name, {}), root), depth)
        for name in ("digits", "shapes", "pydoc", "motions", "pulses")
    ]
    if root is None:
        return reports
    return reports + [
        report
        for name in _folders(root)
        if not _is_state(root, name)
        for report in _file_reports(root, name, depth) or _folder_reports(root, name, depth)
    ]


def list_others(root: Path | None, reports: Sequence[SetReport]) -> dict[str, str]:
    """The folders of the root without a report, each with the reason."""
    told = {report.folder.partition("/")[0] for report in reports if report.folder}
    return {} if root is None else {name: _reason(root, name) for name in _folders(root) if name not in told}


def _folders(root: Path) -> list[str]:
    return (
        sorted(p.name for p in root.iterdir() if p.is_dir() and not is_ignored(p.name))
        if root.is_dir()
        else []
    )


def _is_state(root: Path, name: str) -> bool:
    return (root / name / STATE[0]).is_file() or (name in STATE and (root / STATE[0]).is_file())


def _reason(root: Path, name: str) -> str:
    if _is_state(root, name):
        return "files of a service"
    empty = not any(files for _, _, files in os.walk(root / name))
    return "empty" if empty else "no image, table or file of a known set"


def _file_reports(root: Path, name: str, depth: Depth) -> list[SetReport]:
    folder, found = root / name, []
    for dataset in series_files(folder):
        place = f"{name}/{dataset}" if (folder / dataset).is_dir() else name
        title = "tser" if is_for_regression(root / place / f"{dataset}_TRAIN.ts") else "uea"
        build = catalog.build("data", title, {"folder": place, "dataset": dataset})
        found += [_report(title, place, functools.partial(build, root), depth)]
    if next(folder.glob("wiki.*.tokens"), None) is not None:
        found.append(_report("wikitext", name, lambda split: wikitext(root, split, folder=name), depth))
    numbers: tuple[Literal[2, 5], ...] = (2, 5)
    for classes in numbers:
        if next(folder.glob(f"sst{classes}.*"), None) is not None:
            load = functools.partial(sst, root, folder=name, classes=classes)
            found.append(_report("sst", name, load, depth))
    if (folder / "train" / "neg").is_dir() and (folder / "train" / "pos").is_dir():
        found.append(_report("imdb", name, lambda split: imdb(root, split, folder=name), depth))
    for title, inner in LRA.items():
        if (folder / inner).is_dir():
            place = f"{name}/{inner}"
            load = functools.partial(catalog.build("data", title, {"folder": place}), root)
            found.append(_report(title, place, load, depth))
    if not found and (labels := find_labels(folder)) is not None:
        flat = functools.partial(image_folder, root, folder=name, labels=labels)
        found.append(_report("image_folder", name, flat, depth))
    if not found and (table := set_of_table(folder)) is not None:
        load = functools.partial(catalog.build("data", table, {"folder": name}), root)
        found.append(_report(table, name, load, depth))
    return found


def _folder_reports(root: Path, name: str, depth: Depth) -> list[SetReport]:
    report = _published_report(root, name, depth)
    if report is not None:
        return [report]
    if not has_images(root / name):
        return []
    return [_report("image_folder", name, lambda split: image_folder(root, split, folder=name), depth)]


def _published_report(root: Path, name: str, depth: Depth) -> SetReport | None:
    if (known := known_set(root / name)) is not None:
        build = catalog.build("data", known, {"folder": name})
        return _report(known, name, functools.partial(_load_checked, build, root), depth)
    if places := [root / name / one for one in corruption_names() if (root / name / one).is_dir()]:
        return _stored_report(root, name, places, depth)
    title = set_of_imagenet(root / name)
    if title is not None:
        build = catalog.build("data", title, {"folder": name})
        return _report(title, name, functools.partial(build, root), depth)
    return None


def _stored_report(root: Path, name: str, places: Sequence[Path], depth: Depth) -> SetReport:
    cells = [place / str(severity) for place in places for severity in SEVERITIES]
    title = next((found for cell in cells if (found := set_of_imagenet(cell)) is not None), None)
    known = "imagenet_c" if title == ALL else "corrupted_folder"
    if title is None and any(map(of_tiny_imagenet, cells)):
        known = "tiny_imagenet_c"
    build = catalog.build("data", known, {"folder": name})
    return _report(known, name, functools.partial(_load_checked, build, root), depth)


def _load_checked(build: Build, root: Path, split: Split) -> ExampleSet:
    data = build(root, split)
    catalog.task(data.task).check(data)
    return data


def report_of(data: Mapping[str, Any], root: Path | None, depth: Depth) -> SetReport:
    """The report of a data set as a job names it, {"name", "params"}."""
    problems = Problems()
    checked = load_catalog().check_reference(("data",), data, problems, ("data",))
    problems.raise_if_any()
    assert checked is not None
    build = functools.partial(catalog.build("data", data["name"], checked.params), root)
    return _report(data["name"], checked.params.get("folder"), build, depth)


def _report(name: str, folder: str | None, load: Callable[[Split], ExampleSet], depth: Depth) -> SetReport:
    splits, classes = [], None
    for split in depth.splits:
        try:
            data = load(split)
            look = look_at(data, depth.seconds, depth.limit) if depth.seconds else None
            digest = data.content_sha256() if depth.hashes else None
        except (MissingData, ValueError, OSError) as error:
            absent = isinstance(error, MissingData)
            splits.append(SplitReport(split, None, None, str(error), absent=absent))
        else:
            classes = data.classes
            splits.append(SplitReport(split, len(data), digest, None, look))
    return SetReport(name, folder, classes, splits)


def describe(reports: list[SetReport], root: Path | None, others: Mapping[str, str]) -> str:
    """Human-readable text of the reports, and of the other folders."""
    lines = [_root_line(root)]
    for report in reports:
        place = f"  folder {report.folder}" if report.folder else ""
        classes = f"  {report.classes} classes" if (report.classes or 0) > 1 else ""
        lines.append(f"{report.name}{place}{classes}")
        for part in report.splits:
            if part.problem:
                lines.append(f"  {part.split:<5} not available: {part.problem}")
            else:
                digest = f"  sha256 {part.sha256}" if part.sha256 else ""
                lines.append(f"  {part.split:<5} {part.examples:>8} examples{digest}")
                lines += [f"    {line}" for line in described(part)]
    if others:
        lines.append(f"no data sets: {', '.join(f'{name}/ ({why})' for name, why in others.items())}")
    if unusable := [one.folder or one.name for one in reports if not one.usable]:
        lines.append(f"cannot be used as they are ({len(unusable)}): {', '.join(unusable)}")
    return "\n".join(lines) + "\n"


def described(part: SplitReport) -> Iterator[str]:
    """What the look has found, a line each."""
    look = part.look
    if look is None:
        return
    if look.decoded < (part.examples or 0):
        yield f"{look.decoded} of them were decoded, a random sample: --seconds allows more"
    if look.unreadable:
        yield f"{len(look.unreadable)} cannot be read:"
        yield from (f"  {message}" for message in look.unreadable)
    if look.empty_classes:
        yield f"classes without an example: {', '.join(look.empty_classes)}"
    if look.ignored is not None and look.ignored["count"]:
        more = ", ..." if look.ignored["count"] > len(look.ignored["first"]) else ""
        shown = ", ".join(look.ignored["first"])
        yield f"ignored beside the images ({look.ignored['count']}): {shown}{more}"
    yield from look.notes


def _reference(text: str) -> dict[str, Any]:
    """{"name", "params"} from JSON, or from a name alone."""
    try:
        found = json.loads(text) if text.lstrip().startswith("{") else {"name": text}
    except ValueError as error:
        raise SystemExit(f"error: --data is no JSON: {error}") from error
    return {"params": {}, **found}


def _root_line(root: Path | None) -> str:
    if root is None:
        return "data root: none (set ASSAY_DATA_ROOT or pass --data-root to see folders of data)"
    return f"data root: {root}{'' if root.is_dir() else ' (this directory does not exist)'}"


def main(arguments: list[str] | None = None) -> int:
    """Run the command: 0, or 1 where a present set cannot be used."""
    parser = argparse.ArgumentParser(
        prog="python -m assay.workers.data.formats.check",
        description="List the data sets that a worker sees, with counts, content hashes and what is wrong.",
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
    parser.add_argument("--seconds", type=float, default=SECONDS, help="to decode examples of each part")
    parser.add_argument("--data", action="append", help='only this set: {"name": ..., "params": {...}}')
    parser.add_argument("--split", action="append", choices=("train", "test"), help="only this part")
    parser.add_argument("--limit", type=int, help="decode what a job with this limit evaluates")
    parser.add_argument(
        "--memory", type=int, help="the most bytes of this process, where the system can limit them"
    )
    options = parser.parse_args(arguments)
    if options.memory and sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_DATA, (options.memory, options.memory))
    splits = tuple(options.split or ("train", "test"))
    depth = Depth(not options.no_hash, options.seconds, options.limit, splits)
    if options.data:
        try:
            reports = [report_of(_reference(text), options.data_root, depth) for text in options.data]
        except InvalidSpec as error:
            parser.exit(2, fitted(f"error: {error.message}\n", sys.stderr))
        others = {}
    else:
        reports = list_sets(options.data_root, hashes=depth.hashes, seconds=depth.seconds)
        others = list_others(options.data_root, reports)
    if options.json:
        body = {
            "root": str(options.data_root) if options.data_root else None,
            "sets": [asdict(r) | {"usable": r.usable} for r in reports],
            "others": others,
        }
        sys.stdout.write(json.dumps(body, indent=2) + "\n")
    else:
        say(describe(reports, options.data_root, others).removesuffix("\n"))
    return 0 if all(report.usable for report in reports) else UNUSABLE


if __name__ == "__main__":
    sys.exit(main())
