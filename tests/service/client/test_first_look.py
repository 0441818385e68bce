"""What is refused of a user's own code and files before anything is started."""

from __future__ import annotations

import contextlib
import io
import os
import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import assay
from assay.service.cli.main import main
from assay.service.client import evaluation, first_look
from assay.service.client.class_check import checked_data
from assay.service.client.data_place import place_of
from assay.service.client.evaluation import Request, check_request
from assay.service.client.first_look import check_files, check_function, check_images
from assay.service.client.one_line import Subject, check_subject
from assay.service.contract.errors import InvalidSpec
from assay.service.contract.problems import path_text

SIZE = 64


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Six images of two classes, beside code that is never run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ASSAY_DATA_ROOT", raising=False)
    for name in ("cat", "dog"):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for number in range(3):
            place = tmp_path / "pets" / name / f"{number}.{'png' if name == 'cat' else 'jpg'}"
            Image.effect_noise((SIZE, SIZE), 50 + number).convert("RGB").save(place)
    (tmp_path / "nets.py").write_text(
        "raise RuntimeError('it ran')\nif True:\n    from torch import nn as layers\n\ndef build(): ...\n"
    )
    return tmp_path / "pets"


def refused(**given: Any) -> list[tuple[str, str]]:
    subject = Subject(given.get("model", "nets:build"), image_size=SIZE)
    request = Request(
        subject, place_of(given.get("data", "./pets")), evaluations=given.get("attacks", ["pgd"])
    )
    with pytest.raises(InvalidSpec) as caught:
        check_request(request, own=True)
    return [(path_text(one.loc), one.message) for one in caught.value.details]


