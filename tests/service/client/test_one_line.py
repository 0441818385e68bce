from __future__ import annotations

import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest

from assay.service.catalog.catalog import load
from assay.service.cli.main import main
from assay.service.client import one_line
from assay.service.client.data_place import DataPlace, check_root, data_spec, place_of
from assay.service.client.evaluation import evaluation_of
from assay.service.client.example_model import EXAMPLE_WEIGHTS
from assay.service.client.one_line import (
    Subject,
    check_form,
    check_subject,
    mean_and_std,
    model_spec,
    trained_elsewhere,
)
from assay.service.contract.errors import InvalidSpec

CATALOG = {kind: [one.model_dump(by_alias=True) for one in load().list(kind)] for kind in ("model", "data")}


class Service:
    """A client whose service has the catalog, one training job and one upload."""

    def catalog(self, kind: str) -> list[dict[str, Any]]:
        return CATALOG[kind]

    def component(self, kind: str, name: str) -> dict[str, Any]:
        return next(one for one in CATALOG[kind] if one["name"] == name)

    def job(self, job_id: str) -> Any:
        return type("Job", (), {"spec": {"model": {"name": "symvit"}}})

    def checkpoint(self, name: str) -> Any:
        return type("Checkpoint", (), {"model": {"name": "exported"}})


def model_of(text: str, **more: Any) -> dict[str, Any]:
    return model_spec(Service(), Subject(text, **more), {"name": "digits"})  # type: ignore[arg-type]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ASSAY_DATA_ROOT", raising=False)
    (tmp_path / "photos" / "cats").mkdir(parents=True)
    (tmp_path / "photos" / "one.png").touch()
    return tmp_path


def test_a_name_is_a_data_set_of_the_present_root(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert place_of("cifar10").root() is None
    monkeypatch.setenv("ASSAY_DATA_ROOT", str(folder))
    place = place_of("cifar10")
    assert (place, place.root()) == (DataPlace("cifar10"), folder)
    assert data_spec(place, CATALOG["data"]) == {"name": "cifar10", "params": {}}


def test_a_folder_becomes_the_data_set_of_labelled_images(folder: Path) -> None:
    place = place_of("./photos")
    assert place.root() == folder
    wanted = {"name": "image_folder", "params": {"folder": "photos"}}
    assert data_spec(place, CATALOG["data"]) == wanted


def test_a_link_is_the_folder_that_it_leads_to(folder: Path) -> None:
    (folder / "elsewhere").mkdir()
    (folder / "elsewhere" / "link").symlink_to(folder / "photos")
    place = place_of("elsewhere/../elsewhere/link")
    assert (place.root(), data_spec(place, CATALOG["data"])["params"]) == (folder, {"folder": "photos"})


def test_a_path_below_the_root_keeps_the_root(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_DATA_ROOT", str(folder))
    place = place_of("photos/cats")
    assert place.root() == folder
    assert data_spec(place, CATALOG["data"])["params"]["folder"] == "photos/cats"


def test_a_set_by_name_may_be_at_a_path(folder: Path) -> None:
    place = place_of("cifar10:photos")
    assert data_spec(place, CATALOG["data"]) == {"name": "cifar10", "params": {"folder": "photos"}}
    assert place.root() == folder


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("./absent", "there is no folder /.*/absent"),
        ("./photos/one.png", "give its folder"),
        ("cifar1:photos", "no such data set"),
        ("digits:photos", "is at no path"),
        ("{", "is no JSON"),
    ],
)
def test_wrong_data_are_refused_by_name(folder: Path, text: str, words: str) -> None:
    with pytest.raises(InvalidSpec, match=words) as caught:
        data_spec(place_of(text), CATALOG["data"])
    assert caught.value.details[0].loc == ["data"]


