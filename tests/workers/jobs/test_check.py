"""The check of uploaded weights, on files as they come from training jobs, timm and DeiT."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import safetensors
import safetensors.torch
import torch
from torch import Tensor

from assay.models.layers.layers import Classifier
from assay.models.symvit import symvit
from assay.workers.jobs import check
from assay.workers.jobs.failures import BadWeights
from assay.workers.jobs.loading import state_sha256
from assay.workers.jobs.session import Session
from assay.workers.training.files import CONTENT, save_weights
from assay.workers.weights.training_record import TrainedOn

SHAPE = {"image_size": 16, "patch_size": 8, "width": 12, "depth": 1, "heads": 2}
NAMES = tuple("0123456789")
TRAINED = TrainedOn({"name": "digits", "params": {}}, NAMES, 0).as_metadata()


def classifier(classes: int = 10, channels: int = 1) -> Classifier:
    torch.manual_seed(1)
    return Classifier(symvit(classes, channels, **SHAPE), [0.5] * channels, [0.25] * channels)


def checked(path: Path, **params: Any) -> tuple[dict[str, Any], str | None]:
    model = {"name": "symvit", "params": SHAPE | params, "weights": {"checkpoint": "c"}}
    answer = check.run({"weights": str(path), "spec": {"model": model}}, Session(), lambda _: None)
    assert answer["type"] == "checked"
    return answer["verdict"], answer["error"]


def saved(folder: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> Path:
    path = folder / "weights.safetensors"
    safetensors.torch.save_file(
        {name: t.contiguous() for name, t in tensors.items()}, path, metadata=metadata
    )
    return path


def bare(prefix: str = "", classes: int = 10, channels: int = 1) -> dict[str, Tensor]:
    return {
        prefix + key: tensor for key, tensor in classifier(classes, channels).backbone.state_dict().items()
    }


def test_a_training_jobs_file_is_right(tmp_path: Path) -> None:
    path = tmp_path / "w"
    save_weights(classifier(), path, TRAINED)
    verdict, error = checked(path)
    assert error is None
    names = ("missing", "unexpected", "shapes", "other", "left_out", "resized")
    lists: dict[str, list[str]] = {name: [] for name in names}
    assert (
        verdict == {"layout": "assay", "classes": 10, "channels": 1, "program": None, "unlisted": 0} | lists
    )


@pytest.mark.parametrize(("prefix", "layout"), [("", "timm"), ("model.", "deit"), ("module.", "parallel")])
def test_files_from_elsewhere_are_right(tmp_path: Path, prefix: str, layout: str) -> None:
    verdict, error = checked(saved(tmp_path, bare(prefix, 7, 3)))
    assert (error, verdict["layout"], verdict["classes"], verdict["channels"]) == (None, layout, 7, 3)


def test_every_fault_is_listed(tmp_path: Path) -> None:
    tensors = bare("model.") | {
        "model.dist_token": torch.zeros(1, 1, 12),
        "model.norm.weight": torch.zeros(13),
    }
    del tensors["model.norm.bias"]
    verdict, error = checked(saved(tmp_path, tensors))
    assert verdict["missing"] == ["model.norm.bias"]
    assert verdict["unexpected"] == ["model.dist_token"]
    assert verdict["shapes"] == [{"key": "model.norm.weight", "given": [13], "wanted": [12]}]
    assert error is not None
    for part in (
        "missing model.norm.bias",
        "unexpected model.dist_token",
        "has shape (13,), the model's is (12,)",
    ):
        assert part in error


def test_a_model_of_another_size_is_not_it(tmp_path: Path) -> None:
    verdict, error = checked(saved(tmp_path, bare()), depth=2)
    assert error is not None
    assert all(key.startswith("blocks.1.") for key in verdict["missing"])
    assert len(verdict["missing"]) == 12


def test_a_file_without_a_head_is_rejected(tmp_path: Path) -> None:
    tensors = {key: tensor for key, tensor in bare().items() if not key.startswith("head")}
    verdict, error = checked(saved(tmp_path, tensors))
    assert verdict["classes"] is None
    assert verdict["missing"] == ["head.weight", "head.bias"]
    assert error is not None


def test_content_that_is_not_what_the_header_says_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "w"
    save_weights(classifier(), path, TRAINED)
    with safetensors.safe_open(path, framework="pt") as file:
        assert file.metadata()[CONTENT] == state_sha256(classifier())
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    verdict, error = checked(path)
    assert error is not None
    assert "the file says that its content has the sha256" in error
    assert verdict["other"] == [error]


@pytest.mark.parametrize(
    "text",
    ["{", "[]", "{}", '{"data": "digits", "class_names": [], "shared": 0}', "[" * 5000]
    + [json.dumps({"data": {"name": "digits", "params": {}}, "class_names": names, "shared": shared})
       for names, shared in ((3, 0), ([1], 0), (["a"], "0"), (None, 0))],
)  # fmt: skip
def test_a_header_that_evaluations_would_stumble_over_is_rejected(tmp_path: Path, text: str) -> None:
    _, error = checked(saved(tmp_path, classifier().state_dict(), {"trained_on": text}))
    assert error == "the text `trained_on` in the file's header is none that a training job has written"


def test_a_header_with_other_classes_than_the_weights_is_rejected(tmp_path: Path) -> None:
    _, error = checked(saved(tmp_path, classifier(7).state_dict(), TRAINED))
    assert error == "the file's header names 10 classes, its weights have 7"


def test_a_file_that_is_gone_or_no_such_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(BadWeights, match="is gone"):
        checked(tmp_path / "weights.safetensors")
    (tmp_path / "weights.safetensors").write_bytes(b"nonsense")
    with pytest.raises(BadWeights, match="is damaged"):
        checked(tmp_path / "weights.safetensors")


def test_what_was_checked_is_loaded(tmp_path: Path, spec: dict[str, Any]) -> None:
    spec["model"] = {"name": "symvit", "params": SHAPE, "weights": {"checkpoint": "c", "sha256": "0"}}
    whole = tmp_path / "w"
    save_weights(classifier(), whole, TRAINED)
    loaded = Session().classifier(spec, device="cpu", weights=str(whole))
    assert loaded.weights_sha256 == state_sha256(classifier())
    elsewhere = Session().classifier(spec, device="cpu", weights=str(saved(tmp_path, bare("model."))))
    assert state_sha256(elsewhere.classifier.backbone) == state_sha256(classifier().backbone)
    assert not elsewhere.untrained
    random = Session().classifier(spec, device="cpu", weights=None).classifier
    assert torch.equal(elsewhere.classifier.mean, random.mean), "the normalisation is the data set's"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_halved_weights_do_not_halve_the_normalisation(
    tmp_path: Path, spec: dict[str, Any], dtype: torch.dtype
) -> None:
    spec["model"] = {"name": "symvit", "params": SHAPE, "weights": {"checkpoint": "c"}}
    halved = {key: tensor.to(dtype) for key, tensor in bare().items()}
    loaded = Session().classifier(spec, device="cpu", weights=str(saved(tmp_path, halved))).classifier
    random = Session().classifier(spec, device="cpu", weights=None).classifier
    assert torch.equal(loaded.std, random.std)
    found = loaded.backbone.state_dict()
    assert all(torch.equal(found[key], tensor.float()) for key, tensor in halved.items())


def test_a_head_for_other_classes_is_told_in_words(tmp_path: Path, spec: dict[str, Any]) -> None:
    spec["model"] = {"name": "symvit", "params": SHAPE, "weights": {"checkpoint": "c"}}
    path = saved(tmp_path, bare(classes=1000))
    with pytest.raises(BadWeights, match="of a model with 1000 classes, the data set 'digits' has 10"):
        Session().classifier(spec, device="cpu", weights=str(path))


def test_of_many_faults_the_verdict_has_a_hundred_of_each_kind_and_counts_the_others(tmp_path: Path) -> None:
    verdict, error = checked(saved(tmp_path, {f"tail.{number}": torch.ones(1) for number in range(150)}))
    assert len(verdict["unexpected"]) == 100
    assert 0 < len(verdict["missing"]) < 100
    assert verdict["unlisted"] == 50
    assert error is not None
    assert error.count(";") <= 10
