"""Compiled passes of a model: they agree with its own, or its own pass and the reason."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn

from assay.workers.containment.settings import VARIABLE, Containment
from assay.workers.evaluation.engine import compiled
from assay.workers.evaluation.engine.captured import FIRST, HELD, REASON, Captures
from assay.workers.evaluation.engine.compiled import WALL, Compiled
from assay.workers.evaluation.engine.forward import Passes
from tests.support.emulated_device.device import emulated_device
from tests.support.small_network import SmallNetwork, differentiated

B = 6
CPU = torch.device("cpu")
pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture
def light() -> Iterator[None]:
    """What `torch.compile` does before it makes code: a trace, and its gradient. It needs no compiler."""
    with patch.object(compiled, "BACKEND", "aot_eager"):
        yield


def batches(dtype: torch.dtype = torch.float64, rows: int = B, count: int = FIRST + 4) -> Iterator[Tensor]:
    draws = torch.Generator().manual_seed(1)
    for _ in range(count):
        yield torch.rand(rows, 3, 4, 4, generator=draws, dtype=dtype)


def both(
    between: Callable[[Tensor], Tensor] = torch.relu, dtype: torch.dtype = torch.float64
) -> tuple[Passes, Passes]:
    """Passes that may be compiled, and the same without."""
    network = SmallNetwork(between).to(dtype)
    return Passes(Compiled(network), CPU), Passes(network, CPU)


def evidence(passes: Passes) -> dict[str, object]:
    model = passes._model
    assert isinstance(model, Compiled)
    return dict(model.noted().get("compiled", {}))


def compare(fast: Passes, plain: Passes, dtype: torch.dtype, bound: float) -> None:
    for images in batches(dtype):
        for found, expected in zip(differentiated(fast, images), differentiated(plain, images), strict=True):
            assert float((found - expected).norm()) <= bound * float(expected.norm())


@pytest.mark.costly
def test_passes_that_come_often_are_compiled_and_agree(light: None) -> None:
    fast, plain = both()
    assert fast.in_whole_batches
    assert not plain.in_whole_batches
    compare(fast, plain, torch.float64, 1e-10)
    assert evidence(fast)["passes"] == 4
    assert evidence(fast)["refused"] is None


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_compiled_code_agrees(
    dtype: torch.dtype, bound: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in compiled.CACHES:  # as of a contained evaluator
        monkeypatch.setenv(name, str(tmp_path))
    fast, plain = both(dtype=dtype)
    compare(fast, plain, dtype, bound)
    assert evidence(fast)["refused"] is None
    assert evidence(fast)["passes"] == 4
    assert "version" in str(evidence(fast)["compiler"])
    assert [*tmp_path.rglob("*.so")], "the caches are in the evaluator's folder"


@pytest.mark.costly
def test_every_gradient_of_a_pass_is_right(light: None) -> None:
    fast, plain = both()
    for images in batches():
        differentiated(fast, images)
    (images,) = batches(count=1)
    found = []
    for passes in (fast, plain):
        with torch.enable_grad():
            points = images.detach().requires_grad_(True)
            logits = passes(points)
            found.append(
                [
                    torch.autograd.grad(logits[:, column].sum(), points, retain_graph=True)[0]
                    for column in (0, 3, 0)
                ]
            )
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)
    assert evidence(fast)["passes"] == 5


@pytest.mark.parametrize(("rows", "served"), [(B - 1, 1), (B // 2 + 1, 1), (B // 2, 0), (B + 1, 0)])
def test_a_smaller_batch_fills_a_compiled_one_up(light: None, rows: int, served: int) -> None:
    fast, plain = both()
    for images in batches():
        fast(images)
    before = evidence(fast)["passes"]
    (images,) = batches(rows=rows, count=1)
    torch.testing.assert_close(fast(images), plain(images), rtol=0, atol=1e-12)
    assert evidence(fast)["passes"] == int(str(before)) + served


@pytest.mark.costly
def test_it_is_told_while_passes_are_compiled(light: None) -> None:
    told: list[str | None] = []
    network = SmallNetwork()
    fast = Compiled(network.double(), preparing=told.append)
    for number, images in enumerate(batches(), start=1):
        fast(images)
        assert told == ([] if number <= FIRST else ["compiling passes", None])
    refused = Compiled(SmallNetwork(random).double(), preparing=(again := list[str | None]()).append)
    for images in batches():
        refused(images)
    assert again == ["compiling passes", None], "also where it is refused"


@pytest.mark.costly
def test_so_many_shapes_are_compiled(light: None) -> None:
    fast, _ = both()
    for rows in [2**power for power in range(HELD + 1)]:
        for images in batches(rows=rows, count=FIRST + 1):
            fast(images)
    assert evidence(fast)["passes"] == HELD


def branching(hidden: Tensor) -> Tensor:
    return hidden if float(hidden.sum()) < 0 else torch.relu(hidden)


def random(hidden: Tensor) -> Tensor:
    return hidden + torch.rand_like(hidden)


def broken(hidden: Tensor) -> Tensor:
    if torch.compiler.is_compiling():
        raise NameError("no such name")
    return hidden


def other(hidden: Tensor) -> Tensor:
    return hidden * (1 + 1e-8) if torch.compiler.is_compiling() else hidden


@pytest.mark.parametrize(
    ("between", "reason"),
    [
        (branching, "data-dependent"),
        (random, "differ from the model's own"),
        (broken, "Observed exception"),
        (other, "differ from the model's own"),
    ],
)
def test_a_model_that_cannot_be_compiled_runs_as_ever(
    light: None, between: Callable[[Tensor], Tensor], reason: str
) -> None:
    fast, plain = both(between)
    answers = []
    for passes in (fast, plain):
        torch.manual_seed(3)
        answers.append([differentiated(passes, images)[1] for images in batches()])
    # Also the random numbers after a refused compilation.
    assert all(torch.equal(one, two) for one, two in zip(*answers, strict=True))
    assert evidence(fast)["passes"] == 0
    said = str(evidence(fast)["refused"])
    assert reason in said
    own = "differ" in reason
    assert said.startswith("torch says: ") is not own
    assert own or len(said) <= REASON + len("torch says: ")
    assert not fast.in_whole_batches


def test_float32_has_a_wider_bound(light: None) -> None:
    fast, _ = both(other, torch.float32)
    for images in batches(torch.float32):
        fast(images)
    assert evidence(fast)["refused"] is None


@pytest.mark.costly
def test_autocast_has_passes_of_its_own(light: None) -> None:
    fast, _ = both(dtype=torch.float32)
    rough = fast.in_bfloat16()
    for images in batches(torch.float32):
        fast(images)
        rough(images)
    assert evidence(fast) | {"compiler": ""} == {"passes": 8, "compiler": "", "refused": None}


def test_a_compiled_pass_is_captured() -> None:
    def half(model: nn.Module) -> Callable[[Tensor], Tensor]:
        """Stands for compiled code, whose logits differ by rounding."""
        return lambda images: model(images) * (1 + 1e-6)

    with (
        emulated_device() as device,
        patch.object(compiled, "_torch_compile", lambda: half),
        patch.object(compiled, "_compiler_of", lambda device: "none"),
        patch.object(torch, "is_autocast_enabled", lambda kind: False),
    ):
        network = Compiled(SmallNetwork().to(device.device), first=2)
        captures = Captures(compiled=network)
        passes = Passes(network, device.device, captures=captures)
        for images in batches(torch.float32):
            found = differentiated(passes, images.to(device.device))
            exact = differentiated(Passes(half(network._model), device.device), images.to(device.device))
        assert all(torch.equal(one.cpu(), other.cpu()) for one, other in zip(found, exact, strict=True))
    assert captures.noted()["captured"] == {"replays": 4, "refused": None}
    # Passes between the second and the capture, and replays; the capture and its check served nothing.
    expected = {"passes": FIRST - 2 + 4, "compiler": "none", "refused": None}
    assert network.noted()["compiled"] == expected


def test_replays_of_own_passes_are_not_compiled_ones() -> None:
    """A model that is captured though it could not be compiled."""
    with emulated_device() as device, patch.object(torch, "is_autocast_enabled", lambda kind: False):
        network = Compiled(SmallNetwork().to(device.device), first=2)
        network._refused = "it was not possible"
        captures = Captures(compiled=network)
        passes = Passes(network, device.device, captures=captures)
        for images in batches(torch.float32):
            differentiated(passes, images.to(device.device))
    assert captures.noted()["captured"]["replays"] == 4
    assert network.noted()["compiled"]["passes"] == 0


def test_contained_evaluators_compile_where_the_operator_allows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, light: None
) -> None:
    for mode, allowed, refused in (("auto", False, WALL), ("auto", True, None), ("off", False, None)):
        chosen = Containment(mode, tmp_path, compiles=allowed)  # type: ignore[arg-type]
        monkeypatch.setenv(VARIABLE, chosen.to_text())
        assert json.loads(chosen.to_text())["compiles"] is allowed
        begun: list[str | None] = []
        fast = Compiled(SmallNetwork().double(), first=1, preparing=begun.append)
        assert fast.active is (refused is None)
        for images in batches(count=2):
            assert bool(fast.noted()) == (refused is not None), "a wall is told though no pass has come often"
            fast(images)
        assert fast.noted()["compiled"]["refused"] == refused
        assert begun == ([] if refused else ["compiling passes", None]), "told where a compiler may start"


@pytest.mark.costly
def test_a_worker_without_a_compiler_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    fast, plain = both()
    for images in batches():
        assert torch.equal(fast(images), plain(images))
    assert evidence(fast)["refused"] == "the worker has no C++ compiler"
