"""No language model of the catalog sees a later word, at any value of its parameters or its attention's.

Every choice, truth value and bound of a number is tried, and numbers between: each is either causal to the
last bits, or refused by the spec and by the builder. New mechanisms and models are covered automatically.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.models.decision_transformer import decision_transformer
from assay.models.layers.attention.lookup import attentions, find_attention
from assay.models.layers.causal_transformer import CausalTransformer
from assay.models.layers.heads import has_causal_form
from assay.models.lm import lm
from assay.models.rpc_symmlm import rpc_symmlm
from assay.service.catalog.catalog import load
from assay.service.contract.errors import InvalidSpec
from assay.service.contract.problems import Problems, path_text
from assay.service.submission.validate import validate
from assay.workers import catalog
from assay.workers.evaluation.engine.text.causality import leaking_parts

# Long enough for several buckets, blocks, chunks and draws of each mechanism.
WORDS, LENGTH = 23, 96
SIZES: dict[str, Any] = {
    "width": 12, "depth": 2, "heads": 2, "hidden": 16, "length": LENGTH, "cutoffs": [],
}  # fmt: skip
CUTS = (1, 2, 7, 40, 65, LENGTH - 1)
# Of numbers beside their bounds; from a dense sparse part to an empty one for the weight of RPC's.
BETWEEN = (1e-3, 0.03, 0.2, 1.5, 4.0, 1e3)
LARGEST = 128  # of whole numbers: beyond it they are sizes of buffers
DATA = {"name": "pydoc"}
# Parameters without which a mechanism does not suit a model of this length, or does not show its parts.
NEEDED: Mapping[str, dict[str, Any]] = {
    "scaled_learned": {"patches": LENGTH},
    "reformer": {"bucket_length": 8},
    "informer": {"factor": 1},
    "sparse": {"stride": 8},
    "sparse_bn": {"stride": 8},
}
# What no builder of the catalog draws its weights for is probed when it is evaluated.
UNPROBED = ("exported", "hf_causal_lm")
BUILDERS: Mapping[str, Any] = {"lm": lm, "decision_transformer": decision_transformer}
CAUSAL = sorted(name for name, mechanism in attentions().items() if has_causal_form(mechanism))
MODELS = sorted({one.name for one in load().list("model") if "language" in one.tasks} - set(UNPROBED))
LEAKING = {
    "informer": {"choice": "sequence"},
    "performer": {"stabilizer": "batch"},
    "reformer": {"chunks": "released"},
    "rpc_causal": {"mu_tokens": "sequence"},
}


def values_of(schema: Mapping[str, Any]) -> Iterator[Any]:
    """Values that a parameter may have: all of a choice, and of numbers the bounds and some between."""
    for branch in schema.get("anyOf", [schema]):
        yield from branch.get("enum", [])
        if branch.get("type") == "boolean":
            yield from (False, True)
        if branch.get("type") == "null":
            yield None
        if branch.get("type") not in ("number", "integer"):
            continue
        least = branch.get("minimum", 0)
        most = branch.get("maximum", branch.get("exclusiveMaximum", 1e6))
        whole = branch["type"] == "integer"
        tried = [
            least,
            *(one for one in BETWEEN if least < one < most),
            *([most] if "maximum" in branch else []),
        ]
        yield from (sorted({round(min(one, LARGEST)) for one in tried} - {0} | {least}) if whole else tried)


def variants(kind: str, name: str, left_out: frozenset[str]) -> Iterator[dict[str, Any]]:
    """The component's defaults, then every value of one parameter, with the choices of the others."""
    properties = load().find(kind, name).parameters["properties"]
    choices = {key: list(part["enum"]) for key, part in properties.items() if "enum" in part}
    free = [key for key in properties if key not in left_out]
    yield {}
    for key in free:
        for value in values_of(properties[key]):
            yield {key: value}
    for chosen in itertools.product(*choices.values()):
        yield dict(zip(choices, chosen, strict=True))


OWN = frozenset({*SIZES, "attention", "layers", "rpc_layers", "dropout", "attention_dropout"})
CASES = [
    *(
        ("lm", {"attention": {"name": name, "params": NEEDED.get(name, {}) | given}})
        for name in CAUSAL
        for given in variants("attention", name, frozenset({"patches", "dropout"}))
    ),
    *((name, given) for name in MODELS for given in variants("model", name, OWN)),
]


def spec(name: str, params: Mapping[str, Any], data: Mapping[str, Any] = DATA) -> dict[str, Any]:
    fixed = load().find("model", name).parameters["properties"]
    sizes = {key: value for key, value in SIZES.items() if key in fixed}
    sizes |= {"rpc_layers": "all"} if "rpc_layers" in fixed else {}
    return {
        "kind": "train",
        "model": {"name": name, "params": {**sizes, **params}},
        "data": dict(data),
        "recipe": {"name": "small_lm"},
    }


def built(body: Mapping[str, Any]) -> CausalTransformer:
    """The model of a spec, without its validation, in float64; its numbers are large enough to be seen."""
    reference = load().check_reference(("model",), body["model"], Problems(), ())
    assert reference is not None
    torch.manual_seed(0)
    model = catalog.build("model", reference.component.name, reference.params)(WORDS, WORDS).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    assert isinstance(model, CausalTransformer)
    return model


