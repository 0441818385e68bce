"""What is wrong with a user's own code and files, before anything is started, exported or uploaded.

Images of class folders are decoded in threads of this process, other files by a process of a worker's reader.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import random
import re
import symtable
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from assay.service.catalog.catalog import Checked, load
from assay.service.client.class_check import stated_classes
from assay.service.client.data_place import DataPlace, check_utf_8, place_of, wrong
from assay.service.contract.problems import Problems, nearest
from assay.service.contract.stored_specs import EvaluateJobSpec
from assay.service.reports.client import report_format
from assay.service.submission.class_folders import images_of, no_images
from assay.service.submission.data_look import look_at_data

SECONDS = 20.0  # for decoding a folder's images
MANY = 200  # images: decoding more is said
TOGETHER = 64  # images decoded before the clock is read
LISTED = 20  # files in a message
# A module with any of these may have names that its text does not show.
DYNAMIC = re.compile(r"import\s*\*|\b(globals|exec|eval|setattr|vars|__dict__|__getattr__|__path__)\b")
REMEDY = "; replace or remove it"  # of readers, about one file


def look_at_place(
    problems: Problems,
    data: str,
    crop: float | None,
    names: Any,
    labels: str | Path | None,
    **files: Path | None,
) -> DataPlace:
    """The place of a call's data; notes faults of it, of a `report` and of a `state` folder.

    A place with a fault is as much of the text as names a data set, for what else is looked at.
    """
    stated, place = None, DataPlace(data.partition(":")[0] if re.match(r"\w+:", data) else None)
    with problems.gathered():
        stated = stated_classes(names, labels)
    with problems.gathered():
        place = place_of(data, crop, stated, labels)
    with problems.gathered():
        if (report := files["report"]) is not None:
            check_report(report)
    state = (files["state"] or Path()).absolute()
    with problems.gathered():
        check_utf_8(("state",), state)
    if not next(part for part in (state, *state.parents) if part.exists()).is_dir():
        allowed = "a folder that can be written"
        problems.add(("state",), "it cannot be written", given=str(files["state"]), allowed=allowed)
    return place


def check_report(target: Path, field: str = "report") -> None:
    """Refuse a file that no report can be written to."""
    report_format(target, field)
    if target.is_dir() or not target.parent.is_dir():
        raise wrong(
            (field,), "it cannot be written", given=str(target), allowed="a file in a folder that is there"
        )


def check_function(text: str, folder: Path) -> None:
    """Refuse a missing module or function of PACKAGE.MODULE:FUNCTION (InvalidSpec); no code is run."""
    where, _, function = text.partition(":")
    source = _source_of(where, folder, text)
    if source is None:
        return
    check_utf_8(("model",), source)
    try:
        content = source.read_text(encoding="utf-8")
        symbols = symtable.symtable(content, str(source), "exec")
    except (OSError, SyntaxError, ValueError) as error:
        raise wrong(("model",), f"{source} cannot be read: {error}", given=text) from error
    names = [one.get_name() for one in symbols.get_symbols() if one.is_assigned() or one.is_imported()]
    if function not in names and DYNAMIC.search(content) is None:
        near = nearest(function, [name for name in names if not name.startswith("_")])
        message = f"{where} ({source}) has no {function!r}"
        raise wrong(("model",), message, given=text, nearest=None if near is None else f"{where}:{near}")


def _source_of(where: str, folder: Path, text: str) -> Path | None:
    """The file of a module, found without an import; None: an import alone would find it."""
    paths: Sequence[str] = [str(folder.resolve()), *sys.path]
    spec = None
    name = ""
    for part in where.split("."):
        name = f"{name}.{part}" if name else part
        spec = importlib.machinery.PathFinder.find_spec(name, paths)
        if spec is None:
            if "." in name or part in sys.builtin_module_names or part in sys.modules:
                return None
            message = f"there is no module {part!r} in {folder.resolve()}"
            known = [path.stem for path in folder.glob("*.py")]
            near = nearest(part, known)
            raise wrong(("model",), message, given=text, nearest=near and text.replace(part, near, 1))
        paths = [*(spec.submodule_search_locations or ())]
    found = None if spec is None or spec.origin is None else Path(spec.origin)
    return found if found is not None and found.suffix == ".py" else None


def check_images(
    data: Checked, place: DataPlace, tell: Callable[[str], None], seconds: float = SECONDS
) -> None:
    """Refuse class folders with files that cannot be decoded, all at once: InvalidSpec.

    Of more images than can be decoded in these seconds, a random sample; it is told how many.
    """
    paths = [*images_of(data.component, data.params, place.root())]
    broken = dict(no_images(paths))
    undecoded = [path for path in paths if path not in broken]
    random.Random(0).shuffle(undecoded)
    if len(undecoded) > MANY:
        tell(f"decoding {len(undecoded):,} images, {seconds:.0f} s at most")
    looked = 0
    until = time.monotonic() + seconds
    for start in range(0, len(undecoded), TOGETHER):
        if looked and time.monotonic() > until:
            tell(f"decoded {looked:,} of {len(undecoded):,} images, a random sample")
            break
        some = undecoded[start : start + TOGETHER]
        broken |= _undecoded(some)
        looked += len(some)
    if broken:
        base = place.path or place.root() or Path()
        given = str(place.path or data.params["folder"])
        shown = [f"{os.path.relpath(path, base)} ({broken[path]})" for path in sorted(broken)]
        raise wrong(("data",), _broken_text(shown), given=given)


def _undecoded(paths: Sequence[Path]) -> dict[Path, str]:
    """Files that the readers of images will refuse, and why; nothing without Pillow."""
    if importlib.util.find_spec("PIL") is None:
        return {}
    with warnings.catch_warnings(), ThreadPoolExecutor(os.cpu_count()) as pool:
        warnings.simplefilter("ignore")  # Pillow's, of sizes
        return {path: why for path, why in zip(paths, pool.map(_fault, paths), strict=True) if why}


def _fault(path: Path) -> str:
    from PIL import Image

    try:
        with Image.open(path) as image:
            image.load()
            if image.mode in ("I", "F") and (image.mode, image.format) not in (("I", "PNG"), ("I", "PPM")):
                return "it has 32 bits per channel: save it with 8 or 16"
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        return str(error)
    return ""


def _broken_text(shown: Sequence[str], more: int = 0) -> str:
    count = len(shown) + more
    dots = ", ..." if count > LISTED else ""
    said = "1 file is no image" if count == 1 else f"{count} files are no images"
    return f"{said}: {', '.join(shown[:LISTED])}{dots}; replace or remove {'it' if count == 1 else 'them'}"


def check_files(spec: EvaluateJobSpec, place: DataPlace, tell: Callable[[str], None]) -> None:
    """Refuse other data of files that a worker's reader cannot use or decode: InvalidSpec."""
    facts = load().find("data", spec["data"]["name"]).facts or {}
    if facts.get("class_folders") or not isinstance(spec["data"]["params"].get("folder"), str):
        return
    tell("looking at the data")
    for look in look_at_data(load(), spec, place.root()):
        faults = [*_faults(look)]
        if faults:
            message = "; ".join(place.with_paths(fault) for fault in faults)
            raise wrong(("data",), message, given=str(place.path or spec["data"]["name"]))


def _faults(look: dict[str, object]) -> Iterator[str]:
    if look["looked"] and look["problem"]:
        yield str(look["problem"])
    elif look["looked"] and (unreadable := look["unreadable"]):
        assert isinstance(unreadable, list)
        yield f"{look['unreadable_count']} of {look['decoded']} examples looked at cannot be read"
        yield from (str(text).removesuffix(REMEDY) for text in unreadable[:LISTED])
