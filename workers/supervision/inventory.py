"""What a worker has: pulled weights, data sets by their content's hash; and which requirements it meets.

An evaluator hashes a data set once, and again when name, size or time of a file has changed. A file beside
the state keeps the hashes, for all workers of the machine and of a shared data root. A worker with other
content than a plan's leaves such shards to others until its files change.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.service.contract.extras import command_for, has_module, version_of
from assay.service.contract.fleet.worker_records import (
    MAX_STAGED,
    NO_FOLDER,
    NO_ROOT,
    NO_WEIGHTS,
    STAGES,
    STAGES_WEIGHTS,
    Gauges,
    Requirements,
)
from assay.service.contract.weights.pulled import PulledRecord, find_record, parse_reference
from assay.service.store.fleet import lease_owner
from assay.service.store.fleet.fair_queue import Lane
from assay.service.store.fleet.lanes import OpenLane
from assay.service.submission.data_folders import NOT_UTF_8
from assay.service.submission.packages import is_folder
from assay.service.submission.requirements import PlanningDevice, at_least
from assay.workers.devices import device_classes
from assay.workers.identity import identity
from assay.workers.settings import WorkerSettings
from assay.workers.staging.scratch import Scratch
from assay.workers.weights.pulled import folder_below, listed

FOLDER = "data-hashes"
MAX_LISTED = 200
LISTED_SECONDS = 60.0
PULLED_SECONDS = 2.0
REST = 20.0  # Rest between walks, in walks
LOCK_SECONDS = 0.5
BEATS_SECONDS = 12.0  # More than between two heartbeats


@dataclass(frozen=True)
class Hashed:
    """The hash of a data set's content, and its folders' state then."""

    folders: tuple[str, ...]
    fingerprint: str
    sha256: str


@dataclass(frozen=True)
class Walk:
    """What a walk through folders found (None: one is missing), its seconds and end."""

    fingerprint: str | None
    seconds: float
    at: float


class Inventory:
    """What one worker has; safe to use from any thread; walks through files hold no lock."""

    def __init__(self, settings: WorkerSettings, known_as: str = "") -> None:
        self._known_as = known_as
        self._workers_per_gpu = settings.workers_per_gpu
        self._root = settings.data_root
        self._folder = settings.state / FOLDER
        place = hashlib.sha256(str(self._root).encode()).hexdigest()[:8]
        self._file = self._folder / f"{lease_owner.host()}-{place}.json"
        self._lock = threading.Lock()
        self._known: dict[str, Hashed] = {}
        self._read_at = 0
        self._walks: dict[tuple[str, ...], Walk] = {}
        self._listed: tuple[float, list[str]] = (float("-inf"), [])
        self._weights_root = settings.weights_root
        self._pulled: tuple[float, dict[str, PulledRecord]] = (float("-inf"), {})
        self._judged: list[Lane] = []
        # Since when no worker has met what this worker lacks. After a jump of the database's clock none seems
        # online until its heartbeat.
        self._unmet_since: dict[Lane, float] = {}
        self._patience = BEATS_SECONDS if settings.among_others else 0.0
        self._scratch = None if self._root is None else Scratch(self._root)
        self._seen: set[str] = set()  # folders of lanes that were there when these were judged last
        # Folders, and references of weights, that alone keep this worker from lanes of its devices
        self.wanted: set[str] = set()
        self._seen_weights: dict[str, str] = {}  # by reference, the folder, as above
        self._stages = settings.stage
        self.staging: dict[str, str] = {}  # by folder or reference that is being brought, how far
        self.unstaged: set[str] = set()  # folders and references that no store publishes
        self.published = ""  # version of the store of data that the worker has heard of
        self.lacks: dict[str, str] = {}  # by digest of unmet requirements, why
        self.other_data: list[str] = []  # lacking for data that are not the planned ones

    def judge(self, lanes: Sequence[OpenLane], gpu: PlanningDevice, *, look: bool = True) -> bool:
        """Find out which requirements this worker meets; `look`: walks differing data, for minutes."""
        self._read()
        before = {*self._known}
        lacks: dict[str, str] = {}
        other: set[str] = set()
        for digest, stated in {one.lane.requirements: one.stated for one in lanes}.items():
            wrong = self._wrong_data(stated, look=look)
            if stated.get("besides") == self._known_as:
                lacks[digest] = "it has measured the shard that is computed again"
            if (reason := wrong or self._missing(stated, gpu)) is not None:
                lacks[digest] = reason
            other |= set() if wrong is None else {wrong}
        self.lacks, self.other_data = lacks, sorted(other)
        self._look_at_folders(lanes)
        self._judged = [one.lane for one in lanes]
        return not before <= {*self._known}

    def hear(self, published: str) -> None:
        """Takes the version of the store of data: after a change the store may have what it lacked."""
        if published != self.published:
            self.published, self.unstaged = published, set()

    @property
    def is_staging(self) -> bool:
        """Whether data or weights are on their way that other lanes need."""
        return self._stages and bool(self.wanted - self.unstaged)

    def lanes(self, unmet: Callable[[str, str], bool]) -> list[Lane]:
        """The lanes that this worker may claim from, of those judged last."""
        since = {lane: self._unmet_since.get(lane, time.monotonic()) for lane in self._judged}
        self._unmet_since = {
            lane: begun
            for lane, begun in since.items()
            if lane.requirements in self.lacks and not lane.identity and unmet(lane.device, lane.requirements)
        }
        at = time.monotonic()
        left = {lane for lane, begun in self._unmet_since.items() if at - begun >= self._patience}
        return [lane for lane in self._judged if lane.requirements not in self.lacks or lane in left]

    def known(self, label: str, folders: Collection[str], *, walk: bool) -> str | None:
        """The hash of a data set's content; None where it must be read."""
        self._read()
        found = self._known.get(label)
        if found is None or found.fingerprint != self._fingerprint(tuple(folders), again=walk):
            return None
        return found.sha256

    @contextmanager
    def using(self, folders: Collection[str], weights: Collection[str] = ()) -> Iterator[list[str]]:
        """Keeps staged copies where they are; folders and weights that were there when judged, and have gone.

        `weights`: references to pulled weights.
        """
        below = {one: self._seen_weights[one] for one in weights if one in self._seen_weights}
        with Scratch(self._weights_root).using(below.values()), self._keeping(folders):
            gone = [one for one, folder in below.items() if not (self._weights_root / folder).is_dir()]
            if self._root is not None:
                root, seen = self._root, self._seen.intersection(folders)
                gone += [one for one in seen if not (root / one).is_dir()]
            yield sorted(gone)

    def _keeping(self, folders: Collection[str]) -> contextlib.AbstractContextManager[object]:
        return contextlib.nullcontext() if self._scratch is None else self._scratch.using(folders)

    def fingerprint(self, folders: Collection[str]) -> str | None:
        """Names, sizes and times of all files in folders; None where one is missing."""
        return self._fingerprint(tuple(folders), again=True)

    def keep(self, label: str, found: Hashed) -> None:
        """Records a data set's hash for all workers of this machine."""
        with self._lock:
            self._known = {**self._known, label: found}
            self._write()

    @contextmanager
    def hashing(self, interrupted: Callable[[], bool]) -> Iterator[bool]:
        """Lets the machine's workers hash one after the other; False where interrupted."""
        with contextlib.ExitStack() as stack:
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                file = stack.enter_context((self._folder / "lock").open("w"))
            except OSError:  # each then hashes for itself
                yield True
                return
            while not interrupted():
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    yield True
                    return
                time.sleep(LOCK_SECONDS)
            yield False

    @property
    def gauges(self) -> Gauges:
        """For the heartbeat."""
        found: Gauges = {}
        if folders := self._folders():
            found["folders"] = folders
        found["libraries"] = identity().get("libraries", {})
        found["weights"] = dict([*self._weights().items()][: 10 * MAX_LISTED])
        if self._scratch is not None and (staged := sorted(self._scratch.staged().items())):
            found["staged"] = {name: one.sha256 for name, one in staged[:MAX_STAGED]}
        if known := sorted(self._known.items()):
            found["data"] = {label: one.sha256 for label, one in known[:MAX_LISTED]}
        if self.lacks:
            found["lacks"] = dict([*self.lacks.items()][:MAX_LISTED])
        return found

    def _wrong_data(self, stated: Requirements, *, look: bool) -> str | None:
        """Which data set has other content than required; None where none is known to."""
        for label, wanted in stated.get("data", {}).items():
            known = self._known.get(label)
            if known is None or known.sha256 == wanted:
                continue
            if look and self._fingerprint(known.folders, again=False) != known.fingerprint:
                self._known = {name: one for name, one in self._known.items() if name != label}
                continue
            return other_data(label, known.sha256, wanted)
        return None

    def _missing(self, stated: Requirements, gpu: PlanningDevice) -> str | None:
        if stated.get("gpu") and "cuda" not in device_classes():
            return "it has no GPU"
        if (problem := self._missing_folder(stated.get("folders", []))) is not None:
            return problem
        for reference, sha256 in stated.get("weights", {}).items():
            if (problem := self._missing_weights(reference, sha256)) is not None:
                return problem
        if (reason := self._missing_package(stated)) is not None:
            return reason
        memory, capability = stated.get("memory", 0), stated.get("capability")
        if gpu.memory is not None and gpu.memory < memory:
            each = self._workers_per_gpu
            part = "GPU" if each == 1 else f"part of a GPU (ASSAY_WORKERS_PER_GPU={each})"
            return f"its {part} has {gpu.memory:,} bytes of memory, {memory:,} are needed"
        if capability is not None and gpu.capability is not None and not at_least(gpu.capability, capability):
            return f"its GPU has the compute capability {gpu.capability}, {capability} is needed"
        return None

    def _look_at_folders(self, lanes: Sequence[OpenLane]) -> None:
        served, present, wanted = ("auto", *device_classes()), set[str](), set[str]()
        known, held = self._weights(), dict[str, str]()
        for one in lanes:
            folders = one.stated.get("folders", [])
            there = {name for name in folders if self._root and (self._root / name).is_dir()}
            why = self.lacks.get(one.lane.requirements, "")
            if one.lane.device in served and why.startswith((NO_FOLDER, NO_WEIGHTS, STAGES)):
                wanted |= {*folders} - there
                wanted |= {name for name in one.stated.get("weights", {}) if not find_record(known, name)}
            present |= there
            for name in one.stated.get("weights", {}):
                if (found := find_record(known, name)) is not None:
                    held[name] = folder_below(found[0])
        self._seen, self._seen_weights, self.wanted = present, held, wanted

    def _missing_folder(self, folders: Sequence[str]) -> str | None:
        for folder in folders:
            if self._root is None:
                return f"{NO_ROOT} (ASSAY_DATA_ROOT), {folder!r} is needed below it"
            if not (self._root / folder).is_dir():
                if self._stages and folder not in self.unstaged:
                    return f"{STAGES} {folder!r}: {self.staging.get(folder, 'it begins')}"
                return f"{NO_FOLDER} {folder!r} below its data root {self._root}"
        return None

    def _missing_weights(self, reference: str, sha256: str) -> str | None:
        found = find_record(self._weights(), reference)
        if found is None:
            if self._stages and reference not in self.unstaged:
                return f"{STAGES_WEIGHTS} {reference}: {self.staging.get(reference, 'it begins')}"
            return f"{NO_WEIGHTS} {reference}; there: {parse_reference(reference).command}"
        own = found[1]["sha256"]
        if sha256 not in ("", own):
            return f"its weights {reference} have the content {own}, {sha256} are needed"
        return None

    def _weights(self) -> dict[str, PulledRecord]:
        read_at, records = self._pulled
        if time.monotonic() - read_at > PULLED_SECONDS:
            records = {one.reference: one.record for one in listed(self._weights_root)}
            self._pulled = (time.monotonic(), records)
        return records

    def _missing_package(self, stated: Requirements) -> str | None:
        for library, version in stated.get("libraries", {}).items():
            if (mine := version_of(library)) is None:
                return f"it has no package {library}: {command_for(library)}"
            if version not in ("", mine):
                return f"it has {library} {mine}, {version} is planned"
        for folder, module in stated.get("files", {}).items():
            if not (has_module(module) or is_folder(self._root, folder)):
                return f"it has no folder {folder!r} below its data root: fill it, or {command_for(module)}"
        return None

    def _folders(self) -> list[str]:
        listed_at, names = self._listed
        if time.monotonic() - listed_at > LISTED_SECONDS and self._root is not None:
            with contextlib.suppress(OSError):
                with os.scandir(self._root) as entries:
                    seen = [one for one in entries if one.is_dir() and not NOT_UTF_8.search(one.name)]
                names = sorted(one.name for one in seen if not one.name.startswith("."))[:MAX_LISTED]
            self._listed = (time.monotonic(), names)
        return names

    def _fingerprint(self, folders: tuple[str, ...], *, again: bool) -> str | None:
        last = self._walks.get(folders)
        rested = last is None or time.monotonic() - last.at > REST * last.seconds
        if last is None or again or rested:
            begun = time.monotonic()
            found = None if self._root is None else _walk(self._root, folders)
            last = Walk(found, time.monotonic() - begun, time.monotonic())
            self._walks[folders] = last
        return last.fingerprint

    def _read(self) -> None:
        with self._lock, contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            written = self._file.stat().st_mtime_ns
            if written == self._read_at:
                return
            self._read_at = written
            found: dict[str, Any] = json.loads(self._file.read_text())
            if found["root"] == str(self._root) and found["identity"] == identity()["digest"]:
                theirs = {
                    label: Hashed(tuple(one["folders"]), one["fingerprint"], one["sha256"])
                    for label, one in found["data"].items()
                }
                self._known = {**self._known, **theirs}

    def _write(self) -> None:
        """Without room on the disk the next process hashes again."""
        data = {
            label: {"folders": one.folders, "fingerprint": one.fingerprint, "sha256": one.sha256}
            for label, one in self._known.items()
        }
        text = json.dumps({"root": str(self._root), "identity": identity()["digest"], "data": data})
        temporary = self._file.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            temporary.write_text(text)
            temporary.replace(self._file)
            self._read_at = self._file.stat().st_mtime_ns
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)


def other_data(label: str, found: str, planned: str) -> str:
    """Says that a data set is not the planned one, with both hashes."""
    return f"the data set {label} has the content {found} on this worker, {planned} in the plan"


def _walk(root: Path, folders: Sequence[str]) -> str | None:
    """Hash of names, sizes and times of all files below folders; None where one is missing."""
    digest, seen = hashlib.sha256(), set()
    for folder in folders:
        if not (root / folder).is_dir():
            return None
        digest.update(f"{folder}\0".encode())
        for path, below, names in os.walk(root / folder, followlinks=True):
            place = os.path.realpath(path)
            if place in seen:  # links may form a circle
                below.clear()
                continue
            seen.add(place)
            below.sort()
            for name in sorted(names):
                with contextlib.suppress(OSError):  # a link to nothing: reading it fails by name
                    found = os.stat(os.path.join(path, name))
                    relative = os.path.relpath(path, root)
                    digest.update(os.fsencode(f"{relative}/{name}\0{found.st_size}\0{found.st_mtime_ns}\n"))
    return digest.hexdigest()
