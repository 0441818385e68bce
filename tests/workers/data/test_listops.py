"""Generated ListOps: values, the published grammar and lengths, parts that share nothing."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay.workers.data import listops as module
from assay.workers.data.formats.sequences import TokenSequences
from assay.workers.data.listops import ALPHABET, END, OPERATORS, listops, value_of


def law_case(root: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> Callable[[str], TokenSequences]:
    """For tests/laws: six trees, with one token or one label changed."""
    grown = module._trees

    def changed(*key: Any) -> list[tuple[tuple[str, ...], int]]:
        (tokens, label), *rest = grown(*key)
        if change == "word":
            tokens = (OPERATORS[(OPERATORS.index(tokens[0]) + 1) % 4], *tokens[1:])
        return [(tokens, (label + (change == "label")) % 10), *rest]

    monkeypatch.setattr(module, "_trees", changed)
    return lambda split: listops(root, "train" if split == "train" else "test", train=6, evaluation=6)


def text_of(data: TokenSequences, index: int) -> list[str]:
    return [ALPHABET.words[number] for number in data.tokens([index], 10_000)[0].tolist()]


def test_values_of_the_papers_example_and_of_each_operator() -> None:
    # Nangia and Bowman, figure 1: [MAX 2 9 [MIN 4 7 ] 0 ] is 9.
    assert value_of(["[MAX", "2", "9", "[MIN", "4", "7", "]", "0", "]"]) == 9
    for text, value in (("[MIN 3 5 ]", 3), ("[SM 9 8 7 ]", 4), ("[MED 1 4 2 ]", 2), ("[MED 1 4 2 9 ]", 3)):
        assert value_of(text.split()) == value
    for broken in ("[MAX 2", "2 ]", "[MAX ]", "1 2", "x"):
        with pytest.raises(ValueError, match=r"not expected|do not make one list"):
            value_of(broken.split())


def test_medians_are_rounded_down_like_the_generators() -> None:
    draws = random.Random(0)
    for _ in range(200):
        values = [draws.randrange(10) for _ in range(draws.randrange(2, 11))]
        expected = int(np.median(values))
        assert value_of(["[MED", *map(str, values), END]) == expected


@pytest.mark.parametrize(("low", "high"), [(8, 64), (500, 2000)])
def test_lengths_labels_and_grammar(low: int, high: int) -> None:
    data = listops(None, "train", train=40, min_length=low, max_length=high)
    kinds: Counter[bool] = Counter()
    for index in range(len(data)):
        tokens = text_of(data, index)
        assert low < len(tokens) < high
        assert value_of(tokens) == data.labels[index]
        kinds.update(token in OPERATORS for token in tokens if token != END)
        depth = deepest = 0
        for token in tokens:
            depth += (token in OPERATORS) - (token == END)
            deepest = max(deepest, depth)
        assert deepest < 10
    # A tree of n operators with 6 arguments on average has 5 n + 1 digits.
    assert 0.12 < kinds[True] / kinds.total() < 0.24


def test_arguments_are_from_two_to_the_most() -> None:
    data = listops(None, "train", train=300, max_depth=2, max_args=7, min_length=3, max_length=40)
    counts = Counter(len(text_of(data, index)) - 2 for index in range(300))
    assert set(counts) == {2, 3, 4, 5, 6, 7}


def test_parts_share_no_tree_and_none_occurs_twice() -> None:
    options: dict[str, Any] = {"min_length": 3, "max_length": 12, "max_depth": 3}
    parts = [
        listops(None, "train", train=800, **options),
        listops(None, "test", evaluation=400, **options),
        listops(None, "test", evaluation=400, evaluated="validation", **options),
        listops(None, "test", evaluation=400, seed=1, **options),
    ]
    texts = [{" ".join(text_of(data, index)) for index in range(len(data))} for data in parts]
    assert [len(found) for found in texts] == [800, 400, 400, 400]
    assert not texts[0] & (texts[1] | texts[2] | texts[3])
    assert not texts[1] & texts[2]
    assert len(texts[1] & texts[3]) < 200


def test_a_smaller_set_is_the_beginning_of_a_larger_one() -> None:
    few, many = (listops(None, "train", train=count) for count in (10, 30))
    assert [text_of(few, index) for index in range(10)] == [text_of(many, index) for index in range(10)]


def test_lengths_that_no_tree_has_are_refused() -> None:
    with pytest.raises(ValueError, match=r"max_length must be at least min_length \+ 6: got 10 and 8"):
        listops(None, "train", min_length=8, max_length=10)


def test_lengths_beyond_the_largest_tree_are_refused() -> None:
    # Depth 2 with 2 arguments: an operator, two digits, a bracket.
    message = r"^min_length must be below 4, .*max_depth 2 and max_args 2: got 8$"
    with pytest.raises(ValueError, match=message):
        listops(None, "train", min_length=8, max_length=64, max_depth=2, max_args=2)


def test_more_trees_than_there_are_end_in_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_VAIN_DRAWS", 300)
    message = r"^4000 different trees of the part 'train' .* were not found, only \d+"
    with pytest.raises(ValueError, match=message):
        listops(None, "train", train=4000, min_length=3, max_length=9, max_depth=2, max_args=2, seed=5)
