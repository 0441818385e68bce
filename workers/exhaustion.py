"""Errors that say that memory or disk space ran out, whoever raised them."""

from __future__ import annotations

import errno

import torch

# Words of torch's CPU allocator, of C++, and of the system, which maps files.
NO_MEMORY = (
    "DefaultCPUAllocator: can't allocate memory",
    "DefaultCPUAllocator: not enough memory",
    "std::bad_alloc",
    "Cannot allocate memory",
)
# EFBIG is an operator's limit of a file (`containment/limits.py`).
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def is_out_of_memory(error: BaseException) -> bool:
    """Whether this process got no memory, of the CPU or of a GPU."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return True
    text = str(error)
    return any(words in text for words in NO_MEMORY)


def is_disk_full(error: BaseException) -> bool:
    """Whether a file found no room."""
    return isinstance(error, OSError) and error.errno in NO_ROOM
