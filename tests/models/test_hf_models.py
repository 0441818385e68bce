"""Hugging Face models from local folders: the numbers of transformers itself, and what is refused."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from torch.nn import functional

from assay.models.hf_causal_lm import HfCausalLm, hf_causal_lm
from assay.models.hf_image_classifier import HfImageClassifier, hf_image_classifier
from assay.models.hf_text_classifier import HfTextClassifier, hf_text_classifier
from assay.models.layers.hf_labels import match_labels
from assay.models.layers.image_resizing import FILTERS, resize_images
from assay.models.layers.layers import Classifier
from tests.support import hf_models

NAME: dict[str, Any] = {"repository": "org/name"}


def text_classifier(folder: Path, **params: Any) -> HfTextClassifier:
    model = hf_text_classifier(2, 9, **NAME, pretrained=folder, **params)
    assert isinstance(model, HfTextClassifier)
    return model


def language_model(folder: Path, **params: Any) -> HfCausalLm:
    model = hf_causal_lm(9, 9, **NAME, pretrained=folder, **params)
    assert isinstance(model, HfCausalLm)
    return model


def image_classifier(folder: Path, classes: int = 10, **params: Any) -> HfImageClassifier:
    model = hf_image_classifier(classes, 3, **NAME, pretrained=folder, **params)
    assert isinstance(model, HfImageClassifier)
    return model


def edited(folder: Path, copy: Path, name: str, **changes: Any) -> Path:
    """A copy of a model's folder with values of a JSON file changed; None removes one."""
    shutil.copytree(folder, copy)
    values = {**json.loads((copy / name).read_text()), **changes}
    (copy / name).write_text(json.dumps({key: value for key, value in values.items() if value is not None}))
    return copy


@torch.no_grad()
def test_a_text_classifier_has_the_answers_of_its_pipeline_alone_and_in_a_batch() -> None:
    folder = hf_models.bert()
    texts, _ = hf_models.reviews(60, seed=3)
    texts += ["", "Unseen wörds ☃ and " + "very " * 40 + "dull", "great\n\nwonderful"]
    pipe = transformers.pipeline("text-classification", model=str(folder), tokenizer=str(folder), top_k=None)
    model = text_classifier(folder)
    rows = model.tokenizer.cut(texts, model.sequence_length)
    together = model(torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)).softmax(1)
    alone = torch.cat([model(row[None]) for row in rows]).softmax(1)
    torch.testing.assert_close(alone, together, rtol=1e-4, atol=1e-5)
    for found, answers in zip(alone, pipe(texts, truncation=True), strict=True):
        theirs = {answer["label"]: answer["score"] for answer in answers}
        assert found.tolist() == pytest.approx([theirs[name] for name in model.label_names], abs=1e-5)
    assert 0.1 < (together.argmax(1) == 1).float().mean() < 0.9
    assert {int(row[0]) for row in rows} == {model.tokenizer.encode("")[0].item()}  # [CLS]
    assert {int(row[-1]) for row in rows} == {model.tokenizer.encode("")[-1].item()}  # [SEP], of cut ones too


@torch.no_grad()
def test_a_classifier_without_a_padding_token_reads_texts_of_one_length_together(tmp_path: Path) -> None:
    """GPT-2 judges a text by its last token, which padding would displace."""
    texts, _ = hf_models.reviews(12)
    tokenizer = hf_models.byte_pairs(texts)
    config = transformers.GPT2Config(
        vocab_size=len(tokenizer), n_positions=64, n_embd=16, n_layer=1, n_head=2, num_labels=2
    )
    torch.manual_seed(0)
    network = transformers.GPT2ForSequenceClassification(config).eval()
    network.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    model = text_classifier(tmp_path)
    assert not model.padded.pads
    rows = model.tokenizer.cut(texts, model.sequence_length)
    found = model(torch.nn.utils.rnn.pad_sequence(rows, batch_first=True))
    for text, ours in zip(texts, found, strict=True):
        theirs = network(**tokenizer(text, return_tensors="pt")).logits[0]
        torch.testing.assert_close(ours, theirs)


