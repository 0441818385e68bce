"""Legacy pickles: converted without running what is in them."""

from __future__ import annotations

import argparse
import os
import random
import warnings
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from assay.service.files.pickled_model import pickled_model
from assay.workers.import_pickle import main

TENSORS = {"head.weight": torch.ones(2, 3), "head.bias": torch.zeros(2)}


class Bomb:
    """Makes a folder when it is unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.target),)


def convert(folder: Path, content: Any, *more: str, legacy: bool = False) -> int:
    torch.save(content, folder / "old.pth", _use_new_zipfile_serialization=not legacy)
    return main([str(folder / "old.pth"), str(folder / "new.safetensors"), *more])


def converted(folder: Path) -> dict[str, torch.Tensor]:
    return safetensors.torch.load_file(folder / "new.safetensors")


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize(
    "content",
    [
        TENSORS,
        {"model": TENSORS, "optimizer": {"lr": 1}, "epoch": 3, "args": argparse.Namespace(lr=1.0)},
        {"state_dict": {f"module.{name}": tensor for name, tensor in TENSORS.items()}},
        {"model": {f"module.{name}": tensor for name, tensor in TENSORS.items()}, "model_ema": {}},
        {"state_dict": TENSORS, "best_acc1": np.float64(91.2), "seen": np.int64(3), "ok": np.bool_(True)},
        {"state_dict": TENSORS, "curve": np.arange(4.0), "names": np.array(["a", "b"])},
        {"state_dict": TENSORS, "output": Path("runs"), "at": datetime(2026, 1, 1, tzinfo=UTC)},
        {f"_orig_mod.{name}": tensor for name, tensor in TENSORS.items()},
        {"model": {f"module._orig_mod.{name}": tensor for name, tensor in TENSORS.items()}},
    ],
    ids=["plain", "deit", "parallel", "authors", "scalars", "arrays", "paths", "compiled", "both"],
)
def test_state_dicts_are_found_and_their_names_are_bare(tmp_path: Path, content: Any, legacy: bool) -> None:
    assert convert(tmp_path, content, legacy=legacy) == 0
    found = converted(tmp_path)
    assert found.keys() == TENSORS.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in TENSORS.items())


class Network(torch.nn.Module):
    """A module of a user's own code."""

    def __init__(self) -> None:
        super().__init__()
        self.head = torch.nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits."""
        return self.head(x)


@pytest.mark.filterwarnings("error")
def test_a_torchscript_program_is_told_with_the_way_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "scripted.pt"
    with warnings.catch_warnings(action="ignore"):
        torch.jit.script(Network()).save(str(file))
    assert main([str(file), str(tmp_path / "new.safetensors")]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: {file} is a TorchScript program (torch.jit.save)")
    assert "load_state_dict(torch.jit.load('scripted.pt').state_dict())" in said
    assert "assay evaluate PACKAGE.MODULE:FUNCTION" in said
    network = Network()
    with warnings.catch_warnings(action="ignore"):
        network.load_state_dict(torch.jit.load(file).state_dict())  # as the message says


@pytest.mark.parametrize("inside", [False, True])
def test_a_whole_module_is_told_with_the_way_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], inside: bool
) -> None:
    assert convert(tmp_path, {"model": Network(), "epoch": 3} if inside else Network()) == 2
    said = capsys.readouterr().err
    assert "holds a whole module (torch.save(model)), with tests.workers.test_import_pickle.Network" in said
    assert (
        "returns torch.load('old.pth', weights_only=False): `assay evaluate PACKAGE.MODULE:FUNCTION`" in said
    )


def test_other_files_are_no_models_in_a_pickle(tmp_path: Path) -> None:
    torch.save(TENSORS, tmp_path / "tensors.pt")
    torch.save(torch.optim.SGD([torch.nn.Parameter(torch.ones(1))]), tmp_path / "optimiser.pt")
    torch.save(Network(), tmp_path / "legacy.pt", _use_new_zipfile_serialization=False)
    (tmp_path / "text.pt").write_text("no archive")
    with zipfile.ZipFile(tmp_path / "broken.pt", "w") as archive:
        archive.writestr("x/data.pkl", b"\x80\x02no pickle")
    for name in ("tensors", "optimiser", "legacy", "text", "broken", "absent"):
        assert pickled_model(tmp_path / f"{name}.pt") is None, name


def test_the_report_says_what_was_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = {"model": {f"module.{name}": t for name, t in TENSORS.items()}, "epoch": 3, "args": {}}
    assert convert(tmp_path, content) == 0
    assert capsys.readouterr().out.splitlines() == [
        "head.bias  (2,)  torch.float32",
        "head.weight  (2, 3)  torch.float32",
        "2 tensors, 8 numbers, from model",
        "'module.' was taken from the beginning of every name",
        "left out: epoch, args",
    ]


def test_another_part_can_be_named(tmp_path: Path) -> None:
    content = {"model": TENSORS, "model_ema": {"head.weight": torch.full((2, 3), 7.0)}}
    assert convert(tmp_path, content, "--key", "model_ema") == 0
    assert converted(tmp_path)["head.weight"].unique().tolist() == [7.0]


@pytest.mark.parametrize("legacy", [False, True])
def test_a_pickle_that_would_run_code_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], legacy: bool
) -> None:
    assert convert(tmp_path, {"model": TENSORS, "extra": Bomb(tmp_path / "boom")}, legacy=legacy) == 2
    assert not (tmp_path / "boom").exists()
    assert not (tmp_path / "new.safetensors").exists()
    said = capsys.readouterr().err
    assert "cannot be read as tensors and plain values alone" in said
    assert f"it has {os.mkdir.__module__}.mkdir" in said
    assert "torch.save(model.state_dict(), ...)" in said
    assert said.count("\n") == 1


def test_what_is_dropped_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy's own functions are not called: their arguments are a stranger's."""

    def called(*_: Any) -> Any:
        raise AssertionError("numpy was called")

    torch.save({"state_dict": TENSORS, "best": np.float64(1.0), "all": np.ones(2)}, tmp_path / "old.pth")
    for module in ("numpy._core.multiarray", "numpy._core.numeric"):
        for name in ("scalar", "_reconstruct", "_frombuffer"):
            monkeypatch.setattr(f"{module}.{name}", called, raising=False)
    assert main([str(tmp_path / "old.pth"), str(tmp_path / "new.safetensors")]) == 0
    assert converted(tmp_path).keys() == TENSORS.keys()


