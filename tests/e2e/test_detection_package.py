"""Detection, a task of a package: trained, measured and attacked through the service.

The rehearsal of a new task: all of it lies in tests/support/detection, and nothing else was edited for it.
"""

from __future__ import annotations

import base64
import csv
import importlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from assay.service.client import AssayClient
from assay.service.contract.errors import InvalidSpec
from assay.service.contract.results import EvaluationResult, PartBreakdown
from assay.service.metrics.table import Context
from tests.e2e.jobs import finished, outcomes, rows
from tests.e2e.running import SHARDED, RunningService
from tests.support.packages import install

SOURCES = Path(__file__).resolve().parents[1] / "support" / "detection" / "toydet"
CPU = {"device": "cpu", "batch_size": 30}
DATA = {"name": "drawn_boxes"}
EPSILONS = (0, "4/255", "16/255")


@pytest.fixture
def toydet(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports a module of the package."""
    monkeypatch.syspath_prepend(str(SOURCES.parent))
    return lambda module: importlib.import_module(f"toydet.assay.{module}")


def image(
    toydet: Any, boxes: Sequence[tuple[int, tuple[int, ...]]], claimed: Sequence[tuple[int, float, Any]]
) -> dict[str, Any]:
    """A row: boxes as (class, corners), and detections as (class, score, corners)."""
    module = toydet("boxes")
    detections = [module.Detection(*one) for one in claimed]
    labels = [label for label, _ in boxes]
    return {
        "truth_labels": labels,
        "labels": [one.label for one in detections],
        "scores": [one.score for one in detections],
        "matches": module.matched(detections, labels, [box for _, box in boxes]),
    }


def summary(toydet: Any, images: Sequence[dict[str, Any]], names: Sequence[str] = ("disc",)) -> Any:
    columns = {name: [row[name] for row in images] for name in images[0]}
    rows = {"id": [f"{number:03d}" for number in range(len(images))], **columns}
    facts: Any = ({"class_names": [*names]},)
    return toydet("tables").TABLE.summarise(rows, Context(evidence=facts))


LEFT, RIGHT, FAR = (0, 0, 10, 10), (20, 0, 30, 10), (50, 50, 60, 60)
HALF, LESS = (0, 0, 10, 20), (0, 0, 10, 21)  # IoU with LEFT 0.5, and less


@pytest.mark.parametrize(
    ("boxes", "claimed", "expected"),
    [
        ([LEFT, RIGHT], [(0.9, LEFT), (0.8, RIGHT)], 1.0),
        ([LEFT], [(0.9, FAR), (0.8, RIGHT)], 0.0),
        ([LEFT], [], 0.0),
        ([LEFT], [(0.9, HALF)], 1.0),
        ([LEFT], [(0.9, LESS)], 0.0),
        # A duplicate is wrong: precision 1 up to recall 1/2, then 2/3.
        ([LEFT, RIGHT], [(0.9, LEFT), (0.8, LEFT), (0.7, RIGHT)], 1 / 2 + 1 / 2 * 2 / 3),
        # The better score finds the box, though the worse detection fits better.
        ([LEFT], [(0.6, LEFT), (0.9, HALF)], 1.0),
        # A wrong detection first: precision 1/2 at all recalls, as its greatest from there on is 2/3.
        ([LEFT, RIGHT], [(0.9, FAR), (0.8, LEFT), (0.7, RIGHT)], 2 / 3),
        # Of one score: a point with recall 1 and precision 2/4, in any order.
        ([LEFT, RIGHT], [(0.5, FAR), (0.5, LEFT), (0.5, RIGHT), (0.5, (40, 0, 49, 9))], 1 / 2),
        ([LEFT, RIGHT], [(0.5, (40, 0, 49, 9)), (0.5, RIGHT), (0.5, LEFT), (0.5, FAR)], 1 / 2),
        # Crowded: the second box is found by nothing, as both detections overlap the first box most.
        ([LEFT, (0, 4, 10, 14)], [(0.9, LEFT), (0.8, (0, 1, 10, 11))], 1 / 2),
        ([LEFT], [(0.9, FAR)] * 4 + [(0.1, LEFT)], 1 / 5),
    ],
)
def test_average_precision_is_as_by_hand(
    toydet: Any, boxes: list[Any], claimed: list[Any], expected: float
) -> None:
    one = image(toydet, [(0, box) for box in boxes], [(0, score, box) for score, box in claimed])
    assert summary(toydet, [one]).metrics["average_precision"].value == pytest.approx(expected, abs=1e-12)
    # The same image again doubles boxes and detections at every score, whoever counts them.
    assert summary(toydet, [one, one]).metrics["average_precision"].value == pytest.approx(expected)


def test_classes_are_averaged_and_a_class_without_boxes_has_no_value(toydet: Any) -> None:
    found = summary(
        toydet,
        [
            image(toydet, [(0, LEFT), (1, RIGHT)], [(0, 0.9, LEFT), (0, 0.95, RIGHT)]),
            image(toydet, [(0, FAR)], [(2, 0.9, FAR)]),
        ],
        ("disc", "square", "star"),
    )
    values = {part.label: part.metrics["average_precision"].value for part in found.breakdown}
    assert values == {"disc": pytest.approx(1 / 4), "square": 0.0, "star": None}
    assert found.metrics["average_precision"].value == pytest.approx(1 / 8)
    assert [warning.evidence for warning in found.warnings] == [{"metrics": ["star"]}]
    nothing = summary(toydet, [image(toydet, [], [(0, 0.9, LEFT)])])
    assert (nothing.metrics["average_precision"].value, nothing.plot) == (None, None)
    broken = image(toydet, [(0, LEFT)], []) | dict.fromkeys(("labels", "scores", "matches"))
    assert summary(toydet, [broken]).metrics["average_precision"].value is None


def test_the_interval_is_the_jackknife_s_over_images(toydet: Any) -> None:
    right = image(toydet, [(0, LEFT)], [(0, 0.9, LEFT)])
    wrong = image(toydet, [(0, LEFT)], [(0, 0.8, FAR)])
    metric = summary(toydet, [right] * 30 + [wrong] * 10).metrics["average_precision"]
    assert (metric.value, metric.n, metric.ci_method) == (0.75, 40, "t")
    # AP is the share of boxes that are found; t on the logit scale.
    assert metric.ci_low == pytest.approx(0.588, abs=0.005)
    assert metric.ci_high == pytest.approx(0.863, abs=0.005)


def test_a_detector_that_knows_the_boxes_has_no_loss_of_boxes_and_claims_them(toydet: Any) -> None:
    """The loss and the claims agree on what outputs mean."""
    detector, data = toydet("detector"), toydet("data").drawn_boxes(None, "test")
    truth = toydet("data").boxes_at(data, [*range(len(data))], 32)
    outputs = torch.zeros(len(truth), 7, 4, 4)
    outputs[:, 2] = 20.0
    for one, boxes in zip(outputs, truth, strict=True):
        for label, *corners in boxes[boxes[:, 0] >= 0].tolist():
            x, y = ((corners[side] + corners[side + 2]) / 16 for side in (0, 1))
            cell = one[:, int(y), int(x)]
            cell[int(label)], cell[2] = 20.0, 0.0
            cell[3:5] = torch.logit(torch.tensor([x % 1, y % 1]))
            cell[5:7] = torch.log(torch.tensor([corners[2] - corners[0], corners[3] - corners[1]]) / 8)
    outputs = outputs.flatten(1)
    assert detector.detector_loss(outputs, truth, 2, 32).max() < 1e-4
    for claimed, boxes in zip(detector.detections_of(outputs, 2, 32), truth.tolist(), strict=True):
        real = sorted(box for box in boxes if box[0] >= 0)
        assert len(claimed) == len(real)
        corners = sorted([one.label, *(round(side, 3) for side in one.box)] for one in claimed)
        assert corners == real


def test_drawn_boxes_repeat_and_their_content_hash_sees_a_pixel_a_box_and_a_seed(toydet: Any) -> None:
    """What tests/laws/test_data_laws.py asks of Assay's sets."""
    make = toydet("data").drawn_boxes
    data, again = make(None, "test"), make(None, "test")
    assert len(set(data.ids)) == len(data) == len(data.labels)
    assert not set(data.ids) & set(make(None, "train").ids)
    images = data.images(range(len(data)), 32)
    assert images.shape == (len(data), 3, 32, 32)
    assert 0 <= images.min() < images.max() <= 1
    assert torch.equal(data.images([5, 2], 32), images[[5, 2]])
    assert data.content_sha256() == again.content_sha256()
    assert make(None, "test", seed=1).content_sha256() != data.content_sha256()
    again.labels[3, 0, 1] += 1
    assert again.content_sha256() != data.content_sha256()
    again = make(None, "test")
    pixels = again._read([*range(len(again))])
    pixels[7, 1, 2, 3] ^= 1
    again._read = lambda indices: pixels[torch.tensor(indices)]
    assert again.content_sha256() != data.content_sha256()
    # A shape touches the left side of its box, and is lighter than every ground.
    for image, boxes in zip(images, data.labels.int().tolist(), strict=True):
        for label, left, top, _, bottom in boxes:
            if label >= 0:
                assert image[:, (top + bottom) // 2, left].min() > (128 - 16) / 255 - 1e-6


def evaluations() -> list[dict[str, Any]]:
    attacks = [{"name": "detector_pgd", "params": {"epsilon": epsilon, "steps": 5}} for epsilon in EPSILONS]
    return [{"name": "average_precision"}, *attacks]


def evaluation_of(trained: str, batch_size: int = 30) -> dict[str, Any]:
    model = {"name": "grid_detector", "weights": {"job": trained}}
    body = {"kind": "evaluate", "model": model, "data": DATA, "evaluations": evaluations()}
    return {**body, "execution": {"device": "cpu", "batch_size": batch_size}}


def check_table(client: AssayClient, job: str) -> None:
    """The package's table on the page, in the report and in its CSV, and the plot in both."""
    name = "plot-000-average_precision.svg"
    [plot] = [file for file in client.artifacts(job) if file.name == name]
    drawn = httpx.get(f"{client.url}{plot.href}").text
    assert "Precision over recall, IoU 0.5" in drawn
    assert drawn.count("<polyline") == 2
    page = httpx.get(f"{client.url}/jobs/{job}").text
    assert f'src="/jobs/{job}/pictures/{name}"' in page
    assert re.search(r'<th scope="row" data-label="Part">disc</th>', page)
    report = client.report([job])
    assert f"base64,{base64.b64encode(drawn.encode()).decode()}" in report
    assert "detector_pgd" in report
    table = list(csv.DictReader(client.report([job], format="csv").splitlines()))
    assert {"disc", "square"} <= {row["part"] for row in table}
    assert {"average_precision", "clean_average_precision"} <= {row["metric"] for row in table}


def check_fall(results: Sequence[EvaluationResult]) -> None:
    """Average precision falls with epsilon, from the clean one at 0."""
    clean, *attacked = results
    found = [one.metrics["average_precision"].value for one in attacked]
    whole = clean.metrics["average_precision"]
    assert whole.value is not None
    assert whole.value > 0.7
    assert whole.unit == "proportion"
    assert found[0] == whole.value
    assert found == sorted(found, reverse=True)
    assert found[1] < whole.value - 0.05
    assert found[2] < 0.5 * whole.value
    for one in attacked:
        assert one.metrics["clean_average_precision"] == whole
    for one in results:
        metric = one.metrics["average_precision"]
        assert metric.n == 120
        assert metric.ci_low is not None
        assert metric.ci_high is not None
        assert metric.ci_low < metric.value < metric.ci_high
        parts = {part.label: part for part in one.breakdown if isinstance(part, PartBreakdown)}
        assert [*parts] == ["disc", "square"]
        halves = [part.metrics["average_precision"].value for part in parts.values()]
        assert metric.value == pytest.approx(sum(halves) / 2)


@pytest.mark.slow
def test_a_detector_is_trained_measured_and_attacked(tmp_path: Path) -> None:
    files = {f"assay__{file.stem}": file.read_text() for file in sorted((SOURCES / "assay").glob("*.py"))}
    install(tmp_path / "site", "toydet", "0.1", {"toydet": "toydet.assay"}, **files)
    running = RunningService(tmp_path / "state", PYTHONPATH=str(tmp_path / "site"), **SHARDED)
    try:
        client = running.start().client
        training = {"kind": "train", "model": {"name": "grid_detector"}, "data": DATA, "execution": CPU}
        with pytest.raises(
            InvalidSpec, match="'small_vit' is for classification, the model 'grid_detector' is for detection"
        ):
            client.submit({**training, "recipe": {"name": "small_vit"}})
        trained = client.submit(
            {**training, "recipe": {"name": "small_detector", "params": {"epochs": 25}}}
        ).id
        (final,) = client.results(finished(client, trained).id).evaluations
        with pytest.raises(InvalidSpec, match="detection"):
            client.submit({**evaluation_of(trained), "evaluations": [{"name": "pgd"}]})

        jobs = [client.submit(evaluation_of(trained, batch_size)).id for batch_size in (120, 32)]
        whole, parts = (client.results(finished(client, job).id) for job in jobs)
        assert whole.provenance is not None
        assert parts.provenance is not None
        assert parts.provenance.times["shards"] > whole.provenance.times["shards"]
        assert whole.provenance.packages["toydet"] == "0.1"
        check_fall(whole.evaluations)
        assert whole.evaluations[0].metrics == final.metrics
        check_table(client, jobs[0])
        for one, other in zip(whole.evaluations, parts.evaluations, strict=True):
            assert one.metrics == other.metrics
            assert one.breakdown == other.breakdown
        check_rows(client, jobs, tmp_path)
        compared = client.compare(jobs)
        assert {row["test"] for row in compared["rows"]} == {None}
    finally:
        running.close()


def check_rows(client: AssayClient, jobs: Sequence[str], folder: Path) -> None:
    """Attacks stay in the ball and raise the loss; two shardings give the same claims."""
    whole, parts = (outcomes(client, job, folder / job) for job in jobs)
    for number, epsilon in enumerate((0, 4 / 255, 16 / 255), start=1):
        name = f"outcomes-{number:03d}-detector_pgd.csv"
        for one, other in zip(rows(whole[name]), rows(parts[name]), strict=True):
            assert float(one["linf"]) <= epsilon + 1e-7
            if epsilon:
                assert float(one["loss"]) > float(one["clean_loss"])
            same = ("id", "truth_labels", "truth_boxes", "labels", "scores", "matches", "forward", "backward")
            assert {key: one[key] for key in same} == {key: other[key] for key in same}
