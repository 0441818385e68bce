"""`assay data check` decodes examples, and lists all that is unreadable, ignored and empty."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from assay.workers.data.formats import look as look_module
from assay.workers.data.formats.check import main
from assay.workers.data.formats.dataset import CorruptData
from assay.workers.data.formats.images.labels_files import find_labels
from assay.workers.data.formats.look import look_at, with_others
from assay.workers.data.image_folder import image_folder
from assay.workers.data.pulses import pulses
from assay.workers.data.text_table import text_table


def image(path: Path, **options: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 8)).save(path, **options)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    exif = Image.Exif()
    exif[0x0112] = 6
    for name in ("cat", "dog"):
        for number in range(6):
            image(tmp_path / "pets" / name / f"{number}.jpg", exif=exif if number == 0 else Image.Exif())
    (tmp_path / "pets" / "fox").mkdir()
    (tmp_path / "pets" / "cat" / "1.jpg").write_bytes(b"no image")
    whole = (tmp_path / "pets" / "dog" / "2.jpg").read_bytes()
    (tmp_path / "pets" / "dog" / "2.jpg").write_bytes(whole[: len(whole) // 2])
    image(tmp_path / "pets" / "__MACOSX" / "cat" / "._0.jpg")
    (tmp_path / "pets" / "cat" / "Thumbs.db").touch()
    return tmp_path


def test_all_that_is_unreadable_ignored_and_empty_is_listed_at_once(root: Path) -> None:
    found = look_at(image_folder(root, "test", folder="pets", splits="all"), 600)
    assert found.decoded == 12
    assert [message.partition(" cannot")[0] for message in found.unreadable] == [
        str(root / "pets" / "cat" / "1.jpg"),
        str(root / "pets" / "dog" / "2.jpg"),
    ]
    assert found.ignored == {"count": 2, "first": ["__MACOSX/", "cat/Thumbs.db"]}
    assert found.empty_classes == ["fox"]
    assert found.notes == [
        "2 of 12 images have an EXIF orientation, and are read as they are stored; "
        '"exif_orientation": true turns them'
    ]
    turned = image_folder(root, "test", folder="pets", splits="all", exif_orientation=True)
    assert look_at(turned, 600).notes == []


def test_an_error_of_an_example_names_the_others(root: Path) -> None:
    pets = image_folder(root, "test", folder="pets", splits="all")
    with pytest.raises(CorruptData) as caught:
        pets.images(list(range(12)), 8)
    said = with_others(caught.value, [pulses(None, "test"), pets], 600)
    first, _, others = said.partition("; replace or remove it; 1 more of 12 examples looked at: ")
    cat, dog = (f"{root}/pets/{name} cannot be read as an image (" for name in ("cat/1.jpg", "dog/2.jpg"))
    assert sorted(text.partition("(")[0] + "(" for text in (first, others)) == [cat, dog]
    assert "replace" not in others


def test_an_error_without_others_or_of_other_data_stays(root: Path) -> None:
    pets = image_folder(root, "test", folder="pets", splits="all")
    assert with_others(CorruptData("a table's header"), [pets], 600) == "a table's header"
    (root / "pets" / "cat" / "1.jpg").unlink()
    only = image_folder(root, "test", folder="pets", splits="all")
    with pytest.raises(CorruptData) as caught:
        only.images(list(range(11)), 8)
    assert with_others(caught.value, [only], 600) == str(caught.value)


def test_a_message_names_the_first_of_many(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look_module, "NAMED", 1)
    (root / "pets" / "dog" / "5.jpg").write_bytes(b"")
    pets = image_folder(root, "test", folder="pets", splits="all")
    with pytest.raises(CorruptData) as caught:
        pets.images(list(range(12)), 8)
    said = with_others(caught.value, [pets], 600)
    assert "; 2 more of 12 examples looked at: " in said
    assert said.endswith("; ...")
    assert said.count("cannot be read") == 2


def test_a_sample_is_said_to_be_a_sample(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    times = iter([0.0, 0.5, 2.0] * 4)
    monkeypatch.setattr(look_module, "TOGETHER", 3)
    monkeypatch.setattr(look_module.time, "monotonic", lambda: next(times))
    spec = json.dumps({"name": "image_folder", "params": {"folder": "pets", "splits": "all"}})
    assert main(["--data-root", str(root), "--no-hash", "--seconds", "1", "--data", spec]) == 0
    assert "3 of them were decoded, a random sample: --seconds allows more" in capsys.readouterr().out


def test_only_what_a_job_of_a_limit_evaluates_is_looked_at(root: Path) -> None:
    data = image_folder(root, "test", folder="pets", splits="all")
    assert [look_at(data, 600, limit).decoded for limit in (5, 12, 100, None)] == [5, 12, 12, 12]
    found = [len(look_at(data, 600, limit).unreadable) for limit in range(1, 13)]
    assert found == sorted(found)
    assert (found[0], found[-1]) == (0, 2)


def test_the_command_says_it_in_words_and_in_json(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = json.dumps({"name": "image_folder", "params": {"folder": "pets", "splits": "all"}})
    arguments = ["--data-root", str(root), "--no-hash", "--seconds", "600", "--data", spec, "--split", "test"]
    assert main(arguments) == 1
    text = capsys.readouterr().out
    assert "image_folder  folder pets  3 classes\n  test        12 examples\n    2 cannot be read:\n" in text
    assert "    classes without an example: fox\n" in text
    assert "    ignored beside the images (2): __MACOSX/, cat/Thumbs.db\n" in text
    assert main([*arguments, "--json"]) == 1
    (found,) = json.loads(capsys.readouterr().out)["sets"]
    assert len(found["splits"][0]["look"]["unreadable"]) == 2
    assert main([*arguments[:4], "0", "--data", spec]) == 0
    assert "cannot be read" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("data", "message"),
    [('{"name": "image_foldr"}', "image_foldr"), ('{"name"', "is no JSON"), ("image_folder", "folder")],
)
def test_a_wrong_data_set_is_refused(data: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--data", data])
    assert message in f"{caught.value} {capsys.readouterr().err}"
    assert caught.value.code != 0


def test_a_flat_folder_with_a_file_of_labels_is_recognised(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(4):
        image(tmp_path / "flat" / f"{number}.png")
    (tmp_path / "flat" / "a.csv").write_text("x,y\n1,2\n")
    (tmp_path / "flat" / "labels.csv").write_text("name,label\n0,a\n1,a\n2,b\n3,b\n")
    assert main(["--data-root", str(tmp_path), "--no-hash", "--seconds", "0"]) == 0
    assert "image_folder  folder flat  2 classes\n  train        2 examples" in capsys.readouterr().out


@pytest.mark.costly
@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ("name;label\n0.png;a\n", "labels.csv is separated by ;, a .csv file is by ,: save it with ,"),
        ("Image;Class\n0.png;a\n", "line 1 is 'Image;Class', wanted are name (or file_name, "),
        ("Image;Class\n0.png;a\n", "Did you mean 'image' for 'Image', 'label' for 'Class'?"),
        ("\nfile_nam,species\n0,a\n", "labels.csv line 2 has the columns 'file_nam', 'species'; wanted are"),
        ("\nfile_nam,species\n0,a\n", "'file_name' for 'file_nam', 'label' for 'species'?"),
        ("0.png,a\n1.png,b\n", "line 1 has the columns '0.png', 'a'; wanted are name (or "),
        ("0.png,a\n1.png,b\n", "That is an image, not the names of columns: put a line with them before"),
    ],
)
@pytest.mark.parametrize("name", ["labels.csv", "list.csv"])
def test_a_wrong_file_of_labels_is_told_from_a_table_of_texts(
    tmp_path: Path, labels: str, message: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(2):
        image(tmp_path / "flat" / f"{number}.png")
    (tmp_path / "flat" / name).write_text(labels)
    assert main(["--data-root", str(tmp_path), "--no-hash", "--seconds", "0"]) == 1
    text = capsys.readouterr().out
    assert "image_folder  folder flat\n  train not available: " in text
    assert message.replace("labels.csv", name) in text


def test_a_table_of_texts_beside_a_picture_is_no_file_of_labels(tmp_path: Path) -> None:
    image(tmp_path / "texts" / "figure.png")
    (tmp_path / "texts" / "test.csv").write_text("text,label\nfigure,1\nb,0\n")
    assert find_labels(tmp_path / "texts") is None
    (tmp_path / "texts" / "test.csv").write_text("text;label\nb;0\n")
    assert find_labels(tmp_path / "texts") is None


def test_a_number_to_predict_is_no_class() -> None:
    assert look_at(pulses(None, "test"), 0).empty_classes == []


def test_texts_without_words_and_in_quotes_are_noted(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "test.tsv").write_text('text\tlabel\n"a"\t1\n \t0\nb\t1\n')
    found = look_at(text_table(tmp_path, "test", folder="d"), 600)
    assert (found.decoded, found.unreadable) == (3, [])
    assert found.notes[0] == "1 of 3 texts have no word"
    assert found.notes[1].startswith("1 of 3 texts begin and end with a double quote")
