from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn

from assay.workers.training.files import CONTENT, content_sha256, save_weights, written_through

METADATA = {name: f"value of {name} ü" for name in "abcdefgh"}


def test_weights_and_metadata_come_back(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)).double()
    save_weights(model, tmp_path / "weights", METADATA)
    loaded = load_file(tmp_path / "weights")
    assert loaded.keys() == model.state_dict().keys()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in model.state_dict().items())
    with safe_open(tmp_path / "weights", framework="pt") as file:
        assert file.metadata() == {**METADATA, CONTENT: content_sha256(sorted(loaded.items()))}


def test_equal_weights_give_equal_bytes(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    contents = set()
    for number in range(8):
        save_weights(model, tmp_path / str(number), METADATA)
        contents.add((tmp_path / str(number)).read_bytes())
    assert len(contents) == 1


def test_the_hash_of_a_content_is_of_names_types_shapes_and_numbers() -> None:
    plain = {"a": torch.zeros(2, 3), "b": torch.ones(2)}
    others = [
        {"a": torch.zeros(2, 3), "c": torch.ones(2)},
        {"a": torch.zeros(3, 2), "b": torch.ones(2)},
        {"a": torch.zeros(2, 3), "b": torch.ones(2, dtype=torch.int32)},
        {"a": torch.zeros(2, 3), "b": torch.tensor([1.0, 2.0])},
    ]
    hashes = {content_sha256(sorted(one.items())) for one in (plain, *others)}
    assert len(hashes) == 5
    transposed = {"a": torch.zeros(3, 2).t(), "b": torch.ones(2)}
    assert content_sha256(sorted(transposed.items())) == content_sha256(sorted(plain.items()))


def test_tied_weights_and_no_metadata(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight = model[0].weight
    save_weights(model, tmp_path / "weights", {})
    loaded = load_file(tmp_path / "weights")
    assert torch.equal(loaded["0.weight"], loaded["1.weight"])


def write_half(path: Path) -> None:
    with written_through(path) as file:
        file.write(b"half")
        raise RuntimeError("disk full")


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="disk full"):
        write_half(tmp_path / "x.tmp")
    assert list(tmp_path.iterdir()) == []
