"""Iterations by kernels: the kernels' own source, compiled here, has the bits of torch's operators.

g++ compiles it as functions over arrays, which take the place of kernels. NVRTC, where torch has brought it,
compiles it for an H100. On a card it has not run.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import shutil
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.models.attention.rpc import RPCAttention
from assay.models.attention.rpc_asymmetric import AsymmetricRPCAttention
from assay.models.attention.rpc_causal import CausalRPCAttention
from assay.models.layers.attention import pursuit_steps
from assay.models.layers.attention.pursuit_steps import (
    Compile,
    Elementwise,
    compiled,
    fused_step,
    plain_step,
    pursue,
)
from assay.models.layers.heads import attend, split_heads
from assay.workers import accelerator
from tests.support.emulated_device.device import EmulatedDevice, emulated_device

TYPES = {torch.float32: "float", torch.float64: "double"}
compiles = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")


def nvrtc() -> ctypes.CDLL | None:
    """NVIDIA's compiler in a library, of torch's build for CUDA."""
    package = importlib.util.find_spec("nvidia")
    places = package.submodule_search_locations if package is not None else None
    found = [path for place in places or () for path in Path(place).rglob("libnvrtc.so*")]
    return ctypes.CDLL(str(found[0])) if found else None


def split_source(function: str, results: int) -> tuple[str, int]:
    """The function's name, and how many operands stand before its results."""
    head = function[: function.index("{")]
    return head[: head.index("(")].split()[-1], head.count(",") + 1 - results


@pytest.fixture(scope="module")
def by_gxx(tmp_path_factory: pytest.TempPathFactory) -> Compile:
    """A compiler of functions of elements, for tensors of the CPU and of the emulated device."""

    @functools.cache
    def build(function: str, results: int) -> Elementwise:
        name, count = split_source(function, results)
        folder = tmp_path_factory.mktemp(name)
        given = ", ".join(f"p[{number}][i]" for number in range(count + results))
        loop = f"for (long i = 0; i < n; ++i) {name}({given});"
        loops = [f'extern "C" void run_{kind}(long n, {kind}** p) {{ {loop} }}' for kind in TYPES.values()]
        (folder / "source.cpp").write_text("\n".join([function, *loops]))
        command = ["g++", "-O2", "-Wall", "-Wno-unused-variable", "-Werror", "-shared", "-fPIC"]
        subprocess.run([*command, "-o", "kernel.so", "source.cpp"], cwd=folder, check=True)
        library = ctypes.CDLL(str(folder / "kernel.so"))

        def run(*operands: Tensor) -> Sequence[Tensor]:
            assert len(operands) == count
            device, operands = operands[0].device, tuple(one.detach().cpu() for one in operands)
            like = functools.reduce(torch.add, operands)  # of the shape and strides that an operator gives
            arrays = [one.contiguous() for one in torch.broadcast_tensors(*operands)]
            arrays += [torch.full(like.shape, torch.nan, dtype=like.dtype) for _ in range(results)]
            pointers = (ctypes.c_void_p * len(arrays))(*(one.data_ptr() for one in arrays))
            getattr(library, f"run_{TYPES[like.dtype]}")(ctypes.c_long(like.numel()), pointers)
            return [torch.empty_like(like).copy_(one).to(device) for one in arrays[count:]]

        return run

    return build


