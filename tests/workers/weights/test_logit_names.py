"""Names of logits by their sources, and logits in another order."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
import torch
from torch import nn

from assay.models.layers.layers import Classifier
from assay.models.layers.token_model import TokenModel
from assay.workers.data.formats.images.imagenet_classes import ALL, class_list
from assay.workers.weights import logit_names
from assay.workers.weights.logit_names import LogitNames, names_of, reordered

WNIDS = class_list(ALL)
MODEL: Any = {"name": "vit", "params": {}, "weights": {"checkpoint": "x"}}


def net(**attributes: Any) -> nn.Module:
    module = nn.Sequential(nn.Flatten(), nn.Linear(3, 4))
    vars(module).update(attributes)
    return module


def classifier(**attributes: Any) -> Classifier:
    return Classifier(net(**attributes), [0.5] * 3, [0.25] * 3).eval()


def test_exact_names_decide_before_similar_ones() -> None:
    names = LogitNames((("-1", "0", "1"),), "data")  # "-1" and "1" are alike without the dash
    assert names.order(("1", "-1", "0")) == ((2, 0, 1), "name")
    assert names.order(("-1", "0", "1")) == ((0, 1, 2), "name")
    assert names.order(("a", "b", "c")) == ((0, 1, 2), "number")


@pytest.mark.parametrize("source", ["training", "published", "data"])
def test_a_contradiction_goes_by_number_where_no_program_states_names(source: Any) -> None:
    names = LogitNames((("a", "b", "c"),), source)
    assert names.order(("b", "x", "y")) == ((0, 1, 2), "number")
    assert names.order(("b", "x")) == ((0, 1), "number")
    with pytest.raises(ValueError, match="rename the classes"):
        LogitNames(names.lists, "stated").order(("b", "x", "y"))


def test_each_source_is_taken_before_those_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    data = ("a", "b", "c", "d")
    trained = {"trained_on": json.dumps({"class_names": list("dcba")})}
    assert names_of(classifier(), MODEL, {}, data) == LogitNames((data,), "data")
    assert names_of(classifier(), MODEL, trained, data) == LogitNames((tuple("dcba"),), "training")
    own = classifier(class_names=tuple("bcda"))
    assert names_of(own, MODEL, trained, data) == LogitNames((tuple("bcda"),), "stated")
    stated: Any = {**MODEL, "weights": {"checkpoint": "x", "class_names": list("cdab")}}
    assert names_of(own, stated, trained, data) == LogitNames((tuple("cdab"),), "stated")
    assert names_of(classifier(labels_by="number"), stated, trained, data) == LogitNames((data,), "matched")


def test_pulled_weights_have_the_published_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logit_names, "pulled_weights", lambda model: object())
    whole = classifier(pretrained_cfg={"num_classes": 1000})
    assert names_of(whole, MODEL, {}, WNIDS) == LogitNames((WNIDS,), "published")
    backwards = WNIDS[::-1]
    assert names_of(whole, MODEL, {}, backwards).order(backwards) == (tuple(range(999, -1, -1)), "name")
    # Folders with words in place of WordNet ids.
    words = tuple(sorted({*names_of(whole, MODEL, {}, backwards).lists[1]}))
    found = names_of(whole, MODEL, {}, words)
    assert found.lists[1][0] == "tench, Tinca tinca"
    named = tuple(f"class {number}" for number in range(1000))
    assert names_of(whole, MODEL, {}, named).order(named).by == "number"
    own = classifier(pretrained_cfg={"num_classes": 4, "label_names": ["d", "a", "c", "b"]})
    assert names_of(own, MODEL, {}, tuple("abcd")).order(tuple("abcd")) == ((1, 3, 2, 0), "name")
    few = classifier(pretrained_cfg={"num_classes": 4})
    assert names_of(few, MODEL, {}, tuple("abcd")) == LogitNames((tuple("abcd"),), "data")


@pytest.mark.parametrize("kind", [Classifier, TokenModel])
def test_only_the_order_of_the_logits_changes(kind: type[Classifier]) -> None:
    given = classifier() if kind is Classifier else TokenModel(net())
    images = torch.rand(5, 3, 1, 1)
    wanted = given(images)[:, [2, 0, 3, 1]]
    other = reordered(given, (2, 0, 3, 1))
    assert type(other) is kind
    assert type(other.backbone) is type(given.backbone)
    assert torch.equal(other(images), wanted)
    assert torch.equal(given(images)[:, [2, 0, 3, 1]], wanted), "the one that was given stays as it is"
    assert [*map(id, other.parameters())] == [*map(id, given.parameters())]
    assert [name for name, _ in other.named_modules()] == [name for name, _ in given.named_modules()]
    assert torch.equal(copy.deepcopy(other).double()(images.double()).float().argmax(1), wanted.argmax(1))
    again = reordered(other, (1, 0, 2, 3))
    assert torch.equal(again(images), wanted[:, [1, 0, 2, 3]])
    assert torch.equal(other(images), wanted)


def test_logits_of_pixels_are_reordered_by_class() -> None:
    given = Classifier(nn.Conv2d(3, 4, 1), [0.5] * 3, [0.25] * 3).eval()
    images = torch.rand(2, 3, 6, 6)
    assert torch.equal(reordered(given, (3, 2, 1, 0))(images), given(images).flip(1))
