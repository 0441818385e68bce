"""An accelerator without one: tensors that claim a device while their numbers are on the CPU.

    with emulated_device(memory=2**20) as device:
        model.to(device.device)(images.to(device.device))
    assert not device.waits

While it is open, `assay.workers.accelerator` speaks of it, so that the product takes CUDA's branches. It
refuses what CUDA refuses (`rules.py`, `memory.py`), and counts where the host waits for the device.

Kernels are the CPU's, and so is the default generator; an operator ends before the next begins. A copy to the
host that is asked not to block arrives with the next wait, and reading it earlier is an error. The kind of
the device is torch's `lazy`, which nothing else uses: for a `cuda` tensor autograd asks the driver for a
stream. Only the thread that opened the device can make tensors on it; other threads can pin memory.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.optim import optimizer
from torch.utils._python_dispatch import TorchDispatchMode

from tests.support.emulated_device import rules
from tests.support.emulated_device.autocast import told
from tests.support.emulated_device.backend import Backend, plugged_in
from tests.support.emulated_device.capture import Tape
from tests.support.emulated_device.memory import Memory
from tests.support.emulated_device.places import Place, place_of, poison

KIND = "lazy"
DEVICE = torch.device(KIND, 0)
CPU = torch.device("cpu")
FUSED = optimizer._get_fused_kernels_supported_devices()  # type: ignore[attr-defined]
aten = torch.ops.aten


class EmulatedTensor(torch.Tensor):
    """A tensor that says it is on the device; its storage is the CPU's."""

    @staticmethod
    def __new__(cls, host: Tensor, lease: object = None) -> EmulatedTensor:
        made: EmulatedTensor = torch.Tensor._make_subclass(
            cls, host, False, dispatch_device=True, device_for_backend_keys=DEVICE
        )
        made._host = host
        made._lease = lease
        return made

    _host: Tensor
    _lease: object

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is torch.ops.prim.device.default:
            return DEVICE
        if not _opened:
            raise RuntimeError(f"{func}: the emulated device is closed")
        return _opened[0].run(func, args, kwargs or {})

    @property
    def is_cuda(self) -> bool:
        """True, so that torch and libraries take CUDA's branches."""
        return True

    @property
    def data(self) -> Tensor:  # type: ignore[override]
        """As of every tensor; torch's own would lose the class."""
        return self.detach()

    @data.setter
    def data(self, value: Tensor) -> None:
        torch.Tensor.data.__set__(self, value)  # type: ignore[attr-defined]

    def numpy(self, *, force: bool = False) -> Any:
        """Refused, as by CUDA."""
        if force:
            return self.detach().cpu().numpy()
        raise TypeError(
            "can't convert cuda:0 device type tensor to numpy (emulated). Use Tensor.cpu() to copy it first"
        )

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.numpy()

    def tolist(self) -> Any:
        """A copy to the host, which waits."""
        return self.detach().cpu().tolist()

    def pin_memory(self, *_: Any) -> Tensor:
        """Refused, as by CUDA."""
        raise rules.PinnedMemoryError(
            "cannot pin a tensor of the device: only dense CPU tensors can be pinned"
        )

    def __reduce_ex__(self, protocol: Any) -> Any:
        """A copy to the host: a file that is saved from here is read on the CPU."""
        return self.detach().cpu().__reduce_ex__(protocol)

    def __deepcopy__(self, memo: dict[int, Any]) -> EmulatedTensor:
        made = self.detach().clone().requires_grad_(self.requires_grad)
        if getattr(self, "_is_param", False):
            made._is_param = True  # type: ignore[attr-defined]
        if self.grad is not None:
            made.grad = self.grad.clone()
        memo[id(self)] = made
        return made  # type: ignore[return-value]


