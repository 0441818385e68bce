"""Every evaluation of the catalog, for every task, as a job on the emulated device.

A job asks for `cuda`, and gets the emulated device; its rows are those of the same job on the CPU.
"""

from __future__ import annotations

import gc
import json
import math
from pathlib import Path
from typing import Any

import pytest

from assay.service.catalog.catalog import load
from assay.service.submission.validate import validate
from assay.workers.jobs import evaluate, plan
from assay.workers.jobs.session import Session
from tests.support.emulated_device.device import emulated_device
from tests.support.texts import write_sst, write_wikitext
from tests.support.word_vectors import write_vectors
from tests.support.wordnet_files import write_wordnet

VIT = {"image_size": 16, "patch_size": 8, "width": 12, "depth": 2, "heads": 2}
LM = {"width": 16, "depth": 1, "heads": 2, "hidden": 16, "length": 8}
SERIES = {"width": 12, "depth": 1, "heads": 2, "hidden": 16}
MODELS: dict[str, dict[str, Any]] = {
    "classification": {"name": "symvit", "params": VIT},
    "segmentation": {
        "name": "segmenter",
        "params": {"backbone": {"name": "symvit", "params": VIT | {"image_size": 32}}, "decoder_depth": 1},
    },
    "language": {"name": "lm", "params": LM},
    "sequence": {"name": "text_classifier", "params": {"backbone": {"name": "lm", "params": LM}}},
    "series": {"name": "series_transformer", "params": SERIES | {"length": 48}},
    "series_regression": {"name": "series_regressor", "params": SERIES | {"length": 64}},
    "control": {
        "name": "decision_transformer",
        "params": {"width": 16, "depth": 1, "heads": 2, "context": 4},
    },
}
# What an evaluation needs of a model that the usual one is not.
NEEDED: dict[str, dict[str, Any]] = {
    "pursuit": {"name": "rpc_symvit", "params": VIT | {"rpc_layers": "first"}},
}
DATA: dict[str, dict[str, Any]] = {
    "classification": {"name": "digits"},
    "segmentation": {"name": "shapes"},
    "language": {"name": "wikitext", "params": {"folder": "wt"}},
    "sequence": {"name": "sst"},
    "series": {"name": "motions"},
    "series_regression": {"name": "pulses"},
    "control": {
        "name": "classic_control",
        "params": {"environment": "CartPole-v1", "trajectories": 8, "episodes": 2, "quality": "random"},
    },
}
WINDOW = {"short_side": 32, "window": 32, "stride": 24}
QUICK: dict[str, dict[str, Any]] = {
    "attention_cost": {"lengths": [4, 8], "repeats": 3},
    "corruptions": {"corruptions": ["gaussian_noise", "fog"], "severities": [1, 5]},
    "efficiency": {"repeats": 3, "warmup": 1},
    "forced_continuation": {"target": "a b", "prompt": 4, "steps": 2, "candidates": 3, "tried": 2},
    "gcg": {"steps": 2, "candidates": 3, "tried": 2},
    "gradient_word_swap": {"steps": 2, "candidates": 3, "tried": 2},
    "hotflip": {"steps": 2, "candidates": 3},
    "instability": {"steps": 3, "batch": 4},
    "randomized_smoothing": {"selection": 10, "draws": 20},
    "sliding_window": WINDOW,
    "sliding_window_corruptions": WINDOW | {"corruptions": ["gaussian_noise"], "severities": [3]},
    "spectral_error": {"features": [16]},
    "verified": {"method": "IBP"},
}
# Their rows are measurements of the machine: only the shape is the same.
MEASURES_THE_MACHINE = {"attention_cost", "efficiency"}
# Tasks whose data sets are trees of files: `aupr`, and `corruptions` of stored images, are not run here.
NO_SMALL_DATA = {"anomaly_detection", "stored_corruptions"}
# What the emulation cannot hold, and what the attempt says.
NOT_EMULATED = {
    # auto_LiRPA makes its own subclass of a tensor, which a tensor of the emulated device cannot become.
    "verified": "Creating a new Tensor subclass BoundedTensor",
}


def marks_of(name: str, place: int) -> list[pytest.MarkDecorator]:
    """Slow for every task of an evaluation but the first."""
    return [pytest.mark.slow] * (place > 0) + [pytest.mark.trains] * (name == "instability")


CASES = [
    pytest.param(one.name, task, id=f"{one.name}-{task}", marks=marks_of(one.name, place))
    for one in load().list("evaluation")
    if one.name not in NOT_EMULATED
    for place, task in enumerate(task for task in one.tasks if task not in NO_SMALL_DATA)
]


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_sst(tmp_path)
    write_wikitext(tmp_path, "wt", train="a b c d e " * 4, test="a b c d e " * 3)
    write_wordnet(tmp_path / "wordnet")
    write_vectors(tmp_path / "counter-fitted")
    monkeypatch.setenv("ASSAY_DATA_ROOT", str(tmp_path))


def spec(name: str, task: str, device: str, **execution: Any) -> dict[str, Any]:
    needs = load().find("evaluation", name).needs
    model = next((NEEDED[need] for need in needs if need in NEEDED), MODELS[task])
    limit = {} if load().find("evaluation", name).repeats else {"limit": 3}
    body = {
        "kind": "evaluate",
        "model": model,
        "data": DATA[task],
        "evaluations": [{"name": name, "params": QUICK.get(name, {})}],
        "execution": {"device": device, "dtype": "float64", "batch_size": 2, **execution},
        **limit,
    }
    return validate(load(), body).spec


def run(wanted: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
    """The answers of every shard."""
    folder.mkdir()
    session, request = Session(), {"spec": wanted, "weights": None, "folder": str(folder)}
    made = plan.run(request | {"shard_seconds": 1e9}, session, lambda _: None)["plan"]
    assert made["device"] == wanted["execution"]["device"]
    return [
        evaluate.run(request | {"plan": made} | shard, session, lambda _: None) for shard in made["shards"]
    ]


def near(one: Any, other: Any) -> bool:
    """Whether JSON values are the same but for rounding."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(near(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(near(*pair) for pair in zip(one, other, strict=True))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-9)
    return bool(one == other)


@pytest.mark.parametrize(("name", "task"), CASES)
def test_an_evaluation(name: str, task: str, tmp_path: Path) -> None:
    here = run(spec(name, task, "cpu"), tmp_path / "here")
    with emulated_device() as device:
        there = run(spec(name, task, "cuda"), tmp_path / "there")
        gc.collect()
        assert device.bytes_held == 0, "something of the job is still held"
    assert [answer["columns"].keys() for answer in there] == [answer["columns"].keys() for answer in here]
    for ours, theirs in zip(there, here, strict=True):
        assert ours["extra"]["provenance"]["device"]["type"] == "cuda"
        assert ours["extra"]["provenance"]["device"]["name"] == "emulated"
        for column, values in theirs["columns"].items():
            if name not in MEASURES_THE_MACHINE:
                assert near(ours["columns"][column], values), (column, ours["columns"][column], values)
        json.dumps(ours)


@pytest.mark.parametrize("name", NOT_EMULATED)
def test_what_is_not_emulated_says_so(name: str, tmp_path: Path) -> None:
    with emulated_device(), pytest.raises(ValueError, match=NOT_EMULATED[name]):
        run(spec(name, "classification", "cuda"), tmp_path / "there")
