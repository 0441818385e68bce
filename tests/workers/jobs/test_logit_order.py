"""Logits and classes in one order, from a model's file to its accuracy: the image tells the right answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.service.catalog.catalog import load
from assay.service.submission.validate import validate
from assay.workers.data.formats.dataset import CorruptData
from assay.workers.data.text_table import text_table
from assay.workers.jobs import evaluate, plan
from assay.workers.jobs.session import Session
from assay.workers.weights.export import export_program
from tests.support.levels import SIZE, Levels, write_levels
from tests.support.tables import encoded, write_table

TWELVE = [str(number) for number in range(12)]
ANGLES = ["0", "90", "180", "270"]
# Names whose order as text is not that of the logits.
PETS = ["wren", "ant", "cat", "bee"]


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "data").mkdir()
    monkeypatch.setenv("ASSAY_DATA_ROOT", str(tmp_path / "data"))
    return tmp_path / "data"


def measure(
    file: Path, data: dict[str, Any], *, weights: dict[str, Any] | None = None, **more: Any
) -> tuple[list[float], dict[str, Any]]:
    """Accuracy of each evaluation of a program, and the plan."""
    body = {
        "kind": "evaluate",
        "model": {"name": "exported", "weights": {"checkpoint": "ours", **(weights or {})}},
        "data": data,
        "evaluations": [{"name": "clean"}],
        "execution": {"device": "cpu"},
        **more,
    }
    session, request = Session(), {"spec": validate(load(), body).spec, "weights": str(file)}
    request["folder"] = str(file.parent)
    made = plan.run(request | {"shard_seconds": 1e9}, session, lambda _: None)["plan"]  # type: ignore[arg-type]
    correct = []
    for one in made["shards"]:
        answer = evaluate.run(request | {"plan": made} | one, session, lambda _: None)  # type: ignore[arg-type]
        correct.append(sum(answer["columns"]["correct"]) / answer["n"])
    return correct, made  # type: ignore[return-value]


def program(tmp_path: Path, places: Any, **more: Any) -> Path:
    return export_program(Levels(places), tmp_path / "net.pt2", image_size=SIZE, **more).path


def folder(name: str = "set", **params: Any) -> dict[str, Any]:
    return {"name": "image_folder", "params": {"folder": name, "splits": "all", **params}}


@pytest.mark.costly
@pytest.mark.parametrize(
    "names", [TWELVE, ANGLES, [str(place) for place in range(-5, 6)], ["007", "08", "010"]]
)
def test_numbered_folders_are_in_numeric_order(names: list[str], root: Path, tmp_path: Path) -> None:
    write_levels(root / "set", names)
    (accuracy,), made = measure(program(tmp_path, range(len(names))), folder())
    assert accuracy == 1
    assert ("guessed_order" in made["evaluations"][0]) == (names != TWELVE)


def test_a_stated_order_is_taken_by_name_or_file(root: Path, tmp_path: Path) -> None:
    write_levels(root / "set", PETS)
    (root / "set" / "labels.txt").write_text("\n".join(PETS))
    file = program(tmp_path, range(4))
    (accuracy,), made = measure(file, folder())
    assert accuracy == 0.25  # ant, bee, cat, wren: bee alone is neither
    assert made["evaluations"][0]["guessed_order"]["pairs"][0] == "logit 0 = ant"
    for stated in ({"class_names": PETS}, {"class_names_file": "labels.txt"}):
        (accuracy,), made = measure(file, folder(**stated))
        assert accuracy == 1
        assert "guessed_order" not in made["evaluations"][0]
        assert made["joined"] is None


def test_names_of_a_program_are_found_among_the_classes(root: Path, tmp_path: Path) -> None:
    write_levels(root / "set", PETS)
    file = program(tmp_path, range(4), class_names=PETS)
    attack = {"name": "pgd", "params": {"epsilon": "1/255", "steps": 2}}
    accuracy, made = measure(file, folder(), evaluations=[{"name": "clean"}, attack])
    assert accuracy == [1, 1]
    assert made["joined"] == {"labels_by": "name", "labels": PETS, "own_tokenizer": False}
    assert "guessed_order" not in made["evaluations"][0]


def test_so_are_names_that_the_upload_states(root: Path, tmp_path: Path) -> None:
    write_levels(root / "set", PETS)
    stated = {"class_names": ["Wren", "ANT", "cat", "bee"]}
    (accuracy,), made = measure(program(tmp_path, range(4)), folder(), weights=stated)
    assert accuracy == 1
    assert made["joined"]["labels_by"] == "name"


def test_other_names_go_by_number_and_contradictions_are_refused(root: Path, tmp_path: Path) -> None:
    write_levels(root / "set", PETS)
    (accuracy,), made = measure(program(tmp_path, [1, 3, 2, 0], class_names=list("wxyz")), folder())
    assert accuracy == 1
    assert made["joined"] == {"labels_by": "number", "labels": ["w", "x", "y", "z"], "own_tokenizer": False}
    (tmp_path / "net.pt2").unlink()
    with pytest.raises(ValueError, match=r"'cat'.*or upload it with the data's class names"):
        measure(program(tmp_path, range(4), class_names=["cat", "x", "y", "z"]), folder())
    stated = {"class_names": ["a", "b"]}
    (tmp_path / "net.pt2").unlink()
    with pytest.raises(ValueError, match="states 2 class names, the data have 4"):
        measure(program(tmp_path, range(4)), folder(), weights=stated)


@pytest.mark.costly
def test_other_data_of_an_evaluation_are_in_the_order_of_their_names(root: Path, tmp_path: Path) -> None:
    """The job's data state an order; those of the evaluation have the same classes, sorted as text."""
    write_levels(root / "set", PETS)
    write_levels(root / "more", PETS)
    evaluations = [{"name": "clean"}, {"name": "clean", "data": folder("more")}]
    accuracy, made = measure(program(tmp_path, range(4)), folder(class_names=PETS), evaluations=evaluations)
    assert accuracy == [1, 1]
    assert not any("guessed_order" in one for one in made["evaluations"])


