"""Caches of an evaluator, and loading of weights into a model."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import nn

from assay.workers.data.formats.dataset import MissingData
from assay.workers.jobs.failures import BadWeights
from assay.workers.jobs.loading import Loaded, state_sha256
from assay.workers.jobs.session import KEPT_DATA_SETS, Session, configure, resolve_device


def load(spec: dict[str, Any], weights: Path | None = None) -> Loaded:
    return Session().classifier(spec, device="cpu", weights=str(weights) if weights else None)


def saved(folder: Path, loaded: Loaded, **changes: Any) -> Path:
    """The weights of a model with some tensors replaced, added or (None) left out."""
    tensors = {name: t.clone() for name, t in loaded.classifier.state_dict().items()} | changes
    path = folder / "weights.safetensors"
    safetensors.torch.save_file({name: t for name, t in tensors.items() if t is not None}, path)
    return path


def test_random_weights_depend_on_the_seed_alone(spec: dict[str, Any]) -> None:
    first = load(spec).weights_sha256
    torch.manual_seed(99)
    torch.rand(3)
    assert load(spec).weights_sha256 == first
    assert load(spec | {"seed": 1}).weights_sha256 != first


def test_random_weights_leave_torchs_generator_alone(spec: dict[str, Any]) -> None:
    before = torch.get_rng_state()
    load(spec)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_model_is_ready_to_run(spec: dict[str, Any]) -> None:
    loaded = load(spec)
    assert loaded.untrained
    assert (loaded.image_size, loaded.dtype) == (16, torch.float32)
    assert not loaded.classifier.training
    assert not any(p.requires_grad for p in loaded.classifier.parameters())
    assert loaded.classifier(torch.zeros(2, 1, 16, 16)).shape == (2, 10)


def test_weights_come_back_with_their_hash(spec: dict[str, Any], tmp_path: Path) -> None:
    other = load(spec | {"seed": 7})
    path = saved(tmp_path, other)
    spec["model"]["weights"] = {"job": "x"}
    loaded = load(spec, path)
    assert loaded.weights_sha256 == other.weights_sha256 == state_sha256(loaded.classifier)
    assert not loaded.untrained


def test_weights_trained_in_float64_keep_their_hash(spec: dict[str, Any], tmp_path: Path) -> None:
    other = load(spec | {"seed": 7})
    other.classifier.double()
    with torch.no_grad():
        for parameter in other.classifier.parameters():
            parameter.add_(1e-12)
    path = saved(tmp_path, other)
    assert load(spec, path).weights_sha256 == state_sha256(other.classifier)
    assert next(load(spec, path).classifier.parameters()).dtype == torch.float32
    spec["execution"]["dtype"] = "float64"
    exact = load(spec, path)
    assert state_sha256(exact.classifier) == state_sha256(other.classifier)


def test_weights_that_do_not_fit_are_listed(spec: dict[str, Any], tmp_path: Path) -> None:
    path = saved(
        tmp_path,
        load(spec),
        **{
            "backbone.head.bias": None,
            "backbone.tail": torch.zeros(1),
            "backbone.head.weight": torch.zeros(3, 12),
        },
    )
    with pytest.raises(BadWeights) as caught:
        load(spec, path)
    message = str(caught.value)
    assert "missing backbone.head.bias" in message
    assert "unexpected backbone.tail" in message
    assert "backbone.head.weight has shape (3, 12), the model's is (10, 12)" in message


def test_a_long_list_of_faults_is_cut(spec: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    safetensors.torch.save_file({"nothing": torch.zeros(1)}, path)
    with pytest.raises(BadWeights, match=r"and \d+ more"):
        load(spec, path)


def test_weights_that_are_gone_or_damaged_say_so(spec: dict[str, Any], tmp_path: Path) -> None:
    folder = tmp_path / "01job"
    folder.mkdir()
    with pytest.raises(BadWeights, match="of job 01job is gone"):
        load(spec, folder / "weights.safetensors")
    (folder / "weights.safetensors").write_bytes(b"not tensors at all")
    with pytest.raises(BadWeights, match="of job 01job is damaged"):
        load(spec, folder / "weights.safetensors")


def test_the_model_is_kept_while_the_request_is_the_same(spec: dict[str, Any]) -> None:
    session = Session()
    first = session.classifier(spec, device="cpu", weights=None)
    again = session.classifier(copy.deepcopy(spec), device="cpu", weights=None)
    assert again is first
    session.forget()
    assert session.classifier(spec, device="cpu", weights=None) is not first


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1},
        {"kind": "train"},
        {"execution": {"device": "cpu", "dtype": "float64"}},
        {"execution": {"device": "cpu", "dtype": "tf32"}},
        {"execution": {"device": "cpu", "dtype": "float32", "channels_last": True}},
    ],
)
def test_another_request_gets_another_model(spec: dict[str, Any], change: dict[str, Any]) -> None:
    session = Session()
    first = session.classifier(spec, device="cpu", weights=None)
    assert session.classifier(spec | change, device="cpu", weights=None) is not first


def test_weights_with_their_channels_last_are_the_same_weights(spec: dict[str, Any]) -> None:
    params = {"image_size": 16, "patch_size": 8, "width": 16, "depth": 1, "heads": 2}
    spec = spec | {"model": {"name": "fan_vit", "params": params, "weights": None}}
    plain = load(spec)
    execution = {**spec["execution"], "channels_last": True}
    other = load(spec | {"execution": execution})
    assert other.weights_sha256 == plain.weights_sha256
    for loaded, last in ((plain, False), (other, True)):
        wide = [w for w in loaded.classifier.parameters() if w.dim() == 4 and min(w.shape[1:]) > 1]
        assert wide
        assert {found.is_contiguous(memory_format=torch.channels_last) for found in wide} == {last}
    images = torch.rand(2, 1, 16, 16)
    with torch.no_grad():
        torch.testing.assert_close(other.classifier(images), plain.classifier(images))


def test_a_model_to_train_has_gradients_even_after_one_to_attack(spec: dict[str, Any]) -> None:
    session = Session()
    session.classifier(spec, device="cpu", weights=None)
    trainable = session.classifier(spec | {"kind": "train"}, device="cpu", weights=None)
    assert all(p.requires_grad for p in trainable.classifier.parameters())


def test_data_sets_are_kept_by_their_last_use(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []

    def build(kind: str, name: str, params: dict[str, Any]) -> Any:
        return lambda root, split: built.append(f"{params['folder']}/{split}") or object()

    monkeypatch.setattr("assay.workers.jobs.session.catalog.build", build)
    session = Session()
    names = [str(i) for i in range(KEPT_DATA_SETS)]
    for name in [*names, "0", "new", "0", names[-1]]:
        session.data({"name": "image_folder", "params": {"folder": name}}, "test")
    assert built == [f"{n}/test" for n in [*names, "new"]]
    session.data({"name": "image_folder", "params": {"folder": "1"}}, "test")
    assert built[-1] == "1/test", "its last use was longest ago"


def test_missing_data_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ASSAY_DATA_ROOT", str(tmp_path))
    with pytest.raises(MissingData, match="pictures"):
        Session().data({"name": "image_folder", "params": {"folder": "pictures"}}, "test")


def test_the_hash_sees_names_types_shapes_and_values() -> None:
    def hashed(**tensors: torch.Tensor) -> str:
        module = nn.Module()
        for name, tensor in tensors.items():
            module.register_buffer(name, tensor)
        return state_sha256(module)

    base = hashed(a=torch.zeros(2, 3), b=torch.ones(()))
    assert base == hashed(b=torch.ones(()), a=torch.zeros(2, 3)), "in name order"
    assert base == hashed(a=torch.zeros(3, 2).t(), b=torch.ones(())), "in any memory layout"
    others = [
        hashed(a=torch.zeros(3, 2), b=torch.ones(())),
        hashed(a=torch.zeros(2, 3).double(), b=torch.ones(())),
        hashed(a=torch.zeros(2, 3), c=torch.ones(())),
        hashed(a=torch.zeros(2, 3), b=torch.tensor(2.0)),
        hashed(a=torch.zeros(2, 3), b=torch.ones((), dtype=torch.bfloat16)),
    ]
    assert len({base, *others}) == 6


def test_cuda_without_cuda_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert resolve_device("auto").type == "cpu"
    with pytest.raises(ValueError, match="no CUDA device"):
        resolve_device("cuda")


def test_configure_makes_arithmetic_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch.utils.deterministic

    mode, fill = torch.get_deterministic_debug_mode(), torch.utils.deterministic.fill_uninitialized_memory
    try:
        configure(1)
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.get_num_threads() == 1
        assert not torch.backends.cuda.matmul.allow_tf32
    finally:
        torch.set_deterministic_debug_mode(mode)
        torch.utils.deterministic.fill_uninitialized_memory = fill