@pytest.mark.parametrize(
    ("content", "more", "reason"),
    [
        ([1, 2], [], "holds a list, allowed: a dict"),
        ({"epoch": 3}, [], "what is no tensor: epoch"),
        ({}, [], "nothing is in it"),
        ({"model": TENSORS | {"step": 3}}, [], "model is no state dict, what is no tensor: step"),
        ({"model": TENSORS}, ["--key", "ema"], "no dict 'ema' in the file; there are: model"),
    ],
)
def test_what_is_no_state_dict_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: Any, more: list[str], reason: str
) -> None:
    assert convert(tmp_path, content, *more) == 2
    assert reason in capsys.readouterr().err


def test_files_that_are_none_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new = str(tmp_path / "new.safetensors")
    assert main([str(tmp_path / "nope.pth"), new]) == 2
    (tmp_path / "text.pth").write_text("not a pickle")
    assert main([str(tmp_path / "text.pth"), new]) == 2
    (tmp_path / "empty.pth").touch()
    assert main([str(tmp_path / "empty.pth"), new]) == 2
    assert convert(tmp_path, TENSORS) == 0
    assert main([str(tmp_path / "old.pth"), new]) == 2
    assert "is there already" in capsys.readouterr().err


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_damaged_files_are_one_sentence(
    legacy: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A hundred files with a few wrong bytes: converted or refused, without a traceback."""
    path, output = tmp_path / "old.pth", tmp_path / "new.safetensors"
    torch.save({"model": TENSORS, "epoch": 3}, path, _use_new_zipfile_serialization=not legacy)
    whole, draw = path.read_bytes(), random.Random(0)
    if not legacy:
        with zipfile.ZipFile(path) as file:
            entries = {name: file.read(name) for name in file.namelist()}
        pickled = next(name for name in entries if name.endswith("data.pkl"))
    refused = 0
    for _ in range(100):
        content = bytearray(whole if legacy else entries[pickled])
        at = draw.randrange(len(content))
        content[at : at + draw.randrange(3)] = draw.randbytes(draw.randrange(1, 3))
        if legacy:
            path.write_bytes(content)
        else:
            with zipfile.ZipFile(path, "w") as file:
                for name, data in (entries | {pickled: bytes(content)}).items():
                    file.writestr(name, data)
        output.unlink(missing_ok=True)
        refused += main([str(path), str(output)]) == 2
        assert capsys.readouterr().err.count("\n") <= 1
    assert refused > 30


def test_repeated_values_do_not_take_the_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One number that says to be a million million."""
    assert convert(tmp_path, {"head.weight": torch.zeros(1).expand(10**6, 10**6)}) == 2
    assert "would take 4000000000000 bytes; allowed: " in capsys.readouterr().err
    tied = torch.ones(1000)
    assert convert(tmp_path, {"a.weight": tied, "b.weight": tied}) == 0