def cut(path: Path) -> None:
    """Keeps the header of a file, and two thirds of its bytes."""
    content = path.read_bytes()
    path.write_bytes(content[: len(content) * 2 // 3])


WRONG = {
    "weights": "no.safetensors",
    "normalization": "inceptoin",
    "labels": "labls.txt",
    "report": "no/a.md",
}


def by_python(own: dict[str, str]) -> list[tuple[str, str | None]]:
    with pytest.raises(InvalidSpec) as caught:
        assay.evaluate(
            "nest:build", "./nowhere", attacks=["pgd epsilon=8", "square queries=0"], **WRONG, **own
        )
    return [(path_text(one.loc), one.nearest) for one in caught.value.details]


def by_command(own: dict[str, str]) -> list[tuple[str, str | None]]:
    attacks = ["--attack", "pgd epsilon=8", "--attack", "square queries=0"]
    more = [f"--{name}={value}" for name, value in {**WRONG, **own}.items()]
    with contextlib.redirect_stderr(io.StringIO()) as said:
        assert main(["evaluate", "nest:build", "--data", "./nowhere", *attacks, *more]) == 2
    lines = [line.removeprefix("error:").strip() for line in said.getvalue().splitlines()]
    found = [re.fullmatch(r"(?:--)?(.*?): .*?(?:did you mean '(.*?)'\?.*)?", line) for line in lines]
    return [(line[1], line[2]) for line in found if line is not None]


@pytest.mark.parametrize("door", [by_python, by_command])
@pytest.mark.parametrize("own", [True, False])
def test_every_fault_of_a_call_is_told_at_once(door: Any, own: bool, folder: Path) -> None:
    """`door` calls from Python or from the shell; a service elsewhere judges faults of attacks alone."""
    (folder.parent / "state").write_text("no folder")
    where = {"state": "state"} if own else {"url": "http://127.0.0.1:9"}
    attacks = {"attack 'pgd epsilon=8'.epsilon": "8/255", "attack 'square queries=0'.queries": None}
    weights = "weights" if door is by_command else "model.weights"
    assert dict(door(where)) == {
        "model": "nets:build", "data": None, weights: None, "normalization": "inception",
        "labels": None, "report": None, **attacks, **({"state": None} if own else {}),
    }  # fmt: skip


def test_images_that_break_off_behind_a_good_header_are_told_with_all_others(folder: Path) -> None:
    cut(folder / "cat" / "1.png")
    cut(folder / "dog" / "2.jpg")
    (folder / "dog" / "0.jpg").write_bytes(b"")
    ((place, said),) = refused()
    assert place == "data"
    assert said.startswith("3 files are no images: cat/1.png (")
    assert "dog/0.jpg (it is empty), dog/2.jpg (image file is truncated" in said
    assert said.endswith("replace or remove them")


@pytest.mark.parametrize(
    ("name", "shown"),
    [(b"cat/bad\xff\xfename.png", r"cat/bad\xff\xfename.png"), (b"sq\xffuare/a.png", r"sq\xffuare")],
)
def test_names_that_are_not_utf_8_are_told(folder: Path, name: bytes, shown: str) -> None:
    path = folder / os.fsdecode(name)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes((folder / "cat" / "0.png").read_bytes())
    (folder / "cat" / os.fsdecode(b"note\xff.txt")).touch()  # no example
    assert refused(model="nest:build") == [
        ("model", f"there is no module 'nest' in {folder.parent}"),
        ("data", f"has names that are not UTF-8: {shown}; rename them"),
    ]
    path.unlink()
    if not any(path.parent.iterdir()):
        path.parent.rmdir()
    check_request(Request(Subject("nets:build"), place_of("./pets")), own=True)


def test_paths_that_are_not_utf_8_are_told(folder: Path) -> None:
    weights = folder.parent / os.fsdecode(b"w\xff.safetensors")
    weights.touch()
    with pytest.raises(InvalidSpec, match="the path is not UTF-8"):
        check_subject(Subject("vit", weights=str(weights)))
    with pytest.raises(InvalidSpec, match="the path is not UTF-8"):
        place_of(str(folder.rename(folder.parent / os.fsdecode(b"pets\xff"))))


def test_good_images_pass(folder: Path) -> None:
    check_request(Request(Subject("nets:build"), place_of("./pets"), evaluations=["pgd"]), own=True)


def test_an_image_of_32_bits_is_refused_as_the_reader_refuses_it(folder: Path) -> None:
    Image.new("F", (SIZE, SIZE)).save(folder / "cat" / "9.tiff")
    assert "cat/9.tiff (it has 32 bits per channel" in refused()[0][1]


def test_a_sample_is_said_to_be_a_sample(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(first_look, "MANY", 2)
    monkeypatch.setattr(first_look, "TOGETHER", 4)
    place = place_of("./pets")
    check_images(checked_data(place), place, told.append, seconds=0)
    assert told == ["decoding 6 images, 0 s at most", "decoded 4 of 6 images, a random sample"]
    for path in folder.rglob("*.*"):
        cut(path)
    with pytest.raises(InvalidSpec, match="4 files are no images"):
        check_images(checked_data(place), place, told.append, seconds=0)


def test_every_wrong_part_is_told_at_once(folder: Path) -> None:
    cut(folder / "cat" / "1.png")
    found = refused(model="nets:biuld", attacks=["pgd epsilon=4", "pgdd", "fgsm eps=1/255"])
    assert [place for place, _ in found] == [
        "model",
        "data",
        "attack 'pgd epsilon=4'.epsilon",
        "attack 'pgdd'.name",
        "attack 'fgsm eps=1/255'.eps",
    ]


def test_a_missing_function_has_the_nearest_name() -> None:
    with pytest.raises(InvalidSpec) as caught:
        check_function("nets:biuld", Path())
    (detail,) = caught.value.details
    assert detail.nearest == "nets:build"
    assert "has no 'biuld'" in detail.message
    with pytest.raises(InvalidSpec) as caught:
        check_function("nest:build", Path())
    assert caught.value.details[0].nearest == "nets:build"


@pytest.mark.parametrize(
    "text",
    ["def f(): ...", "class f: ...", "f = 1", "import f", "try:\n    from a import b as f\nfinally: ..."],
)
def test_a_name_that_a_module_binds_passes(text: str) -> None:
    Path("others.py").write_text(text + "\n")
    check_function("others:f", Path())


@pytest.mark.parametrize("text", ["from a import *", "globals()['f'] = 1", "def __getattr__(name): ..."])
def test_a_module_with_names_that_only_a_run_shows_passes(text: str) -> None:
    Path("others.py").write_text(text + "\n")
    check_function("others:f", Path())


def test_code_that_is_no_python_is_refused() -> None:
    Path("others.py").write_text("def f(:\n")
    with pytest.raises(InvalidSpec, match="cannot be read: invalid syntax"):
        check_function("others:f", Path())


def test_data_of_other_files_are_looked_at_by_their_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    told: list[str] = []

    def look(catalog: Any, spec: Any, root: Path | None) -> list[dict[str, Any]]:
        asked.append(spec["limit"])
        fault = {"unreadable": ["$ASSAY_DATA_ROOT/pets/x.JPEG is cut; replace or remove it"]}
        return [{"looked": True, "problem": None, "unreadable_count": 1, "decoded": 5, **fault}]

    monkeypatch.setattr(first_look, "look_at_data", look)
    spec: Any = {"data": {"name": "imagenet", "params": {"folder": "pets"}}, "limit": 5}
    with pytest.raises(InvalidSpec) as caught:
        check_files(spec, place_of("imagenet:./pets"), told.append)
    said = caught.value.details[0].message
    assert said == f"1 of 5 examples looked at cannot be read; {Path.cwd()}/pets/x.JPEG is cut"
    check_files({**spec, "data": {"name": "digits", "params": {}}}, place_of("digits"), told.append)
    assert (asked, told) == ([5], ["looking at the data"])


def test_a_path_is_told_as_given_and_in_full() -> None:
    with pytest.raises(InvalidSpec) as caught:
        place_of("./nope")
    (detail,) = caught.value.details
    assert (detail.given, detail.message) == ("./nope", f"there is no folder {Path.cwd()}/nope")


def test_a_service_elsewhere_judges_what_is_not_of_this_machine() -> None:
    request = Request(Subject("nets:build"), place_of("digits"), evaluations=["pgd epsilon=4"])
    check_request(request, own=False)
    with pytest.raises(InvalidSpec, match="has no 'biuld'"):
        check_request(Request(Subject("nets:biuld"), place_of("digits")), own=False)
    assert evaluation.evaluation_of("pgd epsilon=4")["params"] == {"epsilon": 4}