def test_a_crop_fraction_is_a_parameter_of_the_data(folder: Path) -> None:
    params = data_spec(place_of("./photos", 1), CATALOG["data"])["params"]
    assert params == {"folder": "photos", "crop_fraction": 1}
    given = '{"name": "imagenet", "params": {"crop_fraction": 0.9}}'
    assert data_spec(place_of(given), CATALOG["data"])["params"]["crop_fraction"] == 0.9
    assert data_spec(place_of(given, 0.95), CATALOG["data"])["params"]["crop_fraction"] == 0.95


def test_a_crop_fraction_of_data_that_are_not_cropped_is_refused(folder: Path) -> None:
    with pytest.raises(InvalidSpec, match="'digits' does not crop its images") as caught:
        data_spec(place_of("digits", 1), CATALOG["data"])
    (detail,) = caught.value.details
    assert (detail.loc, detail.given) == (["crop_fraction"], 1)
    assert "image_folder" in detail.allowed
    for wrong in (0.0, 1.5, float("nan")):
        with pytest.raises(InvalidSpec, match="above 0 and at most 1"):
            place_of("./photos", wrong)


def test_the_nearest_data_set_is_named(folder: Path) -> None:
    with pytest.raises(InvalidSpec) as caught:
        data_spec(place_of("cifar01:photos"), CATALOG["data"])
    assert caught.value.details[0].nearest == "cifar10"


def test_an_evaluation_is_a_name_with_values() -> None:
    params = {"epsilon": "8/255", "steps": 20, "random_start": True, "norm": "L2"}
    assert evaluation_of("pgd epsilon=8/255 steps=20 random_start=true norm=L2") == {
        "name": "pgd",
        "params": params,
    }
    assert evaluation_of("corruptions 'corruptions=[\"fog\"]'")["params"] == {"corruptions": ["fog"]}


@pytest.mark.parametrize("text", ["", "pgd epsilon", "pgd =3", "pgd 'epsilon=1"])
def test_a_wrong_evaluation_is_refused(text: str) -> None:
    with pytest.raises(InvalidSpec, match="has the form"):
        evaluation_of(text)


def test_jobs_and_uploads_bring_their_model() -> None:
    assert model_of("job:01jd") == {"name": "symvit", "weights": {"job": "01jd"}}
    assert model_of("checkpoint:ours") == {"name": "exported", "weights": {"checkpoint": "ours"}}
    assert model_of("symvit", weights="job:01jd") == {"name": "symvit", "weights": {"job": "01jd"}}
    given = '{"name": "symvit", "params": {"depth": 2}}'
    wanted = {"name": "symvit", "params": {"depth": 2}, "weights": {"checkpoint": "x"}}
    assert model_of(given, weights="checkpoint:x") == wanted


def test_a_model_with_random_weights_is_refused() -> None:
    with pytest.raises(InvalidSpec, match="random weights"):
        model_of("symvit")


def test_a_whole_module_in_a_pickle_is_told_as_one(folder: Path) -> None:
    with zipfile.ZipFile("net.pt", "w") as archive:
        archive.writestr("net/constants.pkl", b"")
    with pytest.raises(InvalidSpec, match="is a TorchScript program") as caught:
        check_subject(Subject("net.pt"))
    assert "assay evaluate PACKAGE.MODULE:FUNCTION" in str(caught.value.details[0].allowed)
    pickled = pickle.dumps({name: {} for name in ("_parameters", "_buffers", "_modules")} | {"of": Path}, 2)
    with zipfile.ZipFile("net.pt", "w") as archive:
        archive.writestr("net/data.pkl", pickled)
    with pytest.raises(InvalidSpec, match=r"holds a whole module .*, with pathlib.Path"):
        check_subject(Subject("net.pt"))


@pytest.mark.parametrize("text", ["net.pt2", "net.onnx", "w.safetensors"])
def test_a_missing_file_is_named(folder: Path, text: str) -> None:
    with pytest.raises(InvalidSpec, match="no such file"):
        model_of(text)


def test_the_nearest_model_is_named() -> None:
    with pytest.raises(InvalidSpec) as caught:
        model_of("symvti")
    assert caught.value.details[0].nearest == "symvit"
    with pytest.raises(InvalidSpec) as caught:
        model_of("resnet_50")
    assert caught.value.details[0].nearest == "timm:resnet50"
    assert "timm:NAME" in caught.value.details[0].allowed


