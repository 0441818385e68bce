"""Pixel counts under corruptions: what is written is read, and sums are those of counting by hand."""

from __future__ import annotations

from statistics import fmean

import pytest

from assay.service.metrics.corrupted_pixel_counts import (
    CellCounts,
    Draw,
    draw,
    mean_ratios,
    read,
    write,
)
from assay.service.metrics.estimates import MAX_RESAMPLES, MIN_RESAMPLES
from assay.service.metrics.pixel_counts import ratios, total
from tests.support.cell_counts import dense, image

IMAGES = [image(seed) for seed in range(12)]
COUNTS = CellCounts([target for target, _ in IMAGES], [write(cells) for _, cells in IMAGES])


def resample(drawn: Draw) -> list[int]:
    """The images of a resample, each as often as it is drawn."""
    return [image for image in range(len(IMAGES)) if image not in drawn.missing] + list(drawn.again)


def test_what_is_written_is_read_and_only_predicted_classes_are() -> None:
    assert write([[(0, 812, 900), (3, 0, 12)], [(149, 1, 1)], []]) == "0=812/900 3=0/12;149=1/1;"
    for _, cells in IMAGES:
        assert [read(text) for text in write(cells).split(";")] == cells
    assert read("") == []  # no pixel has a class


def test_each_cell_has_the_ratios_of_sums_over_all_images() -> None:
    for number, cell in enumerate(COUNTS.ratios()):
        images = [dense(cells[number], target) for target, cells in IMAGES]
        assert cell.whole == ratios(total(images))
        assert cell.sampled == []


def test_a_resample_has_all_cells_of_the_images_that_were_drawn() -> None:
    draws = draw(len(IMAGES), 5, "a key")
    assert draw(len(IMAGES), 5, "a key") == draws
    assert draw(len(IMAGES), 1, "another") != draws[:1]
    resamples = [resample(one) for one in draws]
    assert {len(one) for one in resamples} == {len(IMAGES)}
    for number, cell in enumerate(COUNTS.ratios(draws)):
        for found, drawn in zip(cell.sampled, resamples, strict=True):
            images = [dense(IMAGES[row][1][number], IMAGES[row][0]) for row in drawn]
            assert found == ratios(total(images))


def test_sums_beyond_four_bytes_are_exact() -> None:
    large = 2**31
    counts = CellCounts(
        [[large, 1], [large, 0], [large, 0]], [f"0={large}/{large} 1=1/1"] + [f"0={large}/{large}"] * 2
    )
    (cell,) = counts.ratios([Draw(again=[1], missing=[2])])
    assert cell.whole == cell.sampled[0] == {"miou": 1.0, "mean_accuracy": 1.0, "pixel_accuracy": 1.0}


def test_means_are_over_cells_and_undefined_where_one_is() -> None:
    cells = [cell.whole for cell in COUNTS.ratios()]
    values = [value for cell in cells if (value := cell["miou"]) is not None]
    assert mean_ratios(cells)["miou"] == pytest.approx(fmean(values), abs=1e-15)
    assert mean_ratios([{"miou": 0.5}, {"miou": None}]) == {"miou": None}
    (nothing,) = CellCounts([[0, 0]], [""]).ratios()
    assert set(nothing.whole.values()) == {None}


def test_resamples_shrink_with_the_size_of_the_set() -> None:
    assert COUNTS.resamples() == MAX_RESAMPLES
    large = CellCounts([[1] * 150] * 2000, [";" * 74] * 2000)
    assert MIN_RESAMPLES < large.resamples() < 400
    assert large.resamples(models=2) == MIN_RESAMPLES


@pytest.mark.parametrize("cell", ["0=1", "0=1/2 3", "0=3/2", "-1=0/1", "0=-1/2", "0=a/2"])
def test_a_damaged_cell_is_refused(cell: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 (int's own message for what is no number)
        read(cell)


def test_images_that_do_not_belong_together_are_refused() -> None:
    with pytest.raises(ValueError, match="as many targets as texts"):
        CellCounts([[1]], [])
    with pytest.raises(ValueError, match=r"the same cells, these have \[1, 2\]"):
        CellCounts([[1], [1]], ["0=1/1", "0=1/1;0=1/1"])
    with pytest.raises(ValueError, match="there is no class 7, there are 2"):
        next(CellCounts([[1, 1]], ["7=0/2"]).ratios())