def operands(dtype: torch.dtype, per_token: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Keys, in the layout of a layer, a threshold that about half of them exceed, and values."""
    generator = torch.Generator().manual_seed(0)
    keys, values = split_heads(torch.randn(2, 9, 24, generator=generator, dtype=dtype), 2, 3)
    keys[0, 0, 0, :2] = torch.tensor([0.0, 1.0])
    tau = 0.5 + 0.4 * torch.rand(2, 3, 9 if per_token else 1, 1, generator=generator, dtype=dtype)
    tau[0, 0, 0] = 1.0  # a key on the threshold
    return keys, tau, values


def results(step: Any, keys: Tensor, tau: Tensor, values: Tensor, iterations: int) -> list[Tensor]:
    """S, U and Z of all iterations, and gradients."""
    leaves = [one.detach().requires_grad_() for one in (keys, tau, values)]

    def low_rank_step(point: Tensor, dropout: float) -> Tensor:
        return attend(point, point, leaves[2], None, dropout)

    states = list(pursue(step, leaves[:2], low_rank_step, iterations))
    output = low_rank_step(states[-1].point, 0.0)
    slopes = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output)
    gradients = torch.autograd.grad(output, leaves, slopes)
    duals = [state.dual for state in states[1:] if state.dual is not None]
    return [*(state.sparse for state in states), *duals, *(state.point for state in states), *gradients]


@pytest.mark.sampled
@compiles
@pytest.mark.parametrize("iterations", [1, 2, 3, 6])
@pytest.mark.parametrize("per_token", [False, True], ids=["a head's threshold", "a token's threshold"])
@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_kernels_have_the_bits_of_the_operators(
    by_gxx: Compile, dtype: torch.dtype, sign: int, per_token: bool, iterations: int
) -> None:
    given = operands(dtype, per_token)
    plain = results(partial(plain_step, sign), *given, iterations)
    fused = results(partial(fused_step, tuple(compiled(by_gxx, sign))), *given, iterations)
    assert len(plain) == 3 * iterations - 1 + 3
    assert 0.2 < (plain[0] != 0).double().mean() < 0.8
    for one, other in zip(plain, fused, strict=True):
        assert torch.equal(one, other)


@compiles
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_what_is_no_number_goes_as_through_the_operators(by_gxx: Compile, value: float) -> None:
    keys, tau, _ = operands(torch.float32, False)
    keys[0, 1, 2, 3] = value
    states = [plain_step(-1, keys, tau), fused_step(tuple(compiled(by_gxx, -1)), keys, tau)]
    torch.testing.assert_close(states[1].point, states[0].point, rtol=0, atol=0, equal_nan=True)
    assert torch.isnan(states[1].point[0, 1, 2, 3])


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(pursuit_steps, "_fused", {})
    monkeypatch.setattr(pursuit_steps, "_waits", {})
    monkeypatch.setattr(pursuit_steps, "compiler", None)
    with emulated_device() as opened:
        yield opened


def passed(layer: nn.Module, device: EmulatedDevice) -> tuple[list[Tensor], int]:
    """Output and gradient of a layer on the device, and its launches."""
    x = torch.randn(2, 9, 24, generator=torch.Generator().manual_seed(1)).to(device.device).requires_grad_()
    before = device.launches
    output = layer(x)
    gradients = torch.autograd.grad(output.square().sum(), [x, *layer.parameters()])
    return [one.detach().cpu() for one in (output, *gradients)], device.launches - before


def small(kind: type[RPCAttention] = RPCAttention, **options: Any) -> nn.Module:
    torch.manual_seed(2)
    return kind(24, 3, iterations=3, regularization=0.3, **options)


@compiles
@pytest.mark.parametrize("kind", [RPCAttention, CausalRPCAttention, AsymmetricRPCAttention])
@pytest.mark.parametrize("sign", [-1, 1])
def test_a_layer_on_a_device_with_a_compiler_goes_by_kernels_with_equal_bits(
    by_gxx: Compile,
    device: EmulatedDevice,
    kind: type[RPCAttention],
    sign: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    layer = small(kind, dual_sign=sign).to(device.device)
    expected, launches = passed(layer, device)
    monkeypatch.setattr(pursuit_steps, "compiler", by_gxx)
    passed(layer, device)  # tries them
    found, fewer = passed(layer, device)
    assert all(pursuit_steps._fused.values())
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)
    assert fewer < launches


def spoiled(compiler: Compile, word: str, other: str) -> Compile:
    """A compiler whose kernels compute something else."""
    return lambda function, results: compiler(function.replace(word, other), results)


def refuses(function: str, results: int) -> Elementwise:
    raise RuntimeError("nvrtc: error")


@pytest.mark.costly
@compiles
@pytest.mark.parametrize(
    ("word", "other"),
    [
        ("moved - tau", "moved - tau - tau"),
        ("above <= T(0) ? T(0)", "above <= T(0) ? T(1e-7)"),
        ("below = sparse < T(0)", "below = sparse > T(0)"),
        ("keys + point + moved", "keys + (point + moved)"),
        ("to_low_rank = -moved", "to_low_rank = moved"),
    ],
)
def test_kernels_with_other_bits_or_gradients_are_never_used(
    by_gxx: Compile, device: EmulatedDevice, word: str, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = small().to(device.device)
    expected, launches = passed(layer, device)
    monkeypatch.setattr(pursuit_steps, "compiler", spoiled(by_gxx, word, other))
    for again in (False, True):
        found, own = passed(layer, device)
        assert all(map(torch.equal, found, expected))
        assert own == launches or not again
    assert list(pursuit_steps._fused.values()) == [None]


def test_a_compiler_that_fails_is_asked_ever_more_seldom(
    device: EmulatedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = small().to(device.device)
    expected, _ = passed(layer, device)
    asked: list[str] = []

    def compiler(function: str, results: int) -> Elementwise:
        asked.append(function)
        return refuses(function, results)

    monkeypatch.setattr(pursuit_steps, "compiler", compiler)
    monkeypatch.setattr(pursuit_steps, "AGAIN", 2)
    tries = []
    for _ in range(9):
        assert all(map(torch.equal, passed(layer, device)[0], expected))
        tries.append(len(asked))
    assert tries == [1, 1, 1, 2, 2, 2, 2, 2, 3]


@compiles
def test_kernels_serve_after_an_error_that_has_passed(
    by_gxx: Compile, device: EmulatedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = small().to(device.device)
    expected, launches = passed(layer, device)
    broken = [True]

    def compiler(function: str, results: int) -> Elementwise:
        return refuses(function, results) if broken.pop() else by_gxx(function, results)

    monkeypatch.setattr(pursuit_steps, "compiler", compiler)
    monkeypatch.setattr(pursuit_steps, "AGAIN", 1)
    for _ in range(2):
        assert all(map(torch.equal, passed(layer, device)[0], expected))
    broken += [False] * 4
    passed(layer, device)  # tries them
    found, fewer = passed(layer, device)
    assert all(map(torch.equal, found, expected))
    assert fewer < launches


def test_other_types_the_cpu_and_what_follows_operators_have_no_kernels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pursuit_steps, "compiler", lambda *_: pytest.fail("asked for a kernel"))
    found: list[Any] = []

    def ask(keys: Tensor) -> Tensor:
        found.append(pursuit_steps.fastest_step(-1, torch.empty(2, 3, 9, 4, device="meta"), tau))
        return keys

    tau = torch.empty(2, 3, 1, 1)
    others = torch.empty(2, 3, 9, 4), torch.empty(2, 3, 9, 4, dtype=torch.bfloat16, device="meta")
    found += [pursuit_steps.fastest_step(-1, keys, tau) for keys in others]
    torch.func.vmap(ask)(torch.zeros(2))
    with pytest.warns(FutureWarning, match="jit.trace"):
        torch.jit.trace(ask, torch.zeros(2), check_trace=False)
    assert [step.func for step in found] == [plain_step] * 4


def test_sources_are_what_torch_compiles() -> None:
    """torch reads the name and the template of a function by a regular expression."""
    kernels = [one for sign in (-1, 1) for pair in compiled(accelerator.compiled, sign) for one in pair]
    names: list[str] = [one.kernel_name for one in kernels]  # type: ignore[attr-defined]
    assert names == ["pursuit_step", "pursuit_slopes"] * 4


def test_a_device_without_a_compiler_has_no_kernels(
    device: EmulatedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = small().to(device.device)
    expected, launches = passed(layer, device)
    monkeypatch.setattr(pursuit_steps, "compiler", accelerator.compiled)
    assert all(map(torch.equal, passed(layer, device)[0], expected))
    assert passed(layer, device)[1] == launches


@pytest.mark.skipif(nvrtc() is None, reason="torch has no NVRTC")
def test_nvrtc_compiles_them_for_an_h100_without_fused_multiplications() -> None:
    library = nvrtc()
    assert library is not None
    sources: list[tuple[str, int]] = []
    for sign in (-1, 1):
        list(compiled(lambda *given: sources.append(given) or refuses, sign))  # type: ignore[arg-type, func-returns-value]
    assert len(sources) == 8
    for function, results in sources:
        name, count = split_source(function, results)
        for kind in TYPES.values():
            given = ", ".join(f"p[{number}][i]" for number in range(count + results))
            program = f"{function}\n" + (
                f'extern "C" __global__ void run({kind}** p) {{ int i = threadIdx.x; {name}({given}); }}'
            )
            text = ptx(library, program)
            assert text.count("st.global") == results, text
            assert "add" in text
            assert "fma" not in text
            assert "mul.f" not in text


def ptx(library: ctypes.CDLL, program: str) -> str:
    """What NVRTC makes of a program with the options that torch gives it."""
    handle, size = ctypes.c_void_p(), ctypes.c_size_t()
    assert library.nvrtcCreateProgram(ctypes.byref(handle), program.encode(), None, 0, None, None) == 0
    options = (ctypes.c_char_p * 3)(b"--std=c++17", b"--gpu-architecture=compute_90", b"-default-device")
    status = library.nvrtcCompileProgram(handle, 3, options)
    library.nvrtcGetProgramLogSize(handle, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    library.nvrtcGetProgramLog(handle, log)
    assert status == 0, log.value.decode()
    library.nvrtcGetPTXSize(handle, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    library.nvrtcGetPTX(handle, text)
    return text.value.decode()
