"""Whole jobs over stored corrupted images: plan, shards, merge, results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from assay.attacks.corruptions.imaging.imagenet_c import FIFTEEN
from assay.service.catalog.catalog import load
from assay.service.contract.corruption_cells import SEVERITIES
from assay.service.contract.results import Breakdown
from assay.workers.data import cifar10_c
from assay.workers.data.formats.dataset import MissingData
from assay.workers.published import corruptions as published
from tests.support.stored_arrays import IMAGES, write_arrays
from tests.support.stored_trees import write_cells
from tests.workers.jobs.test_whole_jobs import Bench, Plain, bench

__all__ = ["bench"]  # the fixture

DATA = {"name": "corrupted_folder", "params": {"folder": "stored", "resize": "bicubic"}}
ITEM = {
    "name": "corruptions",
    "params": {"corruptions": ["fog", "snow"], "severities": [1, 5], "source": "stored"},
}


class Grey(Plain):
    """For colour images, of which it sees the first channel."""

    channels = 3

    def forward(self, images: Any) -> Any:
        return super().forward(images[:, :1])


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    cells = [(name, severity) for name in ("fog", "snow") for severity in (1, 5)]
    write_cells(tmp_path / "data" / "stored", cells, [f"{digit}" for digit in range(10)], side=8, images=6)
    monkeypatch.setenv("ASSAY_DATA_ROOT", str(tmp_path / "data"))
    return tmp_path / "data" / "stored"


def test_a_job_has_every_cell_with_any_shards_and_nothing_of_clean_images(bench: Bench, root: Path) -> None:
    del root
    [whole] = bench.run(Grey(), ITEM, data=DATA).evaluations
    results = bench.run(Grey(), ITEM, data=DATA, shard_seconds=1e-9, execution={"batch_size": 16})
    [row] = results.evaluations
    assert {name: metric.model_dump() for name, metric in row.metrics.items()} == {
        name: metric.model_dump() for name, metric in whole.metrics.items()
    }
    assert set(row.metrics) == {"corrupted_top1"}
    assert row.metrics["corrupted_top1"].n == 61
    parts = [part for part in row.breakdown if isinstance(part, Breakdown)]
    assert [part.label for part in parts] == ["fog", "snow", "fog/1", "fog/5", "snow/1", "snow/5"]
    assert row.data == DATA
    assert row.forward_passes == 4 * 61
    assert results.provenance is not None
    (label,) = results.provenance.data_sha256
    assert label == "corrupted_folder(folder=stored, resize=bicubic) fog/1 fog/5 snow/1 snow/5"
    table = bench.table(0, "corruptions")
    assert set(table[0]) == {"id", "label", "corrupted", "forward", "backward"}
    assert [line["id"] for line in table[:2]] == ["0/0_0.png", "0/0_1.png"]


def test_the_plan_refuses_a_half_complete_tree(bench: Bench, root: Path) -> None:
    (root / "snow" / "5" / "3" / "3_0.png").unlink()
    only_fog = ITEM | {"params": ITEM["params"] | {"corruptions": ["fog"]}}  # type: ignore[operator]
    bench.run(Grey(), only_fog, data=DATA)
    with pytest.raises(MissingData, match=r"1 images are missing .* \(snow/5: 3/3_0\.png\)"):
        bench.run(Grey(), ITEM, data=DATA)


def test_cifar10_c_has_the_breakdown_of_imagenet_c_and_no_mce(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cifar10_c, "IMAGES", IMAGES)
    monkeypatch.setenv("ASSAY_DATA_ROOT", str(tmp_path / "data"))
    write_arrays(tmp_path / "data" / "CIFAR-10-C", FIFTEEN, 10)
    data = {"name": "cifar10_c", "params": {"folder": "CIFAR-10-C"}}
    item = {"name": "corruptions", "params": {"source": "stored"}}
    results = bench.run(Grey(), item, data=data, shard_seconds=1e-9, execution={"batch_size": 4})
    [row] = results.evaluations
    assert set(row.metrics) == {"corrupted_top1"}
    assert (row.metrics["corrupted_top1"].n, row.forward_passes) == (IMAGES, 75 * IMAGES)
    parts = [part for part in row.breakdown if isinstance(part, Breakdown)]
    cells = [f"{name}/{severity}" for name in FIFTEEN for severity in SEVERITIES]
    assert [part.label for part in parts] == [*FIFTEEN, *cells]
    assert {name for part in parts for name in part.metrics} == {"top1"}
    (tmp_path / "data" / "CIFAR-10-C" / "fog.npy").unlink()
    with pytest.raises(MissingData, match=r"1 files are missing \(fog\.npy\)"):
        bench.run(Grey(), item, data=data)


LIKE_THE_STORED: dict[str, object] = {"source": "generated", "constants": "imagenet_c"}


@pytest.mark.costly
@pytest.mark.parametrize(
    ("params", "known", "mce", "warned"),
    [
        ({"source": "stored"}, "imagenet_c", True, None),
        (
            LIKE_THE_STORED,
            "imagenet",
            True,
            "compare the numbers with rows that were generated in the same way",
        ),
        (LIKE_THE_STORED | {"as_files": False}, "imagenet", False, "generated in the same way"),
        (
            {"source": "generated"},
            "imagenet",
            False,
            "cifar_c at 8 pixels, but the stored imagenet_c",
        ),
        (
            LIKE_THE_STORED | {"constants": "imagecorruptions"},
            "imagenet",
            False,
            "constants of imagecorr",
        ),
        ({"source": "generated"}, None, False, None),
    ],
)
def test_mce_is_of_images_like_those_of_alexnet_and_generated_images_are_said_to_be_others(
    bench: Bench,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    params: dict[str, object],
    known: str,
    mce: bool,
    warned: str | None,
) -> None:
    for name, severity in ((name, severity) for name in FIFTEEN for severity in SEVERITIES):
        if not (root / name / str(severity)).is_dir():
            write_cells(root, [(name, severity)], [f"{digit}" for digit in range(10)], side=8, images=6)
    for name in ("classification.known_as", "stored_corruptions.known_corrupted_as"):
        monkeypatch.setattr(f"assay.workers.tasks.{name}", lambda *arguments: known)
    monkeypatch.setattr(published, "ALEXNET_SIZE", 8)
    facts = load().find("data", "imagenet_c").facts
    assert facts is not None
    monkeypatch.setitem(facts, "made_at", 8)
    data = DATA if params["source"] == "stored" else {"name": "digits", "params": {}}
    model = Grey() if params["source"] == "stored" else Plain()
    [row] = bench.run(model, {"name": "corruptions", "params": params}, data=data, limit=8).evaluations
    stated = "cifar_c" if params["source"] == "generated" else None
    assert row.params["constants"] == params.get("constants", stated)
    assert ("mce" in row.metrics) is mce
    each = [part for part in row.breakdown if isinstance(part, Breakdown) and part.severity is None]
    assert len(each) == 15
    assert all(("ce" in part.metrics) is mce for part in each)
    if mce:
        relative = [part.metrics["ce"].value or 0.0 for part in each]
        assert row.metrics["mce"].value == pytest.approx(sum(relative) / 15)
    messages = [warning.message for warning in row.warnings if warning.code == "regenerated_set"]
    assert len(messages) == (warned is not None)
    assert all((warned or "") in message for message in messages)
