"""Sets of labelled texts that name a language set for its vocabulary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from assay.service.catalog.catalog import load
from assay.service.contract.errors import ErrorDetail, InvalidSpec
from assay.service.submission.validate import validate


def problems(data: dict[str, Any], root: Path | None = None) -> dict[str, ErrorDetail]:
    """Problems with the data of a training job, by location."""
    body = {"kind": "train", "model": {"name": "vit"}, "data": data, "recipe": {"name": "small_vit"}}
    with pytest.raises(InvalidSpec) as caught:
        validate(load(), body, data_root=root)
    return {".".join(map(str, detail.loc)): detail for detail in caught.value.details}


def test_the_folder_of_the_vocabulary_is_looked_up_too(tmp_path: Path) -> None:
    for name in ("sst", "wikitext-2"):
        (tmp_path / name).mkdir()
    vocabulary = {"name": "wikitext", "params": {"folder": "wikitext-3"}}
    found = problems({"name": "sst", "params": {"vocabulary": vocabulary}}, tmp_path)
    assert found["data.params.vocabulary.params.folder"].nearest == "wikitext-2"
    assert "data.params.folder" not in found
    found = problems({"name": "sst", "params": {"folder": "../x", "vocabulary": "pydoc"}}, tmp_path)
    assert "data.params.folder" in found


def test_only_a_set_of_documents_has_a_vocabulary_to_take() -> None:
    found = problems({"name": "sst", "params": {"vocabulary": "imdb"}})["data.params.vocabulary.name"]
    assert found.allowed == ["document_table", "pydoc", "wikitext"]
    assert "data.params.vocabulary.name" not in problems({"name": "sst", "params": {"vocabulary": "pydoc"}})


def test_text_is_no_data_for_models_of_images() -> None:
    for name in ("sst", "imdb", "pydoc", "wikitext"):
        assert "the model 'vit' is for classification" in problems({"name": name})["data.name"].message