@torch.no_grad()
def test_a_language_model_has_the_losses_of_transformers() -> None:
    folder = hf_models.gpt2()
    model = language_model(folder)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    numbers = torch.tensor(tokenizer("The film was great, and the music\n\nmoving ☃")["input_ids"][:32])
    stream = model.tokenizer.stream("The film was great, and the music\n\nmoving ☃").ids[:32]
    assert torch.equal(model.numbers[stream], numbers)
    logits = theirs(numbers[None, :-1]).logits[0]
    wanted = functional.cross_entropy(logits, numbers[1:], reduction="none")
    ours = model.negative_log_likelihood(stream[None, :-1], stream[None, 1:])
    torch.testing.assert_close(ours[0], wanted)
    last = model.negative_log_likelihood(stream[None, :-1], stream[None, 1:], 5)
    torch.testing.assert_close(last[0], wanted[-5:])
    likelihoods = model(stream[None, :-1]).log_softmax(-1).gather(-1, stream[None, 1:, None])[0, :, 0]
    torch.testing.assert_close(-likelihoods, wanted)
    assert language_model(folder, max_length=8).sequence_length == 8


@pytest.mark.parametrize("scale", [1.0, 20.0])
@pytest.mark.parametrize("decodes", [False, True])
def test_a_model_that_fills_in_masked_words_is_refused(tmp_path: Path, decodes: bool, scale: float) -> None:
    """transformers makes a BERT without a causal mask a causal language model, with a warning alone."""
    tokenizer = hf_models.wordpiece(hf_models.reviews(120)[0])
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    config = transformers.BertConfig(vocab_size=len(tokenizer), is_decoder=decodes, **sizes)
    model = transformers.BertLMHeadModel(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(scale if parameter.dim() == 2 else 1.0)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    if decodes:
        assert language_model(tmp_path).vocabulary > len(tokenizer)
        return
    with pytest.raises(
        ValueError, match="the model 'bert' sees later tokens: it is no causal language model"
    ):
        language_model(tmp_path)


def test_tokens_lie_where_they_begin_in_the_text() -> None:
    text = "The film  was awful ☃.\n\nThe end"
    tokens = language_model(hf_models.gpt2()).tokenizer.stream(text)
    pieces = [text[start:stop] for start, stop in tokens.spans.tolist()]
    assert "".join(pieces[: pieces.index("☃")]).replace(" ", "") == "Thefilmwasawful"
    assert tokens.spans[-1, 1] == len(text)
    assert sorted(tokens.spans[:, 0].tolist()) == tokens.spans[:, 0].tolist()


PROCESSING: list[dict[str, Any]] = [
    {},
    {"resample": 3},
    {"size": {"shortest_edge": 28}, "do_center_crop": True, "crop_size": {"height": 24, "width": 24}},
    {"image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.3, 0.25], "resample": 1},
    {"rescale_factor": 1 / 127.5, "do_normalize": False},
    {"do_normalize": False},
]


@torch.no_grad()
@pytest.mark.parametrize("side", [24, 16, 41])
@pytest.mark.parametrize("changes", PROCESSING)
def test_preprocessing_is_that_of_the_processor_but_for_rounding(
    changes: dict[str, Any], side: int, tmp_path: Path
) -> None:
    folder = edited(hf_models.vit(), tmp_path / "vit", "preprocessor_config.json", **changes)
    if "do_center_crop" in changes:
        kind = "BitImageProcessor"
        edited(folder, tmp_path / "bit", "preprocessor_config.json", image_processor_type=kind)
        folder = tmp_path / "bit"
    model = image_classifier(folder, geometry="model")
    whole = Classifier(model, model.pretrained_cfg["mean"], model.pretrained_cfg["std"]).eval()
    pixels = np.random.default_rng(0).integers(0, 256, (4, side, side, 3), dtype=np.uint8)
    processor = transformers.AutoImageProcessor.from_pretrained(folder)
    theirs = processor([Image.fromarray(one) for one in pixels], return_tensors="pt")["pixel_values"]
    images = torch.from_numpy(pixels).permute(0, 3, 1, 2) / 255
    ours = model.processing(whole.normalize(images))
    spread = torch.tensor(model.pretrained_cfg["std"]).view(1, 3, 1, 1) * 255
    limit = 1e-3 if side == 24 and "do_center_crop" not in changes else 3.0
    assert ((ours - theirs).abs() * spread).max() < limit
    torch.testing.assert_close(whole(images), model.model(ours).logits)


def test_gradients_reach_the_pixels_of_the_data() -> None:
    model = image_classifier(hf_models.vit())
    model.suit([str(digit) for digit in range(10)], (8, 8))
    assert (model.image_size, model.labels_by) == (8, "name")
    images = torch.rand(2, 3, 8, 8, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(model.double(), (images[:1],), fast_mode=True)
    model.suit(
        [str(digit) for digit in range(10)], None
    )  # images of several sizes are made 24 x 24 by the data
    assert model.image_size == 8  # a model is suited once
    fresh = image_classifier(hf_models.vit())
    fresh.suit([str(digit) for digit in range(10)], None)
    assert fresh.image_size == 24
    assert image_classifier(hf_models.vit(), image_size=12).image_size == 12


@pytest.mark.parametrize("resample", sorted(FILTERS))
@pytest.mark.parametrize(("before", "after"), [(12, 30), (31, 9)])
def test_filters_are_those_of_pillow(resample: str, before: int, after: int) -> None:
    values = np.random.default_rng(0).random((before, before), dtype=np.float32)
    filters = {name.lower(): value for name, value in Image.Resampling.__members__.items()}
    theirs = np.array(Image.fromarray(values, mode="F").resize((after, after + 3), filters[resample]))
    ours = resize_images(torch.from_numpy(values)[None, None].double(), (after + 3, after), resample)
    torch.testing.assert_close(ours[0, 0], torch.from_numpy(theirs).double(), rtol=1e-5, atol=1e-5)


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


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("config.json", {"quantization_config": {"quant_method": "gptq", "bits": 4}}, "is quantized"),
        ("config.json", {"problem_type": "multi_label_classification"}, "no classifier with one label"),
        ("config.json", {"model_type": "of_nobody", "auto_map": {"AutoConfig": "m.C"}}, "cannot be used"),
        ("config.json", {"architectures": None, "num_hidden_layers": 3}, "tensors are missing"),
        ("config.json", {"max_position_embeddings": 31}, "have another shape"),
    ],
)
def test_unfit_folders_are_refused(name: str, changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        text_classifier(edited(hf_models.bert(), tmp_path / "copy", name, **changes))


def test_weights_of_another_kind_of_model_or_in_other_formats_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"do not fit a text classifier: \d+ tensors are missing.*score"):
        text_classifier(hf_models.gpt2())
    folder = edited(hf_models.bert(), tmp_path / "pickled", "config.json")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ValueError, match="has no safetensors file"):
        text_classifier(folder)
    with pytest.raises(
        ValueError, match=r'no weights but pulled ones: give it "weights": \{"pulled": true\}'
    ):
        hf_text_classifier(2, 9, **NAME)
    with pytest.raises(
        ValueError, match=r"the model has 2 classes \(negative, positive\), the data set has 5"
    ):
        hf_text_classifier(5, 9, **NAME, pretrained=hf_models.bert())
    with pytest.raises(ValueError, match="max_length is 33, the model reads at most 32 tokens"):
        text_classifier(hf_models.bert(), max_length=33)


def test_steps_of_preprocessing_that_are_not_here_are_found_out(tmp_path: Path) -> None:
    name = "preprocessor_config.json"
    with pytest.raises(ValueError, match="asks for do_pad, which is not supported"):
        image_classifier(edited(hf_models.vit(), tmp_path / "a", name, do_pad=True))
    folder = edited(hf_models.vit(), tmp_path / "b", name, image_processor_type="LevitImageProcessor")
    with pytest.raises(ValueError, match="steps that are not supported"):
        image_classifier(folder, geometry="model")(torch.zeros(1, 3, 40, 40))
    folder = edited(hf_models.vit(), tmp_path / "c", name, image_processor_type="EfficientNetImageProcessor")
    with pytest.raises(ValueError, match="steps that are not supported"):  # normalises twice
        image_classifier(folder, geometry="data")(torch.zeros(1, 3, 24, 24))


def test_without_the_extra_the_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ValueError, match=r"need the extra hf: pip install 'assay-robustness\[hf\]'"):
        image_classifier(hf_models.home() / "vit")
