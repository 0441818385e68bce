"""The warning `class_order_guessed`: on a user's own sorted names, and on no set with published classes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.models.layers.layers import Classifier
from assay.service.catalog.catalog import load
from assay.service.contract.warning_codes import SEVERITY
from assay.service.submission.class_order import are_places
from assay.workers.data.formats.dataset import model_class_names
from assay.workers.data.image_folder import image_folder
from assay.workers.jobs.data_facts import guessed_order
from assay.workers.jobs.data_warnings import of_data
from assay.workers.jobs.loading import Loaded
from assay.workers.weights.logit_names import LogitNames
from tests.laws.test_data_laws import components, own_test, task_of
from tests.support.levels import write_levels

LABELLED = ("classification", "sequence", "stored_corruptions", "anomaly_detection", "series")
SETS = [component for component in components() if task_of(component) in LABELLED]
each_set = pytest.mark.parametrize("component", SETS, ids=[name for _, name in SETS])
CPU = torch.device("cpu")


def unnamed(data: Any, source: Any = "data") -> Loaded:
    """A model from elsewhere that says nothing of its logits, for some data."""
    classifier = Classifier(torch.nn.Flatten(), [0.5], [0.5])
    names = LogitNames((model_class_names(data),), source)
    return Loaded(classifier, 8, "", False, CPU, torch.float32, logit_names=names)


def of_catalog(component: tuple[str, str]) -> bool:
    """Whether a set has classes of its own: the order of a user's can be stated."""
    return "class_names" not in load().find("data", component[1]).parameters["properties"]


@pytest.fixture
def build(
    component: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Any]:
    case: Callable[[str], Any] = own_test(component[0]).law_case(tmp_path, monkeypatch, "none")
    return case


def test_both_kinds_of_sets_are_there() -> None:
    kinds = {name: of_catalog((module, name)) for module, name in SETS}
    assert [name for name, catalog in sorted(kinds.items()) if not catalog] == [
        "corrupted_folder",
        "image_folder",
        "image_table",
        "text_table",
    ]
    assert sum(kinds.values()) > 15


@pytest.mark.sampled
@each_set
def test_only_sorted_names_of_a_users_own_are_a_guess(
    component: tuple[str, str], build: Callable[[str], Any]
) -> None:
    data = build("test")
    found = guessed_order(unnamed(data), data, data)
    own_names = not of_catalog(component) and not are_places(data.class_names)
    assert (found is not None) == own_names
    if found is not None:
        assert found["classes"] == data.classes
        assert found["pairs"][0] == f"logit 0 = {data.class_names[0]}"


@pytest.mark.sampled
@each_set
def test_no_set_is_guessed_where_names_are_known(
    component: tuple[str, str], build: Callable[[str], Any]
) -> None:
    """Of weights trained here, of programs that state them, of pulled ones, and of random weights."""
    data = build("test")
    for source in ("stated", "matched", "training", "published"):
        assert guessed_order(unnamed(data, source), data, data) is None
    assert guessed_order(replace(unnamed(data), untrained=True), data, data) is None
    assert guessed_order(replace(unnamed(data), logit_names=None), data, data) is None


def folder(root: Path, names: list[str], **params: Any) -> Any:
    write_levels(root / "set", names)
    return image_folder(root, "test", folder="set", **params)


def test_it_shows_the_first_five_pairs(tmp_path: Path) -> None:
    data = folder(tmp_path, ["g", "f", "e", "d", "c", "b", "a"])
    found = guessed_order(unnamed(data), data, data)
    assert found == {"pairs": [f"logit {k} = {name}" for k, name in enumerate("abcde")], "classes": 7}
    planned: Any = {"n": 7, "available": 7, "classes": 7, "guessed_order": found}
    (told,) = of_data(planned, "images")
    assert told.code == "class_order_guessed"
    assert SEVERITY[told.code] == "caution"
    assert told.evidence == found
    assert "logit 0 = a, logit 1 = b, logit 2 = c, logit 3 = d, logit 4 = e, ..." in told.message
    short: Any = {**planned, "guessed_order": {"pairs": ["logit 0 = a", "logit 1 = b"], "classes": 2}}
    assert "logit 1 = b. If" in next(of_data(short, "images")).message


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("names", "params", "quiet"),
    [
        (["cat", "dog"], {}, False),
        (["cat", "dog"], {"class_names": ["dog", "cat"]}, True),
        ([str(k) for k in range(12)], {}, True),
        (["0", "90", "180", "270"], {}, False),
        (["1", "2", "3"], {}, False),
    ],
)
def test_stated_names_and_places_are_quiet(
    tmp_path: Path, names: list[str], params: dict[str, Any], quiet: bool
) -> None:
    data = folder(tmp_path, names, **params)
    assert (guessed_order(unnamed(data), data, data) is None) == quiet


def test_other_data_are_in_the_order_of_the_jobs_by_name(tmp_path: Path) -> None:
    """A guess is only one of the job's data then; other names are a guess of their own."""
    stated = folder(tmp_path / "a", ["cat", "dog"], class_names=["dog", "cat"])
    same, other = folder(tmp_path / "b", ["cat", "dog"]), folder(tmp_path / "c", ["x", "y"])
    loaded = unnamed(stated)
    assert guessed_order(loaded, same, stated) is None
    found = guessed_order(loaded, other, stated)
    assert found is not None
    assert found["pairs"] == ["logit 0 = x", "logit 1 = y"]
