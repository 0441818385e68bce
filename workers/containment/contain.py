"""Contains this process under a policy, and says which parts of the containment this machine lacks."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from assay.service.contract.fleet.worker_records import refused_parts
from assay.workers.containment import landlock, limits, policy, seccomp, users
from assay.workers.containment.kernel import (
    Unavailable,
    drop_capabilities,
    enter_private_network,
    forbid_dumps,
    forbid_new_privileges,
    machine,
)
from assay.workers.containment.policy import Policy
from assay.workers.containment.system_call_numbers import NUMBERS
from assay.workers.containment.users import Users

# What each part holds back.
PARTS = {
    "dumps": "reading this process's memory",
    "capabilities": "the rights of root",
    "privileges": "set-user-id programs",
    "limits": "memory, processor time, file sizes, processes",
    "files": "files beside those of the job (Landlock)",
    "truncation": "truncating them (Landlock ABI 3)",
    "ports": "other TCP ports than those of a training's processes (a network namespace, or Landlock ABI 4)",
    "devices": "ioctl on other devices (Landlock ABI 5)",
    "signals": "signals to other processes (seccomp; of a training that may start some, Landlock ABI 6)",
    "calls": "other processes' memory, namespaces, processes (seccomp)",
    "sockets": "sockets of other processes (seccomp; of a training on several GPUs, Landlock ABI 6)",
    "metadata": "modes, owners, times and attributes of files, and watches on them (seccomp)",
    "scheduling": "processors and priorities of other processes (seccomp)",
    "user": "files and processes of the service, by the kernel's ordinary rules",
}
_BY_ABI = {"truncation": 3, "devices": 5}
_BY_CALLS = ("sockets", "metadata", "scheduling")
EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


def contain(
    chosen: Policy, parts: Collection[str] = tuple(PARTS), calls: Collection[str] | None = None
) -> dict[str, str]:
    """Restrict this process, which must have one thread, and all that it starts, for good.

    `files` and `calls` of `parts` need `privileges`; `calls`: that the filter looks at, None for all.
    """
    if sys.platform != "linux":
        return dict.fromkeys(PARTS, f"not on {sys.platform}")
    if len(os.listdir("/proc/self/task")) != 1:
        return dict.fromkeys(PARTS, "the process has more than one thread, and only one would be contained")
    missing: dict[str, str] = {}
    private, programs = False, chosen.loopback or chosen.compiler
    if chosen.loopback:
        with suppress(Unavailable):
            enter_private_network()
            private = True
    if chosen.users is not None and "user" in parts:
        _try(missing, "user", lambda: users.become(chosen))
    if chosen.users is None or "user" in missing:
        users.stay_root(chosen)
    steps: dict[str, Callable[[], None]] = {
        "dumps": forbid_dumps,
        "limits": lambda: limits.apply(chosen.limits, programs=programs, gpu=chosen.gpu),
        "capabilities": drop_capabilities,
        "privileges": forbid_new_privileges,
        "files": lambda: _restrict_files(chosen, private=private),
        "calls": lambda: _filter_calls(chosen, calls),
    }
    for part, apply in steps.items():
        if part in parts:
            _try(missing, part, apply)
    version = landlock.abi() if "files" in parts and "files" not in missing else 0
    return missing | dict(_missing_beside(chosen, missing, version, private=private))


def demanded(missing: Mapping[str, str], chosen: Users | None) -> dict[str, str]:
    """The missing parts without which evaluators are not wholly contained."""
    stated = () if chosen is not None and chosen.demanded else ("user",)
    return {part: why for part, why in missing.items() if part not in stated}


def refusal(missing: Mapping[str, str], mode: str) -> str | None:
    """Why no evaluator may start; None where evaluators may."""
    refused = {part: missing[part] for part in refused_parts(mode, missing)}
    if not refused:
        return None
    names = sorted({"ASSAY_SANDBOX_USER" if part == "user" else "ASSAY_SANDBOX" for part in refused})
    demands, steps = (" and ".join(f"{name}={value}" for name in names) for value in ("required", "auto"))
    text = f"{demands}, but evaluators cannot be wholly contained here; missing: {in_words(refused)}"
    return f"{text}. With {steps} work is taken without them"


def _missing_beside(
    chosen: Policy, missing: Mapping[str, str], version: int, *, private: bool
) -> Iterator[tuple[str, str]]:
    old = f"Landlock ABI {version}; {{}} has it".format
    for part, since in _BY_ABI.items():
        if version < since:
            yield part, old(since)
    if chosen.loopback and not private and version < 4:
        yield "ports", f"no network namespace, and {old(4)}"
    if version < landlock.COMPLETE_ABI:
        # The filter knows neither a training's processes nor a socket's address.
        if chosen.processes or chosen.compiler or "calls" in missing:
            yield "signals", old(landlock.COMPLETE_ABI)
        if chosen.loopback and chosen.gpu and not private:
            yield "sockets", old(landlock.COMPLETE_ABI)
    if "calls" in missing:
        yield from dict.fromkeys(_BY_CALLS, missing["calls"]).items()


def _try(missing: dict[str, str], part: str, apply: Callable[[], None]) -> None:
    try:
        apply()
    except (Unavailable, OSError) as error:
        missing[part] = str(error)


def _filter_calls(chosen: Policy, names: Collection[str] | None) -> None:
    if machine() not in NUMBERS:
        seccomp.check()
    seccomp.install(
        seccomp.program(
            processes=chosen.processes or chosen.compiler,
            programs=chosen.loopback or chosen.compiler,
            loopback=chosen.loopback,
            gpu=chosen.gpu,
            strangers=_ancestors(),
            architecture=machine(),
            names=names,
        )
    )


def _ancestors() -> list[int]:
    parent = os.getppid()
    with suppress(OSError, IndexError, ValueError):
        stat = Path(f"/proc/{parent}/stat").read_text()
        return [parent, int(stat.rpartition(")")[2].split()[1])]
    return [parent]


def _restrict_files(chosen: Policy, *, private: bool) -> None:
    rules = landlock.Ruleset(ports=not private)
    for path, rights in _rights(chosen):
        # A job may replace its weights by a link after the supervisor has looked.
        rules.allow(path, rights, follow=path not in chosen.files)
    if chosen.loopback and not private:
        # 0: a port that the kernel chooses, at which the processes meet.
        rules.allow_ports([0, *_ephemeral_ports()])
    rules.apply()


def _rights(chosen: Policy) -> Iterator[tuple[Path, landlock.Right]]:
    run = landlock.Right.EXECUTE if chosen.loopback or chosen.compiler else landlock.Right(0)
    for path in (*map(Path, policy.SYSTEM), *chosen.libraries):
        yield path, landlock.READ | run
    for path in chosen.files:
        yield path, landlock.READ
    # Of other processes only names: Landlock guards the rest.
    yield Path("/proc" if chosen.processes else "/proc/self"), landlock.READ
    for name in policy.WRITABLE_DEVICES:
        yield Path(name), landlock.READ | landlock.Right.WRITE_FILE
    if chosen.gpu:
        alone = chosen.users is not None and os.geteuid() == chosen.users.of(chosen.folder)
        yield from _gpu_rights(everywhere=chosen.loopback and alone)
    if chosen.loopback:
        yield from ((Path(name), landlock.READ) for name in policy.NAMES)
    if chosen.processes:
        yield policy.SHARED_MEMORY, landlock.CHANGE & ~landlock.Right.READ_DIR
    yield chosen.folder, landlock.CHANGE
    yield chosen.temporary, landlock.CHANGE | landlock.Right.MAKE_FIFO


def _gpu_rights(*, everywhere: bool) -> Iterator[tuple[Path, landlock.Right]]:
    use = landlock.READ | landlock.Right.WRITE_FILE | landlock.Right.IOCTL_DEV
    for device in Path("/dev").glob("nvidia*"):
        yield device, use
    for name in policy.GPU:
        yield Path(name), landlock.READ
    # CUDA opens files to name its threads. No rule knows the processes that a training starts later; a user
    # without other processes may write only to its own in all of /proc.
    own = Path("/proc" if everywhere else "/proc/self/task")
    yield own, landlock.READ | landlock.Right.WRITE_FILE | landlock.Right.TRUNCATE


def _ephemeral_ports() -> range:
    try:
        first, last = map(int, EPHEMERAL.read_text().split())
    except (OSError, ValueError):
        first, last = 32768, 60999
    return range(first, last + 1)


def in_words(missing: Mapping[str, str]) -> str:
    """The missing parts for a log line."""
    return "; ".join(f"{part} ({PARTS.get(part, '')}): {why}" for part, why in missing.items())
