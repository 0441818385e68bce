"""Every attention of the catalog in every kind of model: it learns, and its gradients serve an attack.

In vision transformers, FAN and Segmenter's backbone, in classifiers of sequences and of time series, and with
a causal form in language models and in the Decision Transformer.

New files in `models/attention` are covered automatically. What the service refuses by a rule of the mechanism
must be refused by the model too, or not be accepted for that model at all.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.attacks.adversarial.fgsm import fgsm
from assay.attacks.kernel import Examples, Setting, frozen
from assay.attacks.randomness import Randomness
from assay.models.decision_transformer import decision_transformer
from assay.models.fan_vit import fan_vit
from assay.models.layers.attention.lookup import attentions
from assay.models.layers.auxiliary import wanted
from assay.models.layers.heads import has_causal_form
from assay.models.layers.layers import Classifier
from assay.models.layers.policy_network import Context, PolicyModel
from assay.models.layers.series_model import SeriesModel
from assay.models.layers.token_model import TokenModel
from assay.models.lm import lm
from assay.models.sequence_transformer import sequence_transformer
from assay.models.series_transformer import series_transformer
from assay.models.vit import vit
from assay.service.catalog.catalog import load
from assay.service.contract.errors import InvalidSpec
from assay.service.submission.validate import validate
from assay.workers import catalog
from assay.workers.training.batches import TrainingBatch
from assay.workers.training.learner import Learner
from assay.workers.training.randomness import caller_generators_restored
from assay.workers.training.recipe import Recipe

pytestmark = pytest.mark.trains

CPU = torch.device("cpu")
B, CLASSES, SIDE, WORDS, LENGTH = 3, 3, 16, 20, 12
FEATURES, STEPS = 2, 128
# Of a policy: numbers of an observation, steps of its window.
OBSERVATIONS, WINDOW = 4, 5
EPSILON = 8 / 255
IMAGE: dict[str, Any] = {"image_size": SIDE, "patch_size": 4, "width": 24, "depth": 2, "heads": 2}
SIZES: Mapping[str, dict[str, Any]] = {
    "vit": {**IMAGE, "drop_path": 0.0},
    "fan_vit": IMAGE,
    "lm": {
        "width": 24,
        "depth": 2,
        "heads": 2,
        "hidden": 32,
        "length": LENGTH,
        "cutoffs": [],
        "dropout": 0.0,
    },
    "sequence_transformer": {"width": 24, "depth": 2, "heads": 2, "hidden": 32, "length": LENGTH},
    "series_transformer": {"width": 24, "depth": 2, "heads": 2, "hidden": 32, "length": STEPS},
    "decision_transformer": {"width": 24, "depth": 2, "heads": 2, "context": WINDOW, "dropout": 0.0},
}
# Parameters of mechanisms that belong to a model's size, by the model.
FITTED: Mapping[str, dict[str, Any]] = {
    "vit": {"patches": 16},
    "fan_vit": {"patches": 16},
    "lm": {"patches": LENGTH},
    "sequence_transformer": {"patches": LENGTH},
    "series_transformer": {"patches": STEPS},
    "decision_transformer": {"patches": 3 * WINDOW},
}
JOBS = {
    "vit": ("digits", "small_vit"),
    "fan_vit": ("digits", "small_vit"),
    "segmenter": ("shapes", "small_segmenter"),
    "lm": ("pydoc", "small_lm"),
    "sequence_transformer": ("recall", "small_sequence"),
    "series_transformer": ("motions", "small_series"),
    "decision_transformer": ("classic_control", "small_control"),
}
BUILDERS: Mapping[str, Callable[..., nn.Module]] = {
    "vit": vit,
    "fan_vit": fan_vit,
    "lm": lm,
    "sequence_transformer": sequence_transformer,
    "series_transformer": series_transformer,
    "decision_transformer": decision_transformer,
}
TASKS = {
    "vit": "classification",
    "fan_vit": "classification",
    "segmenter": "segmentation",
    "lm": "language",
    "sequence_transformer": "sequence",
    "series_transformer": "series",
    "decision_transformer": "control",
}
# Classes and channels by the task; images have one.
SHAPES = {
    "language": (WORDS, WORDS),
    "sequence": (CLASSES, WORDS),
    "series": (CLASSES, FEATURES),
    "control": (CLASSES, OBSERVATIONS),
}
NAMES = sorted(attentions())
IMAGES = torch.rand(B, 1, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(B) % CLASSES
# The second and the third sequence end with padding.
PRESENT = torch.arange(LENGTH) < torch.tensor([LENGTH, 9, 5])[:, None]
TOKENS = 1 + torch.arange(B * LENGTH).view(B, -1) % (WORDS - 1)
DRAWN = torch.randn(B, FEATURES, LENGTH, generator=torch.Generator().manual_seed(1))
SERIES = torch.cat([DRAWN, torch.ones(B, 1, LENGTH)], dim=1)
CONTEXT = Context(
    torch.randn(B, WINDOW, OBSERVATIONS, generator=torch.Generator().manual_seed(2)),
    nn.functional.one_hot(torch.arange(B * WINDOW).view(B, WINDOW) % CLASSES, CLASSES).float(),
    torch.arange(WINDOW, 0, -1.0).expand(B, -1)[..., None],
    torch.arange(WINDOW).float().expand(B, -1)[..., None],
    torch.ones(B, WINDOW, 1),
).packed()
# The second and the third window end with steps that do not exist.
STEPS_THERE = (torch.arange(WINDOW) < torch.tensor([WINDOW, 3, 1])[:, None])[..., None]
BATCHES = {
    "classification": TrainingBatch(IMAGES, LABELS),
    "segmentation": TrainingBatch(IMAGES, LABELS[:, None, None].expand(B, SIDE, SIDE)),
    "language": TrainingBatch(TOKENS, torch.ones(B, LENGTH).long()),
    "sequence": TrainingBatch(TOKENS * PRESENT, LABELS),
    "series": TrainingBatch(SERIES * PRESENT[:, None], LABELS),
    "control": TrainingBatch(CONTEXT * STEPS_THERE, torch.arange(B * WINDOW).view(B, WINDOW) % CLASSES),
}


@pytest.fixture(autouse=True)
def generators_restored() -> Iterator[None]:
    with caller_generators_restored(CPU):
        torch.manual_seed(0)
        yield


def stated(model: str, attention: str, layers: Any) -> dict[str, Any]:
    """The model as in a job."""
    backbone = "vit" if model == "segmenter" else model
    known = load().find("attention", attention).parameters["properties"]
    params = {key: value for key, value in FITTED[backbone].items() if key in known}
    inner = {**SIZES[backbone], "attention": {"name": attention, "params": params}, "layers": layers}
    if model == "segmenter":
        return {"backbone": {"name": "vit", "params": inner}, "decoder": "linear"}
    return inner


def built(model: str, attention: str, layers: Any) -> nn.Module:
    """The model that a job would get.

    Raises:
        InvalidSpec: the service refuses it.
    """
    data, recipe = JOBS[model]
    body = {
        "kind": "train",
        "model": {"name": model, "params": stated(model, attention, layers)},
        "data": {"name": data},
        "recipe": {"name": recipe},
    }
    params = validate(load(), body).spec["model"]["params"]
    task = TASKS[model]
    backbone = catalog.build("model", model, params)(*SHAPES.get(task, (CLASSES, 1)))
    if task == "series":
        return SeriesModel(backbone, [0.1] * FEATURES, [1.1] * FEATURES)
    if task == "control":
        return PolicyModel(backbone, [0.1] * OBSERVATIONS, [1.1] * OBSERVATIONS, 2.0)
    return TokenModel(backbone) if task in SHAPES else Classifier(backbone, [0.5], [0.25])


def made(model: str, attention: str) -> nn.Module:
    """With the attention in all layers, or where a rule of it refuses that in the last; else skipped."""
    refused = None
    for layers in ("all", "last"):
        try:
            return built(model, attention, layers)
        except InvalidSpec as error:
            refused = str(error)
        rules = [rule.message for rule in load().find("attention", attention).rules]
        if not any(rule in refused for rule in rules):
            pytest.fail(f"refused, but by no rule of {attention}: {refused}")
        assert_refused_without_the_service(model, attention, layers)
    pytest.skip(f"refused at submission: {refused}")


def assert_refused_without_the_service(model: str, attention: str, layers: Any) -> None:
    """What a rule refuses, the constructors or the forward pass refuse too."""
    backbone = "vit" if model == "segmenter" else model
    sizes = stated(backbone, attention, layers)
    sizes["attention"] = functools.partial(attentions()[attention], **sizes["attention"]["params"])
    task = TASKS[backbone]
    with pytest.raises(ValueError, match=r".+"):
        BUILDERS[backbone](*SHAPES.get(task, (CLASSES, 1)), **sizes)(BATCHES[task].images)


def learner_of(model: nn.Module, task: str) -> Learner:
    data: Any = SimpleNamespace(task=task, classes=CLASSES)
    recipe = Recipe(epochs=1, learning_rate=0.01)
    return Learner(model, recipe, seed=0, data=data, device=CPU, dtype=torch.float32)


def assert_learns(model: nn.Module, task: str) -> None:
    """One optimiser step, auxiliary losses included: all gradients are finite, and weights stay so."""
    gradients: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        parameter.register_post_accumulate_grad_hook(functools.partial(_noted, gradients, name))
    before = {name: value.clone() for name, value in model.named_parameters()}
    learner = learner_of(model, task)
    learner.classifier.train()
    result = learner.update(BATCHES[task], step=0, learning_rate=0.01)
    assert torch.isfinite(torch.tensor(result.loss))
    assert all(torch.isfinite(gradient).all() for gradient in gradients.values())
    assert learner.weights_are_finite()
    of_attention = [name for name in before if ".attn." in name]
    assert not [name for name in of_attention if name not in gradients], "weights that learn nothing"
    changed = [name for name in of_attention if not torch.equal(before[name], model.get_parameter(name))]
    assert changed


def _noted(gradients: dict[str, Tensor], name: str, parameter: Tensor) -> None:
    assert parameter.grad is not None
    gradients[name] = parameter.grad.clone()


def watch(model: nn.Module) -> list[bool]:
    """Whether auxiliary losses were wanted, at each forward pass from here on."""
    seen: list[bool] = []
    model.register_forward_pre_hook(lambda *_: seen.append(wanted()))
    return seen


def assert_attacked(model: nn.Module) -> None:
    """FGSM's own kernel finds a gradient, moves every image by epsilon, and leaves the model as it was."""
    model.eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    attack = fgsm(epsilon=EPSILON)
    setting = Setting([f"image-{row}" for row in range(B)], Randomness(0, attack.name))
    images, seen = 0.2 + 0.6 * IMAGES, watch(model)
    with torch.no_grad(), frozen(model):
        answers = model(images)
        state = attack.start(setting, Examples(torch.arange(B), images, answers.argmax(1), LABELS, answers))
        while not (state["done"] | state["broken"] | state.get("settled", state["broken"])).all():
            attack.step(setting, model, state)
    moved = (state["adversarial"] - images).abs().flatten(1)
    assert torch.isfinite(state["adversarial"]).all()
    torch.testing.assert_close(moved.amax(dim=1), torch.full((B,), EPSILON), rtol=0, atol=1e-6)
    assert seen
    assert not any(seen)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


