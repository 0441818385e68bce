"""Classes of image folders are counted at submission, so that attacks they are too few for are refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

import pytest
from PIL import Image

from assay.service.catalog.catalog import Checked, load
from assay.service.contract.errors import ErrorDetail, InvalidSpec
from assay.service.contract.problems import Problems
from assay.service.submission import class_folders as class_folder_module
from assay.service.submission.class_folders import (
    count_classes,
    count_examples,
    describe_classes,
    list_classes,
    no_images,
)
from assay.service.submission.compatibility import MadeFor, check_fit
from assay.service.submission.estimate import least_work
from assay.service.submission.limits import JobLimits, Speed, bounded_estimate
from assay.service.submission.validate import validate
from assay.workers.data.formats.dataset import MissingData
from assay.workers.data.image_folder import image_folder

STANDARD = {"name": "autoattack"}
CUSTOM = {"version": "custom", "stages": ["apgd_ce", "apgd_dlr", "fab_t", "square"]}


def write(root: Path, *places: str) -> None:
    """Empty image files: the service never opens them."""
    for place in places:
        (root / place).mkdir(parents=True)
        for number in range(2):
            (root / place / f"{number}.png").touch()


def body(*evaluations: dict[str, Any], weights: Any = None, folder: str = "birds") -> dict[str, Any]:
    return {
        "kind": "evaluate",
        "model": {"name": "vit", "weights": weights},
        "data": {"name": "image_folder", "params": {"folder": folder}},
        "evaluations": list(evaluations),
    }


def refused(root: Path | None, *evaluations: dict[str, Any]) -> list[ErrorDetail]:
    with pytest.raises(InvalidSpec) as caught:
        validate(load(), body(*evaluations), data_root=root)
    return caught.value.details


@pytest.mark.parametrize(
    "layout",
    [
        ["a", "b", "c"],
        ["train/a", "train/b", "train/c"],
        ["val/a", "val/b", "val/c"],
        ["train/a", "train/b", "train/c", "val/a"],
        ["val/a", "val/b", "val/c", "test"],
        ["a", "b", "c", ".hidden"],
    ],
)
def test_autoattack_on_three_classes_is_refused_with_what_to_do(tmp_path: Path, layout: list[str]) -> None:
    write(tmp_path, *(f"birds/{place}" for place in layout))
    (detail,) = refused(tmp_path, {"name": "clean"}, STANDARD)
    assert detail.loc[:2] == ["evaluations", 1]
    assert "version standard needs at least 4 classes" in detail.message
    assert "version custom with stages apgd_ce, apgd_dlr, fab_t and square" in detail.message
    validate(load(), body({"name": "autoattack", "params": CUSTOM}), data_root=tmp_path)


def test_it_is_refused_before_the_training_that_it_waits_for(tmp_path: Path) -> None:
    write(tmp_path, "birds/a", "birds/b", "birds/c")
    waiting = body(STANDARD, weights={"job": "a-job-to-come"})
    with pytest.raises(InvalidSpec, match=r"needs at least 4 classes"):
        validate(load(), waiting, data_root=tmp_path)


@pytest.mark.parametrize(
    ("params", "needed"),
    [
        ({"version": "rand"}, "version rand needs at least 3 classes"),
        ({"version": "custom", "stages": ["apgd_ce", "apgd_t"]}, "apgd_t needs at least 4 classes"),
        ({"version": "custom", "stages": ["apgd_dlr"]}, "apgd_dlr needs at least 3 classes"),
    ],
)
def test_other_versions_on_two_classes(tmp_path: Path, params: dict[str, Any], needed: str) -> None:
    write(tmp_path, "birds/a", "birds/b")
    (detail,) = refused(tmp_path, {"name": "autoattack", "params": params})
    assert needed in detail.message
    stages = ["apgd_ce", "fab_t", "square"]  # those that the message names for two classes
    fits = {"name": "autoattack", "params": {"version": "custom", "stages": stages}}
    validate(load(), body(fits, {"name": "pgd"}), data_root=tmp_path)


def test_an_evaluations_own_data_are_counted_too(tmp_path: Path) -> None:
    write(tmp_path, *(f"birds/{name}" for name in "abcd"), "few/a", "few/b", "few/c")
    own = {"name": "image_folder", "params": {"folder": "few"}}
    (detail,) = refused(tmp_path, STANDARD, STANDARD | {"data": own})
    assert detail.loc[:2] == ["evaluations", 1]


def test_enough_classes_or_a_folder_out_of_sight_are_left_to_the_plan(tmp_path: Path) -> None:
    write(tmp_path, *(f"birds/{name}" for name in "abcd"))
    validate(load(), body(STANDARD), data_root=tmp_path)
    for root in (None, tmp_path / "not mounted"):
        validate(load(), body(STANDARD, folder="unseen"), data_root=root)


def test_the_exhaustive_suite_leaves_it_out_with_the_reason(tmp_path: Path) -> None:
    write(tmp_path, "birds/a", "birds/b", "birds/c")
    spec: Any = validate(load(), body({"suite": "full"}), data_root=tmp_path).spec
    reasons = {part["part"].split()[0].rstrip(":,"): part["reason"] for part in spec["left_out"]}
    assert "needs at least 4 classes" in reasons["autoattack"]


def test_the_count_is_that_of_the_worker(tmp_path: Path) -> None:
    layouts = (["a", "b"], ["train/a", "train/b", "val/a"], ["test/a", "test/b", "val/c"])
    for number, layout in enumerate(layouts):
        write(tmp_path, *(f"{number}/{place}" for place in layout))
        problems = Problems()
        reference = {"name": "image_folder", "params": {"folder": str(number)}}
        checked = load().check_reference(("data",), reference, problems, ())
        assert checked is not None
        data = image_folder(tmp_path, "test", folder=str(number))
        assert count_classes(checked, tmp_path) == data.classes


LAYOUTS = {
    "classes": ["a/1.png", "a/2.png", "a/deep/3.JPG", "b/1.png", *(f"c/{n}.png" for n in range(11))],
    "parts": ["train/a/1.png", "train/b/1.png", "val/a/1.png", "val/a/2.png", "val/b/1.png", "test/a/9.png"],
    "test": ["train/a/1.png", "train/b/1.png", "test/a/1.png", "test/b/.hidden.png", "test/b/notes.txt"],
}


def test_files_that_are_not_read_are_told_before_a_job_starts(tmp_path: Path) -> None:
    write(tmp_path, "birds/crow", "birds/owl")
    for name in ("crow/1.HEIC", "crow/2.heic", "owl/3.gif", "notes", ".DS_Store", "owl/Thumbs.db"):
        (tmp_path / "birds" / name).touch()
    spec = {**body({"name": "clean"}), "data": {"name": "image_folder", "params": {"folder": "birds"}}}
    (told,) = (
        one for one in validate(load(), spec, data_root=tmp_path).warnings if one["code"] == "skipped_files"
    )
    assert told["message"].startswith(
        "birds: 4 files are skipped, by their names no images that are read"
        " (2 .heic, 1 without a suffix, 1 .gif): crow/1.HEIC, crow/2.heic, notes, owl/3.gif; read are .bmp"
    )
    assert told["evidence"] == {
        "folder": "birds",
        "count": 4,
        "kinds": {".heic": 2, "without a suffix": 1, ".gif": 1},
        "first": ["crow/1.HEIC", "crow/2.heic", "notes", "owl/3.gif"],
    }
    assert all(one["code"] != "skipped_files" for one in validate(load(), spec).warnings)


@pytest.mark.parametrize("splits", ["auto", "all"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_examples_of_an_estimate_are_those_of_the_worker(
    tmp_path: Path, layout: str, splits: Literal["auto", "all"]
) -> None:
    for place in LAYOUTS[layout]:
        (tmp_path / "birds" / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "birds" / place).touch()
    there = len(image_folder(tmp_path, "test", folder="birds", splits=splits))
    spec = {**body({"name": "clean"}, {"name": "fgsm"}), "data": None}
    spec["data"] = {"name": "image_folder", "params": {"folder": "birds", "splits": splits}}
    valid = validate(load(), spec, data_root=tmp_path)
    assert valid.estimate["examples"] == 2 * there == least_work(load(), valid.spec, tmp_path).examples
    speed = Speed(0.5, "measured")
    none = JobLimits({}, None)
    found = bounded_estimate(load(), valid.spec, valid.estimate, none, ["cpu"], lambda _: speed, tmp_path)
    assert found["seconds"] == 0.5 * (found["forward_passes"] + 2 * found["backward_passes"]) > there
    assert validate(load(), spec | {"limit": 1}, data_root=tmp_path).estimate["examples"] == 2
    assert validate(load(), spec).estimate["examples"] is None


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ([], "it has nothing"),
        (["a.png", "b.png"], "it has a.png, b.png"),
        (["a/notes.txt", "b/.hidden.png"], "it has a/, b/; its class folders have no images"),
        (["a/1.png"], "it has a/"),
        (["test.csv", "class_names.txt"], "it has class_names.txt, test.csv; for a table, name the data set"),
    ],
)
def test_a_folder_without_labelled_images_is_refused(tmp_path: Path, files: list[str], words: str) -> None:
    (tmp_path / "birds").mkdir()
    for place in files:
        (tmp_path / "birds" / place).parent.mkdir(exist_ok=True)
        (tmp_path / "birds" / place).touch()
    (detail,) = refused(tmp_path, {"name": "clean"})
    assert detail.loc == ["data", "params", "folder"]
    assert words in detail.message
    with pytest.raises(MissingData):
        image_folder(tmp_path, "test", folder="birds")


def test_weights_for_other_classes_than_the_folders_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "birds/a", "birds/b", "birds/c")
    data = load().check_reference(("data",), body()["data"], Problems(), ())
    for classes, wrong in ((3, 0), (5, 1)):
        made_for, problems = MadeFor("program", {}, {"classes": classes}, 32, ("classes",)), Problems()
        check_fit(data, made_for, problems, ("data",), tmp_path)
        assert len(problems) == wrong
    with pytest.raises(InvalidSpec, match="has 3 classes, the model is made for the 5 of its weights"):
        problems.raise_if_any()


def test_large_folders_and_other_data_are_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(class_folder_module, "MAX_COUNTED", 3)
    write(tmp_path, "birds/a", "birds/b")
    data = load().find("data", "image_folder")
    assert count_examples(data, {"folder": "birds", "splits": "all"}, tmp_path) is None
    assert count_examples(load().find("data", "digits"), {}, tmp_path) is None


def test_what_leads_out_of_the_root_is_not_counted(tmp_path: Path) -> None:
    write(tmp_path, "outside/a", "outside/b", "root/birds/a")
    os.symlink(tmp_path / "outside" / "a", tmp_path / "root" / "birds" / "b")
    reference = {"name": "image_folder", "params": {"folder": "birds"}}
    checked = load().check_reference(("data",), reference, Problems(), ())
    assert checked is not None
    assert count_classes(checked, tmp_path / "root") is None
    digits = load().check_reference(("data",), {"name": "digits", "params": {}}, Problems(), ())
    assert digits is not None
    assert count_classes(digits, tmp_path) is None


def test_a_model_of_one_channel_is_told_the_parameter(tmp_path: Path) -> None:
    write(tmp_path, "birds/a", "birds/b")
    for params, wrong in (({"folder": "birds"}, 1), ({"folder": "birds", "channels": 1}, 0)):
        data = load().check_reference(("data",), {"name": "image_folder", "params": params}, Problems(), ())
        made_for, problems = MadeFor("program", {}, {"channels": 1}, 32, ("channels",)), Problems()
        check_fit(data, made_for, problems, ("data",), tmp_path)
        assert len(problems) == wrong
        if wrong:
            with pytest.raises(InvalidSpec, match=r'has 3 channels, .* the 1 of .*; state it: "channels": 1'):
                problems.raise_if_any()


def test_a_misfit_names_the_class_folders_and_the_empty_ones(tmp_path: Path) -> None:
    write(tmp_path, "birds/a", "birds/b")
    (tmp_path / "birds" / "empty").mkdir()
    (tmp_path / "birds" / "empty" / "._0.png").touch()
    (tmp_path / "birds" / "__MACOSX").mkdir()
    checked = load().check_reference(("data",), body()["data"], Problems(), ())
    made = MadeFor("its weights", {}, {"classes": 2}, None, ("classes",))
    problems = Problems()
    check_fit(checked, made, problems, ("data",), tmp_path)
    (detail,) = problems.details
    assert detail.message.startswith(
        "'image_folder' has 3 classes, the model is made for the 2 of its weights"
    )
    assert detail.message.endswith("class folders are a/, b/, empty/; without an image: empty/")
    if checked is not None:
        assert list_classes(checked, tmp_path) == ["a", "b", "empty"]


def test_a_class_with_images_in_one_part_is_not_without_an_image(tmp_path: Path) -> None:
    """Parts have the classes of the first: a class that is only tested, or only trained, is no empty one."""
    write(tmp_path, "birds/train/a", "birds/val/b")
    for place in ("train/b", "train/c", "val/a", "val/c"):
        (tmp_path / "birds" / place).mkdir(parents=True)
    checked = load().check_reference(("data",), body()["data"], Problems(), ())
    assert checked is not None
    assert describe_classes(checked, tmp_path) == "a/, b/, c/; without an image: c/"


def test_stated_classes_are_compared_with_the_folders_at_submission(tmp_path: Path) -> None:
    write(tmp_path, "birds/wren", "birds/ant")
    (tmp_path / "birds" / "labels.txt").write_text("wren\nbee\n")
    for params in ({"class_names": ["wren", "bee"]}, {"class_names_file": "labels.txt"}):
        asked = body({"name": "clean"})
        asked["data"]["params"] |= params
        with pytest.raises(InvalidSpec) as caught:
            validate(load(), asked, data_root=tmp_path)
        (detail,) = caught.value.details
        assert detail.loc == ["data", "params", *params]
        assert "'bee'" in detail.message
        assert "'ant', which the class names lack" in detail.message
    (tmp_path / "birds" / "labels.txt").write_text("wren\nant\n")
    assert (
        validate(load(), asked, data_root=tmp_path).spec["data"]["params"]["class_names_file"] == "labels.txt"
    )


def test_folders_of_one_number_are_refused_at_submission(tmp_path: Path) -> None:
    write(tmp_path, "birds/1", "birds/01", "birds/2")
    (detail,) = refused(tmp_path, {"name": "clean"})
    assert detail.loc == ["data", "params", "folder"]
    assert "the classes '01', '1' are the same numbers" in detail.message


@pytest.mark.parametrize(
    ("ending", "kind"),
    [
        *(("bmp", "BMP"), ("jpg", "JPEG"), ("png", "PNG"), ("ppm", "PPM"), ("pgm", "PPM"), ("tif", "TIFF")),
        *(("webp", "WEBP"), ("png", "GIF"), ("png", "JPEG2000")),
    ],
)
def test_images_of_every_format_are_images(tmp_path: Path, ending: str, kind: str) -> None:
    path = tmp_path / f"a.{ending}"
    Image.new("L" if ending == "pgm" else "RGB", (8, 8)).save(path, kind)
    assert no_images([path]) == []


def test_other_files_are_told_with_the_reason(tmp_path: Path) -> None:
    for name, content in (("a.png", b"no image"), ("b.png", b"")):
        (tmp_path / name).write_bytes(content)
    paths = [tmp_path / name for name in ("a.png", "b.png", "c.png")]
    assert no_images(paths) == [
        (paths[0], "it holds no image"),
        (paths[1], "it is empty"),
        (paths[2], "No such file or directory"),
    ]
    assert no_images(paths, 0) == []


def test_images_with_a_file_of_labels_are_counted_as_a_worker_does(tmp_path: Path) -> None:
    for number in range(11):
        (tmp_path / "pets").mkdir(exist_ok=True)
        Image.new("RGB", (8, 8)).save(tmp_path / "pets" / f"{number}.png")
    rows = [f"{number}.png,{'cat' if number < 9 else 'dog'}" for number in range(11)]
    (tmp_path / "pets" / "labels.csv").write_text("\n".join(["name,label", *rows]))
    component = load().find("data", "image_folder")
    for splits in ("auto", "all"):
        params: dict[str, Any] = {"folder": "pets", "labels": "labels.csv", "splits": splits}
        found = image_folder(tmp_path, "test", **params)
        assert count_examples(component, params, tmp_path) == len(found) == {"auto": 2, "all": 11}[splits]
        assert list_classes(Checked(component, params, True), tmp_path) == ["cat", "dog"]
