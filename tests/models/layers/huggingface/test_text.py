"""Answers of Hugging Face text classifiers, alone and in a batch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers

from tests.support import hf_models
from tests.support.hf_classifiers import text_classifier


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
