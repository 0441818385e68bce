"""Checks of the machine: driver, memory, disk, containment, data sets. None imports torch."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from assay.service.contract.fleet.worker_records import refused_parts
from assay.workers.containment.contain import in_words
from assay.workers.containment.limits import machine_memory
from assay.workers.containment.probe import demanded_parts, missing_parts
from assay.workers.devices import device_files
from assay.workers.diagnosis.finding import GIB, Finding, fail, ok, warn
from assay.workers.settings import WorkerSettings
from assay.workers.weights.pulled import listed

MIN_DRIVER = 580
MIN_FREE_MEMORY = 2 * GIB
MIN_FREE_DISK = 5 * GIB
SMI_SECONDS = 60.0
MAX_NAMED = 5


def driver(dev: Path = Path("/dev")) -> Finding:
    """The NVIDIA driver, as its own tool sees it."""
    files = device_files(dev)
    if not files:
        return ok("driver", "no NVIDIA device: this box works on the CPU", devices=0)
    command = ["nvidia-smi", "--query-gpu=driver_version,name", "--format=csv,noheader"]
    try:
        done = subprocess.run(  # noqa: S603 (fixed command)
            command, capture_output=True, text=True, timeout=SMI_SECONDS, check=False
        )
    except FileNotFoundError:
        return fail(
            "driver",
            f"{files} device files of NVIDIA are there, but nvidia-smi is not",
            "install the driver's tools; in a container set NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return fail("driver", f"nvidia-smi does not answer: {error}", "reload the driver, or restart the box")
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    if done.returncode or not lines:
        said = " ".join((done.stdout or done.stderr).split())[:300] or f"exit code {done.returncode}"
        return fail(
            "driver",
            f"nvidia-smi fails: {said}",
            "install the driver of this kernel, or restart the box; `dmesg | grep -i nvrm` may say why",
        )
    version = lines[0].partition(",")[0].strip()
    names = [line.partition(",")[2].strip() for line in lines]
    text, facts = f"driver {version}: {', '.join(names)}", {"version": version, "gpus": names}
    if version.partition(".")[0].isdigit() and int(version.partition(".")[0]) < MIN_DRIVER:
        return warn("driver", text, f"install driver {MIN_DRIVER} or newer", **facts)
    return ok("driver", text, **facts)


def memory(settings: WorkerSettings) -> Finding:
    """Memory of the machine, and of each evaluator."""
    total, each = machine_memory(), settings.memory_each(1)
    free = _available()
    text = (
        f"{_gib(total)} in all, {_gib(free)} free; an evaluator may use {_gib(each) if each else 'all of it'}"
    )
    facts = {"total": total, "free": free, "evaluator": each}
    if free is not None and free < MIN_FREE_MEMORY:
        return warn("memory", text, "end other programs, or give the container more memory", **facts)
    return ok("memory", text, **facts)


def _available() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    sizes = {line.partition(":")[0]: line.split()[1] for line in lines if line.endswith(" kB")}
    return 1024 * int(sizes["MemAvailable"]) if "MemAvailable" in sizes else None


def _gib(size: int | None) -> str:
    return "an unknown amount" if size is None else f"{size / GIB:.1f} GiB"


def disks(settings: WorkerSettings) -> Iterator[Finding]:
    """Room in the folders of the state and of temporary files; both must be writable."""
    yield _disk("disk of the state", settings.state, "--state or ASSAY_STATE names another folder")
    yield _disk("disk of temporary files", Path(tempfile.gettempdir()), "TMPDIR names another folder")


def _disk(name: str, folder: Path, elsewhere: str) -> Finding:
    there = existing(folder)
    if not there.is_dir():
        return fail(name, f"{folder} cannot be made: {there} is a file", elsewhere, folder=str(folder))
    made = "" if there == folder else f" ({folder} is not there yet)"
    try:
        with tempfile.TemporaryFile(dir=there) as file:
            file.write(b"x")
            file.flush()
        free = shutil.disk_usage(there).free
    except OSError as error:
        text = f"{there} cannot be written to: {error.strerror}{made}"
        return fail(name, text, f"make it writable for this user; {elsewhere}", folder=str(folder))
    text, facts = f"{there}{made}: {_gib(free)} free", {"folder": str(folder), "free": free}
    if free < MIN_FREE_DISK:
        return warn(name, text, f"make room; {elsewhere}", **facts)
    return ok(name, text, **facts)


def existing(folder: Path) -> Path:
    """The path, or the nearest one above it that is there."""
    return next((one for one in (folder, *folder.parents) if one.exists()), Path("/"))


def sandbox(settings: WorkerSettings) -> Finding:
    """The containment of evaluators, found by trying."""
    mode = settings.sandbox
    if mode == "off":
        remedy = "set ASSAY_SANDBOX to auto or required"
        return warn("sandbox", "evaluators are not contained: ASSAY_SANDBOX=off", remedy, mode=mode)
    missing, every = demanded_parts(settings.trial), missing_parts(settings.trial)
    stated = ""
    if settings.sandbox_compile == "on":
        there = "" if shutil.which("g++") else ", but there is no g++"
        stated = f"; jobs with execution.compile may start programs (ASSAY_SANDBOX_COMPILE=on){there}"
    if not missing:
        stated += f"; not demanded, and missing: {in_words(every)}" if every else ""
        return ok("sandbox", f"evaluators are wholly contained{stated}", mode=mode, missing=[])
    text = f"missing: {in_words(missing)}{stated}"
    remedy = "docs/containment.md says which kernel and which settings of a container each part needs"
    report = fail if refused_parts(mode, missing) else warn
    return report("sandbox", text, remedy, mode=mode, missing=[*missing])


def missing_root(settings: WorkerSettings) -> Finding | None:
    """The fault of a data root that is no folder; else None."""
    root = settings.data_root
    if root is None or root.is_dir():
        return None
    remedy = "mount it, or correct --data-root or ASSAY_DATA_ROOT"
    return fail("data", f"the data root {root} is no folder", remedy, root=str(root))


def data_sets(settings: WorkerSettings) -> Iterator[Finding]:
    """The data sets below the data root with content hashes; reads every file."""
    root = settings.data_root
    begun = time.monotonic()
    command = [sys.executable, "-P", "-m", "assay.workers.data.formats.check", "--json"]
    environment = os.environ | ({} if root is None else {"ASSAY_DATA_ROOT": str(root)})
    done = subprocess.run(  # noqa: S603 (our own program)
        command, env=environment, capture_output=True, text=True, check=False
    )
    if not done.stdout:  # a set that cannot be used ends it with 1
        said = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        yield fail("data", f"the data sets cannot be looked at: {said[0]}", INSTALL)
        return
    report = json.loads(done.stdout)
    sets: list[dict[str, Any]] = report["sets"]
    usable = [one for one in sets if any(split["problem"] is None for split in one["splits"])]
    where = "no data root (ASSAY_DATA_ROOT)" if root is None else str(root)
    text = f"{where}: {len(usable)} usable data sets, read in {time.monotonic() - begun:.0f} s"
    yield ok("data", text, root=None if root is None else str(root))
    for one in sets:
        yield _data_set(one)
    for folder, why in report["others"].items():
        yield ok(f"folder {folder}", f"no data set: {why}")


# torch or a companion is missing
INSTALL = "install the worker's packages: pip install 'assay-robustness[worker]'"


def _data_set(found: dict[str, Any]) -> Finding:
    name = f"data {found['name']}" + (f" in {found['folder']}" if found["folder"] else "")
    usable = [split for split in found["splits"] if split["problem"] is None]
    if not usable:
        problem = found["splits"][0]["problem"].splitlines()[0]
        remedy = "`assay data check` lists what is missing; docs/data.md says how the folder must look"
        return warn(name, f"not usable: {problem}", remedy, **found)
    parts = [f"{split['split']} {split['examples']:,} examples, sha256 {split['sha256']}" for split in usable]
    return ok(name, "; ".join(parts), **{key: found[key] for key in ("folder", "classes", "splits")})


def pulled_weights(settings: WorkerSettings) -> Finding:
    """What is pulled into the weights folder, and its size; nothing is rehashed."""
    root = settings.weights_root
    found = listed(root)
    facts = {"root": str(root), "pulled": {one.reference: one.sha256 for one in found}}
    if not found:
        return ok("pulled weights", f"none in {root}", **facts)
    size = sum(one.size for one in found) / 10**9
    names = ", ".join(one.reference for one in found[:MAX_NAMED])
    more = f" and {len(found) - MAX_NAMED} more" if len(found) > MAX_NAMED else ""
    return ok("pulled weights", f"{names}{more}: {size:.1f} GB in {root}", **facts)
