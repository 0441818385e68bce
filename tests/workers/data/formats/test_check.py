from __future__ import annotations

import json
import runpy
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from assay.workers.data import cifar10, cifar10_c, cifar100_c
from assay.workers.data.digits import digits
from assay.workers.data.formats.check import list_others, list_sets, main
from assay.workers.data.formats.images.imagenet_classes import class_list
from assay.workers.data.imagenet_v2 import FOLDERS
from assay.workers.data.pydoc import pydoc
from tests.support.imagenet_trees import write_classes, write_flat, write_set
from tests.support.stored_arrays import IMAGES, write_arrays
from tests.support.stored_trees import write_cells
from tests.support.texts import write_imdb, write_sst, write_wikitext
from tests.workers.data.test_tiny_imagenet import WNIDS
from tests.workers.data.test_tiny_imagenet import write as write_tiny_imagenet
from tests.workers.data.test_uea import TEST, TRAIN, write


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("val/crow/0.png", "val/wren/0.png"):
        (tmp_path / "birds" / name).parent.mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(tmp_path / "birds" / name)
    (tmp_path / "cifar" / cifar10.BINARY).mkdir(parents=True)
    (tmp_path / "notes").mkdir()
    (tmp_path / "roads" / "trainannot").mkdir(parents=True)
    (tmp_path / "scenes" / "ADEChallengeData2016").mkdir(parents=True)
    (tmp_path / ".hidden").mkdir()
    return tmp_path


def test_every_visible_folder_is_reported(root: Path) -> None:
    reports = list_sets(root)
    assert [(r.name, r.folder, r.classes) for r in reports] == [
        ("digits", None, 10),
        ("shapes", None, 5),
        ("pydoc", None, len(pydoc(None, "test").vocabulary)),
        ("motions", None, 6),
        ("pulses", None, 1),
        ("image_folder", "birds", 2),
        ("cifar10", "cifar", None),
        ("camvid", "roads", None),
        ("ade20k", "scenes", None),
    ]
    train, test = reports[0].splits
    assert (train.split, train.examples, train.problem) == ("train", 1442, None)
    assert test.sha256 == digits(None, "test").content_sha256()
    birds = reports[5].splits
    assert birds[0].problem is not None
    assert (birds[1].examples, birds[1].problem) == (2, None)
    assert "data_batch_1.bin is missing" in (reports[6].splits[0].problem or "")
    assert "missing: train/" in (reports[7].splits[0].problem or "")
    assert "objectInfo150.txt" in (reports[8].splits[1].problem or "")
    assert list_others(root, reports) == {"notes": "empty"}


@pytest.mark.costly
def test_no_hash_reads_no_image(root: Path) -> None:
    (root / "birds" / "val" / "crow" / "0.png").chmod(0)
    report = list_sets(root, hashes=False)[5].splits[1]
    assert (report.examples, report.sha256) == (2, None)


def test_text_for_a_person(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--data-root", str(root)]) == 1
    text = capsys.readouterr().out
    assert f"data root: {root}\n" in text
    assert "digits  10 classes\n  train     1442 examples  sha256 " in text
    assert "image_folder  folder birds  2 classes" in text
    assert "not available: " in text
    assert "classes without an example" not in text
    assert "pulses\n  train      600 examples" in text
    assert text.endswith(
        "no data sets: notes/ (empty)\ncannot be used as they are (3): cifar, roads, scenes\n"
    )


@pytest.mark.costly
def test_files_of_a_service_are_no_data_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image = tmp_path / "assay-state" / "artifacts" / "job" / "a.png"
    image.parent.mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(image)
    (tmp_path / "assay-state" / "assay.sqlite").touch()
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "a.pdf").touch()
    assert main(["--data-root", str(tmp_path), "--no-hash", "--seconds", "0"]) == 0
    wanted = "assay-state/ (files of a service), letters/ (no image, table or file of a known set)"
    assert capsys.readouterr().out.endswith(f"no data sets: {wanted}\n")
    assert main(["--data-root", str(tmp_path / "assay-state"), "--no-hash", "--seconds", "0"]) == 0
    assert capsys.readouterr().out.endswith("no data sets: artifacts/ (files of a service)\n")
    (tmp_path / "assay-state" / "assay.sqlite").unlink()
    assert main(["--data-root", str(tmp_path / "assay-state"), "--no-hash", "--seconds", "0"]) == 1


