"""`assay data publish`, `unpublish`, `stage` and `list`: sets and weights in the store and on this node."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TypedDict

from pydantic import ValidationError

from assay.service.contract.errors import AssayError
from assay.service.files.data_store import DataStore, PublishedSet
from assay.service.fitted_text import say, tell
from assay.service.store.connections import wrong_settings
from assay.workers.settings import WorkerSettings
from assay.workers.staging.publishing import publish
from assay.workers.staging.pulled import is_reference, publish_weights, stage_weights
from assay.workers.staging.scratch import Scratch, StagingFailed
from assay.workers.staging.sources import source_of
from assay.workers.staging.staging import stage
from assay.workers.staging.withdrawal import unpublish
from assay.workers.supervision.ledger import LEDGER_AWAY
from assay.workers.weights.download import UNITS, DownloadProgress, in_units

FAILED, WRONG = 1, 2
HASH_SHOWN = 16
ALLOWED = {"": 1, **UNITS, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
SIZE = re.compile(r"(\d{1,12}(?:\.\d{1,3})?)\s*([A-Za-z]*)")


class DataRequest(TypedDict):
    """What the command line asks for; settings that are None are the environment's."""

    action: str
    names: list[str]
    tenants: list[str]
    limit: str | None
    json: bool
    settings: dict[str, str | None]


def main(asked: DataRequest) -> int:
    """Run an action: 0, 1 where it failed, 2 for wrong settings."""
    try:
        given = {name: value for name, value in asked["settings"].items() if value is not None}
        settings = WorkerSettings(**given)  # type: ignore[arg-type]
        limit = settings.stage_bytes if asked["limit"] is None else bytes_of(asked["limit"])
    except ValidationError as error:
        return _failed("; ".join(wrong_settings(error)), WRONG)
    except ValueError as error:
        return _failed(f"--limit: {error}", WRONG)
    try:
        if asked["action"] == "list":
            return _list(settings, as_json=asked["json"])
        found = ACTIONS[asked["action"]](settings, asked, limit)
    except AssayError as error:
        return _failed(error.message, FAILED)
    except (StagingFailed, ValueError, OSError, *LEDGER_AWAY) as error:
        return _failed(str(error), FAILED)
    if asked["json"]:
        _write(json.dumps([_row(one) for one in found], indent=1))
    else:
        say("\n".join(map(_line, found)))
    return 0


def bytes_of(text: str) -> int:
    """The bytes of a size such as `200GB`. Raises ValueError."""
    found = SIZE.fullmatch(text.strip())
    if found is None or found[2].upper() not in ALLOWED:
        raise ValueError(
            f"{text!r} given; allowed: bytes, or a number with KB, MB, GB, TB, KiB, MiB, GiB, TiB"
        )
    return int(float(found[1]) * ALLOWED[found[2].upper()])


def _publish(settings: WorkerSettings, asked: DataRequest, limit: int) -> list[PublishedSet]:
    store, progress, given = _store(settings), DownloadProgress(), list[PublishedSet]()
    for name in asked["names"]:
        run, root = (
            (publish_weights, settings.weights_root) if is_reference(name) else (publish, _root(settings))
        )
        given.append(run(root, name, store, state=settings.state, tenants=asked["tenants"], report=progress))
    return given


def _unpublish(settings: WorkerSettings, asked: DataRequest, limit: int) -> list[PublishedSet]:
    store, found = _store(settings), list[PublishedSet]()
    for name in asked["names"]:
        one, contents = unpublish(store, name)
        tell(f"{name} is published no longer; {contents:,} contents were deleted")
        found.append(one)
    return found


def _stage(settings: WorkerSettings, asked: DataRequest, limit: int) -> list[PublishedSet]:
    progress, given = DownloadProgress(), list[PublishedSet]()
    data = Scratch(_root(settings)) if not all(map(is_reference, asked["names"])) else None
    with source_of(settings) as source:
        for name in asked["names"]:
            if data is None or is_reference(name):
                weights = Scratch(settings.weights_root)
                one = stage_weights(weights, source, name, limit=limit, report=progress)
            else:
                one = stage(data, source, name, limit=limit, report=progress)
            given.append(one)
    return given


def _store(settings: WorkerSettings) -> DataStore:
    if settings.published is None:
        raise StagingFailed(
            "no store of data: set ASSAY_DATA_STORE (--store) to a folder that the service sees"
        )
    return settings.published


def _list(settings: WorkerSettings, *, as_json: bool) -> int:
    roots = [root for root in (settings.data_root, settings.weights_root) if root is not None]
    staged = {root: [*Scratch(root).staged().values()] for root in roots}
    roots = [root for root in roots if staged[root] or root == settings.data_root]
    here = [one for root in roots for one in staged[root]]
    try:
        with source_of(settings) as source:
            there, problem = source.sets(), ""
    except (StagingFailed, OSError, AssayError, *LEDGER_AWAY) as error:
        there, problem = [], str(error)
    if as_json:
        body = {"here": [_row(one) for one in here], "store": [_row(one) for one in there]}
        _write(json.dumps(body, indent=1))
        return 0
    lines = [f"staged below {' and '.join(map(str, roots))}:", *(f"  {_line(one)}" for one in here)]
    lines += ["in the store:", *(f"  {_line(one)}" for one in there), *([f"  {problem}"] if problem else [])]
    say("\n".join(lines))
    return 0


def _root(settings: WorkerSettings) -> Path:
    if settings.data_root is None:
        raise StagingFailed("no data root: set ASSAY_DATA_ROOT (--data-root)")
    settings.data_root.mkdir(parents=True, exist_ok=True)
    return settings.data_root


def _row(one: PublishedSet) -> dict[str, object]:
    return {"name": one.name, "sha256": one.sha256, "files": one.files, "bytes": one.bytes}


def _line(one: PublishedSet) -> str:
    files = "1 file" if one.files == 1 else f"{one.files:,} files"
    return f"{one.name}  {in_units(one.bytes)} in {files}  sha256 {one.sha256[:HASH_SHOWN]}"


def _write(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def _failed(text: str, code: int) -> int:
    tell(f"error: {text}")
    return code


ACTIONS = {"publish": _publish, "stage": _stage, "unpublish": _unpublish}

if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
