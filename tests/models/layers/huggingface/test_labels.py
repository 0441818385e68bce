"""Labels of a model and classes of the data, matched by name."""

from __future__ import annotations

import pytest
import torch

from assay.models.layers.huggingface.labels import match_labels
from tests.support import hf_models
from tests.support.hf_classifiers import text_classifier


def test_labels_are_matched_by_name_where_the_names_decide() -> None:
    assert match_labels(["NEGATIVE", "positive"], ["Positive", "negative"]) == ((1, 0), "name")
    assert match_labels(["tench, Tinca tinca", "goldfish"], ["goldfish", "tench"]) == ((1, 0), "name")
    assert match_labels(["LABEL_0", "LABEL_1"], ["no", "yes"]) == ((0, 1), "number")
    assert match_labels(["a", "b", "LABEL_2"], ["a", "b", "c"]) == ((0, 1, 2), "number")
    with pytest.raises(ValueError, match=r"label 'b' is its logit 1, and the data set calls class 0 'b'"):
        match_labels(["a", "b", "LABEL_2"], ["b", "a", "c"])
    assert match_labels(["a", "b", "LABEL_2"], ["b", "a", "c"], "number") == ((0, 1, 2), "number")
    with pytest.raises(ValueError, match=r"the model has 2 classes \(a, b\), the data set has 3"):
        match_labels(["a", "b"], ["a", "b", "c"])


@torch.no_grad()
def test_logits_are_put_in_the_order_of_the_data() -> None:
    model = text_classifier(hf_models.bert())
    tokens = model.tokenizer.encode("A great film")[None]
    before = model(tokens)
    model.suit(("positive", "negative"), None)
    assert torch.equal(model(tokens), before[:, [1, 0]])