@pytest.mark.parametrize(
    ("subject", "words"),
    [
        (Subject("my_models.py:build"), "names a file of code"),
        (Subject("w.pth"), "could run code"),
        (Subject("absent.pt2"), "no such file"),
        (Subject("my_models:build", "absent.safetensors"), "no such file"),
    ],
)
def test_what_needs_no_service_to_be_seen_is_refused_at_once(
    folder: Path, subject: Subject, words: str
) -> None:
    with pytest.raises(InvalidSpec, match=words):
        check_subject(subject)


def test_a_folder_is_measured_whole_by_a_model_from_elsewhere(folder: Path) -> None:
    place = place_of("./photos")
    assert data_spec(place, CATALOG["data"], whole=True)["params"]["splits"] == "all"
    assert "splits" not in data_spec(place, CATALOG["data"])["params"]
    (folder / "photos" / "val").mkdir()
    assert "splits" not in data_spec(place, CATALOG["data"], whole=True)["params"]
    elsewhere = ["net.pt2", "net.onnx", "my.models:build", "timm:resnet50"]
    assert [text for text in elsewhere if not trained_elsewhere(Subject(text))] == []
    here = ["job:x", "checkpoint:x", "w.safetensors", "symvit", '{"name": "symvit"}']
    assert [text for text in here if trained_elsewhere(Subject(text))] == []


def test_pulled_weights_become_the_model_of_their_source() -> None:
    assert model_of("timm:resnet50.a1_in1k") == {
        "name": "timm",
        "params": {"architecture": "resnet50", "tag": "a1_in1k"},
        "weights": {"pulled": True},
    }
    assert model_of("torchvision:resnet18")["params"] == {"architecture": "resnet18"}
    with pytest.raises(InvalidSpec, match="does not have the form"):
        model_of("timm:res/net")


def test_a_normalisation_has_numbers() -> None:
    assert mean_and_std(None) == (None, None)
    assert mean_and_std("inception") == ([0.5, 0.5, 0.5], [0.5, 0.5, 0.5])
    with pytest.raises(InvalidSpec, match="not known before the data"):
        mean_and_std("data")


@pytest.mark.parametrize(
    ("subject", "words"),
    [
        (
            Subject("m.pt2", "w.safetensors"),
            r"model.weights: has no effect on m.pt2, which has weights of its",
        ),
        (Subject("m.onnx", "w.safetensors"), r"has no effect on m.onnx"),
        (Subject("timm:resnet50", "w.safetensors"), r"has no effect on timm:resnet50"),
        (Subject("job:x", "w.safetensors"), r"has no effect on job:x"),
        (Subject("m.pt2", normalization="imagenet"), r"normalization: has no effect on m.pt2"),
        (
            Subject("timm:resnet50", normalization="imagenet"),
            r"normalization: has no effect on timm:resnet50",
        ),
        (Subject("m.pt2", image_size=32), r"image_size: has no effect on m.pt2"),
        (Subject("vit", "w.safetensors", image_size=32), r"image_size: has no effect on vit"),
        (
            Subject('{"name": "timm"}', "w.safetensors", image_size=32),
            r'image_size: has no effect on \{"name',
        ),
        (Subject('{"name": "timm"}', "w.pth"), r"model.weights: is a pickle"),
        (Subject("nets:build", "w.pth"), r"model.weights: is a pickle"),
        (Subject("nets:build", normalization="imagenett"), r"normalization: "),
    ],
)
def test_options_without_effect_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subject: Subject, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("m.pt2", "m.onnx", "w.pth"):
        (tmp_path / name).touch()
    write_weights(tmp_path / "w.safetensors")
    with pytest.raises(InvalidSpec, match=words):
        check_subject(subject)


def write_weights(path: Path) -> None:
    header = b'{"w": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}'
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"1")


