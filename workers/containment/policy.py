"""What one evaluator may reach: the paths of its request, and those that its libraries need."""

from __future__ import annotations

import importlib.util
import json
import os
import site
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import accumulate
from pathlib import Path

from assay.service.catalog.catalog import load
from assay.service.contract.messages import EvaluatorRequest, runs_compiled
from assay.service.submission.data_folders import check_folder
from assay.service.submission.requirements import folders_read
from assay.workers.containment.limits import NO_LIMITS, Limits
from assay.workers.containment.settings import Containment
from assay.workers.containment.users import Users
from assay.workers.discovery.packages import installed

# Read by libraries. None holds a secret.
SYSTEM = (
    *("/usr", "/lib", "/lib64", "/opt/nvidia"),
    *("/etc/ld.so.cache", "/etc/ld.so.preload", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime"),
    *("/etc/timezone", "/etc/fonts", "/etc/ssl/openssl.cnf", "/etc/nsswitch.conf", "/etc/mime.types"),
    *("/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/loadavg", "/proc/filesystems", "/proc/version"),
    *("/proc/sys/kernel", "/proc/sys/vm", "/sys/devices/system", "/sys/fs/cgroup", "/sys/kernel/mm"),
    *("/dev/urandom", "/dev/random"),
)
WRITABLE_DEVICES = ("/dev/null", "/dev/zero", "/dev/full")
# For ranks of a training, which talk to localhost.
NAMES = (
    *("/etc/hosts", "/etc/host.conf", "/etc/resolv.conf", "/etc/gai.conf", "/etc/protocols"),
    *("/sys/bus/pci/devices", "/sys/class/net", "/sys/devices"),  # gloo looks at the interfaces
)
GPU = (
    *("/proc/driver/nvidia", "/proc/devices", "/proc/modules", "/proc/self", "/etc/OpenCL", "/etc/nvidia"),
    *("/sys/module/nvidia", "/sys/module/nvidia_uvm", "/sys/bus/pci", "/sys/class/drm", "/sys/devices"),
    *("/sys/kernel/dmabuf", "/var/run/nvidia-persistenced", "/proc/sys/fs"),
)
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 (where POSIX semaphores are)


@dataclass(frozen=True)
class Policy:
    """The permissions of the evaluator of a job."""

    folder: Path  # read and written
    files: frozenset[Path]  # of other jobs, read: weights of a request
    libraries: tuple[Path, ...]  # read
    temporary: Path  # for its temporary files
    limits: Limits = NO_LIMITS
    processes: bool = False  # it may start processes (a training on several devices, or with prepared images)
    loopback: bool = False  # it may use loopback TCP and start programs (a training on several devices)
    gpu: bool = False  # it may use the NVIDIA devices
    compiler: bool = False  # it may start programs (a compiler of passes)
    users: Users | None = None  # it becomes one of these

    def to_text(self) -> str:
        """One line, for `from_text`."""
        paths = {name: str(getattr(self, name)) for name in ("folder", "temporary")}
        several = {name: sorted(map(str, getattr(self, name))) for name in ("files", "libraries")}
        return json.dumps(asdict(self) | paths | several)

    @staticmethod
    def from_text(text: str) -> Policy:
        """The policy of a line."""
        values = json.loads(text)
        return Policy(
            **values
            | {
                "folder": Path(values["folder"]),
                "temporary": Path(values["temporary"]),
                "files": frozenset(map(Path, values["files"])),
                "libraries": tuple(map(Path, values["libraries"])),
                "limits": Limits(**values["limits"]),
                "users": values["users"] and Users(**values["users"]),
            }
        )


def files_of(request: EvaluatorRequest) -> frozenset[Path]:
    """The weights files of other jobs that a request names."""
    if request["kind"] == "self_test" or request["kind"] == "hash":
        return frozenset()
    named = [request["weights"], *(source["weights"] for source in request.get("sources", {}).values())]
    return frozenset(Path(path) for path in named if path is not None)


def data_of(
    request: EvaluatorRequest, environment: Mapping[str, str], forbidden: Collection[Path]
) -> frozenset[Path]:
    """The folders below the data root that a request's data and evaluations name by parameters for folders.

    For a root that may not be read as a whole, as it is the user's home or holds all jobs' files: `assay
    evaluate --data ./photos` keeps its state beside `photos`. Other parameters are a tenant's free texts.
    `request`: its `spec` names data. `forbidden`: the folder of all jobs' files, and what else is no job's;
    these, what is in them or holds them, and the home and what holds it are refused.
    """
    given, kept = environment.get("ASSAY_DATA_ROOT"), [_real(path) for path in forbidden]
    if not given or request["kind"] == "self_test":
        return frozenset()
    root = _real(Path(given))
    named = (_inside(root, text) for text in folders_read(load(), request["spec"]))
    return frozenset(
        path
        for path in named
        if path is not None
        and not any(path.is_relative_to(one) or one.is_relative_to(path) for one in kept)
        and not _home().is_relative_to(path)
    )


def _home() -> Path:
    return _real(Path("~").expanduser())


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _inside(root: Path, text: str) -> Path | None:
    if check_folder(text, None) is not None:
        return None
    try:
        path = _real(root / text)
        if path == root or not path.is_relative_to(root) or not path.is_dir():
            return None
    except (OSError, ValueError):  # not a path
        return None
    return None if any(part.startswith(".") for part in path.relative_to(root).parts) else path


def needs_loopback(request: EvaluatorRequest) -> bool:
    """Whether a request is a training on several devices, whose processes talk to each other."""
    return request["kind"] == "train" and request["spec"]["execution"].get("devices", 1) > 1


def needs_processes(request: EvaluatorRequest, threads: int) -> bool:
    """Whether a request may start processes: several devices, or cores to prepare images on."""
    if request["kind"] != "train":
        return False
    return needs_loopback(request) or request["cores"] - threads > 1


def needs_compiler(request: EvaluatorRequest, chosen: Containment) -> bool:
    """Whether a request compiles passes, and the operator allows compilers."""
    if not chosen.compiles:
        return False
    if request["kind"] == "plan":
        return request["spec"]["execution"].get("compile") == "auto"
    return request["kind"] == "evaluate" and runs_compiled(request)


def libraries(environment: Mapping[str, str], forbidden: Collection[Path]) -> tuple[Path, ...]:
    """The files and folders that any evaluator here reads; none contains one of `forbidden`."""
    own = Path(__file__).absolute().parents[2]  # the package: of links, in a checkout
    found = [own, *(path.resolve() for path in own.iterdir() if path.is_dir())]
    found += [Path(path) for path in (sys.prefix, sys.base_prefix, sys.exec_prefix, *sys.path) if path]
    found += [Path(path) for path in site.getsitepackages()]
    found += [Path(path) for path in environment.get("LD_LIBRARY_PATH", "").split(os.pathsep) if path]
    for name in ("ASSAY_DATA_ROOT", "ASSAY_WEIGHTS_ROOT", "ASSAY_CATALOG"):
        # A root that holds the home, such as /home: its folders are read by name.
        if environment.get(name) and not _home().is_relative_to(_real(Path(environment[name]))):
            found.append(Path(environment[name]))
    kept = [_real(path) for path in forbidden]
    real = {path.resolve() for path in found}
    real |= {path for path in _packages() if not any(path.is_relative_to(one) for one in kept)}
    private = {Path("/"), _home(), *kept, *(up for path in kept for up in path.parents)}
    return tuple(sorted(path for path in real if path not in private and path.exists()))


def _packages() -> Iterator[Path]:
    """Folders of packages with components: an editable package's may be outside `sys.path`."""
    for entry in installed():
        found = None
        with suppress(Exception):  # the catalog tells what is wrong
            for name in accumulate(entry.module.split("."), "{}.{}".format):
                found = importlib.util.find_spec(name)
                if found is None or found.origin is not None:  # no namespace: below it the package would run
                    break
        yield from map(_real, map(Path, (found and found.submodule_search_locations) or ()))


def users_here(chosen: Containment, environment: Mapping[str, str], *, gpu: bool) -> Users | None:
    """The users that this machine's evaluators may get, tried; None for none."""
    if chosen.users is None or chosen.mode == "off":
        return None
    if gpu and not chosen.users.demanded:
        text = "CUDA was never tried under a user of its own; ASSAY_SANDBOX_USER=required uses it"
        return replace(chosen.users, refused=text)
    return chosen.users.tried(chosen.state, libraries(environment, chosen.forbidden), environment)
