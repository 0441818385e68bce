"""The self-test knows a device that computes wrong. No GPU is here: the faults are planted."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from assay.workers import accelerator
from assay.workers.jobs import self_test

CPU = torch.device("cpu")


def run(*classes: str) -> Any:
    return self_test.run({"kind": "self_test", "folder": "", "weights": None, "device_classes": [*classes]})


def test_this_processor_computes_right() -> None:
    report = run("cpu")
    (found,) = report["devices"]
    assert (found["device"], found["fault"]) == ("cpu", None)
    assert 0 < found["free"] <= found["total"]
    assert report["torch"] == str(torch.__version__)
    assert len(report["source_sha256"]) == 64


def test_the_known_values_are_those_of_exact_integers() -> None:
    size = self_test.SIZE
    left, right = (self_test._integers(size, size, modulus=modulus).to(torch.int64) for modulus in (17, 19))
    product = left @ right
    assert self_test.checksum(product.double()) == self_test.MATMUL
    images = self_test._integers(2, 4, 16, 16, modulus=7).double().requires_grad_()
    weights = self_test._integers(8, 4, 3, 3, modulus=5).double().requires_grad_()
    result = torch.nn.functional.conv2d(images, weights, padding=1)
    gradients = torch.autograd.grad(
        (result * self_test._integers(2, 8, 16, 16, modulus=3)).sum(), [images, weights]
    )
    everything = torch.cat([part.detach().flatten() for part in (result, *gradients)])
    assert self_test.checksum(everything) == self_test.CONVOLUTION


def test_the_results_are_the_same_in_any_rounding_of_the_factors() -> None:
    """TF32 keeps ten bits of a factor, bfloat16 seven: the integers need at most four."""
    left, right = (self_test._integers(64, 64, modulus=modulus) for modulus in (17, 19))
    assert torch.equal(left.bfloat16().float(), left)
    assert torch.equal(right.bfloat16().float(), right)


def test_a_device_that_does_nothing_is_caught_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "__matmul__", lambda left, right: torch.zeros_like(left))
    (found,) = run("cpu")["devices"]
    assert found["device"] == "cpu"
    assert found["fault"].startswith("a matmul of fixed integers gives the checksum ")
    assert found["fault"].endswith(f"where it must give {self_test.MATMUL}")


def test_one_wrong_number_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    convolution = self_test.convolution

    def flipped(device: torch.device) -> torch.Tensor:
        result = convolution(device)
        result[1234] += 1
        return result

    monkeypatch.setattr(self_test, "convolution", flipped)
    assert "a convolution with its gradients" in run("cpu")["devices"][0]["fault"]


@pytest.mark.parametrize("value", [0.5, float("nan"), float("inf")])
def test_what_is_no_integer_is_caught(monkeypatch: pytest.MonkeyPatch, value: float) -> None:
    monkeypatch.setattr(self_test, "matmul", lambda device: torch.full((2, 2), value))
    assert run("cpu")["devices"][0]["fault"] == "ValueError: results are not the integers that they must be"


def test_rounding_of_convolution_algorithms_is_no_fault() -> None:
    result = self_test.convolution(CPU)
    assert self_test.checksum(result + 0.001) == self_test.CONVOLUTION


def test_an_error_of_the_device_is_its_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(device: torch.device) -> torch.Tensor:
        raise RuntimeError("CUDA error: uncorrectable ECC error encountered\nCUDA kernel errors might be ...")

    monkeypatch.setattr(self_test, "matmul", broken)
    (found,) = run("cpu")["devices"]
    assert found["fault"] == "RuntimeError: CUDA error: uncorrectable ECC error encountered"


def test_a_gpu_that_torch_does_not_see_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.version, "cuda", None)
    cpu, gpu = run("cpu", "cuda")["devices"]
    assert cpu["fault"] is None
    assert gpu["device"] == "cuda"
    assert "is built without CUDA" in gpu["fault"]


def test_the_words_of_a_broken_driver_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise RuntimeError("Found no NVIDIA driver on your system. Please check\nthat you have one")

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.version, "cuda", "13.2")
    monkeypatch.setattr(torch.cuda, "init", broken)
    monkeypatch.setattr(accelerator, "collectives", lambda: None)
    (gpu,) = run("cuda")["devices"]
    assert gpu["fault"] == "RuntimeError: Found no NVIDIA driver on your system. Please check"


def test_memory_that_others_hold_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def describe(device: torch.device, found: Any) -> None:
        found["free"], found["total"] = 1_000_000, 80_000_000_000

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(self_test, "_describe", describe)
    monkeypatch.setattr(accelerator, "collectives", lambda: None)
    (gpu,) = run("cuda")["devices"]
    assert gpu["fault"] == "only 1,000,000 of its 80,000,000,000 bytes are free: other processes hold them"
