"""ListOps: nested lists of digits with operators, and a digit as their value; generated on the spot.

Nangia and Bowman, "ListOps: A Diagnostic Dataset for Latent Tree Learning", NAACL 2018 student workshop, with
the grammar of Long Range Arena's generator (Tay et al., ICLR 2021). A node above `max_depth` is an operator
(MIN, MAX, MED, SM: the sum modulo 10) with probability 1/4, else a digit; an operator has 2 to `max_args`
arguments, evenly; MED is rounded down. A tree's length counts digits, operators and closing brackets, and is
above `min_length` and below `max_length`. Trees of all parts are different. Long Range Arena has 500 and
2000, 96,000 trees for training and 2,000 each for validation and test.

A token is an operator, a digit or the closing bracket: as in the released reader, the file format's binary
brackets are no tokens. (Its ids depend on Python's hash seed; these do not.)
"""

from __future__ import annotations

from functools import cache
from typing import Annotated

from annotated_types import Interval

from assay.workers.data.formats import parameters
from assay.workers.data.formats.sequences import (
    Alphabet,
    DrawSeed,
    Evaluated,
    ExampleCount,
    HashedDraws,
    PartName,
    TokenSequences,
    part_of,
)

__all__ = ["listops"]

TASKS = ("sequence",)
PAPER = "Nangia and Bowman 2018, ListOps; Tay et al. 2021, Long Range Arena"
FACTS = {
    "classes": 10, "channels": 16, "words": False, "sentences": False, "pairs": False,
    "long_range_task": "listops",
}  # fmt: skip

RULES = (("params.max_length >= params.min_length + 6", "max_length must be at least min_length + 6"),)

OPERATORS = ("[MIN", "[MAX", "[MED", "[SM")
DIGITS = tuple("0123456789")
END = "]"
ALPHABET = Alphabet((*DIGITS, *OPERATORS, END))

OPERATOR_SHARE = 4  # one in four nodes is an operator
MAX_VAIN_DRAWS = 100_000  # Vain draws in a row after which no trees of the wanted length are left
Length = Annotated[int, Interval(ge=1, le=100_000)]


def listops(
    root: parameters.Root,
    split: parameters.Split,
    *,
    train: ExampleCount = 4000,
    evaluation: ExampleCount = 1000,
    min_length: Length = 8,
    max_length: Length = 64,
    max_depth: Annotated[int, Interval(ge=2, le=20)] = 10,
    max_args: Annotated[int, Interval(ge=2, le=100)] = 10,
    evaluated: Evaluated = "test",
    seed: DrawSeed = 0,
) -> TokenSequences:
    """Nested lists of digits with MIN, MAX, MED and sum modulo 10 (ten classes); made on the spot.

    The defaults are small. Long Range Arena's set has `train` 96000, `evaluation` 2000, `min_length` 500 and
    `max_length` 2000.

    Args:
        train: number of trees for training.
        evaluation: number of trees for evaluation.
        min_length: trees have more tokens.
        max_length: trees have fewer tokens; at least `min_length` + 6.
        max_depth: nodes of this depth are digits; the root's is 1.
        max_args: most arguments of an operator.
        seed: another seed, other trees.
    """
    del root
    if max_length < min_length + 6:
        raise ValueError(f"max_length must be at least min_length + 6: got {max_length} and {min_length}")
    part: PartName = "train" if split == "train" else evaluated
    count = train if part == "train" else evaluation
    trees = _trees(part, count, min_length, max_length, max_depth, max_args, seed)
    return TokenSequences(
        name="listops",
        class_names=DIGITS,
        ids=[f"{part}/{number:06d}" for number in range(count)],
        labels=[label for _, label in trees],
        vocabulary=ALPHABET,
        read=lambda index: (ALPHABET.ids(trees[index][0]),),
    )


@cache
def _trees(
    part: PartName, count: int, min_length: int, max_length: int, max_depth: int, max_args: int, seed: int
) -> list[tuple[tuple[str, ...], int]]:
    if (longest := _longest(max_depth, max_args)) <= min_length:
        raise ValueError(
            f"min_length must be below {longest}, the tokens of the largest tree of max_depth {max_depth} and"
            f" max_args {max_args}: got {min_length}"
        )
    draws = HashedDraws(f"listops/{seed}/{part}")
    found: dict[tuple[str, ...], int] = {}
    vain = before = 0
    while len(found) < count:
        vain, before = (vain + 1 if len(found) == before else 0), len(found)
        if vain > MAX_VAIN_DRAWS:
            raise ValueError(
                f"{count} different trees of the part {part!r} with more than {min_length} and fewer than"
                f" {max_length} tokens were not found, only {len(found)}: ask for fewer, for other"
                f" lengths, a larger max_depth ({max_depth}) or max_args ({max_args})"
            )
        tokens: list[str] = []
        if not _grow(tokens, draws, 1, max_depth, max_args, max_length) or len(tokens) <= min_length:
            continue
        if part_of(" ".join(tokens)) == part:
            found.setdefault(tuple(tokens), value_of(tokens))
    return list(found.items())


def _longest(max_depth: int, max_args: int) -> int:
    tokens = 1
    for _ in range(max_depth - 1):
        tokens = 2 + max_args * tokens
    return tokens


def _grow(
    tokens: list[str], draws: HashedDraws, depth: int, max_depth: int, max_args: int, max_length: int
) -> bool:
    if len(tokens) >= max_length - 1:
        return False
    if depth >= max_depth or draws.below(OPERATOR_SHARE):
        tokens.append(DIGITS[draws.below(10)])
        return True
    tokens.append(OPERATORS[draws.below(len(OPERATORS))])
    for _ in range(2 + draws.below(max_args - 1)):
        if not _grow(tokens, draws, depth + 1, max_depth, max_args, max_length):
            return False
    tokens.append(END)
    return len(tokens) < max_length


def value_of(tokens: list[str]) -> int:
    """The value of a tree, 0 to 9."""
    open_lists: list[tuple[str, list[int]]] = [("", [])]
    for token in tokens:
        if token in OPERATORS:
            open_lists.append((token, []))
        elif token == END and len(open_lists) > 1 and open_lists[-1][1]:
            operator, values = open_lists.pop()
            open_lists[-1][1].append(_apply(operator, values))
        elif token in DIGITS:
            open_lists[-1][1].append(int(token))
        else:
            raise ValueError(f"{token!r} is not expected here; allowed: {', '.join(ALPHABET.words[1:])}")
    if len(open_lists) != 1 or len(open_lists[0][1]) != 1:
        raise ValueError("the brackets do not make one list")
    return open_lists[0][1][0]


def _apply(operator: str, values: list[int]) -> int:
    if operator == "[MIN":
        return min(values)
    if operator == "[MAX":
        return max(values)
    if operator == "[SM":
        return sum(values) % 10
    ordered, middle = sorted(values), len(values) // 2
    return ordered[middle] if len(values) % 2 else (ordered[middle - 1] + ordered[middle]) // 2
