"""The numbers of the system calls, against the headers of this machine where it has them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from assay.workers.containment import seccomp
from assay.workers.containment.system_call_numbers import NUMBERS

# aarch64 has the numbers that new architectures share.
HEADERS = {
    "x86_64": ("x86_64-linux-gnu/asm/unistd_64.h", "asm/unistd_64.h"),
    "aarch64": ("asm-generic/unistd.h",),
}
# Linux has them since then; older headers lack them. All are later than 424, where both number alike.
LATER = {
    "fchmodat2": 452,
    "setxattrat": 463,
    "removexattrat": 466,
    "open_tree_attr": 467,
    "file_setattr": 469,
}
FAMILIES = {
    "modes": {"fchmod", "fchmodat", "fchmodat2"},
    "owners": {"fchown", "fchownat"},
    "times": {"utimensat"},
    "attributes": {"setxattr", "lsetxattr", "fsetxattr", "setxattrat", "file_setattr"}
    | {"removexattr", "lremovexattr", "fremovexattr", "removexattrat"},
    "watches": {"inotify_init1", "inotify_add_watch", "fanotify_init", "fanotify_mark"},
    "scheduling": {"sched_setaffinity", "sched_setscheduler", "sched_setattr", "sched_setparam"},
    "addresses": {"connect", "bind", "sendto", "sendmsg", "sendmmsg"},
}
OF_X86_ALONE = {"chmod", "chown", "lchown", "utime", "utimes", "futimesat", "inotify_init"}


def numbers_of(header: Path) -> dict[str, int]:
    found = re.findall(r"^#define __NR(?:3264)?_(\w+)\s+(\d+)$", header.read_text(), re.MULTILINE)
    return {name: int(number) for name, number in found}


@pytest.mark.parametrize("architecture", sorted(HEADERS))
def test_numbers_are_those_of_the_headers(architecture: str) -> None:
    there = [path for path in (Path("/usr/include", name) for name in HEADERS[architecture]) if path.exists()]
    if not there:
        pytest.skip(f"no header with the numbers of {architecture}")
    known, ours = numbers_of(there[0]), NUMBERS[architecture]
    newest = max(known[name] for name in known if name != "syscalls")
    wrong = {name: (number, known.get(name)) for name, number in ours.items() if known.get(name) != number}
    # What the header is too old for, and what Linux has dropped from it.
    dropped = {"nfsservctl", "lookup_dcookie", "_sysctl", "uselib", "create_module"}
    assert {name for name, (number, _) in wrong.items() if number <= newest} <= dropped
    assert len(ours) - len(wrong) > 90


@pytest.mark.parametrize("architecture", sorted(NUMBERS))
def test_every_family_is_whole(architecture: str) -> None:
    ours = NUMBERS[architecture]
    for family, names in FAMILIES.items():
        assert names <= set(ours), family
    assert (set(ours) >= OF_X86_ALONE) == (architecture == "x86_64")
    assert {name: ours[name] for name in LATER} == LATER
    assert set(ours) >= set(seccomp.SCHEDULING)