@pytest.mark.sampled
@pytest.mark.parametrize("model", ["vit", "fan_vit"])
@pytest.mark.parametrize("name", NAMES)
def test_learns_and_is_attacked_in_a_classifier(name: str, model: str) -> None:
    classifier = made(model, name)
    assert_learns(classifier, "classification")
    assert_attacked(classifier)


@pytest.mark.sampled
@pytest.mark.parametrize("name", NAMES)
def test_learns_and_is_attacked_in_segmenter(name: str) -> None:
    model = made("segmenter", name)
    assert_learns(model, "segmentation")
    model.eval()
    truth, moving = LABELS[:, None, None].expand(B, SIDE, SIDE), IMAGES.clone().requires_grad_()
    with frozen(model):
        loss = nn.functional.cross_entropy(model(moving), truth)
        (gradient,) = torch.autograd.grad(loss, moving)
        with torch.no_grad():
            attacked = nn.functional.cross_entropy(model(IMAGES + 1e-3 * gradient.sign()), truth)
    assert torch.isfinite(gradient).all()
    assert gradient.abs().flatten(1).amax(dim=1).min() > 0
    assert attacked > loss


@pytest.mark.sampled
@pytest.mark.parametrize("model", ["sequence_transformer", "series_transformer"])
@pytest.mark.parametrize("name", NAMES)
def test_learns_from_sequences_with_padding(name: str, model: str) -> None:
    classifier, task = made(model, name), TASKS[model]
    assert_learns(classifier, task)
    given, seen = BATCHES[task].images, watch(classifier.eval())
    with torch.no_grad():
        logits = classifier(given)
    assert logits.shape == (B, CLASSES)
    assert torch.isfinite(logits).all()
    assert seen == [False]


