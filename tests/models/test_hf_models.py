"""Hugging Face models from local folders: the numbers of transformers itself, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers
from torch.nn import functional

from tests.support import hf_models
from tests.support.hf_classifiers import language_model


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
