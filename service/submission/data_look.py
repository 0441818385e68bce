"""What a reader finds in the data of a spec, for a dry run: a process of its own decodes for some seconds.

The service decodes nothing itself. The process has neither its secrets nor its settings, but the data root.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from assay.service.catalog.catalog import Catalog
from assay.service.contract.extras import MissingExtra, require
from assay.service.contract.stored_specs import ComponentReference, EvaluateJobSpec, TrainJobSpec
from assay.service.submission.data_folders import name_roots

CHECK = "assay.workers.data.formats.check"
SECONDS, REST = 10, 110  # Seconds for decoding a part of a set, and for the rest: imports and lists of files.
MEMORY = 4 << 30  # Bytes of its memory: a file of a megabyte may hold gigabytes of equal rows.
WAIT = 30.0  # Seconds that a dry run waits for the look of another one.
LISTED = 100  # Messages about single files in an answer.
KEPT = ("HOME", "LANG", "LC_ALL", "PATH", "PYTHONPATH", "TMPDIR", "VIRTUAL_ENV")

_one_at_a_time = threading.Lock()


def look_at_data(
    catalog: Catalog, spec: TrainJobSpec | EvaluateJobSpec, root: Path | None
) -> list[dict[str, Any]]:
    """What is unreadable, ignored and empty in each data set of a spec that has a folder.

    An entry has {"data", "split", "problem"}, and without a problem `examples`, `decoded`, the first hundred
    messages `unreadable` and their `unreadable_count`, `ignored`, `empty_classes` and `notes`. `looked` is
    false where nothing could be looked at; the problem says why.
    """
    split = "train" if spec["kind"] == "train" else "test"
    limit = spec["limit"] if spec["kind"] == "evaluate" else None
    return [_look(data, split, root, limit) for data in _of_folders(catalog, spec)]


def _of_folders(catalog: Catalog, spec: TrainJobSpec | EvaluateJobSpec) -> Iterator[ComponentReference]:
    seen: list[ComponentReference] = []
    items = spec["evaluations"] if spec["kind"] == "evaluate" else []
    for data in (spec["data"], *(item["data"] for item in items)):
        if data is None or data in seen or not isinstance(data["params"].get("folder"), str):
            continue
        if "folder" in catalog.find("data", data["name"]).parameters["properties"]:
            seen.append(data)
            yield data


def _look(data: ComponentReference, split: str, root: Path | None, limit: int | None) -> dict[str, Any]:
    entry: dict[str, Any] = {"data": {**data}, "split": split, "looked": False}
    if root is None or not root.is_dir():
        return {**entry, "problem": "the service does not see the data root"}
    try:
        require("a look at the data", "worker")
    except MissingExtra as error:
        return {**entry, "problem": str(error)}
    if not _one_at_a_time.acquire(timeout=WAIT):
        return {**entry, "problem": "the service looks at the data of another dry run; try again"}
    try:
        asked = ["--data", json.dumps(data), "--split", split]
        found = _run(asked if limit is None else [*asked, "--limit", str(limit)], root)
    finally:
        _one_at_a_time.release()
    if isinstance(found, str):
        return {**entry, "problem": found}
    (part,) = found["sets"][0]["splits"]
    look = part["look"] or {}
    unreadable = look.get("unreadable", [])
    return {
        **entry,
        "looked": True,
        "problem": part["problem"],
        "examples": part["examples"],
        **look,
        "unreadable": unreadable[:LISTED],
        "unreadable_count": len(unreadable),
    }


def _run(arguments: list[str], root: Path) -> dict[str, Any] | str:
    command = [
        sys.executable,
        "-P",
        "-m",
        CHECK,
        "--json",
        "--no-hash",
        "--seconds",
        str(SECONDS),
        "--memory",
        str(MEMORY),
        *arguments,
    ]
    environment = {name: os.environ[name] for name in KEPT if name in os.environ}
    try:
        done = subprocess.run(  # noqa: S603 (our own interpreter and module; a spec that was validated)
            command,
            env=environment | {"ASSAY_DATA_ROOT": str(root)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS + REST,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"the look at the data did not end within {SECONDS + REST} s"
    if not done.stdout:  # a set that cannot be used ends it with 1
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        return name_roots(f"the look at the data failed: {last[:500]}", {"ASSAY_DATA_ROOT": root})
    # Without escapes, as the root's path may have letters beyond ASCII.
    text = json.dumps(json.loads(done.stdout), ensure_ascii=False)
    found: dict[str, Any] = json.loads(name_roots(text, {"ASSAY_DATA_ROOT": root}))
    return found