def test_weights_that_are_none_are_told_at_once_with_other_faults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("w.safetensors").write_text("hello")
    line = ["evaluate", "json:loads", "--weights", "w.safetensors", "--data", "./picz", "--limit", "-3"]
    assert main([*line, "--attack", "pgd epsilon=8", "--sed", "1"]) == 2
    said = capsys.readouterr().err
    assert "--weights: this is no safetensors file: it has 5 bytes" in said
    assert "`assay import-pickle` converts files of torch.save" in said
    for fault in ("--limit: '-3' given", "--data: there is no", "--attack 'pgd epsilon=8'.epsilon: "):
        assert fault in said
    assert "unrecognized arguments: --sed 1; did you mean '--seed'?" in said


def test_options_with_effect_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.onnx").touch()
    write_weights(tmp_path / "w.safetensors")
    check_subject(Subject("nets:build", "w.safetensors", "imagenet", 32))
    check_subject(Subject("m.onnx", None, "imagenet", 32))
    check_subject(Subject("w.safetensors", None, "data"))
    check_subject(Subject("vit", "w.safetensors", "imagenet"))
    check_subject(Subject("vit", "job:x"))


def test_a_folder_needs_no_slash_unless_a_data_set_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("photos", "digits"):
        (tmp_path / name).mkdir()
    assert place_of("photos") == DataPlace(None, tmp_path / "photos")
    assert place_of("digits") == DataPlace("digits")
    assert place_of("./digits") == DataPlace(None, tmp_path / "digits")
    assert place_of("cifar10") == DataPlace("cifar10")


def test_a_module_without_its_function_is_answered_with_the_form() -> None:
    with pytest.raises(InvalidSpec) as caught:
        check_form(Subject("models.nets"), CATALOG["model"])
    assert caught.value.details[0].nearest == "models.nets:FUNCTION"
    for text in ("timm:x", "job:x", "m.pt2", "models.nets:build", "symvit", '{"name": "x"}'):
        check_form(Subject(text), CATALOG["model"])


def test_a_data_set_without_a_root_is_answered_with_the_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ASSAY_DATA_ROOT", raising=False)
    with pytest.raises(InvalidSpec) as caught:
        check_root(place_of("cifar10"), CATALOG["data"])
    detail = caught.value.details[0]
    assert detail.message == "is read from a folder, and no data root is set"
    assert str(detail.allowed).startswith("cifar10:PATH, with its path; or --data-root FOLDER")
    with pytest.raises(InvalidSpec, match="no data root"):
        check_root(place_of('{"name": "image_folder", "params": {"folder": "photos"}}'), CATALOG["data"])
    check_root(place_of("digits"), CATALOG["data"])
    monkeypatch.setenv("ASSAY_DATA_ROOT", "/")
    check_root(place_of("cifar10"), CATALOG["data"])


@pytest.mark.parametrize(("params", "channels"), [({}, "3"), ({"channels": 1}, "1")])
def test_a_function_is_exported_for_the_channels_that_the_data_are_read_with(
    monkeypatch: pytest.MonkeyPatch, params: dict[str, Any], channels: str
) -> None:
    def made(module: str, arguments: list[str], *_: Any) -> Any:
        assert arguments == ["m:build", "--channels", channels]
        raise InterruptedError

    monkeypatch.setattr(one_line, "written_program", made)
    data = {"name": "image_folder", "params": params}
    with pytest.raises(InterruptedError), one_line.made_program(Subject("m:build"), data, {}):
        pass


def test_the_example_is_a_file_that_assay_brings_under_its_own_name() -> None:
    example = Subject("example")
    assert (example.label, example.model) == ("example", str(EXAMPLE_WEIGHTS))
    check_subject(example)
    with pytest.raises(InvalidSpec, match="has no effect on example, which has weights of its own"):
        check_subject(Subject("example", weights="job:1"))
    with pytest.raises(InvalidSpec, match="did you mean 'example'"):
        check_form(Subject("exampel"), CATALOG["model"])
