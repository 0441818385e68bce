"""What a shard gives to an evaluation: rows in its own order, for every task."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from assay.workers.data.formats.text import Documents, Sentences
from assay.workers.data.formats.vocabulary import Vocabulary
from tests.support.shards import Given, shard

IDS = ["a", "b", "c", "d"]
ORDER = [2, 0, 3]
VOCABULARY = Vocabulary(["<pad>", "<unk>", "good", "film"])


def numbered(indices: Sequence[int]) -> Tensor:
    """Images (B, 1, 1, 1) whose only pixel is their index, in tenths."""
    return torch.tensor(list(indices)).float().view(-1, 1, 1, 1) / 10


def test_rows_are_places_in_the_order_of_the_shard() -> None:
    part = shard(nn.Identity(), Given(IDS, images=numbered, labels=torch.tensor([5, 6, 7, 8])), ORDER)
    assert part.ids == ("c", "a", "d")
    torch.testing.assert_close(part.images([0, 2]).flatten(), torch.tensor([0.2, 0.3]))
    assert part.truth([1, 2]).tolist() == [5, 8]
    assert part.labels.tolist() == [7, 5, 8]


def test_segmentation_has_label_maps_and_whole_examples() -> None:
    maps = torch.arange(4, dtype=torch.uint8).view(4, 1, 1)
    data = Given(
        IDS,
        task="segmentation",
        classes=4,
        maps=lambda rows: maps[list(rows)],
        example=lambda row: (maps[row], maps[row]),
    )
    part = shard(nn.Identity(), data, ORDER)
    assert part.truth([0, 1]).flatten().tolist() == [2, 0]
    assert part.example(2)[1].item() == 3
    assert (part.task, part.classes) == ("segmentation", 4)


def test_stored_cells_are_loaded_by_row() -> None:
    data = Given(IDS, cells=lambda cell: lambda rows: numbered(rows) * cell[1])
    loaded = shard(nn.Identity(), data, ORDER).cell_images(("fog", 3))([0, 2])
    torch.testing.assert_close(loaded.flatten(), torch.tensor([0.6, 0.9]))


def test_labelled_texts_are_seen_as_tokens_of_at_most_the_length_of_the_model() -> None:
    data = Sentences(
        name="texts", class_names=("no", "yes"), ids=IDS,
        sentences=["good", "film", "good film film", "film good"], labels=[0, 1, 1, 0], vocabulary=VOCABULARY,
    )  # fmt: skip
    part = shard(nn.Identity(), data, ORDER, image_size=2)
    assert part.images([0, 1]).tolist() == [[2, 3], [2, 0]]
    assert part.labels.tolist() == [1, 0, 0]
    assert part.sentences is data


def test_a_language_is_the_whole_text() -> None:
    data = Documents(name="text", ids=["a", "b"], read=lambda _: ["good", "film"], vocabulary=VOCABULARY)
    part = shard(nn.Identity(), data, [1])
    assert part.ids == ("b",)
    assert part.text.starts == [0, 2, 4]


def test_what_it_is_run_with_is_handed_on() -> None:
    told: list[int] = []
    part = shard(nn.Identity(), Given(IDS), batch_size=3, dtype="float64", progress=told.append)
    assert part.running == {
        "batch_size": 3,
        "device": torch.device("cpu"),
        "dtype": "float64",
        "progress": told.append,
    }
    shard(nn.Identity(), Given(IDS)).progress(1)  # told to no one
    shard(nn.Identity(), Given(IDS)).staged("pgd", 1)
    with pytest.raises(AttributeError):
        part.seed = 1  # type: ignore[misc]
