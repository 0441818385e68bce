"""Classes of a folder and of a model, compared before a service is started, in the user's words."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import assay
from assay.service.catalog.catalog import load
from assay.service.cli import evaluation_service
from assay.service.cli.main import main
from assay.service.client import evaluation
from assay.service.client.class_check import classes_of, stated_classes
from assay.service.client.data_place import place_of, wrong
from assay.service.client.evaluation import Request, check_request, complete_spec
from assay.service.client.one_line import Subject
from assay.service.contract.errors import InvalidSpec
from assay.service.files.model_classes import names_in_program
from assay.service.submission.class_folders import _read_labels
from assay.workers.weights.export import export_program
from tests.support.levels import SIZE, Levels, write_levels


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as a Mac's zip leaves it, with a class without images, and no service to start."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ASSAY_DATA_ROOT", raising=False)
    monkeypatch.delenv("ASSAY_URL", raising=False)

    def no_service(*_: Any, **__: Any) -> None:
        raise AssertionError("a service was started")

    monkeypatch.setattr(evaluation_service, "service_for", no_service)
    monkeypatch.setattr(evaluation, "service_for", no_service)
    write_levels(tmp_path / "pets", ["cat", "dog"])
    (tmp_path / "pets" / "empty").mkdir()
    return tmp_path / "pets"


def refused(subject: str, *names: str) -> str:
    request = Request(Subject(subject), place_of("pets", None, names or None), ["quick"])
    with pytest.raises(InvalidSpec) as caught:
        check_request(request, own=True)
    return str(caught.value)


def test_a_folder_of_three_classes_and_a_model_of_two(folder: Path) -> None:
    export_program(Levels([0, 1]), Path("net.pt2"), image_size=SIZE, class_names=["cat", "dog"])
    said = refused("net.pt2")
    assert said.startswith(
        "data: has 3 classes, and the model net.pt2 has 2 (cat, dog); the class folders are "
    )
    assert "cat/, dog/, empty/; without an image: empty/" in said
    (folder / "empty").rmdir()
    check_request(Request(Subject("net.pt2"), place_of("pets"), ["quick"]), own=True)


def test_files_that_are_no_images_are_told_all_at_once(folder: Path) -> None:
    for name in ("cat/a.png", "dog/b.png", "dog/._c.png"):
        (folder / name).write_bytes(b"no image" if name == "cat/a.png" else b"")
    said = refused("checkpoint:x")
    assert said.startswith(
        "data: 2 files are no images: cat/a.png (it holds no image), dog/b.png (it is empty)"
    )
    assert "replace or remove them" in said
    for part in ("train", "val"):
        (folder / part).mkdir()
        for name in ("cat", "dog"):
            shutil.copytree(folder / name, folder / part / name)
    for name in ("cat", "dog", "empty"):
        shutil.rmtree(folder / name)
    (folder / "val" / "cat" / "a.png").unlink()
    assert refused("checkpoint:x").startswith("data: 1 file is no image: val/dog/b.png"), "train is not read"


def test_a_file_of_labels_is_judged_before_a_service_starts(folder: Path) -> None:
    export_program(Levels([0, 1]), Path("net.pt2"), image_size=SIZE)
    listed = Path("listed")
    listed.mkdir()
    for name in ("a.png", "b.png", "c.png"):
        Image.new("L", (8, 8)).save(listed / name)
    labels = listed / "labels.csv"
    data = {"name": "image_folder", "params": {"folder": "listed", "labels": "labels.csv", "splits": "all"}}

    def judge() -> None:
        _read_labels.cache_clear()
        check_request(Request(Subject("net.pt2"), place_of(json.dumps(data)), ["quick"]), own=True)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ASSAY_DATA_ROOT", str(Path.cwd()))
        labels.write_text("name,label\na,cat\nb,dog\nc,owl\n")
        with pytest.raises(InvalidSpec, match=r"has 3 classes, and .* has 2; the labels are cat, dog, owl"):
            judge()
        labels.write_text("name,label\na,cat\nb,dog\nd,dog\n")
        (listed / "b.png").write_bytes(b"")
        with pytest.raises(InvalidSpec) as caught:
            judge()
        assert "1 of its images are not beside it: d" in str(caught.value)
        labels.write_text("name,label\na,cat\nb,dog\n")
        with pytest.raises(InvalidSpec, match=r"1 file is no image: listed/b\.png \(it is empty\)"):
            judge()
        Image.new("L", (8, 8)).save(listed / "b.png")
        judge()


def test_a_text_of_the_own_service_has_the_paths_of_this_machine(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "$ASSAY_DATA_ROOT/pets/cat/a.png cannot be read"
    assert place_of("pets").with_paths(text) == f"{folder}/cat/a.png cannot be read"
    assert place_of("digits").with_paths(text) == text


@pytest.mark.parametrize("more", [[], ["--dry-run"]])
def test_the_command_says_so_before_a_service_starts(
    capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    export_program(Levels([0, 1]), Path("net.pt2"), image_size=SIZE)
    assert main(["evaluate", "net.pt2", "--data", "pets", *more]) == 2
    said = capsys.readouterr().err
    assert said.startswith(
        "error: --data: has 3 classes, and the model net.pt2 has 2; the class folders are "
    )
    with pytest.raises(InvalidSpec, match="has 3 classes, and the model"):
        assay.evaluate("net.pt2", "pets")


def test_stated_names_are_compared_with_the_folders(capsys: pytest.CaptureFixture[str]) -> None:
    said = refused("checkpoint:x", "dgo", "cat")
    assert "class_names: the folder 'pets' has no class folder for the class names 'dgo'" in said
    assert "did you mean 'dog'?" in said
    assert "'dog', 'empty', which the class names lack" in said
    Path("labels.json").write_text(json.dumps({"id2label": {"0": "dog", "1": "cat"}}))
    assert main(["evaluate", "checkpoint:x", "--data", "pets", "--labels", "labels.json"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(
        "error: --labels: labels.json: the folder 'pets' has the class folders 'empty', which"
    )
    assert 'given "labels.json"; allowed: cat, dog, empty' in said
    assert main(["evaluate", "checkpoint:x", "--data", "digits", "--labels", "labels.json"]) == 2
    assert capsys.readouterr().err.startswith(
        "error: --labels: labels.json: the data set 'digits' has an order"
    )
    assert main(["evaluate", "checkpoint:x", "--data", "pets", "--class-names", "dog"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: --class-names: 'dog' is a single name, and no file; wanted: the names of")
    assert main(["evaluate", "checkpoint:x", "--data", "pets", "--class-names", "label.json"]) == 2
    assert "or a file with them; did you mean the file 'labels.json'?" in capsys.readouterr().err
    assert main(["evaluate", "checkpoint:x", "--data", "pets", "--labels", "absent"]) == 2
    assert capsys.readouterr().err.startswith("error: --labels: absent cannot be read")
    assert main(["evaluate", "checkpoint:x", "--data", "digits", "--class-names", "a,b"]) == 2
    assert "'digits' has an order of classes of its own" in capsys.readouterr().err


def test_errors_of_a_service_name_the_file_too() -> None:
    class Service:
        def catalog(self, kind: str) -> list[dict[str, Any]]:
            return [one.model_dump(by_alias=True) for one in load().list(kind)]

        def component(self, kind: str, name: str) -> dict[str, Any]:
            return next(one for one in self.catalog(kind) if one["name"] == name)

        def checkpoint(self, name: str) -> Any:
            return type("Checkpoint", (), {"model": {"name": "exported"}})

        def dry_run(self, spec: dict[str, Any]) -> dict[str, Any]:
            raise wrong(("data", "params", "class_names"), "no class folder for 'owl'", given=["owl"])

    place = place_of("pets", None, ("owl",), "labels.txt")
    with pytest.raises(InvalidSpec) as caught:
        complete_spec(Service(), Request(Subject("checkpoint:x"), place, ["quick"]))  # type: ignore[arg-type]
    assert str(caught.value) == "labels: labels.txt: no class folder for 'owl'"
    assert caught.value.details[0].loc == ["labels"]


@pytest.mark.costly
@pytest.mark.parametrize("start", [["evaluate"], ["attack"]])
def test_a_module_without_an_image_size_is_refused_before_a_service_starts(
    start: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("nets.py").write_text("from torch import nn\ndef build():\n    return nn.Flatten()\n")
    more = ["pgd"] if start == ["attack"] else []
    assert main([*start, "nets:build", *more, "--data", "pets"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("exporting nets:build\nerror: model: the module does not say for which images")
    assert "--image-size N" in said


def test_so_is_a_module_in_python(folder: Path) -> None:
    (folder / "empty").rmdir()
    with pytest.raises(InvalidSpec, match="give image_size, in pixels"):
        assay.evaluate(Levels([0, 1]), "pets", progress=False)


def test_two_folders_of_one_number_are_refused(folder: Path) -> None:
    for name in ("cat", "dog", "empty"):
        (folder / name).rename(folder / {"cat": "1", "dog": "01", "empty": "2"}[name])
    assert "data: the classes '01', '1' are the same numbers" in refused("checkpoint:x")


def test_names_and_a_file_state_the_same_thing(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("dog\ncat\n")
    assert stated_classes("dog,cat", None) == stated_classes(["dog", "cat"], None) == ("dog", "cat")
    assert stated_classes(None, tmp_path / "labels.txt") == stated_classes("labels.txt", None)
    assert stated_classes(None, None) is None
    with pytest.raises(InvalidSpec, match="give one"):
        stated_classes(["a", "b"], "labels.txt")
    spec = place_of("pets", None, ("dog", "cat", "empty"))
    assert classes_of(spec) == ("cat", "dog", "empty")
    assert classes_of(place_of("digits")) == tuple("0123456789")
    assert len(classes_of(place_of("imagenet_r")) or ()) == 1000, "the classes of a model for it"
    assert classes_of(place_of("wikitext")) is None


def test_a_module_is_compared_before_its_export(monkeypatch: pytest.MonkeyPatch) -> None:
    from assay.workers.weights import export
    from assay.workers.weights.export_inputs import CannotExport

    monkeypatch.setattr(export.torch.export, "export", lambda *_, **__: pytest.fail("it was exported"))
    with pytest.raises(CannotExport, match="it has 2 logits, and the data have 3 classes: cat, dog, empty"):
        export_program(Levels([0, 1]), Path("x.pt2"), image_size=SIZE, data_classes=["cat", "dog", "empty"])
    assert not Path("x.pt2").exists()


def test_a_function_is_compared_before_its_export(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from assay.workers.weights import export

    Path("nets_of_two.py").write_text(
        "from tests.support.levels import Levels\ndef build():\n    return Levels([0, 1])\n"
    )
    monkeypatch.syspath_prepend(str(Path.cwd()))
    names = json.dumps(["cat", "dog", "empty"])
    given = ["nets_of_two:build", "--image-size", str(SIZE), "--output", "x.pt2", "--data-classes", names]
    assert export.main(given) == 2
    assert "it has 2 logits, and the data have 3 classes: cat, dog, empty" in capsys.readouterr().err
    sys.modules.pop("nets_of_two", None)
    named = ["nets_of_two:build", "--image-size", str(SIZE), "--output", "x.pt2", "--class-names", "a,b"]
    assert export.main(named) == 0
    assert names_in_program(Path("x.pt2")) == ("a", "b")