class EmulatedDevice(TorchDispatchMode):
    """The device.

    Attributes:
        device: To send tensors to.
        memory: Bytes held, their peak, and the limit.
        waits: How often the host waited for the device to learn something from it, by operator and line.
        uploads: How often it sent something and waited until that had arrived, by operator and line.
        sent_bytes: Bytes that the host sent to it.
        event_waits: How often it waited for an event.
        launches: Operators that it was given, without views and without copies from or to the host.
        traffic: Bytes that these operators read and wrote, as if nothing stayed in a cache.
        products: How many were products of matrices and convolutions, without (False) and with TF32 (True).
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # what asks the compiler to skip it also imports it

    @classmethod
    def is_infra_mode(cls) -> bool:
        """True: modes of the product see operators first."""
        return True

    def __init__(self, memory: int | None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        # Factory functions then leave the device to this mode, without asking for a driver.
        self._mode_key = torch._C._TorchDispatchModeKey.FAKE
        self.device = DEVICE
        self.memory = Memory(memory)
        self.waits: Counter[Place] = Counter()
        self.uploads: Counter[Place] = Counter()
        self.event_waits = self.launches = self.traffic = self.sent_bytes = 0
        self.products: Counter[bool] = Counter()
        self.copies: list[tuple[Tensor, Tensor]] = []  # destination on the host, and what will be there
        self.tape: Tape | None = None  # while a graph is captured
        self.thread = threading.get_ident()
        self._pinned: dict[int, Tensor] = {}  # by address

    @property
    def bytes_held(self) -> int:
        """Bytes that tensors of the device hold now."""
        return self.memory.held

    @property
    def peak_bytes(self) -> int:
        """The most that they held."""
        return self.memory.peak

    def forget_counts(self) -> None:
        """Starts to count anew."""
        self.waits.clear()
        self.uploads.clear()
        self.products.clear()
        self.event_waits = self.launches = self.traffic = self.sent_bytes = 0
        self.memory.peak = self.memory.held

    def squeeze(self, share: float) -> None:
        """Leaves room for what is held now, and for this share of what the peak was above it."""
        self.memory.limit = self.memory.held + int(share * (self.memory.peak - self.memory.held))
        self.memory.peak = self.memory.held

    def finish(self, count: int | None = None) -> None:
        """Ends the first copies to the host that are under way; all without a count."""
        due = self.copies[:count]
        del self.copies[:count]
        for target, value in due:
            target.copy_(value)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return self.run(func, args, kwargs or {})

    def run(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Runs an operator of the CPU or of the device."""
        if func is torch.ops.prim.device.default:
            return DEVICE if isinstance(args[0], EmulatedTensor) else CPU
        ours: dict[int, EmulatedTensor] = {}
        theirs: list[Tensor] = []
        host_args, host_kwargs = (_unwrapped(values, ours, theirs) for values in (args, dict(kwargs)))
        asked = kwargs.get("device")
        there = asked is not None and torch.device(asked).type == KIND
        self._refuse_early_reading(func, theirs)
        if not ours and not there:
            return self._on_the_host(func, host_args, host_kwargs)
        if kwargs.get("pin_memory"):
            raise rules.PinnedMemoryError(
                f"{func}: only dense CPU tensors can be pinned, not one of the device"
            )
        if asked is not None:
            host_kwargs["device"] = CPU
        kind = rules.base_name(func)
        if kind in ("_to_copy", "copy"):
            return self._copied(func, args, asked, host_args, host_kwargs)
        if kind == "_fused_sdp_choice":
            return 0  # attention as matrix products: CUDA's fused kernels are not here
        self._check(func, args, kwargs, theirs)

        in_tf32 = rules.in_tf32(func)  # a graph keeps the kernels with which it was captured
        self.products.update(() if in_tf32 is None else (in_tf32,))

        def work() -> Any:
            quotient = rules.quotient(func, host_args, theirs)
            given = rules.with_rounded_factors(func, host_args, in_tf32)
            return func(*given, **host_kwargs) if quotient is None else quotient

        out = work() if self.tape is None else self.tape.record(work)
        if rules.launches(func):
            self._ran(func, host_args, host_kwargs, out)
        if asked is not None and not there:  # a factory that makes something on the CPU like a tensor of ours
            return out
        return self._wrapped(out, ours)

    def _check(
        self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], theirs: Sequence[Tensor]
    ) -> None:
        rules.refuse_mix(func, args, kwargs, theirs)
        rules.refuse_nondeterminism(func, args, kwargs)
        generators = [one for one in (*args, *kwargs.values()) if isinstance(one, torch.Generator)]
        if generators:
            raise rules.DeviceMixError(
                f"{func}: expected a generator of the device, but this one is on {generators[0].device}"
            )
        if rules.waits(func, args, kwargs):
            self._waited(func)
        if rules.base_name(func) in rules.INDEXING and theirs:
            self._sent(func)

    def _on_the_host(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """An operator of the CPU; pinned memory is what it is beside a device."""
        if func is aten.is_pinned.default:
            return self._is_pinned(args[0])
        if func is aten._pin_memory.default:
            return self.pin(args[0].clone())
        pinned = kwargs.pop("pin_memory", False)
        out = func(*args, **kwargs)
        return self.pin(out) if pinned else out

    def pin(self, host: Tensor) -> Tensor:
        """The tensor, as one in pinned memory."""
        self._pinned[host.untyped_storage().data_ptr()] = host
        return host

    def _copied(
        self,
        func: Any,
        args: Sequence[Any],
        asked: Any,
        host_args: Sequence[Any],
        host_kwargs: dict[str, Any],
    ) -> Any:
        """A copy, perhaps to or from the host."""
        waits = not rules.named(func, host_args, host_kwargs).get("non_blocking", False)
        is_new = rules.base_name(func) == "_to_copy"
        source, target = (args[0], None) if is_new else (args[1], args[0])
        from_device = isinstance(source, EmulatedTensor)
        if not is_new:
            to_device = isinstance(target, EmulatedTensor)
        else:
            to_device = from_device if asked is None else torch.device(asked).type == KIND
        if to_device:
            if waits and not from_device:
                self._sent(func)
            work = partial(func, *host_args, **host_kwargs)
            out = work() if self.tape is None else self.tape.record(work)
            if from_device:
                self._ran(func, host_args, host_kwargs, out)
            else:  # the host converts before it sends
                self.sent_bytes += source.numel() * out.itemsize
            return EmulatedTensor(out, self.memory.lease(out)) if is_new else target
        if target is not None and not self._is_pinned(target):
            waits = True  # as CUDA copies to memory that is not pinned
        if waits:
            self._waited(func)
            out = func(*host_args, **host_kwargs)
            return out if is_new else target
        value = (
            func(*host_args, **host_kwargs) if is_new else host_args[1].to(target).expand_as(target).clone()
        )
        if target is None:
            target = self.pin(torch.empty_like(value))
        poison(target, value)
        self.copies.append((target, value))
        return target

    def _ran(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> None:
        self.launches += 1
        self.traffic += rules.traffic(func, args, kwargs, out)

    def _waited(self, func: Any) -> None:
        self._refuse_in_capture(func)
        self.finish()
        self.waits[place_of(func)] += 1

    def _refuse_in_capture(self, func: Any) -> None:
        if self.tape is not None:
            raise RuntimeError(f"{func}: operation not permitted when stream is capturing (emulated)")

    def _sent(self, func: Any) -> None:
        self._refuse_in_capture(func)
        self.finish()
        self.uploads[place_of(func)] += 1

    def _is_pinned(self, host: Tensor) -> bool:
        return host.untyped_storage().data_ptr() in self._pinned

    def _refuse_early_reading(self, func: Any, theirs: Sequence[Tensor]) -> None:
        if not self.copies:
            return
        due = {target.untyped_storage().data_ptr() for target, _ in self.copies}
        if any(one.untyped_storage().data_ptr() in due for one in theirs):
            raise rules.PinnedMemoryError(f"{func} reads pinned memory before the copy into it has ended")

    def _wrapped(self, out: Any, ours: dict[int, EmulatedTensor]) -> Any:
        """Results as tensors of the device; what was given stays the object that it was."""
        if isinstance(out, Tensor):
            if (known := ours.get(id(out))) is not None:
                if known.shape != out.shape:
                    raise RuntimeError("the emulated device cannot change the shape of a tensor in place")
                return known
            return EmulatedTensor(out, self.memory.lease(out))
        if isinstance(out, list | tuple):
            made = [self._wrapped(one, ours) for one in out]
            return type(out)(*made) if hasattr(out, "_fields") else type(out)(made)
        return out


def _host_of(tensor: EmulatedTensor) -> Tensor:
    """The tensor as the CPU has it; made anew where autograd or `data` changed what the tensor is."""
    host: Tensor | None = getattr(tensor, "_host", None)
    if (
        host is None
        or host.data_ptr() != tensor.data_ptr()
        or host.shape != tensor.shape
        or host.stride() != tensor.stride()
        or host.dtype != tensor.dtype
    ):
        host = torch.empty(0, dtype=tensor.dtype)
        host.set_(tensor.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride())  # type: ignore[call-overload]
        tensor._host = host
        tensor._lease = _opened[0].memory.lease(host)
    return host


def _unwrapped(value: Any, ours: dict[int, EmulatedTensor], theirs: list[Tensor]) -> Any:
    """Arguments with the tensors of the CPU in place of those of the device; both are noted."""
    if isinstance(value, EmulatedTensor):
        host = _host_of(value)
        ours[id(host)] = value
        return host
    if isinstance(value, Tensor):
        theirs.append(value)
        return value
    if isinstance(value, list | tuple):
        return type(value)(_unwrapped(one, ours, theirs) for one in value)
    if isinstance(value, dict):
        return {key: _unwrapped(one, ours, theirs) for key, one in value.items()}
    return value


_opened: list[EmulatedDevice] = []
_swap = torch.utils.swap_tensors
_pin_memory = Tensor.pin_memory


def _pinned_by_any_thread(host: Tensor, *args: Any) -> Tensor:
    """Torch's copy to pinned memory, in other threads too, where the device sees no operator."""
    if threading.get_ident() == _opened[0].thread:
        return _pin_memory(host, *args)
    return _opened[0].pin(host.clone())


def _swap_if_moved(one: Tensor, other: Tensor) -> None:
    """Torch's exchange, but of a tensor with a view of itself: that of a module that is there already."""
    if one.data_ptr() != other.data_ptr() or not one.numel():
        _swap(one, other)


@contextmanager
def emulated_device(*, deterministic: bool = True, memory: int | None = None) -> Iterator[EmulatedDevice]:
    """The device, for as long as the context lasts.

    Args:
        deterministic: Whether deterministic algorithms are demanded.
        memory: Bytes that it has; None for no end.
    """
    assert not _opened, "one at a time"
    device = EmulatedDevice(memory)
    debug_mode = torch.get_deterministic_debug_mode()
    swap = torch.__future__.get_swap_module_params_on_conversion()
    lift = torch._C._only_lift_cpu_tensors()
    autocast = told(torch.autocast, KIND, EmulatedTensor)
    with (
        patch.object(torch, "autocast", autocast),
        patch.object(torch.amp, "autocast", autocast),
        patch.object(torch.utils, "swap_tensors", _swap_if_moved),
        patch.object(Tensor, "pin_memory", _pinned_by_any_thread),
        patch.object(optimizer, "_get_fused_kernels_supported_devices", lambda: [*FUSED, KIND]),
        plugged_in(Backend(device), DEVICE),
    ):
        torch.set_deterministic_debug_mode("error" if deterministic else "default")
        # The parameters of a module stay the objects that they are, as when a module goes to CUDA.
        torch.__future__.set_swap_module_params_on_conversion(True)
        torch._C._set_only_lift_cpu_tensors(True)
        _opened.append(device)
        try:
            with device:
                yield device
        finally:
            _opened.clear()
            torch._C._set_only_lift_cpu_tensors(lift)
            torch.__future__.set_swap_module_params_on_conversion(swap)
            torch.set_deterministic_debug_mode(debug_mode)