def test_wrong_names_are_refused_all_at_once(root: Path, tmp_path: Path) -> None:
    write_levels(root / "set", PETS)
    with pytest.raises(CorruptData, match=r"'wern' \(did you mean 'wren'\?\).*'cat', 'wren', which"):
        measure(program(tmp_path, range(4)), folder(class_names=["wern", "ant", "bee", "fish"]))


def test_a_table_of_images_with_text_labels_is_in_numeric_order(root: Path, tmp_path: Path) -> None:
    import numpy as np

    rows = [
        {"image": encoded(np.full((SIZE, SIZE, 3), round(255 * place / 11), dtype=np.uint8)), "label": name}
        for place, name in enumerate(TWELVE)
    ]
    write_table(root / "table" / "test.parquet", rows)
    data = {"name": "image_table", "params": {"folder": "table", "splits": "all"}}
    (accuracy,), made = measure(program(tmp_path, range(12)), data)
    assert accuracy == 1
    assert "guessed_order" not in made["evaluations"][0]


class FirstWord(nn.Module):
    """Logits (B, 12) of ids (B, L): class k has the largest for id k + 2, the first word of a text."""

    def __init__(self, order: list[int]) -> None:
        super().__init__()
        self.embedding = nn.Embedding(14, 12)
        with torch.no_grad():
            self.embedding.weight.zero_()
            for place, word in enumerate(order):
                self.embedding.weight[word, place] = 2

    def forward(self, ids: Tensor) -> Tensor:
        """Logits (B, 12)."""
        found: Tensor = self.embedding(ids)[:, 0]
        return found


def test_a_table_of_texts_with_text_labels_is_in_numeric_order(root: Path, tmp_path: Path) -> None:
    rows = [{"text": f"word{name}", "label": name} for name in TWELVE]
    write_table(root / "texts" / "train.parquet", rows)
    write_table(root / "texts" / "test.parquet", rows)
    data = {"name": "text_table", "params": {"folder": "texts", "least_count": 1}}
    words = text_table(root, "test", folder="texts", least_count=1).vocabulary
    order = [int(words.ids([f"word{name}"])[0]) for name in TWELVE]
    done = export_program(
        FirstWord(order), tmp_path / "net.pt2", task="sequence", length=3, words=14, vocabulary=words.sha256
    )
    (accuracy,), _ = measure(done.path, data)
    assert accuracy == 1
    names = TWELVE[::-1]  # and the program's own names go before the order of the data
    export_program(
        FirstWord(order[::-1]), tmp_path / "named.pt2", task="sequence", length=3, words=14, class_names=names
    )
    (accuracy,), made = measure(tmp_path / "named.pt2", data)
    assert accuracy == 1
    assert made["joined"]["labels_by"] == "name"
