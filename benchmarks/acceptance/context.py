"""What a check gets: the device, its time, whether this is a dry run. torch comes with the device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from benchmarks.acceptance.record import Kind

if TYPE_CHECKING:
    import torch

    from tests.support.emulated_device.device import EmulatedDevice


T = TypeVar("T")


@dataclass(frozen=True)
class Context:
    """What a check gets.

    Attributes:
        kind: Of the device.
        dry: Whether sizes are tiny, and measured times mean nothing.
        seconds: The time that the check has; it is ended then.
        folder: An empty folder of its own.
        number: Of the part of the check that this is, from 0.
        parts: Into which the check is split.
    """

    kind: Kind
    dry: bool
    seconds: float
    folder: Path
    number: int = 0
    parts: int = 1

    def share(self, cases: Iterable[T]) -> list[T]:
        """The cases of this part: every n-th."""
        return list(cases)[self.number :: self.parts]

    @property
    def asked(self) -> str:
        """`execution.device` of a job for the device."""
        return "cpu" if self.kind == "cpu" else "cuda"

    @contextmanager
    def opened(self, memory: int | None = None) -> Iterator[torch.device]:
        """The device, to send tensors to.

        Args:
            memory: Bytes that an emulated one has; None for no end.
        """
        import torch

        from tests.support.emulated_device.device import emulated_device

        if self.kind == "emulated":
            with emulated_device(memory=memory) as emulated:
                yield emulated.device
        else:
            yield torch.device("cuda", 0) if self.kind == "cuda" else torch.device("cpu")


@contextmanager
def emulation() -> Iterator[EmulatedDevice]:
    """The emulated device, of which a check on any device may ask what it expects."""
    from tests.support.emulated_device.device import emulated_device

    with emulated_device() as device:
        yield device


def dtype_offered(kind: Kind, dtype: torch.dtype) -> bool:
    """Whether the device computes in it by its own units: old GPUs emulate bfloat16."""
    import torch

    if kind != "cuda" or dtype != torch.bfloat16:
        return True
    return bool(torch.cuda.is_bf16_supported(including_emulation=False))
