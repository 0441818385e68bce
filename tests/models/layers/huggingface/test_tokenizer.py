"""Tokens of a model's own tokenizer, and their places in the text."""

from __future__ import annotations

from tests.support import hf_models
from tests.support.hf_classifiers import language_model


def test_tokens_lie_where_they_begin_in_the_text() -> None:
    text = "The film  was awful ☃.\n\nThe end"
    tokens = language_model(hf_models.gpt2()).tokenizer.stream(text)
    pieces = [text[start:stop] for start, stop in tokens.spans.tolist()]
    assert "".join(pieces[: pieces.index("☃")]).replace(" ", "") == "Thefilmwasawful"
    assert tokens.spans[-1, 1] == len(text)
    assert sorted(tokens.spans[:, 0].tolist()) == tokens.spans[:, 0].tolist()
