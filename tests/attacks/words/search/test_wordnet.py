"""WordNet's files, read without a library."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.attacks.words.search.draws import Draws
from assay.attacks.words.search.wordnet import FILES, WordNet, missing_files, synonyms
from tests.support.wordnet_files import write_wordnet


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_wordnet(tmp_path / "wordnet")


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("dogs", ["dog", "hound"]),  # an ending
        ("mice", ["mouse"]),  # irregular
        ("Watched", ["view", "see", "watch"]),  # capitals
        ("better", ["good", "decent", "solid", "well"]),  # irregular in two parts of speech
        ("galore", ["galore", "abounding"]),  # marked in the file
        ("stories", ["story", "narrative", "tale"]),
        ("dancing", ["dance", "trip"]),
        ("nothing-like-it", []),
    ],
)
def test_looks_up_inflected_forms(folder: Path, word: str, found: list[str]) -> None:
    assert WordNet(folder).synonyms(word) == tuple(sorted(found))


def test_phrases_are_no_candidates(folder: Path) -> None:
    assert "motion_picture" in WordNet(folder).synonyms("movie")
    assert synonyms(folder).of("movie", Draws(0)) == ["film", "picture"]


def test_names_the_files_that_are_missing(folder: Path) -> None:
    assert missing_files(folder) == []
    (folder / "adj.exc").unlink()
    (folder / "data.verb").unlink()
    assert missing_files(folder) == ["data.verb", "adj.exc"]
    assert missing_files(folder / "nowhere") == list(FILES)


def test_a_file_of_something_else_is_named(folder: Path) -> None:
    (folder / "index.noun").write_text("dog n x\n")
    with pytest.raises(ValueError, match=r"index\.noun is not an index of WordNet"):
        WordNet(folder)


def test_an_offset_that_leads_nowhere_is_named(folder: Path) -> None:
    (folder / "data.noun").write_text("other\n" * 200)
    with pytest.raises(ValueError, match=r"data\.noun has no synonym set at byte \d+"):
        WordNet(folder).synonyms("dog")
