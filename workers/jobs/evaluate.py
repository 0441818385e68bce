"""The evaluate shard: one evaluation over one range of the evaluation order."""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import safetensors.torch
import torch
from torch import Tensor

from assay.attacks.adversarial.transfer import Transfer
from assay.attacks.ensemble import Ensemble
from assay.attacks.kernel import Attack, frozen
from assay.attacks.randomness import Randomness
from assay.models.layers.token_model import TokenModel
from assay.service.catalog.catalog import load as load_catalog
from assay.service.contract.corruption_cells import Cell
from assay.service.contract.messages import EvaluateRequest, Measurement, OutcomeReport, ProgressReport
from assay.service.contract.records import ArtifactDescription, Evidence, OutcomeExtra, PlannedEvaluation
from assay.service.contract.specs import Protocol
from assay.service.contract.stored_specs import EvaluateJobSpec, EvaluationItem, UserSpec
from assay.workers import catalog
from assay.workers.data.formats.dataset import ExampleSet, ImageSet
from assay.workers.data.formats.sampling import evaluation_order, sampled_as
from assay.workers.data.formats.segmentation import SegmentationSet, truth_of
from assay.workers.data.formats.stored_corruptions import StoredCorruptions
from assay.workers.data.formats.text import LanguageSet, SentenceSet
from assay.workers.evaluation.corruptions import Corrupted
from assay.workers.evaluation.engine.analysis import Analysis, Measured
from assay.workers.evaluation.engine.anomalies import AnomalyScores
from assay.workers.evaluation.engine.attacked_segmentation import AttackedPixels
from assay.workers.evaluation.engine.corrupted_segmentation import segment_corrupted
from assay.workers.evaluation.engine.forward import Passes
from assay.workers.evaluation.engine.ledger import Outcomes, Stage
from assay.workers.evaluation.engine.loader import Images
from assay.workers.evaluation.engine.probe import IMAGES, keyed_answers, probe
from assay.workers.evaluation.engine.protocols import attack_paper, attack_pixel, classify
from assay.workers.evaluation.engine.segmentation import PixelCounts, segment
from assay.workers.evaluation.engine.stored_corruptions import CellOutcomes, StoredCells
from assay.workers.evaluation.engine.text import TextOutcomes
from assay.workers.evaluation.engine.text_attack import TextAttack
from assay.workers.evaluation.perplexity import DocumentLosses, Perplexity
from assay.workers.evaluation.sliding_window import SlidingWindow
from assay.workers.evaluation.sliding_window_corruptions import CorruptedWindows
from assay.workers.jobs import artifacts, provenance
from assay.workers.jobs.segmentation_attacks import attack_pixels, save_attacked
from assay.workers.jobs.session import Loaded, Session, examples_of
from assay.workers.jobs.sources import shard_sources
from assay.workers.jobs.text_attacks import attack_text, data_root
from assay.workers.jobs.text_attacks import save_adversarial as save_texts
from assay.workers.weights.fit import looking_at

Report = Callable[[ProgressReport], None]
Pixels = PixelCounts | AttackedPixels | CellOutcomes
Answers = Outcomes | Pixels | AnomalyScores | DocumentLosses | TextOutcomes | Measured


def run(request: EvaluateRequest, session: Session, report: Report) -> OutcomeReport:
    """Answer an evaluate request.

    Raises:
        MissingData: the data set is not there any more.
        BadWeights: the weights, or those of another model that an attack needs, are gone.
        ValueError: the weights, those of another model, or the number of examples changed since the job was
            planned.
    """
    spec, plan, number = request["spec"], request["plan"], request["evaluation"]
    item = spec["evaluations"][number]
    data = examples_of(session, spec, item)
    loaded = session.classifier(spec, device=plan["device"], weights=request["weights"])
    if loaded.weights_sha256 != plan["weights_sha256"]:
        raise ValueError("the weights changed since the job was planned")
    available = plan["evaluations"][number]["available"]
    if len(data.ids) != available:
        raise ValueError(
            f"{data.name!r} has {len(data.ids)} examples, it had {available} when the job was planned"
        )
    order = evaluation_order(sampled_as(data), data.ids, spec["limit"])
    repeats = catalog.repeats(item["name"], item["params"])
    if repeats is None:
        order = order[request["start"] : request["stop"]]
    others = {job: looking_at(other, data) for job, other in shard_sources(request, session, loaded).items()}
    seen = looking_at(loaded, data)
    shard = Shard(data, order, seen, plan["batch_size"], spec, report, others, rows=repeats)
    attack = load_catalog().find_evaluation(item["name"]).kind == "attack"
    begun = time.monotonic()
    with keyed_answers(spec["seed"], item["name"], data.ids[order[0]], loaded.device):
        # Of each evaluation the first shard asks: the answers would be the same.
        odd = shard.probe() if request["start"] == 0 else {}
        outcomes = shard.attack(item, plan["evaluations"][number]) if attack else shard.evaluate(item)
    extra: OutcomeExtra = {
        "attack": attack,
        "evidence": cast(Evidence, outcomes.evidence() | odd),
        "provenance": provenance.collect(loaded.device, loaded.dtype, spec),
    }
    if shard.protocol is not None:
        extra["protocol"] = shard.protocol
    if isinstance(outcomes, Measured):
        extra["analysis"] = item["name"]
    if isinstance(outcomes, Outcomes | AttackedPixels) and outcomes.adversarial is not None:
        name = f"adversarial-{number:03d}-{item['name']}-{request['start']:08d}.safetensors"
        extra["artifacts"] = [save_adversarial(Path(request["folder"]) / name, outcomes)]
    if isinstance(outcomes, TextOutcomes) and spec.get("save_adversarial"):
        name = f"adversarial-{number:03d}-{item['name']}-{request['start']:08d}.jsonl"
        extra["artifacts"] = [save_texts(Path(request["folder"]) / name, outcomes)]
    return {**answer(outcomes, time.monotonic() - begun), "extra": extra}


