"""A user of its own for the evaluators of each job, where the supervisor is root.

The kernel's rules then keep an evaluator from files and processes of the service and of other jobs, beside
Landlock and the filter of calls. A job's user and group are a number made from its folder's name: the same
for all its evaluators, on any worker, without a table. The folder stays with that user (mode 2770: what root
writes there belongs to the group). Nothing outside the state folder is changed.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Protocol

from assay.service.files.job_files import FOLDER_MODE
from assay.workers.containment.kernel import Unavailable, drop_bounding_set

# Of linux/capability.h: to give files away, read and mend them later, end and become others.
RIGHTS = {"CHOWN": 0, "DAC_OVERRIDE": 1, "FOWNER": 3, "KILL": 5, "SETGID": 6, "SETUID": 7}
MAX_TRIED, MAX_TRIED_IN_FOLDER = 50_000, 500  # Tried before the first job; each folder gets its part
DEVICES = Path("/dev")


@dataclass(frozen=True)
class Users:
    """The numbers of the users that evaluators may get."""

    first: int
    count: int
    demanded: bool = False  # with ASSAY_SANDBOX=required
    refused: str = ""  # why no evaluator gets a user here

    def of(self, folder: Path) -> int:
        """User and group of the evaluators of a job with this folder."""
        digest = hashlib.blake2b(folder.name.encode(), digest_size=8).digest()
        return self.first + int.from_bytes(digest) % self.count

    def tried(self, state: Path, libraries: Collection[Path], environment: Mapping[str, str]) -> Users:
        """These users, refused where they cannot reach the state folder or read what evaluators read.

        If usable, state folder and artifacts may be passed through from now on, and their content is closed
        to others.
        """
        roots = [environment.get(name, "") for name in ("ASSAY_DATA_ROOT", "ASSAY_WEIGHTS_ROOT")]
        deep = [Path(root) for root in roots if root and Path(root).resolve() in libraries]
        try:
            _check_rights(state)
            with _acting_as(self.first, []):
                _check_passable(state.parents)
                _check_readable([*libraries, *_modules()], deep)
            _close(state, libraries)
        except (Unavailable, OSError) as error:
            return replace(self, refused=str(error))
        return self


class Permissions(Protocol):
    """What this module reads of a `policy.Policy`."""

    @property
    def folder(self) -> Path: ...  # noqa: D102

    @property
    def files(self) -> frozenset[Path]: ...  # noqa: D102

    @property
    def libraries(self) -> tuple[Path, ...]: ...  # noqa: D102

    @property
    def temporary(self) -> Path: ...  # noqa: D102

    @property
    def gpu(self) -> bool: ...  # noqa: D102

    @property
    def users(self) -> Users | None: ...  # noqa: D102


def become(chosen: Permissions) -> None:
    """Makes this root process its job's user for good, with the job's folders; else Unavailable."""
    users = chosen.users
    assert users is not None
    if users.refused:
        raise Unavailable(users.refused)
    user, lent = users.of(chosen.folder), _sources(chosen)
    groups = [*map(users.of, lent), *(_device_groups() if chosen.gpu else ())]
    ours = (chosen.folder, *lent)
    try:
        with _acting_as(user, groups):
            _check_passable([chosen.folder.parent, chosen.temporary.parent])
            data = [path for path in chosen.files if path.parent not in ours]
            _check_readable(chosen.libraries, data, MAX_TRIED_IN_FOLDER)
        for folder in lent:
            _lend(folder, users.of(folder), [path for path in chosen.files if path.parent == folder])
        for folder in {chosen.folder, chosen.temporary}:
            _give(folder, user, user)
        drop_bounding_set()
        os.setgroups(groups)
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    except (OSError, RecursionError) as error:
        raise Unavailable(f"user {user}: {error}") from None


def stay_root(chosen: Permissions) -> None:
    """Lets a process that loses root's rights use folders of jobs' users."""
    with suppress(OSError):
        owner = chosen.folder.stat()
        if os.geteuid() == 0:
            groups = {path.stat().st_gid for path in (chosen.folder, *_sources(chosen)) if path.exists()}
            if groups - {0}:
                os.setgroups([*groups])
            if owner.st_uid != 0:
                _give(chosen.folder, 0, owner.st_gid)


def _check_rights(state: Path) -> None:
    if os.geteuid() != 0:
        raise Unavailable("the supervisor is not root, and a user namespace of its own has one user alone")
    lines = Path("/proc/self/status").read_text().splitlines()
    held = int(next(line for line in lines if line.startswith("CapEff:")).split()[1], 16)
    lacking = [name for name, number in RIGHTS.items() if not held >> number & 1]
    if lacking:
        raise Unavailable(f"the supervisor has not the capabilities {', '.join(lacking)}")
    if state.exists() and state.stat().st_uid != 0:
        raise Unavailable(f"{state} is not root's: a service of another user could not read the jobs' files")


@contextmanager
def _acting_as(user: int, groups: list[int]) -> Iterator[None]:
    before = os.getgroups()
    try:
        os.setgroups(groups)
        os.setegid(user)
        os.seteuid(user)
    except OSError as error:
        _be_root(before)
        raise Unavailable(f"no user {user} here: {error.strerror} (ASSAY_EVALUATOR_USERS)") from None
    try:
        yield
    finally:
        _be_root(before)


def _be_root(groups: list[int]) -> None:
    os.seteuid(0)
    os.setegid(0)
    os.setgroups(groups)


def _modules() -> Iterator[Path]:
    """What Python finds first: a package may be closed though its folder is open."""
    yield Path(sys.executable)
    for folder in filter(os.path.isdir, sys.path):
        with suppress(OSError), os.scandir(folder) as entries:
            yield from (Path(entry.path) for entry in entries if entry.name != "__pycache__")


def _check_passable(folders: Iterable[Path]) -> None:
    for folder in folders:
        if not os.access(folder, os.X_OK, effective_ids=True):
            raise Unavailable(f"{folder} cannot be passed through by another user")


def _check_readable(paths: Iterable[Path], deep: Iterable[Path], most: int = MAX_TRIED) -> None:
    """Raises Unavailable for the first unreadable path; at most so many are tried below `deep`."""
    for path in paths:
        _check_path(path)
    waiting = list(deep)
    for path in waiting:  # grows, by levels
        _check_path(path)
        if most > 0 and path.is_dir() and not path.is_symlink():
            with os.scandir(path) as entries:
                waiting += (Path(entry.path) for entry in islice(entries, min(most, MAX_TRIED_IN_FOLDER)))
            most -= MAX_TRIED_IN_FOLDER


def _check_path(path: Path) -> None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise Unavailable(f"{path} cannot be reached by another user: {error.strerror}") from None
    need = os.R_OK | os.X_OK if stat.S_ISDIR(found.st_mode) else os.R_OK
    plain = stat.S_ISDIR(found.st_mode) or stat.S_ISREG(found.st_mode)
    if plain and not os.access(path, need, effective_ids=True):
        raise Unavailable(f"{path} cannot be read by another user")


def _close(state: Path, libraries: Collection[Path]) -> None:
    """Opens state and artifacts to be passed through, and closes their content."""
    artifacts = state / "artifacts"
    artifacts.mkdir(parents=True, exist_ok=True)
    for folder in (state, artifacts):
        for entry in [*os.scandir(folder)]:
            path = Path(entry.path)
            if not entry.is_symlink() and not any(
                one.is_relative_to(path) for one in (artifacts, *libraries)
            ):
                with suppress(FileNotFoundError):
                    _set_mode(path, path.stat().st_mode & ~0o007)
        _set_mode(folder, folder.stat().st_mode & ~0o007 | 0o001)


def _set_mode(path: int | Path, mode: int) -> None:
    if stat.S_IMODE(os.stat(path).st_mode) != stat.S_IMODE(mode):
        os.chmod(path, stat.S_IMODE(mode))


def _sources(chosen: Permissions) -> list[Path]:
    folders = {path.parent for path in chosen.files} - {chosen.folder}
    return sorted(folder for folder in folders if folder.parent == chosen.folder.parent)


def _lend(folder: Path, group: int, files: Iterable[Path]) -> None:
    """Lets a group read files of a folder; no link is followed, no file of a second name touched."""
    for path in (folder, *files):
        with suppress(FileNotFoundError):
            opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                found = os.fstat(opened)
                if stat.S_ISDIR(found.st_mode) or (stat.S_ISREG(found.st_mode) and found.st_nlink == 1):
                    os.fchown(opened, -1, group)
                    _set_mode(opened, found.st_mode & ~0o007 | (0o050 if path == folder else 0o040))
            finally:
                os.close(opened)


def _give(folder: Path, user: int, group: int) -> None:
    """Gives a folder with its content; no link is followed, no file of a second name touched."""
    for _, _, files, place in os.fwalk(folder):
        os.fchown(place, user, group)
        _set_mode(place, stat.S_ISGID | FOLDER_MODE)
        for name in files:
            with suppress(FileNotFoundError):
                found = os.stat(name, dir_fd=place, follow_symlinks=False)
                owned = (found.st_uid, found.st_gid) == (user, group)
                if stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and not owned:
                    os.chown(name, user, group, dir_fd=place, follow_symlinks=False)


def _device_groups() -> Iterator[int]:
    """Groups without which the devices of NVIDIA cannot be opened."""
    for device in DEVICES.glob("nvidia*"):
        found = device.stat()
        if found.st_mode & 0o066 == 0o060:
            yield found.st_gid
