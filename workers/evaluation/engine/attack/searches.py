"""Runs gradient-guided searches of many examples at once: their questions to the model share passes.

Each search is a generator of questions (`attacks/words/search/gradient_swaps.py`). In each round all
gradients that searches wait for are taken together, then all their texts are put to the model. For each
search the questions and their order are as in a run alone.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from assay.attacks.words.search.gradient_swaps import Heard, Queries, Question, Slopes
from assay.workers.evaluation.engine.forward import Result
from assay.workers.evaluation.engine.text.likelihood import CPU_WORDS

Owner = TypeVar("Owner")
Asker = Generator[Question, Any, Result]
"""Asks about its texts, and returns its result."""
Asked = Sequence[tuple[Owner, Tensor]]
"""Texts, int64 (B, N), of each search that waits, with the key of its example."""


class _Waiting(NamedTuple, Generic[Owner, Result]):
    key: Owner
    search: Asker[Result]
    question: Question


def together(
    searches: Iterator[tuple[Owner, Asker[Result]]],
    in_hand: int,
    slopes: Callable[[Asked[Owner]], Sequence[Tensor]],
    heard: Callable[[Asked[Owner]], Sequence[Sequence[Heard]]],
) -> Iterator[list[tuple[Owner, Result]]]:
    """After each round the searches that have ended; at most `in_hand` are under way.

    `slopes` gives the gradients (B, N, C), and `heard` the answers, of each search's texts.
    """
    waiting: list[_Waiting[Owner, Result]] = []
    while True:
        ended: list[tuple[Owner, Result]] = []
        fresh = list(islice(searches, in_hand - len(waiting)))
        if not fresh and not waiting:
            return
        waiting += _gone_on(((key, search, None) for key, search in fresh), ended)
        kinds: tuple[tuple[type[Question], Callable[[Asked[Owner]], Sequence[Any]]], ...]
        kinds = ((Slopes, slopes), (Queries, heard))
        for kind, answer in kinds:
            asking = [one for one in waiting if isinstance(one.question, kind)]
            waiting = [one for one in waiting if not isinstance(one.question, kind)]
            if asking:
                found = answer([(one.key, one.question.texts) for one in asking])
                given = zip(asking, found, strict=True)
                waiting += _gone_on(((one.key, one.search, own) for one, own in given), ended)
        yield ended


def _gone_on(
    given: Iterable[tuple[Owner, Asker[Result], Any]], ended: list[tuple[Owner, Result]]
) -> list[_Waiting[Owner, Result]]:
    waiting = []
    for key, search, answer in given:
        try:
            waiting.append(_Waiting(key, search, search.send(answer)))
        except StopIteration as end:
            ended.append((key, end.value))
    return waiting


def of_one_length(texts: Sequence[Tensor], rows: int, device: torch.device) -> list[list[int]]:
    """Places of texts by pass: of equal length, at most `rows`, on a CPU of at most `CPU_WORDS` words."""
    groups: dict[int, list[int]] = {}
    for place, text in enumerate(texts):
        groups.setdefault(len(text), []).append(place)
    found = []
    for length, places in groups.items():
        most = min(rows, max(1, CPU_WORDS // length)) if device.type == "cpu" else rows
        found += [places[first : first + most] for first in range(0, len(places), most)]
    return found


def by_search(asked: Asked[Owner], values: Sequence[Result]) -> list[list[Result]]:
    """The values of all texts, in order, as a list for each search."""
    rest = iter(values)
    return [list(islice(rest, len(texts))) for _, texts in asked]
