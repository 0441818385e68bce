"""Pixel counts under corruptions: what is written is read, and sums are those of counting by hand."""

from __future__ import annotations

from statistics import fmean

import pytest

from assay.service.metrics.statistics.corrupted_pixel_counts import CellCounts, mean_ratios, read, write
from assay.service.metrics.statistics.pixel_counts import ratios, total
from tests.support.cell_counts import dense, image

IMAGES = [image(seed) for seed in range(12)]
COUNTS = CellCounts([target for target, _ in IMAGES], [write(cells) for _, cells in IMAGES])


def test_what_is_written_is_read_and_only_predicted_classes_are() -> None:
    assert write([[(0, 812, 900), (3, 0, 12)], [(149, 1, 1)], []]) == "0=812/900 3=0/12;149=1/1;"
    for _, cells in IMAGES:
        assert [read(text) for text in write(cells).split(";")] == cells
    assert read("") == []  # no pixel has a class


def test_each_cell_has_the_ratios_of_sums_over_all_images() -> None:
    for number, cell in enumerate(COUNTS.ratios()):
        images = [dense(cells[number], target) for target, cells in IMAGES]
        assert cell.whole == ratios(total(images))
        assert cell.left_out == []


def test_an_image_is_left_out_of_all_cells() -> None:
    groups = [range(0, 12, 5), [3], [4, 11]]
    for number, cell in enumerate(COUNTS.ratios(groups)):
        for found, out in zip(cell.left_out, groups, strict=True):
            rows = [row for row in range(len(IMAGES)) if row not in out]
            images = [dense(IMAGES[row][1][number], IMAGES[row][0]) for row in rows]
            assert found == ratios(total(images))


def test_sums_beyond_four_bytes_are_exact() -> None:
    large = 2**31
    counts = CellCounts(
        [[large, 1], [large, 0], [large, 0]], [f"0={large}/{large} 1=1/1"] + [f"0={large}/{large}"] * 2
    )
    (cell,) = counts.ratios([[2]])
    assert cell.whole == cell.left_out[0] == {"miou": 1.0, "mean_accuracy": 1.0, "pixel_accuracy": 1.0}


def test_means_are_over_cells_and_undefined_where_one_is() -> None:
    cells = [cell.whole for cell in COUNTS.ratios()]
    values = [value for cell in cells if (value := cell["miou"]) is not None]
    assert mean_ratios(cells)["miou"] == pytest.approx(fmean(values), abs=1e-15)
    assert mean_ratios([{"miou": 0.5}, {"miou": None}]) == {"miou": None}
    (nothing,) = CellCounts([[0, 0]], [""]).ratios()
    assert set(nothing.whole.values()) == {None}


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
