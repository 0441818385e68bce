"""The emulated device itself: it refuses what CUDA refuses, counts waits and bytes, runs out of memory."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.workers import accelerator
from assay.workers.jobs.session import resolve_device
from tests.support.emulated_device.device import EmulatedDevice, EmulatedTensor, emulated_device
from tests.support.emulated_device.rules import DeviceMixError, PinnedMemoryError


@pytest.fixture
def device() -> Iterator[EmulatedDevice]:
    with emulated_device() as opened:
        yield opened


MIXES: list[tuple[str, Callable[[Tensor, Tensor], Any]]] = [
    ("aten.add.Tensor", lambda ours, theirs: ours + theirs),
    ("aten.mm.default", lambda ours, theirs: ours @ theirs),
    ("aten.cat.default", lambda ours, theirs: torch.cat([ours, theirs])),
    ("aten.gather.default", lambda ours, theirs: ours.gather(0, theirs.long().clamp(0, 1))),
    ("aten.index_select.default", lambda ours, theirs: ours.index_select(0, theirs[0].long().clamp(0, 1))),
    ("aten.where.self", lambda ours, theirs: torch.where(theirs > 0, ours, 0.0)),
    ("aten.masked_fill.Scalar", lambda ours, theirs: ours.masked_fill(theirs > 0, 0.0)),
    ("aten.add_.Tensor", lambda ours, theirs: theirs[0, 0].add_(ours[0, 0])),
    ("aten.index.Tensor", lambda ours, theirs: theirs[(ours > 0)]),
    ("aten.index_put_.default", lambda ours, theirs: ours.index_put_((ours > 0,), theirs[0])),
    (
        "aten.rand.generator",
        lambda ours, theirs: torch.rand(2, generator=torch.Generator(), device=ours.device),
    ),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "mix"), MIXES, ids=[name for name, _ in MIXES])
def test_tensors_of_two_devices_are_refused(
    name: str, mix: Callable[[Tensor, Tensor], Any], device: EmulatedDevice
) -> None:
    with pytest.raises(DeviceMixError) as caught:
        mix(torch.rand(3, 3).to(device.device), torch.rand(3, 3))
    assert str(caught.value).startswith(name)


def test_what_cuda_lets_pass_passes(device: EmulatedDevice) -> None:
    host = torch.arange(6.0).view(2, 3)
    ours = host.to(device.device)
    assert torch.equal((ours + torch.tensor(2.0)).cpu(), host + 2)
    assert torch.equal(ours[torch.tensor([1, 0])].cpu(), host.flip(0))
    ours[torch.tensor([True, False])] = torch.tensor(7.0)
    host[0] = 7.0
    assert torch.equal(ours.cpu(), host)
    host.copy_(ours + 1)
    assert torch.equal(host, (ours + 1).cpu())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_division_by_a_number_is_a_product_with_its_reciprocal(
    dtype: torch.dtype, device: EmulatedDevice
) -> None:
    host = torch.arange(256).to(dtype)
    ours = host.to(device.device)
    product = host * (1 / torch.tensor(255, dtype=dtype))
    assert not torch.equal(product, host / 255)
    for quotient in (ours / 255, ours / torch.tensor(255.0), ours.clone().div_(255)):
        assert quotient.dtype == dtype
        assert torch.equal(quotient.cpu(), product)
    assert torch.equal((ours / ours.new_full((), 255)).cpu(), host / 255)
    assert torch.equal(ours.div(255, rounding_mode="floor").cpu(), host.div(255, rounding_mode="floor"))
    assert torch.equal((ours.long() / 255).cpu(), host.float() * (1 / torch.tensor(255.0)))


def test_numpy_is_refused(device: EmulatedDevice) -> None:
    for ask in (lambda tensor: tensor.numpy(), lambda tensor: tensor.__array__()):
        with pytest.raises(TypeError, match="can't convert cuda"):
            ask(torch.zeros(2, device=device.device))


def test_pinned_memory(device: EmulatedDevice) -> None:
    ours = torch.rand(4, device=device.device)
    with pytest.raises(PinnedMemoryError, match="only dense CPU tensors"):
        torch.empty(4, pin_memory=True, device=device.device)
    with pytest.raises(PinnedMemoryError, match="only dense CPU tensors"):
        ours.pin_memory()
    target = torch.empty(4, pin_memory=True)
    assert target.is_pinned()
    assert not torch.empty(4).is_pinned()
    target.copy_(ours, non_blocking=True)
    assert not device.waits
    with pytest.raises(PinnedMemoryError, match=r"aten\.add\.Tensor reads pinned memory before the copy"):
        target + 1
    event = accelerator.record_event()
    event.synchronize()
    assert device.event_waits == 1
    assert torch.equal(target, ours.cpu())
    unready = ours.to("cpu", non_blocking=True)  # torch makes it in pinned memory
    with pytest.raises(PinnedMemoryError, match="before the copy"):
        unready.sum()
    accelerator.synchronize(device.device)
    assert torch.equal(unready, target)


def test_a_copy_that_has_not_ended_reads_as_wrong_numbers(device: EmulatedDevice) -> None:
    flags = torch.zeros(3, dtype=torch.bool, device=device.device)
    target = torch.empty(3, dtype=torch.bool, pin_memory=True)
    unseen = target.numpy()  # torch does not see what reads it
    target.copy_(flags, non_blocking=True)
    assert unseen.all()
    device.finish()
    assert not unseen.any()


WAITS: list[tuple[str, Callable[[Tensor], Any]]] = [
    ("aten._local_scalar_dense.default", lambda ours: ours.sum().item()),
    ("aten._local_scalar_dense.default", lambda ours: bool((ours > 0).any())),
    ("aten._local_scalar_dense.default", lambda ours: int(ours.argmax())),
    ("aten.nonzero.default", lambda ours: ours.nonzero()),
    ("aten.index.Tensor", lambda ours: ours[ours > 0]),
    ("aten.masked_select.default", lambda ours: ours.masked_select(ours > 0)),
    ("aten._unique2.default", lambda ours: ours.unique()),
    ("aten.equal.default", lambda ours: torch.equal(ours, ours + 0)),
    ("aten._to_copy.default", lambda ours: ours.cpu()),
    ("aten._to_copy.default", lambda ours: ours.tolist()),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "wait"), WAITS)
def test_waits_are_counted(name: str, wait: Callable[[Tensor], Any], device: EmulatedDevice) -> None:
    ours = torch.rand(3, 3, device=device.device)
    (ours @ ours).relu_().cumsum(0)[torch.zeros(2, dtype=torch.int64, device=device.device)].clamp(min=0.5)
    assert not device.waits
    wait(ours)
    assert {place.operator for place in device.waits} == {name}
    assert device.waits.total() == 1
    device.forget_counts()
    assert not device.waits


def test_memory_is_held_until_the_last_tensor_of_a_storage_is_gone(device: EmulatedDevice) -> None:
    assert device.bytes_held == 0
    whole = torch.zeros(1024, device=device.device)
    part = whole[:10]
    assert device.bytes_held == 4096
    del whole
    assert device.bytes_held == 4096
    bigger = part.repeat(200)
    assert device.bytes_held == 4096 + 8192
    del part, bigger
    assert device.bytes_held == 0
    assert device.peak_bytes == 4096 + 8192


def test_memory_that_autograd_saves_is_held(device: EmulatedDevice) -> None:
    x = torch.rand(1024, device=device.device).requires_grad_()
    y = x.exp().exp()
    assert device.bytes_held == 3 * 4096
    y.sum().backward()
    del y
    assert device.bytes_held == 2 * 4096  # x and its gradient


def test_memory_runs_out() -> None:
    with emulated_device(memory=10_000) as device:
        held = torch.zeros(2048, device=device.device)
        with pytest.raises(torch.OutOfMemoryError, match="8192 of 10000 are held"):
            held + 1
        assert device.bytes_held == 8192


def test_a_module_keeps_its_parameters_and_what_shares_them(device: EmulatedDevice) -> None:
    module = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
    module[1].weight = module[0].weight
    weight = module[0].weight
    module.to(device.device)
    assert module[0].weight is module[1].weight is weight
    assert isinstance(weight, EmulatedTensor)
    assert isinstance(weight, nn.Parameter)
    twin = copy.deepcopy(module)
    assert twin[0].weight is twin[1].weight is not weight
    assert isinstance(twin[0].weight, nn.Parameter)


def test_autocast_casts_as_on_cuda_and_has_gradients(device: EmulatedDevice) -> None:
    x = torch.rand(3, 3, device=device.device).requires_grad_()
    with torch.autocast(device.device.type, torch.bfloat16):
        product = x @ x
        assert (product.dtype, product.softmax(-1).dtype) == (torch.bfloat16, torch.float32)
        assert torch.cat([product, x]).dtype == torch.float32
        with torch.autocast(device.device.type, enabled=False):
            assert (x @ x).dtype == torch.float32
        assert functional.linear(x, x).dtype == torch.bfloat16
        assert (x.double() @ x.double()).dtype == torch.float64
    assert (x @ x).dtype == torch.float32
    product.float().sum().backward()
    assert x.grad is not None
    assert x.grad.dtype == torch.float32


def test_the_product_takes_it_for_a_cuda_device_while_it_is_open() -> None:
    assert not accelerator.is_available() or torch.cuda.is_available()
    with emulated_device() as device:
        assert resolve_device("cuda") == resolve_device("auto") == device.device
        assert accelerator.device_class(device.device) == "cuda"
        left = torch.zeros(2, device=device.device)
    assert accelerator.kind == "cuda"
    assert accelerator.driver is torch.cuda
    assert torch.get_deterministic_debug_mode() == 0
    with pytest.raises(RuntimeError, match="closed"):
        left + 1


def test_it_counts_the_bytes_that_operators_read_and_write(device: EmulatedDevice) -> None:
    one = torch.ones(4, 8).to(device.device)  # 128 bytes
    place = torch.tensor([3]).to(device.device)  # 8 bytes

    def traffic(work: Callable[[], object]) -> int:
        device.forget_counts()
        work()
        return device.traffic

    assert traffic(lambda: one.view(8, 4)) == 0
    assert traffic(lambda: one + one[:1].expand(4, 8)) == 128 + 32 + 128
    assert traffic(lambda: one.mul_(2)) == 2 * 128
    assert traffic(lambda: torch.mul(one, 2, out=one)) == 2 * 128
    assert traffic(lambda: one.fill_(2)) == 128
    assert traffic(lambda: one.new_full((2,), 1.0)) == 8
    assert traffic(one.double) == 128 + 256
    assert traffic(lambda: one.index_select(0, place)) == 32 + 8 + 32