def answer(outcomes: Answers, seconds: float) -> Measurement:
    """The outcome report of a shard, without what is extra."""
    return {
        "type": "outcome",
        "n": len(outcomes.ids),
        "columns": outcomes.columns(),
        "seconds": seconds,
        "forward_passes": int(outcomes.forward.sum()),
        "backward_passes": int(outcomes.backward.sum()),
    }


def save_adversarial(path: Path, outcomes: Outcomes | AttackedPixels) -> ArtifactDescription:
    """Writes the adversarial examples that were found, and describes the file (of pixels: `save_attacked`).

    It has `images` (n, C, H, W) in the attacked space, `labels` and `predictions` (n,), and in its header the
    `ids` as JSON. Examples that were wrong before the attack, and those that hold out, are not in it.
    """
    if isinstance(outcomes, AttackedPixels):
        return save_attacked(path, outcomes)
    assert outcomes.adversarial is not None
    found = (outcomes.clean_correct & ~outcomes.correct).nonzero().flatten()
    tensors = {
        "images": outcomes.adversarial[found].contiguous(),
        "labels": outcomes.labels[found].contiguous(),
        "predictions": outcomes.prediction[found].contiguous(),
    }
    ids = json.dumps([outcomes.ids[row] for row in found.tolist()])
    return artifacts.write(path, safetensors.torch.save(tensors, metadata={"ids": ids}))