def moved(model: CausalTransformer) -> float:
    """The largest change of an earlier prediction, with all words changed from each cut on, or the first."""
    draw = torch.Generator().manual_seed(1)
    base = torch.randint(1, WORDS, (LENGTH,), generator=draw).expand(2 * len(CUTS), -1)
    changed = base.clone()
    for row, cut in enumerate(CUTS):
        changed[row, cut:] = 1 + torch.randint(1, WORDS - 1, (LENGTH - cut,), generator=draw)
        changed[len(CUTS) + row, cut] = 1 + base[0, cut] % (WORDS - 1)
    with torch.no_grad():
        before, after = answers(model, base), answers(model, changed)
    rows = zip(before, after, (*CUTS, *CUTS), strict=True)
    assert torch.isfinite(before).all()
    assert float((before - after).abs().max()) > 1e-6, "the premise: later predictions change"
    return max(float((one[:cut] - other[:cut]).abs().max()) for one, other, cut in rows)


def answers(model: CausalTransformer, tokens: Tensor) -> Tensor:
    torch.manual_seed(3)  # of what is drawn in each pass
    return model(tokens)


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "given"), CASES, ids=str)
def test_a_language_model_that_is_accepted_sees_no_later_word(name: str, given: dict[str, Any]) -> None:
    body = spec(name, given)
    try:
        validate(load(), body)
    except InvalidSpec:
        with pytest.raises(ValueError, match=r"later tokens|summary must not be more than stride"):
            built(body)
        return
    assert moved(built(body)) < 1e-12


def test_the_cases_have_every_model_and_every_way_to_see_later_words() -> None:
    assert {name for name, _ in CASES} == set(MODELS) >= {"lm", "symmlm", "rpc_symmlm"}
    tried = [given["attention"] for _, given in CASES if "attention" in given]
    assert {one["name"] for one in tried} == set(CAUSAL)
    for name, leak in LEAKING.items():
        assert any(one["name"] == name and leak.items() <= one["params"].items() for one in tried)
    stated = {name for name in CAUSAL if hasattr(find_attention(name), "causal_with")}
    assert stated == set(LEAKING)


@pytest.mark.parametrize("name", sorted(LEAKING))
def test_what_is_refused_does_see_later_words(name: str) -> None:
    """Of four regularizations or none: one at least shows it; a nearly empty sparse part need not."""
    tries = [{"regularization": one} for one in (0.03, 0.2, 1.5)] if name == "rpc_causal" else [{}]
    found = []
    for more in tries:
        params = {**NEEDED.get(name, {}), **LEAKING[name], **more}
        torch.manual_seed(0)
        mechanism: Any = functools.partial(find_attention(name), **params)
        model = lm(WORDS, WORDS, **SIZES, attention=mechanism, encoder=True).double().eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))
        assert isinstance(model, CausalTransformer)
        found.append(moved(model))
    assert max(found) > 1e-6, found


@pytest.mark.sampled
@pytest.mark.parametrize("name", sorted(LEAKING))
@pytest.mark.parametrize("model", ["lm", "decision_transformer"])
def test_the_spec_names_the_parameter_and_the_builder_too(model: str, name: str) -> None:
    ((parameter, given),) = LEAKING[name].items()
    body = spec(model, {"attention": {"name": name, "params": LEAKING[name]}})
    if model == "decision_transformer":
        body |= {"data": {"name": "classic_control"}, "recipe": {"name": "small_control"}}
    with pytest.raises(InvalidSpec) as caught:
        validate(load(), body)
    (detail,) = [one for one in caught.value.details if "later tokens" in one.message]
    assert path_text(detail.loc) == "model.params.attention.params"
    assert detail.message.startswith(f"{parameter} must be ")
    assert f"{parameter} is {given}" in detail.message
    mechanism: Any = functools.partial(find_attention(name), **LEAKING[name])
    with pytest.raises(ValueError, match=f"{name} sees later tokens.*; {parameter} must be "):
        BUILDERS[model](WORDS, WORDS, attention=mechanism, width=12, depth=1, heads=2)


def test_a_nearly_empty_sparse_part_is_refused_by_the_spec() -> None:
    """The probe's four windows miss it: 0.03 % of S."""
    with pytest.raises(InvalidSpec) as caught:
        validate(load(), spec("rpc_symmlm", {"mu_tokens": "sequence", "regularization": 1.5}))
    (detail,) = caught.value.details
    assert path_text(detail.loc) == "model.params"
    assert "mu_tokens must be 'prefix' in a model that predicts the next token" in detail.message
    assert detail.given["model.mu_tokens"] == "sequence"
    with pytest.raises(ValueError, match="rpc_causal sees later tokens"):
        rpc_symmlm(WORDS, WORDS, mu_tokens="sequence", regularization=1.5, depth=4)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "backbone",
    [
        {"name": "rpc_symmlm", "params": {"mu_tokens": "sequence", "depth": 4}},
        *(
            {"name": "lm", "params": {"attention": {"name": name, "params": LEAKING[name]}}}
            for name in LEAKING
        ),
    ],
    ids=str,
)
def test_a_classifier_may_read_its_whole_text(backbone: dict[str, Any]) -> None:
    body = {
        "kind": "train",
        "model": {"name": "text_classifier", "params": {"backbone": backbone}},
        "data": {"name": "sst"},
        "recipe": {"name": "finetune_text"},
    }
    reference = validate(load(), body).spec["model"]
    made = catalog.build("model", reference["name"], reference["params"])(2, WORDS)
    assert leaking_parts(made)
