"""Every evaluation of the catalog, for every task, as a job on the emulated device.

A job asks for `cuda`, and gets the emulated device; its rows are those of the same job on the CPU.
"""

from __future__ import annotations

import gc
import json
import math
import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.service.catalog.catalog import load
from assay.service.submission.validate import validate
from assay.workers.data.formats.images.imagenet_classes import class_list
from assay.workers.evaluation.engine.attack.bound_operators import library
from assay.workers.evaluation.engine.attack.linear_bounds import MarginBounds
from assay.workers.jobs import evaluate, plan
from assay.workers.jobs.session import Session
from tests.support import networks
from tests.support.emulated_device.bounds import bounds_on_the_device
from tests.support.emulated_device.device import EmulatedTensor, emulated_device
from tests.support.imagenet_trees import write_set
from tests.support.stored_trees import write_cells
from tests.support.texts import write_sst, write_wikitext
from tests.support.word_vectors import write_vectors
from tests.support.wordnet_files import write_wordnet

VIT = {"image_size": 16, "patch_size": 8, "width": 12, "depth": 2, "heads": 2}
LM = {"width": 16, "depth": 1, "heads": 2, "hidden": 16, "length": 8}
SERIES = {"width": 12, "depth": 1, "heads": 2, "hidden": 16}
MODELS: dict[str, dict[str, Any]] = {
    "classification": {"name": "symvit", "params": VIT},
    "stored_corruptions": {"name": "symvit", "params": VIT},
    "anomaly_detection": {"name": "symvit", "params": VIT},
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
    "stored_corruptions": {"name": "imagenet_c"},
    "anomaly_detection": {"name": "imagenet"},
    "control": {
        "name": "classic_control",
        "params": {"environment": "CartPole-v1", "trajectories": 8, "episodes": 2, "quality": "random"},
    },
}
ANOMALIES = {"name": "imagenet_o"}  # of a job on ImageNet
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
    "verified": {"method": "IBP"},  # the one for transformers; the others are below
}
STORED = {"corruptions": ["fog"], "severities": [3], "source": "stored"}
# Their rows are measurements of the machine: only the shape is the same.
MEASURES_THE_MACHINE = {"attention_cost", "efficiency"}


def marks_of(name: str, place: int) -> list[pytest.MarkDecorator]:
    """Slow for every task of an evaluation but the first."""
    return [pytest.mark.slow] * (place > 0) + [pytest.mark.trains] * (name == "instability")


CASES = [
    pytest.param(one.name, task, id=f"{one.name}-{task}", marks=marks_of(one.name, place))
    for one in load().list("evaluation")
    for place, task in enumerate(one.tasks)
]


WORDS = load().names("words")
# Of attacks, which have laws of their own, one for each task as a whole job.
ATTACKS = [("pgd", "classification"), ("segmentation_pgd", "segmentation"), ("pgd", "series")]


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_sst(tmp_path)
    write_wikitext(tmp_path, "wt", train="a b c d e " * 4, test="a b c d e " * 3)
    write_wordnet(tmp_path / "wordnet")
    write_vectors(tmp_path / "counter-fitted")
    monkeypatch.setenv("ASSAY_DATA_ROOT", str(tmp_path))


@pytest.fixture
def traces() -> Iterator[None]:
    """Ignores warnings of torch's compiler, by which auto_LiRPA traces; importing it asks for them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        library()
        warnings.simplefilter("ignore")
        yield


def spec(
    name: str, task: str, device: str, params: dict[str, Any] | None = None, **execution: Any
) -> dict[str, Any]:
    component = load().find_evaluation(name)
    model = next((NEEDED[need] for need in component.needs if need in NEEDED), MODELS[task])
    limit = {} if component.repeats else {"limit": 3}
    if params is None:
        params = STORED if task == "stored_corruptions" else QUICK.get(name, {})
    own = {"data": ANOMALIES} if task == "anomaly_detection" else {}
    body = {
        "kind": "evaluate",
        "model": model,
        "data": DATA[task],
        "evaluations": [{"name": name, "params": params, **own}],
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


def write_trees(task: str, root: Path) -> None:
    """The data of tasks whose sets are whole trees of files."""
    if task == "stored_corruptions":
        write_cells(root / "imagenet-c", [("fog", 3)], class_list("imagenet"))
    if task == "anomaly_detection":
        write_set(root, "imagenet_o")
        write_set(root, "imagenet", "val")


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "task"), CASES)
def test_an_evaluation(name: str, task: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if name == "verified":
        request.getfixturevalue("traces")
    write_trees(task, tmp_path)
    compare(name, task, tmp_path)


@pytest.mark.costly
@pytest.mark.parametrize(("name", "task"), ATTACKS)
def test_an_attack(name: str, task: str, tmp_path: Path) -> None:
    compare(name, task, tmp_path, {"epsilon": 0.05, "steps": 3})


@pytest.mark.sampled
@pytest.mark.parametrize("name", WORDS)
def test_words(name: str, tmp_path: Path) -> None:
    compare("word_swap", "language", tmp_path, {"words": {"name": name}})


def compare(name: str, task: str, folder: Path, params: dict[str, Any] | None = None) -> None:
    """Asserts that a job on the device has the rows of the same job on the CPU, and leaves nothing there."""
    here = run(spec(name, task, "cpu", params), folder / "here")
    with emulated_device() as device, bounds_on_the_device() if name == "verified" else nullcontext():
        there = run(spec(name, task, "cuda", params), folder / "there")
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


@pytest.mark.sampled
@pytest.mark.usefixtures("traces")
@pytest.mark.parametrize("norm", ["Linf", "L2"])
@pytest.mark.parametrize("method", ["IBP", "CROWN", "alpha-CROWN"])
def test_bounds_of_margins(method: Any, norm: Any) -> None:
    images, labels = networks.digits()
    images, labels = images[:2].double(), labels[:2]
    model = networks.network("convolutional").double().eval()
    here = MarginBounds(model, images[:1], method, iterations=3).lower(images, labels, norm, 0.02)
    with emulated_device() as device, bounds_on_the_device():
        there = images.to(device.device)
        bounds = MarginBounds(model.to(device.device), there[:1], method, iterations=3)
        found = bounds.lower(there, labels.to(device.device), norm, 0.02)
        assert all(isinstance(one, EmulatedTensor) for one in found)
        for ours, theirs in zip(found, here, strict=True):
            torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-9, atol=1e-9)