class Shard:
    """A range of examples and the classifier to run over them."""

    def __init__(
        self,
        data: ExampleSet,
        order: Sequence[int],
        loaded: Loaded,
        batch_size: int,
        spec: UserSpec,
        report: Report,
        others: Mapping[str, Loaded] | None = None,
        rows: int | None = None,
    ) -> None:
        """Takes what the shard runs on; it has a row for each example, or as many as stated."""
        self._others = others or {}
        self._data = data
        self._order = order
        self._loaded = loaded
        self._spec = spec
        self._report = report
        self._common: dict[str, Any] = {
            "batch_size": batch_size,
            "device": loaded.device,
            "dtype": spec["execution"]["dtype"],
            "progress": self._progress,
        }
        self._ids = [data.ids[index] for index in order]
        self._rows = len(order) if rows is None else rows
        self._message = ""
        self._done = 0
        self.protocol: Protocol | None = None  # under which it was run, where that is not the job's

    def evaluate(self, item: EvaluationItem) -> Answers:
        """Run an evaluation that is not an attack."""
        self._message = str(item["name"])
        make = catalog.build("evaluation", item["name"], item["params"])
        # Evaluations with chance in them take the job's seed, those that read folders the data root.
        system = {"seed": self._spec["seed"], "root": data_root()}
        wanted = inspect.signature(make).parameters
        component = make(**{name: value for name, value in system.items() if name in wanted})
        if isinstance(component, Analysis):
            measured = (self._loaded.classifier, self._images, self._ids)
            return component.analyse(*measured, seed=self._spec["seed"], **self._common)
        if isinstance(component, TextAttack):
            return self._attack_text(component)
        if isinstance(component, StoredCells):
            return component(
                self._loaded.classifier, self._images_of, self._labels(), self._ids, **self._common
            )
        if self._data.task == "segmentation":
            return self._segment(component)
        if self._data.task == "language":
            return self._score(component)
        outcomes: Outcomes | AnomalyScores = component(
            self._loaded.classifier, self._images, self._labels(), self._ids, **self._common
        )
        return outcomes

    def _score(self, component: object) -> DocumentLosses:
        assert isinstance(component, Perplexity), "of a language the perplexity is measured"
        model, longest = cast(TokenModel, self._loaded.classifier), self._loaded.image_size
        text = cast(LanguageSet, self._data)
        return component(model, text, self._order, longest=longest, **self._common)

    def _segment(self, component: object) -> PixelCounts:
        classifier, classes = self._loaded.classifier, self._data.classes
        if isinstance(component, SlidingWindow | CorruptedWindows):
            examples = cast(SegmentationSet, self._data)
            common = self._common | {"classes": classes, "image_size": self._loaded.image_size}
            return component(classifier, lambda row: examples.example(self._order[row]), self._ids, **common)
        squares = (classifier, self._images, self._truth, self._ids)
        if isinstance(component, Corrupted):
            kernels, seed = component.kernels, component.seed
            return segment_corrupted(*squares, kernels=kernels, seed=seed, classes=classes, **self._common)
        assert component is classify, "without parameters a segmentation is run on whole squares: clean"
        return segment(*squares, classes=classes, **self._common)

    def _attack_text(self, attack: TextAttack) -> TextOutcomes:
        return attack_text(
            attack,
            self._loaded,
            cast(SentenceSet, self._data),
            self._order,
            batch_size=self._common["batch_size"],
            autocast=self._common["dtype"] == "bfloat16",
            progress=self._progress,
        )

    def attack(
        self, item: EvaluationItem, planned: PlannedEvaluation | None = None
    ) -> Outcomes | AttackedPixels:
        """Run an attack under the job's protocol; `planned` is what the plan says about it."""
        epsilon = item["params"].get("epsilon")
        self._message = str(item["name"]) if epsilon is None else f"{item['name']} {epsilon}"
        protocols = load_catalog().find("attack", item["name"]).protocols
        protocol = cast(EvaluateJobSpec, self._spec)["protocol"]
        if protocol not in protocols:
            protocol = self.protocol = protocols[0]
        if self._data.task == "segmentation":
            squares = (self._loaded.classifier, self._images, self._truth, self._ids)
            facts: dict[str, Any] = {
                "classes": self._data.classes,
                "planned": planned or {},
                "spec": self._spec,
            }
            return attack_pixels(item, squares, **facts, staged=self._left_after, **self._common)
        attack: Attack | Ensemble = catalog.build("attack", item["name"], item["params"])()
        if isinstance(attack, Transfer):
            other = self._others[attack.job]
            attack = attack.on(Passes(other.classifier, other.device))
        subject = (attack, self._loaded.classifier, self._images, self._labels(), self._ids)
        common = self._common | {
            "randomness": Randomness(self._spec["seed"], attack.name),
            "keep_adversarial": bool(self._spec.get("save_adversarial")),
        }
        if protocol == "paper":
            return attack_paper(*subject, **common)
        screening = self._spec["execution"].get("screening") is not None
        return attack_pixel(*subject, screening=screening, staged=self._staged, **common)

    def probe(self) -> dict[str, int]:
        """What is odd about the model's answers to the first few images."""
        loaded = self._loaded
        if self._data.task == "language":
            return self._probe_words(cast(TokenModel, loaded.classifier))
        rows = range(min(IMAGES, len(self._ids)))
        images = self._images(rows).to(loaded.device)
        if images.is_floating_point():
            images = images.to(next(loaded.classifier.parameters()).dtype)
        with torch.no_grad(), frozen(loaded.classifier):
            return probe(loaded.classifier, images)

    def _probe_words(self, model: TokenModel) -> dict[str, int]:
        """The same of a language model: of its losses in the first few windows of the text."""
        stream = torch.from_numpy(cast(LanguageSet, self._data).stream())
        length = min(self._loaded.image_size, len(stream) - 1)
        count = min(IMAGES, (len(stream) - 1) // length)
        places = torch.arange(count)[:, None] * length + torch.arange(length + 1)
        words = stream[places].long().to(self._loaded.device)  # (B, L + 1)
        with torch.no_grad(), frozen(model):
            return probe(lambda some: model.negative_log_likelihood(some[:, :-1], some[:, 1:]), words)

    def _images(self, rows: Sequence[int]) -> Tensor:
        """What the model sees: images, or of labelled texts the tokens."""
        chosen, size = [self._order[row] for row in rows], self._loaded.image_size
        if self._data.task == "sequence":
            return cast(SentenceSet, self._data).tokens(chosen, size)
        return cast(ImageSet, self._data).images(chosen, size)

    def _images_of(self, cell: Cell) -> Images:
        data = cast(StoredCorruptions, self._data)
        return lambda rows: data.cell_images(
            cell, [self._order[row] for row in rows], self._loaded.image_size
        )

    def _truth(self, rows: Sequence[int]) -> Tensor:
        return truth_of(self._data, [self._order[row] for row in rows], self._loaded.image_size)

    def _labels(self) -> Tensor:
        return self._truth(range(len(self._order)))

    def _staged(self, stage: Stage) -> None:
        # What is left after the gradient attacks is a first answer, hours before the last stage is over.
        self._left_after(stage.name, stage.n - stage.broken)

    def _left_after(self, stage: str, count: int) -> None:
        left = f"{count} of {len(self._ids)} left after {stage}"
        self._message = f"{self._message.partition(':')[0]}: {left}"
        self._report({"type": "progress", "done": self._done, "total": self._rows, "message": self._message})

    def _progress(self, done: int) -> None:
        self._done = done
        self._report({"type": "progress", "done": done, "total": self._rows, "message": self._message})
