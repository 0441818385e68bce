"""Memory and disks that ran out, as those who notice it say so."""

from __future__ import annotations

import errno
import mmap
import os
import resource
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from assay.workers.exhaustion import is_disk_full, is_out_of_memory
from assay.workers.jobs.failures import describe
from tests.support.children import in_a_child

GIB = 1 << 30


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
        RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"),
        RuntimeError("std::bad_alloc"),
        RuntimeError("unable to mmap 8 bytes from file </x>: Cannot allocate memory (12)"),
        RuntimeError("Caught RuntimeError in DataLoader worker process 0.\nstd::bad_alloc"),
        OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)),
    ],
)
def test_memory_that_ran_out_is_known_by_its_types_and_words(error: Exception) -> None:
    assert is_out_of_memory(error)
    failure = describe(error)
    assert (failure["error_type"], failure["retry"]) == ("out_of_memory", False)


@pytest.mark.parametrize("error", [RuntimeError("shapes"), OSError(errno.EIO, "x"), KeyError("memory")])
def test_other_errors_are_not(error: Exception) -> None:
    assert not is_out_of_memory(error)
    assert not is_disk_full(error)


def map_memory() -> None:
    mmap.mmap(-1, 8 * GIB)


def read_file() -> None:
    """As a library that reads a whole file."""
    with Path("/dev/zero").open("rb") as file:
        file.read(8 * GIB)


def map_tensor() -> None:
    torch.from_file("weights", shared=False, size=8 * GIB, dtype=torch.uint8)


@pytest.mark.parametrize(
    "work",
    [
        lambda: torch.empty(8 * GIB, dtype=torch.uint8),
        lambda: torch.zeros(4, 1).expand(4, 4 * GIB).clone(),
        lambda: np.zeros(8 * GIB, dtype=np.uint8),
        lambda: bytearray(8 * GIB),
        lambda: [0] * (2 * GIB),
        map_memory,
        read_file,
        map_tensor,
    ],
    ids=["torch", "clone", "numpy", "bytes", "list", "mmap", "read", "file"],
)
def test_under_a_real_limit(work: Callable[[], object], tmp_path: Path) -> None:
    with (tmp_path / "weights").open("wb") as file:
        file.truncate(8 * GIB)  # sparse

    def limited() -> object:
        os.chdir(tmp_path)
        resource.setrlimit(resource.RLIMIT_AS, (3 * GIB, resource.RLIM_INFINITY))
        try:
            work()
        except Exception as error:
            return [is_out_of_memory(error), describe(error)["error_type"], repr(error)]
        return "it found memory"

    known, error_type, text = in_a_child(limited)
    assert known, text
    assert error_type == "out_of_memory"


@pytest.mark.parametrize(
    ("number", "retry"), [(errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EFBIG, False)]
)
def test_a_full_disk_may_have_room_later(number: int, retry: bool) -> None:
    error = OSError(number, os.strerror(number), "/state/jobs/1/weights.safetensors")
    assert is_disk_full(error)
    failure = describe(error)
    assert (failure["error_type"], failure["retry"]) == ("disk_full", retry)
    assert "weights.safetensors" in failure["message"]
