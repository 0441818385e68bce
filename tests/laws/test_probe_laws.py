"""The probe of a job warns of every attention whose outputs depend on batch or chance, and of no other."""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm

from assay.attacks.kernel import Forward
from assay.models.layers.attention.lookup import attentions, find_attention
from assay.models.layers.heads import AttentionFactory
from assay.service.catalog.catalog import load
from assay.workers import catalog
from assay.workers.evaluation.engine.probe import probe, probe_shard
from tests.laws.test_model_laws import DATA, SMALL, SMALL_PARAMETERS, WORDS
from tests.support import hf_models
from tests.support.shards import Given, shard

SIZE, WIDTH, EXAMPLES = 16, 24, 16
IMAGES = torch.rand(EXAMPLES, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(0))
# The options by which a mechanism depends on the batch, or on chance.
ODD: Mapping[str, list[tuple[dict[str, Any], str]]] = {
    "skyformer": [({"normaliser": "tensor"}, "batch_dependent"), ({"draw": "released"}, "random_outputs")],
    "nystrom_scores": [
        ({"normaliser": "tensor"}, "batch_dependent"),
        ({"draw": "released"}, "random_outputs"),
    ],
    "nystromformer": [({"normaliser": "tensor"}, "batch_dependent")],
    "performer": [({"stabilizer": "batch"}, "batch_dependent")],
    "reformer": [({"rotations": "each_pass", "bucket_length": 4}, "random_outputs")],
}
CASES = [
    *((name, {}, sharpness, None) for name in sorted(attentions()) for sharpness in (1.0, 30.0)),
    # Sharp scores make the inverse converge, and then its start changes nothing.
    *((name, options, 1.0, code) for name in sorted(ODD) for options, code in ODD[name]),
]


class Model(nn.Module):
    """Two layers of an attention, causal ones too, on the patches of an image."""

    def __init__(self, mechanism: AttentionFactory) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, WIDTH, 4, 4)
        self.layers = nn.ModuleList(mechanism(WIDTH, 3, prefix_tokens=0) for _ in range(2))
        self.head = nn.Linear(WIDTH, 5)

    def forward(self, images: Tensor) -> Tensor:
        patches = self.embed(images)
        x = patches.flatten(2).mT
        for layer in self.layers:
            x = layer_norm(x + layer(x, grid=patches.shape[2:]), (WIDTH,))
        logits: Tensor = self.head(x.mean(dim=1))
        return logits


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "options", "sharpness", "code"), CASES, ids=str)
def test_the_warning_is_due_exactly_where_a_result_depends_on_them(
    name: str, options: dict[str, Any], sharpness: float, code: str | None
) -> None:
    torch.manual_seed(0)
    model = Model(functools.partial(find_attention(name), **options)).eval()
    with torch.no_grad():
        for part, weight in model.layers.named_parameters():
            if weight.dim() == 2 and not part.endswith("proj.weight"):
                weight.mul_(sharpness)
    data = Given([str(row) for row in range(EXAMPLES)], images=lambda rows: IMAGES[list(rows)])
    found = set(probe_shard(shard(model, data))) & {"random_outputs", "batch_dependent"}
    assert found == ({code} if code else set())


def given(task: str, module: Any, channels: int, classes: int) -> Tensor:
    """An input of a model of that task."""
    generator = torch.Generator().manual_seed(0)
    if task in ("language", "sequence"):
        return torch.randint(1, classes if task == "language" else channels, (8, 12), generator=generator)
    if task in ("series", "series_regression"):
        shape: tuple[int, ...] = (8, channels + 1, module.series_length)
    elif task == "control":
        shape = (8, module.context_length, channels + classes + 3)
    else:
        shape = (8, channels, 32, 32)
    images = torch.rand(shape, generator=generator)
    if task in ("series", "series_regression"):
        images[:, -1] = 1.0  # every step exists
    if task == "control":
        images[..., :-1] *= 0.9
        images[..., -1] = 1.0
    return images


# Those of files, and those of libraries, which are large.
LEFT_OUT = ("exported", "timm", "torchvision", *hf_models.MODELS)


@pytest.mark.sampled
@pytest.mark.parametrize("name", [name for name in load().names("model") if name not in LEFT_OUT])
def test_no_model_of_the_catalog_is_blamed_by_default(name: str) -> None:
    component = load().find("model", name)
    (task,) = component.tasks
    params = {key: value for key, value in SMALL.items() if key in component.parameters["properties"]}
    facts = WORDS.get(task) or load().find("data", DATA[task]).facts
    assert facts is not None
    classes, channels = facts["classes"], facts["channels"]
    build = catalog.build("model", name, params)
    with torch.device("meta"):
        size = sum(part.numel() for part in build(classes, channels).parameters())
    if size > SMALL_PARAMETERS:
        pytest.skip("a published size of a model that is here in small")
    torch.manual_seed(0)
    model = build(classes, channels).eval()
    inputs = given(task, model, channels, classes)

    def wide() -> Forward:
        copied = copy.deepcopy(model).double()
        return lambda images: copied(images.double() if images.is_floating_point() else images)

    with torch.no_grad():
        assert probe(model, inputs, wide=wide) == {}
        assert wide()(inputs).dtype == torch.float64  # what was asked
