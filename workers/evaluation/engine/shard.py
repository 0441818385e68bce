"""Evaluations and their input: every component of `workers/evaluation/` makes an `Evaluation`.

Legend: n examples of the shard, B of them asked for, C channels, S side of the images that the model sees,
N tokens, K classes, H and W height and width of a file. A row is the place of an example in the shard, from
0 to n - 1, in the order of `ids`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, cast

import torch
from torch import Tensor

from assay.models.layers.layers import Classifier
from assay.models.layers.token_model import TokenModel
from assay.service.contract.corruption_cells import Cell
from assay.workers import catalog
from assay.workers.data.formats.dataset import CorruptedSet, ExampleSet, Levels
from assay.workers.data.formats.segmentation import SegmentationSet
from assay.workers.data.formats.text import LanguageSet, SentenceSet
from assay.workers.evaluation.engine.captured import Preparing
from assay.workers.evaluation.engine.loader import DType, Images, Loader, Progress, Running, Screening, Stored
from assay.workers.evaluation.engine.outcomes import Outcomes

Staged = Callable[[str, int], None]
"""Told the name of a stage that is over, and how many examples hold out after it."""


class Evaluation(Protocol):
    """What a component's function returns: its parameters, ready to be run.

    Equal shards give equal outcomes. The outcome of an example depends neither on the batch size nor on the
    other examples of the shard, except by rounding.
    """

    def measure(self, shard: Shard) -> Outcomes:
        """Measures every example of the shard.

        A ValueError: the evaluation does not fit the examples or the model; a torch.OutOfMemoryError: a
        single example does not fit into memory.
        """


class FolderReader(Protocol):
    """Interface of an evaluation with a `folder` parameter, beside `measure`."""

    def check(self, root: Path | None) -> None:
        """Refuses missing or malformed folders before any measurement; `root`: ASSAY_DATA_ROOT.

        MissingData says how to fill a folder; CorruptData: its content cannot be read; a ValueError: a name
        leads out of the root.
        """


class ModelReader(Protocol):
    """Interface of an evaluation that does not take every model, beside `measure`."""

    def check_model(self, shard: Shard) -> None:
        """Refuses a model by one example: a ValueError says what in it is not supported, and where."""


def _ignore(*_: object) -> None:
    """No-op callback."""


@dataclass(frozen=True, kw_only=True)
class Shard:
    """Some examples of a data set, the model to run over them, and how."""

    data: ExampleSet  # the whole data set; `order` says which of its examples are measured
    order: Sequence[int]  # indices into the data set, one per row, (n,)
    # On `device`, in evaluation mode, in `dtype` (float32 for bfloat16, which is autocast). Maps images (B,
    # C, S, S) in [0, 1], or tokens (B, N), to logits: (B, K), for segmentation (B, K, S, S). Leave its mode,
    # parameters and buffers as they are
    classifier: Classifier
    # S; for a model of words the maximum number of tokens, of time series the steps; for a policy the
    # steps of a window
    image_size: int
    batch_size: int
    device: torch.device  # where the classifier is
    dtype: DType = "float32"  # arithmetic: float32, float64 or bfloat16
    seed: int = 0  # of the job; key random draws by it and by the examples' ids
    root: Path | None = None  # ASSAY_DATA_ROOT, for evaluations that read folders; None where it is not set
    protocol: str = "pixel"  # for attacks on classifiers: `pixel` or `paper`
    screening: Screening | None = None  # how attacks use bfloat16, if they do
    capture: bool = False  # whether attacks replay passes of the model as graphs of the device
    compiled: bool = False  # whether attacks run compiled passes of the model
    save_adversarial: bool = False  # whether the outcomes' files include adversarial examples
    save_traces: int = 0  # so many first rows keep the steps of gradient attacks
    # Rows that a gallery may show, with their places in the order of sampling of the whole job
    ranks: Mapping[int, int] = field(default_factory=dict)
    planned: Mapping[str, Any] = field(default_factory=dict)  # the plan's facts about the evaluation, by name
    # The classifiers of other jobs named by the evaluation, by job
    others: Mapping[str, Classifier] = field(default_factory=dict)
    # Called with the number of rows done, from 0 to n; may raise to stop the run
    progress: Progress = _ignore
    # Called at the end of a stage of an attack, with the number of examples that hold out
    staged: Staged = _ignore
    # Called when passes begin to be compiled or captured, with words for it, and with None at the end
    preparing: Preparing = _ignore

    @property
    def task(self) -> str:
        """The data set's, such as `classification`, `segmentation`, `language`, `series` or `control`."""
        return self.data.task

    @property
    def methods(self) -> Any:
        """What workers do for the task: a `Task` of `workers/tasks/classification.py`."""
        return catalog.task(self.task)

    @property
    def classes(self) -> int:
        """K; for a language the size of the vocabulary."""
        return self.data.classes

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """Example ids, (n,)."""
        return tuple(self.data.ids[index] for index in self.order)

    @property
    def running(self) -> Running:
        """Batch size, device, dtype and progress, as keywords of the functions of this folder."""
        return Running(
            batch_size=self.batch_size, device=self.device, dtype=self.dtype, progress=self.progress
        )

    def images(self, rows: Sequence[int]) -> Tensor:
        """Input of the classifier: float32 (B, C, S, S) in [0, 1]; for labelled sequences int64 (B, N).

        For time series raw values and the channel of existing steps, float32 (B, F + 1, S).
        """
        found = self._stored(rows)
        return found.pixels() if isinstance(found, Levels) else found

    @property
    def inputs(self) -> Stored:
        """The `images` by row as a loader sends them: levels where the data set has levels."""
        return Stored(self._stored)

    def _stored(self, rows: Sequence[int]) -> Tensor | Levels:
        found: Tensor | Levels = self.methods.inputs(self.data, self._indices(rows), self.image_size)
        return found

    def loader(self, images: Images | None = None, *, batch_size: int | None = None) -> Loader:
        """A loader of these images, else of the `inputs`, with labels. A ValueError without examples."""
        running: Running = self.running | {"batch_size": batch_size or self.batch_size}
        return Loader(self.classifier, images or self.inputs, self.labels, self.ids, **running)

    def cell_images(self, cell: Cell) -> Stored:
        """Loads stored corrupted images of a corruption and severity by row."""
        data = cast(CorruptedSet, self.data)
        return Stored(lambda rows: data.cell_images(cell, self._indices(rows), self.image_size))

    def truth(self, rows: Sequence[int]) -> Tensor:
        """Labels, int64 (B,); for segmentation label maps, uint8 (B, S, S), 255 where ignored."""
        truth: Tensor = self.methods.truth(self.data, self._indices(rows), self.image_size)
        return truth

    @property
    def labels(self) -> Tensor:
        """The true classes of all rows, int64 (n,), on the CPU; for anomaly detection 1 for anomalies."""
        return self.truth(range(len(self.order)))

    def example(self, row: int) -> tuple[Tensor, Tensor]:
        """A segmentation image at its file's size, uint8 (C, H, W), and its label map, uint8 (H, W)."""
        return cast(SegmentationSet, self.data).example(self.order[row])

    @property
    def text(self) -> LanguageSet:
        """The whole text of a language data set; the rows are its documents at `order`."""
        return cast(LanguageSet, self.data)

    @property
    def sentences(self) -> SentenceSet:
        """The whole set of labelled texts; the rows are its texts at `order`."""
        return cast(SentenceSet, self.data)

    @property
    def language_model(self) -> TokenModel:
        """The classifier as a language model, for data of words."""
        return cast(TokenModel, self.classifier)

    def _indices(self, rows: Sequence[int]) -> list[int]:
        return [self.order[row] for row in rows]
