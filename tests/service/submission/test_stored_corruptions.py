"""Stored corrupted images at submission: where they may be named, and what their folder lacks."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from assay.attacks.corruptions.imaging.imagenet_c import FIFTEEN
from assay.service.catalog.catalog import load
from assay.service.contract.corruption_cells import SEVERITIES
from assay.service.contract.errors import InvalidSpec
from assay.service.contract.problems import path_text
from assay.service.submission.validate import validate
from tests.support.stored_arrays import write_arrays
from tests.support.stored_trees import write_cells

DATA = {"name": "corrupted_folder", "params": {"folder": "stored"}}
STORED = {"name": "corruptions", "params": {"source": "stored"}, "data": DATA}
FOG = {"name": "corruptions", "params": {"source": "stored", "corruptions": ["fog"], "severities": [2]}}


def job(*evaluations: dict[str, Any], data: Any = DATA) -> dict[str, Any]:
    return {
        "kind": "evaluate",
        "model": {"name": "symvit", "params": {"image_size": 8, "patch_size": 4, "width": 8, "heads": 2}},
        "data": data,
        "evaluations": list(evaluations),
    }


def problems(body: dict[str, Any], root: Path | None = None) -> dict[str, str]:
    with pytest.raises(InvalidSpec) as caught:
        validate(load(), body, data_root=root)
    return {path_text(detail.loc): detail.message for detail in caught.value.details}


def test_a_whole_tree_is_taken_and_a_part_of_one_for_a_part(tmp_path: Path) -> None:
    write_cells(tmp_path / "stored", [(n, s) for n in FIFTEEN for s in SEVERITIES], ["a", "b"], side=4)
    valid = validate(load(), job(STORED, {**FOG, "data": DATA}), data_root=tmp_path)
    assert valid.spec["evaluations"][0]["params"]["source"] == "stored"
    shutil.rmtree(tmp_path / "stored" / "fog" / "3")
    shutil.rmtree(tmp_path / "stored" / "snow")
    validate(load(), job(FOG), data_root=tmp_path)
    found = problems(job(STORED, FOG), tmp_path)
    assert found == {
        "evaluations[0].data.params.folder": "'stored' is wanted as CORRUPTION/SEVERITY/CLASS/IMAGE: "
        "1 corruptions are missing (snow); 1 severities are missing (fog/3)"
    }
    own = {name: value for name, value in STORED.items() if name != "data"}
    assert list(problems(job(own), tmp_path)) == ["data.params.folder"]
    validate(load(), job(own))  # a service that does not see the root leaves it to the plan


def test_imagenet_c_has_all_of_imagenets_classes(tmp_path: Path) -> None:
    write_cells(tmp_path / "imagenet-c", [("fog", 2)], ["n01440764", "n01443537"], side=4)
    found = problems(job({**FOG, "data": {"name": "imagenet_c"}}, data={"name": "imagenet"}), tmp_path)
    assert (
        "998 classes are missing in every corruption and severity (n01484850, n01491361, "
        in found["evaluations[0].data.params.folder"]
    )


def test_a_folder_of_arrays_lacks_files_not_folders(tmp_path: Path) -> None:
    write_arrays(tmp_path / "CIFAR-10-C", ["fog"], 10)
    validate(load(), job(FOG, data={"name": "cifar10_c"}), data_root=tmp_path)
    more = {"name": "corruptions", "params": {"source": "stored", "corruptions": ["fog", "frost"]}}
    assert problems(job(more, data={"name": "cifar10_c"}), tmp_path) == {
        "data.params.folder": "'CIFAR-10-C' is wanted as CORRUPTION.npy and labels.npy: "
        "1 files are missing (frost.npy)"
    }


def test_links_out_of_the_root_are_refused_without_saying_where_to(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    write_cells(outside, [("fog", 2)], ["a", "b"], side=4)
    (tmp_path / "stored").mkdir()
    (tmp_path / "stored" / "fog").symlink_to(outside / "fog")
    (message,) = problems(job(FOG), tmp_path).values()
    assert "a symbolic link in it leads out of the data root" in message
    assert str(outside) not in message


def test_stored_images_need_stored_data_and_the_other_way_round() -> None:
    found = problems(job({"name": "corruptions", "params": {"source": "stored"}}, data={"name": "digits"}))
    assert found["evaluations[0].params"].startswith("stored images are those of a data set like imagenet_c")
    found = problems(job({"name": "corruptions"}))
    assert found["evaluations[0].params"].startswith("this data set is stored corrupted")
    for name in ("clean", "top1", "pgd"):
        message = problems(job({"name": name}))["evaluations[0].name"]
        assert message.endswith("the data 'corrupted_folder' is for stored_corruptions")


@pytest.mark.parametrize("constants", ["imagenet_c", "cifar_c", "tiny_imagenet_c", "imagecorruptions"])
def test_stored_images_have_constants_of_their_own(constants: str) -> None:
    found = problems(job({"name": "corruptions", "params": {"source": "stored", "constants": constants}}))
    assert [*found] == ["evaluations[0].params"]
    own = "stored images were made with their own constants: leave `constants` out"
    assert found["evaluations[0].params"].startswith(f"{own} (constants is {constants}")
    validate(load(), job({"name": "corruptions", "params": {"source": "stored", "constants": None}}))
    generated = {"name": "corruptions", "params": {"constants": constants}}
    validate(load(), job(generated, data={"name": "digits"}))


def test_nothing_is_trained_on_it_and_segmenters_are_not_for_it() -> None:
    training = {
        "kind": "train",
        "model": {"name": "symvit"},
        "data": DATA,
        "recipe": {"name": "small_vit"},
    }
    assert problems(training)["data.name"] == "'corrupted_folder' is a test set: it has no training images"
    assert "data.name" in problems(job(FOG) | {"model": {"name": "segmenter"}})


def test_wrong_parameters_are_told_before_folders_are_looked_at(tmp_path: Path) -> None:
    (tmp_path / "stored").mkdir()
    wrong = {"name": "corruptions", "params": {"source": "stored", "corruptions": ["fogg"]}}
    assert list(problems(job(wrong), tmp_path)) == ["evaluations[0].params.corruptions[0]"]
