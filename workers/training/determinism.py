"""Deterministic torch settings, restored afterwards."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.utils.deterministic

from assay.workers.precision import allow_tf32

_options: Any = torch.utils.deterministic  # Attributes made at import, invisible to the type checker


@contextmanager
def deterministic() -> Iterator[None]:
    """Deterministic algorithms, TF32 off (workers/precision.py), no cuDNN benchmarking inside the block.

    cuBLAS reads CUBLAS_WORKSPACE_CONFIG at its first handle, so a process that used CUDA before must have set
    it. An operation without a deterministic version raises a RuntimeError that names it.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    mode = torch.get_deterministic_debug_mode()
    fill = _options.fill_uninitialized_memory
    benchmark = torch.backends.cudnn.benchmark
    matmul, convolution = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    try:
        # Same as use_deterministic_algorithms, which imports the whole compiler: seconds.
        torch.set_deterministic_debug_mode("error")
        # Filling every new tensor costs time; no code here reads uninitialised memory.
        _options.fill_uninitialized_memory = False
        torch.backends.cudnn.benchmark = False
        allow_tf32(False)
        yield
    finally:
        torch.set_deterministic_debug_mode(mode)
        _options.fill_uninitialized_memory = fill
        torch.backends.cudnn.benchmark = benchmark
        torch.backends.cuda.matmul.allow_tf32 = matmul
        torch.backends.cudnn.allow_tf32 = convolution
