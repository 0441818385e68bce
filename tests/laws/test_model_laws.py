"""Every model accepted by the service can be built and run: no combination fails a job later.

Parameters are drawn from the schemas of the committed catalog, a few away from their defaults at a time.
Large models are built on the meta device, where nothing is computed; small ones answer too. What timm refuses
of an image size only timm knows, so that `timm` is drawn among sizes that it takes.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch

from assay.models.layers.token_model import WordVectors
from assay.service.catalog.catalog import load
from assay.service.contract.errors import InvalidSpec
from assay.service.submission.validate import validate
from assay.workers import catalog
from tests.support import hf_models

DRAWS = {"timm": 4, "torchvision": 8}
MAX_DRAWS = 30
MIN_BUILT = 2
SMALL = {
    "image_size": 32,
    "patch_size": 8,
    "width": 48,
    "depth": 2,
    "heads": 4,
    "hidden": 32,
    "length": 16,
    "context": 5,
    "rpc_layers": "first",
}
SMALL_PARAMETERS = 300_000
# Drawn values: many valid and many invalid combinations, all quick.
NUMBERS = (1, 2, 3, 4, 5, 8, 16, 24, 48, 65, 0, 0.3)
DRAWN: Mapping[str, Sequence[Any]] = {
    "image_size": (8, 16, 24, 32, 33, 64),
    "mlp_ratio": (4.0, 0.5, 0.01),
    "patch_size": (4, 8, 16, 5),
    "depth": (1, 2, 3),
    "decoder_depth": (1, 2),
    "rpc_layers": ("all", "first", "last", [0], [1], [0, 1], [0, 0], [-1], [5], []),
    "primal_layers": ("all", "first", "last", [0], [1], [0, 1], [0, 0], [-1], [5], []),
    "layers": ("all", "first", "last", [0], [1], [0, 1], [0, 0], [-1], [5], []),
    "patches": (16, 17, 4, 9),
    "length": (8, 16, 17),
    "dropout": (0, 0.3, 0.5, 1),
    "cutoffs": ([], [10], [0], [7, 20, 99]),
    "architecture": ("vit_tiny_patch16_224", "resnet18"),
    "tag": (None,),
}
DATA = {
    "classification": "digits",
    "segmentation": "shapes",
    "language": "pydoc",
    "sequence": "sst",
    "series": "motions",
    "series_regression": "pulses",
    "control": "classic_control",
}
# Models that do not read the data of their task, and what they read.
OTHER_DATA = {"torchvision": "cifar10"}
# A vocabulary or an environment is known only where the data are.
WORDS = {
    "language": {"classes": 50, "channels": 50},
    "sequence": {"classes": 3, "channels": 50},
    "control": {"classes": 2, "channels": 4},
}
RECIPES = {
    "classification": "small_vit",
    "segmentation": "small_segmenter",
    "language": "small_lm",
    "sequence": "finetune_text",
    "series": "small_series",
    "series_regression": "small_series_regression",
    "control": "small_control",
}


def drawn(kind: str, name: str, rng: random.Random) -> dict[str, Any]:
    """Parameters of a component: small where they have a size, three or so of them drawn."""
    schema = load().find(kind, name).parameters
    params = {key: value for key, value in SMALL.items() if key in schema["properties"]}
    for key, part in schema["properties"].items():
        if key in schema.get("required", ()) or rng.random() < 3 / len(schema["properties"]):
            params[key] = rng.choice(DRAWN[key]) if key in DRAWN else value_of(part, rng)
    return params


def value_of(schema: Mapping[str, Any], rng: random.Random) -> Any:
    schema = rng.choice(schema.get("anyOf", [schema]))
    if "component" in schema:
        fitting = [
            one.name for one in load().list(schema["component"]) if schema.get("having") in (one.facts or {})
        ]
        # Occasionally an invalid one.
        name = rng.choice(fitting if fitting and rng.random() < 0.8 else load().names(schema["component"]))
        return {"name": name, "params": drawn(schema["component"], name, rng)}
    if "enum" in schema:
        return rng.choice(schema["enum"])
    return None if schema["type"] == "null" else rng.choice(NUMBERS)


def accepted(model: str, params: Mapping[str, Any], task: str) -> dict[str, Any] | None:
    """The model's parameters as in a training job, or None if refused."""
    body = {
        "kind": "train",
        "model": {"name": model, "params": params},
        "data": {"name": OTHER_DATA.get(model, DATA[task])},
        "recipe": {"name": RECIPES[task]},
    }
    try:
        return dict(validate(load(), body).spec["model"]["params"])
    except InvalidSpec:
        return None


@torch.no_grad()
def check(model: str, task: str, params: Mapping[str, Any], classes: int, channels: int) -> None:
    build = catalog.build("model", model, params)
    with torch.device("meta"):
        module = build(classes, channels)
    offers = load().find("model", model).offers
    assert isinstance(module, WordVectors) == ("word_vectors" in offers)
    if sum(parameter.numel() for parameter in module.parameters()) > SMALL_PARAMETERS:
        return
    answer = build(classes, channels).eval()
    if task == "language":
        tokens = torch.arange(2 * module.sequence_length).view(2, -1) % classes
        assert answer(tokens).shape == (*tokens.shape, classes)
        assert answer.negative_log_likelihood(tokens, tokens, last=1).shape == (2, 1)
        return
    if task == "sequence":
        assert answer(torch.arange(10).view(2, -1)[:, : module.sequence_length]).shape == (2, classes)
        return
    if task in ("series", "series_regression"):
        series = torch.randn(2, channels + 1, module.series_length)
        series[:, -1] = 1.0
        assert answer(series).shape == (2, classes)
        return
    if task == "control":
        contexts = torch.zeros(2, module.context_length, channels + classes + 3)
        contexts[..., -1] = 1.0  # every step exists
        assert answer(contexts).shape == (2, module.context_length, classes)
        return
    size = params.get("image_size") or module.image_size
    assert answer(torch.zeros(2, channels, size, size)).shape[:2] == (2, classes)


# An exported program and a model of Hugging Face are defined by their files, not by parameters.
OF_FILES = ("exported", *hf_models.MODELS)


@pytest.mark.sampled
@pytest.mark.parametrize("model", [name for name in load().names("model") if name not in OF_FILES])
def test_what_is_accepted_can_be_built_and_answers(model: str) -> None:
    rng = random.Random(model)
    (task,) = load().find("model", model).tasks
    facts = WORDS.get(task) or load().find("data", OTHER_DATA.get(model, DATA[task])).facts
    assert facts is not None
    draws = [drawn("model", model, rng) for _ in range(DRAWS.get(model, MAX_DRAWS))]
    if task in ("series", "series_regression"):  # of which some have 48 or 64 steps
        longest = facts["longest"]
        draws = [draw | {"length": rng.choice((longest, longest + 2, longest + 5))} for draw in draws]
    if task == "control":  # whose episodes have up to 1000 steps
        draws = [draw | {"timesteps": rng.choice((1000, 1024))} for draw in draws]
    kept = [params for params in (accepted(model, draw, task) for draw in draws) if params is not None]
    for params in kept:
        try:
            check(model, task, params, facts["classes"], facts["channels"])
        except Exception as error:
            raise AssertionError(f"{model} was accepted with {params}, and fails") from error
    assert len(kept) >= min(MIN_BUILT, len(draws))