@pytest.mark.sampled
@pytest.mark.parametrize("name", NAMES)
def test_a_series_has_gradients_for_an_attack(name: str) -> None:
    model = made("series_transformer", name).eval()
    moving = BATCHES["series"].images.clone().requires_grad_()
    with frozen(model):
        (gradient,) = torch.autograd.grad(nn.functional.cross_entropy(model(moving), LABELS), moving)
    values = gradient[:, :-1]
    assert torch.isfinite(values).all()
    assert values.abs().flatten(1).amax(dim=1).min() > 0
    assert not values.transpose(1, 2)[~PRESENT].any()


@pytest.mark.sampled
@pytest.mark.parametrize("name", [name for name in NAMES if has_causal_form(attentions()[name])])
def test_learns_in_a_language_model(name: str) -> None:
    model = made("lm", name)
    assert_learns(model, "language")
    assert isinstance(model, TokenModel)
    tokens = BATCHES["language"].images
    with torch.no_grad():
        losses = model.eval().negative_log_likelihood(tokens, tokens)
    assert losses.shape == tokens.shape
    assert torch.isfinite(losses).all()


@pytest.mark.sampled
@pytest.mark.parametrize("name", [name for name in NAMES if has_causal_form(attentions()[name])])
def test_learns_in_a_policy_and_is_attacked_by_its_observations(name: str) -> None:
    model = made("decision_transformer", name)
    assert_learns(model, "control")
    assert isinstance(model, PolicyModel)
    contexts = BATCHES["control"].images
    moving, seen = contexts.clone().requires_grad_(), watch(model.eval())
    with frozen(model):
        answers = model(moving)
        (gradient,) = torch.autograd.grad(answers[:, 0].logsumexp(dim=-1).sum(), moving)
    assert answers.shape == (B, WINDOW, CLASSES)
    assert torch.isfinite(answers).all()
    assert seen == [False]
    observed = gradient[..., :OBSERVATIONS]
    assert observed[:, 0].abs().amax(dim=1).min() > 0
    assert not observed[:, 1:].any(), "the first action depends on a later step"


@pytest.mark.sampled
@pytest.mark.parametrize("model", ["lm", "decision_transformer"])
@pytest.mark.parametrize("name", [name for name in NAMES if not has_causal_form(attentions()[name])])
def test_a_causal_model_refuses_what_has_no_causal_form(name: str, model: str) -> None:
    with pytest.raises(InvalidSpec, match="causal_form"):
        built(model, name, "all")
    with pytest.raises(ValueError, match="must have a causal form"):
        BUILDERS[model](WORDS, WORDS, attention=name)
