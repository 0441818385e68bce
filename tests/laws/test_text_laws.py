"""Laws of every data set of tokens: documents for language models, labelled sequences for classifiers.

As for images, the set's own test brings `law_case(root, monkeypatch, change)`: it writes a tiny set below
`root` (with one word or one label of each split changed, for change = "word" or "label"; a text for language
models has no labels) and returns a function from the split to the set.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

from assay.workers.data.formats.vocabulary import PAD, UNKNOWN
from tests.laws.test_data_laws import REPOSITORY, TEXT, components, own_test, task_of

SETS = [component for component in components() if task_of(component) in TEXT]
each_set = pytest.mark.parametrize("component", SETS, ids=[name for _, name in SETS])
each_part = pytest.mark.parametrize(
    ("component", "split"),
    [(component, split) for component in SETS for split in ("train", "test")],
    ids=[f"{component[1]}-{split}" for component in SETS for split in ("train", "test")],
)
LABELLED = [component for component in SETS if task_of(component) == "sequence"]
Build = Callable[..., Callable[[str], Any]]


@pytest.fixture
def build(
    component: tuple[str, str], tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Build:
    """A new tiny set in a new folder."""
    case = own_test(component[0]).law_case
    return lambda change="none": case(tmp_path_factory.mktemp("root"), monkeypatch, change)


def test_there_are_sets_of_text() -> None:
    assert {"wikitext", "pydoc", "sst", "imdb", "listops", "lra_text", "pathfinder"} <= {
        name for _, name in SETS
    }


@pytest.mark.sampled
@each_part
def test_description_is_consistent(build: Build, component: tuple[str, str], split: str) -> None:
    data = build()(split)
    module = importlib.import_module(f"assay.workers.data.{component[0]}")
    assert (data.name, data.task) == (component[1], task_of(component))
    assert module.FACTS["words"] is True or component in LABELLED
    for fact in ("classes", "channels"):
        assert module.FACTS.get(fact, getattr(data, fact)) == getattr(data, fact)
    assert data.channels == len(data.vocabulary) > 2
    assert data.size is None
    assert data.mean_tokens > 0
    assert len(data) == len(data.ids) == len(set(data.ids)) > 0
    if component in LABELLED:
        assert data.classes == len(data.class_names) >= 2
        assert "documents" not in module.FACTS
        assert {"words", "sentences", "pairs"} <= module.FACTS.keys()
        assert hasattr(data, "sentences") == module.FACTS["sentences"]
    else:
        assert data.classes == len(data.vocabulary)
        assert module.FACTS["documents"] is True


@pytest.mark.sampled
@each_part
def test_tokens_are_words_of_the_vocabulary(build: Build, component: tuple[str, str], split: str) -> None:
    data = build()(split)
    if component in LABELLED:
        facts = importlib.import_module(f"assay.workers.data.{component[0]}").FACTS
        tokens = data.tokens(range(len(data)), 1000)
        assert tokens.dtype == data.labels.dtype == torch.int64
        assert tokens.shape[1:-1] == ((2,) if facts["pairs"] else ())
        assert tokens.min() >= PAD
        padding = tokens == PAD
        assert (padding.cummax(-1).values == padding).all()  # on the right only
        assert torch.equal(data.tokens(range(len(data)), 3), tokens[..., :3])
        assert 0 <= data.labels.min() <= data.labels.max() < data.classes
        if facts["words"]:
            assert all(" ".join(text.split()) == text for text in data.sentences)
        if facts["sentences"]:
            for row, text in zip(tokens, data.sentences, strict=True):
                assert torch.equal(row[row != PAD], data.encode(text)[:1000])
    else:
        tokens = torch.from_numpy(data.stream())
        assert tokens.min() >= UNKNOWN
        assert data.starts == sorted(data.starts)
        place = data.starts[1]
        assert torch.equal(tokens[:place].long(), data.vocabulary.ids(data.words(0)))
    assert tokens.max() < len(data.vocabulary)


@pytest.mark.sampled
@each_set
def test_splits_share_the_vocabulary_and_no_example(build: Build) -> None:
    load = build()
    assert not set(load("train").ids) & set(load("test").ids)
    assert load("train").vocabulary.sha256 == load("test").vocabulary.sha256
    assert load("train").class_names == load("test").class_names


CHANGES = [(component, "word") for component in SETS] + [(component, "label") for component in LABELLED]


@pytest.mark.sampled
@pytest.mark.parametrize(("component", "change"), CHANGES)
@pytest.mark.parametrize("split", ["train", "test"])
def test_hash_follows_the_content(build: Build, split: str, change: str) -> None:
    original = build()(split).content_sha256()
    assert len(original) == 64
    assert build()(split).content_sha256() == original
    assert build(change)(split).content_sha256() != original


IN_ANOTHER_PROCESS = """
import json, pathlib, sys, pytest
from tests.laws.test_text_laws import SETS, own_test
hashes = {}
for module, name in SETS:
    root = pathlib.Path(sys.argv[1], name)
    root.mkdir()
    load = own_test(module).law_case(root, pytest.MonkeyPatch(), "none")
    hashes[name] = [load(split).content_sha256() for split in ("train", "test")]
print(json.dumps(hashes))
"""


@pytest.mark.costly
def test_hashes_are_the_same_in_another_process(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [sys.executable, "-c", IN_ANOTHER_PROCESS, str(tmp_path_factory.mktemp("sets"))]
    environment = {**os.environ, "PYTHONHASHSEED": "12345", "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=True
    )
    for module, name in SETS:
        load = own_test(module).law_case(tmp_path_factory.mktemp("root"), monkeypatch, "none")
        here = [load(split).content_sha256() for split in ("train", "test")]
        assert json.loads(done.stdout)[name] == here
