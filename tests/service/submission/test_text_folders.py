"""Folders that attacks on text read, checked at submission."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from assay.service.catalog.catalog import load
from assay.service.contract.errors import InvalidSpec
from assay.service.submission.validate import validate

SPEC: dict[str, Any] = {
    "kind": "evaluate",
    "model": {"name": "text_classifier"},
    "data": {"name": "sst"},
    "evaluations": [{"name": "pwws"}],
}


def test_a_missing_wordnet_is_refused_with_its_name_and_what_to_do(tmp_path: Path) -> None:
    for folder in ("sst", "word-net"):
        (tmp_path / folder).mkdir()
    with pytest.raises(InvalidSpec) as refused:
        validate(load(), SPEC, data_root=tmp_path)
    (detail,) = refused.value.details
    assert detail.loc == ["evaluations", 0, "params", "wordnet"]
    assert detail.given == "wordnet"
    assert detail.nearest == "word-net"
    assert "docs/text-caches.md" in detail.message


def test_one_that_is_there_or_cannot_be_seen_is_taken(tmp_path: Path) -> None:
    for folder in ("sst", "wordnet"):
        (tmp_path / folder).mkdir()
    validate(load(), SPEC, data_root=tmp_path)
    validate(load(), SPEC, data_root=None)


def test_missing_word_vectors_are_refused_with_their_name_and_what_to_do(tmp_path: Path) -> None:
    for folder in ("sst", "counter-fited"):
        (tmp_path / folder).mkdir()
    spec = SPEC | {"evaluations": [{"name": "textfooler", "params": {"neighbours": 0}}]}
    with pytest.raises(InvalidSpec) as refused:
        validate(load(), spec, data_root=tmp_path)
    assert [detail.loc[-1] for detail in refused.value.details] == ["neighbours", "vectors"]
    detail = refused.value.details[1]
    assert detail.nearest == "counter-fited"
    assert "docs/text-caches.md" in detail.message


def test_a_word_of_two_words_is_refused() -> None:
    words = {"name": "fixed_word", "params": {"word": "A B"}}
    swap = {"name": "word_swap", "params": {"words": words, "rate": 2}}
    spec = {"kind": "evaluate", "model": {"name": "lm"}, "data": {"name": "pydoc"}, "evaluations": [swap]}
    with pytest.raises(InvalidSpec) as refused:
        validate(load(), spec, data_root=None)
    assert {".".join(map(str, detail.loc)) for detail in refused.value.details} >= {
        "evaluations.0.params.rate"
    }
    spec["evaluations"] = [{"name": "word_swap", "params": {"words": words}}]
    with pytest.raises(InvalidSpec, match=r"word must be one word"):
        validate(load(), spec, data_root=None)
