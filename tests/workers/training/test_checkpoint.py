from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch

from assay.workers.training.checkpoint import Checkpoint, Checkpoints


def checkpoint(step: int) -> Checkpoint:
    return Checkpoint(
        step, {"weights": torch.full((1000,), float(step)), "sums": {"loss": step / 3}, "none": None}
    )


def stored_step(checkpoints: Checkpoints) -> int | None:
    newest = checkpoints.newest()
    if newest is None:
        return None
    weights = newest.state["weights"]
    assert isinstance(weights, torch.Tensor)
    assert torch.all(weights == newest.step)
    assert newest.state["sums"] == {"loss": newest.step / 3}
    return newest.step


def test_an_empty_folder_has_none_and_is_made(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path / "a" / "b").newest() is None


def test_the_newest_comes_back_and_two_are_kept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    for step in (8, 9, 10, 11):
        checkpoints.save(checkpoint(step))
    assert stored_step(Checkpoints(tmp_path)) == 11
    assert sorted(path.name[:14] for path in tmp_path.iterdir()) == ["step-000000010", "step-000000011"]


def damage_by_truncation(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def damage_by_emptying(path: Path) -> None:
    path.write_bytes(b"")


def damage_by_one_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [damage_by_truncation, damage_by_emptying, damage_by_one_bit])
def test_a_damaged_file_is_skipped_with_a_warning(
    tmp_path: Path, damage: object, caplog: pytest.LogCaptureFixture
) -> None:
    assert callable(damage)
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(checkpoint(1))
    newest = checkpoints.save(checkpoint(2))
    damage(newest)
    with caplog.at_level(logging.WARNING):
        assert stored_step(Checkpoints(tmp_path)) == 1
    assert newest.name in caplog.text


def test_a_damaged_file_does_not_push_out_a_good_one(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(checkpoint(1))
    damage_by_truncation(checkpoints.save(checkpoint(5)))
    resumed = Checkpoints(tmp_path)
    assert stored_step(resumed) == 1
    damage_by_truncation(resumed.save(checkpoint(2)))
    assert stored_step(resumed) == 1


def test_all_damaged_is_none(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    damage_by_emptying(checkpoints.save(checkpoint(1)))
    assert checkpoints.newest() is None


def test_what_was_half_written_is_removed_and_never_loaded(tmp_path: Path) -> None:
    (tmp_path / "step-000000009.123.tmp").write_bytes(b"half")
    (tmp_path / "unrelated.txt").write_text("keep")
    assert Checkpoints(tmp_path).newest() is None
    assert [path.name for path in tmp_path.iterdir()] == ["unrelated.txt"]


def test_a_failed_save_leaves_the_ones_before(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(checkpoint(1))
    with pytest.raises(AttributeError):
        checkpoints.save(Checkpoint(2, {"cannot be pickled": lambda: None}))
    assert stored_step(checkpoints) == 1
    assert len(list(tmp_path.iterdir())) == 1