@pytest.mark.parametrize(
    ("break_it", "code"),
    [
        (lambda folder: None, 0),
        (lambda folder: (folder / "val" / "wren" / "0.png").write_bytes(b"no image"), 1),
        (lambda folder: shutil.copytree(folder / "val" / "wren", folder / "val" / "owl"), 0),
        (lambda folder: shutil.copytree(folder / "val" / "wren", folder / "train" / "jay" / "more"), 1),
    ],
)
def test_the_code_is_1_where_a_set_cannot_be_used(
    root: Path, break_it: Callable[[Path], object], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    break_it(root / "birds")
    spec = json.dumps({"name": "image_folder", "params": {"folder": "birds"}})
    assert main(["--data-root", str(root), "--no-hash", "--json", "--data", spec]) == code
    body = json.loads(capsys.readouterr().out)
    assert body["sets"][0]["usable"] is (code == 0)
    assert body["others"] == {}
    assert main(["--data-root", str(root), "--no-hash", "--data", spec, "--split", "train"]) == 1


def test_json_for_a_program(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASSAY_DATA_ROOT", str(root))
    assert main(["--json", "--no-hash"]) == 1
    body = json.loads(capsys.readouterr().out)
    assert body["root"] == str(root)
    names = ["digits", "shapes", "pydoc", "motions", "pulses"]
    names += ["image_folder", "cifar10", "camvid", "ade20k"]
    assert [entry["name"] for entry in body["sets"]] == names
    first = body["sets"][0]["splits"][1]
    assert first.pop("look") == {
        "decoded": 355,
        "unreadable": [],
        "ignored": None,
        "empty_classes": [],
        "notes": [],
    }
    assert first == {"split": "test", "examples": 355, "sha256": None, "problem": None, "absent": False}
    assert body["others"] == {"notes": "empty"}


@pytest.mark.costly
def test_absent_root_is_said_and_is_no_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ASSAY_DATA_ROOT", raising=False)
    assert main(["--no-hash"]) == 0
    assert "set ASSAY_DATA_ROOT" in capsys.readouterr().out
    assert main(["--no-hash", "--data-root", str(tmp_path / "nowhere")]) == 0
    text = capsys.readouterr().out
    assert "does not exist" in text
    assert "digits" in text


@pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")
def test_module_is_a_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ASSAY_DATA_ROOT", raising=False)
    monkeypatch.setattr(sys, "argv", ["check", "--no-hash", "--json"])
    with pytest.raises(SystemExit) as caught:
        runpy.run_module("assay.workers.data.formats.check", run_name="__main__")
    assert caught.value.code == 0
    assert json.loads(capsys.readouterr().out)["root"] is None


def test_imagenets_sets_are_recognised(tmp_path: Path) -> None:
    write_set(tmp_path, "imagenet", "val")
    for name in ("imagenet_a", "imagenet_r", "imagenet_o"):
        write_set(tmp_path, name)
    write_flat(tmp_path / "flat" / "val", 3)
    reports = {report.folder: report for report in list_sets(tmp_path, hashes=False) if report.folder}
    assert {folder: report.name for folder, report in reports.items()} == {
        "flat": "imagenet",
        "imagenet": "imagenet",
        "imagenet-a": "imagenet_a",
        "imagenet-o": "imagenet_o",
        "imagenet-r": "imagenet_r",
    }
    assert reports["imagenet-o"].splits[1].examples == 401
    assert "is a test set" in (reports["imagenet-a"].splits[0].problem or "")
    assert "a list of their labels is wanted" in (reports["flat"].splits[1].problem or "")


def test_sets_of_all_of_imagenets_classes_are_told_apart(tmp_path: Path) -> None:
    write_classes(tmp_path / "v2", FOLDERS)
    write_classes(tmp_path / "drawings", class_list("imagenet"))
    first = tmp_path / "drawings" / class_list("imagenet")[0]
    (first / f"{first.name}_0.png").rename(first / "sketch_0.png")
    reports = {report.folder: report for report in list_sets(tmp_path, hashes=False) if report.folder}
    found = {folder: (one.name, one.splits[1].examples) for folder, one in reports.items()}
    assert found == {"v2": ("imagenet_v2", 1001), "drawings": ("imagenet_sketch", 1001)}


def test_stored_corrupted_images_are_recognised(tmp_path: Path) -> None:
    write_cells(tmp_path / "imagenet-c", [("fog", 2), ("fog", 3)], class_list("imagenet"))
    write_cells(tmp_path / "mine", [("snow", 1), ("frost", 5)], ["ant", "bee"], side=8)
    (tmp_path / "mine" / "frost" / "5" / "bee" / "bee_0.png").unlink()
    reports = {report.folder: report for report in list_sets(tmp_path, hashes=False) if report.folder}
    whole, half = reports["imagenet-c"], reports["mine"]
    assert (whole.name, whole.classes, whole.splits[1].examples) == ("imagenet_c", 1000, 1001)
    assert "is a test set" in (whole.splits[0].problem or "")
    assert half.name == "corrupted_folder"
    assert "(frost/5: bee/bee_0.png)" in (half.splits[1].problem or "")


def test_tiny_imagenet_and_its_corrupted_set_are_recognised(tmp_path: Path) -> None:
    write_tiny_imagenet(tmp_path)
    write_cells(tmp_path / "mine", [("fog", 2)], WNIDS[1:], side=64)
    write_cells(tmp_path / "stored", [("fog", 2)], WNIDS, side=64)
    reports = {report.folder: report for report in list_sets(tmp_path, hashes=False) if report.folder}
    found = {folder: (one.name, [part.examples for part in one.splits]) for folder, one in reports.items()}
    assert found == {
        "tiny-imagenet-200": ("tiny_imagenet", [201, 201]),
        "mine": ("corrupted_folder", [None, 200]),
        "stored": ("tiny_imagenet_c", [None, 201]),
    }


def test_arrays_of_corrupted_images_are_recognised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (cifar10_c, cifar100_c):
        monkeypatch.setattr(module, "IMAGES", IMAGES)
    write_arrays(tmp_path / "ten", ["fog"], 10)
    write_arrays(tmp_path / "hundred", ["fog"], 100)
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "fog.npy").touch()
    reports = {report.folder: report for report in list_sets(tmp_path, hashes=False) if report.folder}
    found = {folder: (one.name, one.classes, one.splits[1].examples) for folder, one in reports.items()}
    assert found == {
        "ten": ("cifar10_c", 10, IMAGES),
        "hundred": ("cifar100_c", 100, IMAGES),
        "none": ("cifar10_c", None, None),
    }
    assert "labels.npy is missing" in (reports["none"].splits[1].problem or "")


def test_every_set_of_series_is_recognised(tmp_path: Path) -> None:
    write(tmp_path, train=TRAIN, test=TEST)
    write(tmp_path, train=TRAIN, test=TEST, folder="more")
    reports = [report for report in list_sets(tmp_path) if report.folder]
    found = [(one.folder, one.name, one.classes) for one in reports]
    assert found == [("more", "uea", 2), ("uea/Tiny", "uea", 2)]
    assert [part.examples for one in reports for part in one.splits] == [4] * 4


def test_sets_of_text_are_recognised(tmp_path: Path) -> None:
    write_wikitext(tmp_path)
    write_sst(tmp_path)
    write_imdb(tmp_path)
    reports = [report for report in list_sets(tmp_path) if report.folder]
    assert [(report.folder, report.name, report.classes) for report in reports] == [
        ("aclImdb", "imdb", 2),
        ("sst", "sst", 2),
        ("sst", "sst", 5),
        ("wikitext-103", "wikitext", 12),
    ]
    assert all(part.problem is None for report in reports for part in report.splits)


def test_long_range_arenas_release_is_recognised(tmp_path: Path) -> None:
    where = tmp_path / "lra_release" / "listops-1000"
    where.mkdir(parents=True)
    (where / "basic_test.tsv").write_text("Source\tTarget\n( ( ( [MIN 1 ) 2 ) ] )\t1\n")
    (tmp_path / "lra_release" / "tsv_data").mkdir()
    reports = [report for report in list_sets(tmp_path) if report.folder is not None]
    assert [(r.name, r.folder, r.classes) for r in reports] == [
        ("lra_listops", "lra_release/listops-1000", 10),
        ("lra_retrieval", "lra_release/tsv_data", None),
    ]
    train, test = reports[0].splits
    assert "basic_train.tsv not found" in (train.problem or "")
    assert (test.examples, len(test.sha256 or "")) == (1, 64)
