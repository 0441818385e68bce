"""Likelihood of a text's words under a language model, window by window.

A text is one stream of words, and each word but the first is a target. The model sees windows of L words that
begin at 0, s, 2s, ... (s = the stride). The first window scores all its targets, each later one its last s;
at the end of the text a window may be shorter. So the context of a target crosses document boundaries, and
the loss of a target depends on the text, L and s alone: not on the batch, nor on the other requested targets.

s = 1 is the protocol of Teo and Nguyen (NeurIPS 2024) and of lmtool-fwp: every target after the first
window is predicted from the L words before it. s = L cuts the text into windows that do not overlap.

Legend: T words of the text, B windows of a batch, L words of a window, s the stride.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from assay.attacks.kernel import frozen
from assay.attacks.sending import sent
from assay.models.layers.token_model import TokenModel
from assay.workers.evaluation.engine.arriving import Arriving
from assay.workers.evaluation.engine.forward import Limit
from assay.workers.evaluation.engine.loader import DType, Progress

# Words of a pass on a CPU: activations of more no longer fit into its caches. A window of the
# published size took a third longer in passes of 64 windows than in passes of 8.
CPU_WORDS = 2048


class Window(NamedTuple):
    """One pass: the words [start, start + length) are seen, and the last `scored` targets count."""

    start: int
    length: int
    scored: int


@dataclass(frozen=True)
class Windows:
    """Cutting of a text into windows."""

    length: int  # L, at least 1
    stride: int  # s, in [1, L]

    def __post_init__(self) -> None:
        """Refuse a stride that would skip targets."""
        if not 1 <= self.stride <= self.length:
            raise ValueError(f"stride is {self.stride}; allowed: from 1 to the length, {self.length}")

    def of(self, target: int) -> int:
        """The number of the window that scores a target, in [1, T)."""
        return max(0, -(-(target - self.length) // self.stride))

    def numbers(self, wanted: Iterable[tuple[int, int]], words: int) -> list[int]:
        """The windows that score the targets in ranges of a text of so many words, each once, in order."""
        found: set[int] = set()
        for start, stop in wanted:
            first, last = max(start, 1), min(stop, words) - 1
            if first <= last:
                found.update(range(self.of(first), self.of(last) + 1))
        return sorted(found)

    def window(self, number: int, words: int) -> Window:
        """A window of a text of so many words."""
        start = number * self.stride
        stop = min(start + self.length, words - 1)  # the last word is a target only
        first = 1 if number == 0 else start + self.length - self.stride + 1
        return Window(start, stop - start, stop + 1 - first)


class Scores(NamedTuple):
    """Losses by place in the text."""

    losses: NDArray[np.float64]  # -log p of each target in nats, float64 (T,); NaN where not requested
    noted: dict[str, object]  # caveats: a batch that had to be reduced


def score(
    model: TokenModel,
    words: Tensor,
    wanted: Sequence[tuple[int, int]],
    windows: Windows,
    *,
    batch_size: int,
    device: torch.device | str = "cpu",
    dtype: DType = "float32",
    targets: Tensor | None = None,
    progress: Progress | None = None,
) -> Scores:
    """Scores the targets in some ranges of a text; a batch of no window is a ValueError.

    `words` are the ids of the text seen by the model, integers (T,); `wanted` ranges [a, b) of targets, never
    the first word of a text; `targets` the ids to predict, (T,), by default `words`. The batch, on a CPU of
    at most `CPU_WORDS`, only affects rounding.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}, it must be at least 1")
    truth = words if targets is None else targets
    losses = np.full(len(words), np.nan)
    limit, done, place = Limit(), 0, torch.device(device)
    numbers = windows.numbers(wanted, len(words))
    if place.type == "cpu":
        batch_size = min(batch_size, max(1, CPU_WORDS // windows.length))
    autocast = torch.autocast(place.type, torch.bfloat16, enabled=dtype == "bfloat16")
    groups = _groups([windows.window(number, len(words)) for number in numbers], batch_size)
    with torch.no_grad(), frozen(model), autocast:
        for group, found in _read_late(
            groups, lambda group: _fitting(model, group, words, truth, place, limit)
        ):
            for window, row in zip(group, found.tolist(), strict=True):
                stop = window.start + window.length + 1
                losses[stop - window.scored : stop] = row
            done += len(group)
            if progress is not None:
                progress(done)
    asked = np.zeros(len(words), dtype=bool)
    for start, stop in wanted:
        asked[max(start, 1) : stop] = True
    return Scores(np.where(asked, losses, np.nan), limit.noted())


def _groups(windows: Sequence[Window], batch_size: int) -> Iterator[list[Window]]:
    group: list[Window] = []
    for window in windows:
        if group and (len(group) == batch_size or group[0][1:] != window[1:]):
            yield group
            group = []
        group.append(window)
    if group:
        yield group


def _read_late(
    groups: Iterable[list[Window]], run: Callable[[list[Window]], Tensor]
) -> Iterator[tuple[list[Window], Tensor]]:
    last: tuple[list[Window], Arriving] | None = None
    for group in groups:
        found = Arriving({"losses": run(group)})
        if last is not None:
            yield last[0], last[1].read()["losses"]
        last = group, found
    if last is not None:
        yield last[0], last[1].read()["losses"]


def _fitting(
    model: TokenModel, group: list[Window], words: Tensor, truth: Tensor, device: torch.device, limit: Limit
) -> Tensor:
    while True:
        size = min(limit.rows or len(group), len(group))
        parts = [group[first : first + size] for first in range(0, len(group), size)]
        try:
            return torch.cat([_pass(model, part, words, truth, device) for part in parts])
        except torch.OutOfMemoryError:
            limit.halve(size)


def _pass(
    model: TokenModel, group: list[Window], words: Tensor, truth: Tensor, device: torch.device
) -> Tensor:
    starts = torch.tensor([window.start for window in group])
    places = starts[:, None] + torch.arange(group[0].length)  # (B, L)
    seen, following = sent(words[places].long(), device), sent(truth[places + 1].long(), device)
    scored = group[0].scored
    last = None if scored == group[0].length else scored
    return model.negative_log_likelihood(seen, following, last).double()
