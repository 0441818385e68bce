"""`assay pull`: fetches weights into the weights folder, once. Arguments: `service/cli/arguments.py`.

An operator's command, the only part of Assay that asks the network for weights. It fetches tensors and texts,
never code, and reads a pickle of torchvision's or timm's authors as tensors alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.service.contract.errors import WeightsUnavailable
from assay.service.contract.weights.pulled import FORMS, PulledReference, PullRequest, parse_reference
from assay.service.fitted_text import say, tell
from assay.workers.weights.download import DownloadProgress, PullFailed, Unreachable, download, in_units
from assay.workers.weights.pulled import PulledWeights, find, keep, listed, name_commit, weights_root

if TYPE_CHECKING:
    from assay.workers.weights.origins import Origin

PARTIAL = ".partial"
FAILED, WRONG, UNREACHABLE = 1, 2, 3


def main(request: PullRequest) -> int:
    """Run the command: 0; 1 for a failure, 2 for a wrong name, 3 where a host does not answer."""
    root = Path(request["weights_root"]).expanduser().resolve() if request["weights_root"] else weights_root()
    references = request["references"]
    if request["local"] is not None and (len(references) != 1 or request["list"] or request["verify"]):
        return _failed(ValueError("--from goes with one reference, and without --list and --verify"), WRONG)
    if request["local"] is not None and not Path(request["local"]).expanduser().exists():
        return _failed(
            ValueError(f"--from: {request['local']} is no folder and no file on this machine"), WRONG
        )
    if request["list"] or (request["verify"] and not references):
        return show(root, verify=request["verify"], as_json=request["json"])
    if not references:
        return _failed(ValueError(f"name weights: {FORMS}; --list shows what is pulled"), WRONG)
    try:
        for text in references:
            _serve(root, text, request)
    except (ValueError, WeightsUnavailable) as error:
        return _failed(error, WRONG)
    except Unreachable as error:
        return _failed(error, UNREACHABLE)
    except (PullFailed, OSError) as error:
        return _failed(error, FAILED)
    except KeyboardInterrupt:
        sys.stderr.write("\ninterrupted: the same command goes on from here\n")
        return 130
    return 0


def _serve(root: Path, text: str, request: PullRequest) -> None:
    reference = parse_reference(text)
    if request["verify"]:
        _say(*_state(find(root, text)))
    elif request["local"] is not None:
        take(root, reference, Path(request["local"]).expanduser())
    else:
        _say(f"looking up {reference}")  # libraries load, and a host is asked
        pull(root, reference)


def pull(root: Path, reference: PulledReference) -> PulledWeights:
    """Fetch the weights of a reference; weights that are there are only compared with their hashes."""
    from assay.workers.weights.origins import default_of, origin_of

    there = _there(root, default_of(reference))
    moving = reference.source == "hf" and (there is None or there.reference != str(reference))
    if there is not None and not moving:
        return _already(there)
    try:
        origin = origin_of(reference)
    except Unreachable as error:
        if there is None:
            raise
        _say(f"{error}", f"so it is not known whether {reference} has moved")
        return _already(there)
    return _pulled(root, origin)


def take(root: Path, reference: PulledReference, path: Path) -> PulledWeights:
    """As `pull`, of weights on this machine; without a network."""
    from assay.workers.weights.local_files import local_origin

    origin = local_origin(reference, path)
    if origin.refs is not None:
        with contextlib.suppress(WeightsUnavailable):
            if (before := find(root, str(reference)).reference) != str(origin.reference):
                _say(f"{reference} was {before} until now, and is {origin.reference}")
    return _pulled(root, origin)


def _pulled(root: Path, origin: Origin) -> PulledWeights:
    if (found := _there(root, origin.reference)) is not None:
        if origin.refs is not None:
            name_commit(root, origin.reference.name, origin.refs, origin.reference.revision or "")
        return _already(found)
    where = origin.repository or "this machine"
    _say(f"{origin.reference} from {where} (license: {origin.license or 'not stated'})")
    with _staging(root, str(origin.reference)) as staged:
        _fetch(origin, staged)
        if origin.reference.source == "hf":
            origin = replace(origin, config=_facts(staged))
        found = keep(
            staged,
            root,
            origin.reference,
            revision=origin.revision,
            license=origin.license,
            repository=origin.repository,
            config=origin.config,
            aliases=origin.aliases,
        )
        if origin.refs is not None:
            name_commit(root, origin.reference.name, origin.refs, origin.reference.revision or "")
    _say(f"pulled {_summary(found)}")
    return found


def show(root: Path, *, verify: bool, as_json: bool) -> int:
    """List what is pulled, or compare it with its hashes; 1 where something differs."""
    everything = listed(root)
    faults = {one.reference: one.faults() if verify else [] for one in everything}
    if as_json:
        rows = [_row(one) | ({"faults": faults[one.reference]} if verify else {}) for one in everything]
        sys.stdout.write(json.dumps(rows, indent=2) + "\n")
    else:
        for one in everything:
            state = f"  DAMAGED: {'; '.join(faults[one.reference])}" if faults[one.reference] else ""
            say(f"{_summary(one)}{state or ('  ok' if verify else '')}")
        if not everything:
            say(f"nothing is pulled in {root}")
    return FAILED if any(faults.values()) else 0


def _there(root: Path, reference: PulledReference) -> PulledWeights | None:
    try:
        found = find(root, str(reference))
    except WeightsUnavailable:
        return None
    if faults := found.faults():
        _say(f"{found.reference} is damaged, and fetched again: {'; '.join(faults)}")
        return None
    return found


def _already(found: PulledWeights) -> PulledWeights:
    _say(f"already pulled: {_summary(found)}")
    return found


def _fetch(origin: Origin, staged: Path) -> None:
    from assay.workers.weights.hub import gated

    report = DownloadProgress()
    for other in staged.iterdir():
        if other.name not in {remote.name for remote in origin.files}:
            other.unlink()  # of an attempt that broke later
    for remote in origin.files:
        target = staged / remote.name
        if remote.cached is not None:
            _say(f"{remote.name} is on this machine: {remote.cached.parent}")
        try:
            download(remote, target, report)
        except PullFailed as error:
            if origin.gated and not isinstance(error, Unreachable):
                raise gated(origin.reference.name) from error
            raise
    if origin.convert is not None:
        (remote,) = origin.files
        _say("reading it as tensors, and writing model.safetensors")
        origin.convert(staged / remote.name, staged / "model.safetensors")
        (staged / remote.name).unlink()
    _check_parts(staged)


def _check_parts(staged: Path) -> None:
    index = staged / "model.safetensors.index.json"
    if index.exists():
        try:
            names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise PullFailed(f"{index.name} is no index of parts: {error}") from error
        if missing := sorted(name for name in map(str, names) if not (staged / Path(name).name).is_file()):
            raise PullFailed(f"the repository lacks parts of its weights: {', '.join(missing[:5])}")


def _facts(staged: Path) -> dict[str, Any]:
    from assay.workers.weights.hub import facts_of

    return facts_of(staged)


@contextlib.contextmanager
def _staging(root: Path, reference: str) -> Iterator[Path]:
    """A folder for a download, which stays where it breaks; one process at a time uses it."""
    partial = root / PARTIAL
    folder = partial / hashlib.sha256(reference.encode()).hexdigest()[:16]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (partial / f"{folder.name}.lock").open("w")
    except OSError as error:
        raise PullFailed(f"the weights folder {root} cannot be written: {error.strerror}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PullFailed(f"another process is pulling {reference}") from None
        yield folder
        with contextlib.suppress(OSError):
            os.unlink(lock.name)


def _row(one: PulledWeights) -> dict[str, Any]:
    return {
        "reference": one.reference,
        "aliases": [*one.aliases],
        "revision": one.revision,
        "license": one.license,
        "repository": one.repository,
        "sha256": one.sha256,
        "bytes": one.size,
        "pulled_at": one.pulled_at,
        "folder": str(one.folder),
        "config": dict(one.config),
    }


def _summary(one: PulledWeights) -> str:
    files = "1 file" if len(one.files) == 1 else f"{len(one.files)} files"
    size, licensed = f"{in_units(one.size)} in {files}", f"license {one.license or 'not stated'}"
    return f"{one.reference}  {size}  sha256 {one.sha256[:16]}  {licensed}  {one.folder}"


def _state(one: PulledWeights) -> list[str]:
    if faults := one.faults():
        raise PullFailed(f"{one.reference} is damaged: {'; '.join(faults)}")
    return [f"{_summary(one)}  ok"]


def _say(*lines: str) -> None:
    for line in lines:
        tell(line)
    sys.stderr.flush()


def _failed(error: Exception, code: int) -> int:
    _say(f"error: {error}")
    return code


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
