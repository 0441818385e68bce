"""A model's passes as compiled code (`torch.compile`), for attacks alone: its bits are not the model's own.

A compiled pass serves once its logits and gradients agree with the model's own, on two batches. Else the
model runs as it is, and the evidence has the reason. Each shape of batch is compiled by itself, when it has
come often; the choice depends on the passes alone, never on time, so that equal shards have equal bits.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from importlib.metadata import version

import torch
from torch import Tensor, nn

from assay.service.contract.findings.evidence import CompileEvidence
from assay.workers import accelerator
from assay.workers.containment.settings import from_environment
from assay.workers.evaluation.engine.captured import (
    NotPrepared,
    PassKind,
    PreparedPasses,
    Preparing,
    Run,
    answers,
)

# Relative error of an image's logits and gradients (norms) up to which compiled code agrees; bfloat16 rounds
# by 4e-3 at each operator, and compiled code more seldom.
BOUND = {torch.float64: 1e-10, torch.float32: 1e-4}
AUTOCAST_BOUND = 0.1
BACKEND = "inductor"
# Where inductor and Triton keep generated code, which they run: never a folder that another process writes.
CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
WALL = "compilers may not be started by contained evaluators here: ASSAY_SANDBOX_COMPILE is off"


class Compiled(PreparedPasses):
    """A model as attacks call it: compiled where that is possible."""

    name = "compiling passes"

    def __init__(
        self, model: nn.Module, first: int | None = None, preparing: Preparing | None = None
    ) -> None:
        super().__init__(first, preparing)
        self._model = model
        self._compiler: str | None = None
        wall = from_environment()
        if wall is not None and wall.mode != "off" and not wall.compiles:
            self._refused = WALL

    def __call__(self, images: Tensor) -> Tensor:
        """Logits of images, by a compiled pass if there is a fitting one."""
        return self.run(self._model, images, autocast=torch.is_autocast_enabled(images.device.type))

    def noted(self) -> dict[str, CompileEvidence]:
        """Evidence; nothing where no shape came often enough."""
        if not self.served and self._refused is None:
            return {}
        return {"compiled": {"passes": self.served, "compiler": self._compiler, "refused": self._refused}}

    def prepare(self, model: Run, sample: Tensor) -> Run:
        """Compiles the model's pass, and its gradient."""
        try:
            compiled = _torch_compile()(model)
            answers(compiled, sample, sample.requires_grad)
            self._compiler = _compiler_of(sample.device)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # a model that cannot be compiled runs as it is
            inner = getattr(error, "inner_exception", None) or error
            missing = inner is not error and shutil.which(os.environ.get("CXX", "g++")) is None
            if missing:
                raise NotPrepared("the worker has no C++ compiler") from error
            raise RuntimeError(str(inner).strip() or type(inner).__name__) from error
        return compiled

    def agrees(self, own: Tensor, other: Tensor, kind: PassKind) -> bool:
        """Whether each image's error is within the bound, and the same values are finite."""
        bound = AUTOCAST_BOUND if kind.autocast else BOUND[kind.dtype]
        error, size = ((some.nan_to_num(0, 0, 0).flatten(1)).norm(dim=1) for some in (own - other, own))
        return bool((own.isfinite() == other.isfinite()).all() and (error <= bound * size).all())


def _compiler_of(device: torch.device) -> str:
    if accelerator.is_accelerator(device):
        return f"triton {version('triton')}"
    from torch._inductor.cpp_builder import get_compiler_version_info, get_cpp_compiler

    said = re.findall(r"(?:gcc|clang) version [\w.]+", get_compiler_version_info(get_cpp_compiler()))
    return said[-1] if said else "C++"


def _torch_compile() -> Callable[[Run], Run]:
    """`torch.compile` with repeatable choices; its import takes seconds."""
    import torch._dynamo
    import torch._functorch.config
    import torch._inductor.config

    if not all(name in os.environ for name in CACHES):  # contained evaluators have temporary folders
        folder = tempfile.mkdtemp(prefix="assay-compiled-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        os.environ.update(dict.fromkeys(CACHES, folder))
    torch._functorch.config.donated_buffer = False  # a pass may have several gradients
    torch._dynamo.config.recompile_limit = 1 << 16  # what earlier shards compiled changes nothing
    torch._inductor.config.compile_threads = 1  # no processes beside this one
    torch._inductor.config.deterministic = True  # chooses no kernel by its time
    return torch.compile(backend=BACKEND, fullgraph=True, dynamic=False)
