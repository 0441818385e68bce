from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import pytest

from assay.service.metrics.analyses.svg import HEIGHT, LEFT, PANEL_HEIGHT, PANEL_WIDTH, TOP, width
from assay.workers.training.result import draw
from assay.workers.training.training_log import EpochRecord

SVG = "{http://www.w3.org/2000/svg}"


def record(epoch: int, loss: float, accuracy: float, adversarial: float | None = None) -> EpochRecord:
    return EpochRecord(epoch, 10 * epoch, loss, accuracy, 0.1, 1.5 * epoch, adversarial)


def lines(text: str) -> list[list[tuple[float, float]]]:
    found = ElementTree.fromstring(text).iter(f"{SVG}polyline")
    pairs = [line.attrib["points"].split() for line in found]
    return [[(float(x), float(y)) for x, y in (point.split(",") for point in line)] for line in pairs]


def test_each_epoch_is_a_point_of_each_line() -> None:
    loss, accuracy = lines(draw([record(1, 2.0, 0.5), record(2, 1.0, 0.75), record(3, 0.0, 1.0)]))
    assert len(loss) == len(accuracy) == 3
    assert [x for x, _ in loss] == [LEFT, LEFT + PANEL_WIDTH / 2, LEFT + PANEL_WIDTH]
    bottom = TOP + PANEL_HEIGHT
    assert loss[2][1] == bottom
    assert loss[1][1] == pytest.approx((loss[0][1] + bottom) / 2, abs=0.01)
    assert [y for _, y in accuracy] == [TOP + PANEL_HEIGHT / 2, TOP + PANEL_HEIGHT / 4, TOP]


def test_accuracy_under_attack_is_a_line_of_its_own_with_its_name() -> None:
    text = draw([record(1, 2.0, 0.5, 0.25), record(2, 1.0, 0.75, 0.5)])
    _, clean, attacked = lines(text)
    assert all(below[1] > above[1] for above, below in zip(clean, attacked, strict=True))
    assert "under the attack of the training" in text
    assert "under the attack" not in draw([record(1, 2.0, 0.5)])


@pytest.mark.parametrize("epochs", [1, 2, 7, 300])
def test_everything_is_inside_the_picture(epochs: int) -> None:
    text = draw([record(n, 1e-3 * n, n / epochs, 0.0) for n in range(1, epochs + 1)])
    for element in ElementTree.fromstring(text).iter(f"{SVG}text"):
        assert 0 <= float(element.attrib["x"]) <= width(2)
        assert 0 <= float(element.attrib["y"]) <= HEIGHT
    assert all(0 <= x <= width(2) and TOP - 0.01 <= y <= HEIGHT for line in lines(text) for x, y in line)


@pytest.mark.parametrize("loss", [0.0, -0.5, 1e-8, 1e6])
def test_odd_losses(loss: float) -> None:
    assert len(lines(draw([record(1, loss, 0.5), record(2, loss, 0.5)]))) == 2


def test_a_language_model_has_losses_only_with_that_of_the_evaluation_beside() -> None:
    records = [
        EpochRecord(epoch, 10 * epoch, 5.0 / epoch, None, 0.1, 1.0, evaluation_loss=6.0 / epoch)
        for epoch in (1, 2)
    ]
    text = draw(records)
    assert len(lines(text)) == 2
    assert "of the evaluation split" in text
    assert "accuracy" not in text


def test_judgements_are_a_line_in_both_panels_with_their_name() -> None:
    records = [
        replace(record(epoch, 2.0 / epoch, 0.5), judged_loss=3.0 / epoch, judged_accuracy=0.25 * epoch)
        for epoch in (1, 2)
    ]
    text = draw(records, "test set")
    loss, judged_loss, accuracy, judged_accuracy = lines(text)
    assert all(above[1] < below[1] for above, below in zip(judged_loss, loss, strict=True))
    assert judged_accuracy[1] == accuracy[1]
    assert judged_accuracy[0][1] > accuracy[0][1]
    assert text.count(">test set<") == 2
    assert draw(records).count(">validation<") == 2
    assert "validation" not in draw([record(1, 2.0, 0.5)])
