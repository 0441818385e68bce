"""Labelled texts from tables: layouts, columns, classes, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import datasets
import pytest

from assay.workers.data.formats.dataset import CorruptData, MissingData
from assay.workers.data.formats.text import Sentences
from assay.workers.data.text_table import text_table
from tests.support.tables import write_table

ROWS = [
    {"text": "a good film", "label": 1},
    {"text": "a bad film .", "label": 0},
    {"text": "good , good", "label": 1},
]


def law_case(root: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> Callable[[str], Sentences]:
    """For tests/laws: three texts in each part, with one word or one label changed."""
    del monkeypatch
    first = {"text": "a great film" if change == "word" else "a good film", "label": int(change != "label")}
    for part in ("train", "test"):
        write_table(root / "films" / f"{part}.jsonl", [first, *ROWS[1:], {"text": "it is", "label": 0}])
    return lambda split: text_table(
        root, "train" if split == "train" else "test", folder="films", least_count=1
    )


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet"])
def test_texts_are_read_as_they_are_from_every_format(suffix: str, tmp_path: Path) -> None:
    texts = ['Two  spaces, a "quote"\tand\na line', "Ünïcode ☃", "x"]
    if suffix == "tsv":
        texts[0] = texts[0].replace("\t", " ")
    rows = [{"text": text, "label": number % 2} for number, text in enumerate(texts)]
    write_table(tmp_path / "d" / f"test.{suffix}", rows)
    write_table(tmp_path / "d" / f"train.{suffix}", rows)
    data = text_table(tmp_path, "test", folder="d", quoting="double")
    assert list(data.sentences) == texts
    assert data.labels.tolist() == [0, 1, 0]
    assert data.class_names == ("0", "1")
    assert list(data.ids) == ["test/0000000", "test/0000001", "test/0000002"]


def test_folders_that_datasets_has_saved_have_their_class_names(tmp_path: Path) -> None:
    features = datasets.Features(
        {"sentence": datasets.Value("string"), "stars": datasets.ClassLabel(names=["bad", "good"])}
    )
    columns = {"sentence": [row["text"] for row in ROWS], "stars": [row["label"] for row in ROWS]}
    one = datasets.Dataset.from_dict(columns, features=features)
    datasets.DatasetDict({"train": one, "validation": one.select([2, 0])}).save_to_disk(tmp_path / "d")
    data = text_table(tmp_path, "test", folder="d", text="sentence", label="stars")
    assert data.class_names == ("bad", "good")
    assert (list(data.sentences), data.labels.tolist()) == ([ROWS[2]["text"], ROWS[0]["text"]], [1, 1])
    assert len(text_table(tmp_path, "train", folder="d", text="sentence", label="stars")) == 3
    one.save_to_disk(tmp_path / "one")
    whole = text_table(tmp_path, "test", folder="one", text="sentence", label="stars", splits="all")
    assert list(whole.ids) == ["row/0000000", "row/0000001", "row/0000002"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("dataset_info.json", '{"features": {"label": {"names": ["bad", "good"], "_type": "ClassLabel"}}}'),
        ("class_names.txt", "bad\ngood\n"),
    ],
)
def test_class_names_beside_the_tables_name_the_numbers(tmp_path: Path, name: str, content: str) -> None:
    for part in ("train", "test"):
        write_table(tmp_path / "d" / f"{part}.csv", ROWS)
    (tmp_path / "d" / name).write_text(content)
    data = text_table(tmp_path, "test", folder="d")
    assert (data.class_names, data.labels.tolist()) == (("bad", "good"), [1, 0, 1])
    stated = text_table(tmp_path, "test", folder="d", class_names=["no", "yes"])
    assert stated.class_names == ("no", "yes")


def test_a_list_of_class_names_is_not_read_through_a_link_or_with_a_name_twice(tmp_path: Path) -> None:
    root = tmp_path / "root"
    write_table(root / "d" / "test.csv", ROWS)
    (tmp_path / "secret").write_text("bad\ngood\n")
    (root / "d" / "class_names.txt").symlink_to(tmp_path / "secret")
    with pytest.raises(ValueError, match="leads out of"):
        text_table(root, "test", folder="d")
    (root / "d" / "class_names.txt").unlink()
    (root / "d" / "class_names.txt").write_text("bad\nbad\n")
    with pytest.raises(CorruptData, match="has a class twice"):
        text_table(root, "test", folder="d")


def test_shards_of_the_hub_are_one_part_and_a_table_without_parts_is_divided(tmp_path: Path) -> None:
    for number in range(2):
        write_table(
            tmp_path / "hub" / "data" / f"test-0000{number}-of-00002.parquet", ROWS, classes=["no", "yes"]
        )
    data = text_table(tmp_path, "test", folder="hub")
    assert (len(data), data.class_names) == (6, ("no", "yes"))
    write_table(
        tmp_path / "mine" / "reviews.csv",
        [row | {"text": f"{row['text']} {n}"} for n in range(10) for row in ROWS],
    )
    train, test = (text_table(tmp_path, split, folder="mine") for split in ("train", "test"))
    assert (len(train), len(test)) == (24, 6)
    assert not set(train.ids) & set(test.ids)


def test_names_of_classes_come_from_all_parts_or_are_stated(tmp_path: Path) -> None:
    write_table(
        tmp_path / "d" / "train.csv", [{"text": "a", "label": name} for name in ("cat", "dog", "ape")]
    )
    write_table(tmp_path / "d" / "test.csv", [{"text": "b", "label": "dog"}])
    data = text_table(tmp_path, "test", folder="d")
    assert (data.class_names, data.labels.tolist()) == (("ape", "cat", "dog"), [2])
    stated = text_table(tmp_path, "test", folder="d", class_names=["dog", "ape", "cat"])
    assert stated.labels.tolist() == [0]
    with pytest.raises(
        CorruptData,
        match=r"test\.csv row 0 \(the first is 0\): column 'label' is 'dog', none of the 2 classes",
    ):
        text_table(tmp_path, "test", folder="d", class_names=["ape", "cat"])


def test_the_rarest_classes_are_known_by_their_rows(tmp_path: Path) -> None:
    for part, names in (("train", ["sad", "happy", "happy"]), ("test", ["happy", "hapy", "sad", "7"])):
        write_table(tmp_path / "d" / f"{part}.csv", [{"text": "a", "label": name} for name in names])
    data = text_table(tmp_path, "test", folder="d")
    assert data.rarest_classes is not None
    where = tmp_path / "d" / "test.csv"
    assert data.rarest_classes(3) == [
        f"'7' has 1 row: {where} row 3 (the first is 0)",
        f"'hapy' has 1 row: {where} row 1 (the first is 0)",
        f"'sad' has 2 rows, the first: {where} row 2 (the first is 0)",
    ]
    stated = text_table(tmp_path, "test", folder="d", class_names=["sad", "happy", "hapy", "7"])
    assert stated.rarest_classes is None


def test_what_is_wrong_is_named(tmp_path: Path) -> None:
    rows = [{"txt": "a", "label": 0}, {"txt": "b", "label": -1}]
    write_table(tmp_path / "d" / "test.jsonl", rows)
    with pytest.raises(
        CorruptData, match=r"test\.jsonl has no column 'text', only 'txt', 'label'.*mean 'txt'"
    ):
        text_table(tmp_path, "test", folder="d")
    with pytest.raises(CorruptData, match=r"parameter text names another: \"text\": \"txt\"$"):
        text_table(tmp_path, "test", folder="d")
    with pytest.raises(CorruptData, match=r"parameter label names another: \"label\": \"label\"$"):
        text_table(tmp_path, "test", folder="d", text="txt", label="mood")
    stated = {"text": "txt", "class_names": ["n", "y"]}
    with pytest.raises(
        CorruptData,
        match=r"test\.jsonl row 1 \(the first is 0\): column 'label' is -1.*no label: evaluate another",
    ):
        text_table(tmp_path, "test", folder="d", **stated)  # type: ignore[arg-type]
    with pytest.raises(MissingData, match=r"The part 'dev' is wanted, and .* has 'test'"):
        text_table(tmp_path, "test", folder="d", evaluated="dev")
    (tmp_path / "d" / "test.jsonl").write_text('{"txt": "a", "label": 0}\n{"txt": \n')
    with pytest.raises(CorruptData, match=r"test\.jsonl line 2 is no JSON"):
        text_table(tmp_path, "test", folder="d", **stated)  # type: ignore[arg-type]
    write_table(tmp_path / "e" / "test.parquet", [{"text": "a", "label": 0.5}])
    with pytest.raises(CorruptData, match=r"test\.parquet: column 'label' is double, whole numbers or texts"):
        text_table(tmp_path, "test", folder="e")
    (tmp_path / "e" / "test.parquet").write_bytes(b"PAR1 nonsense")
    with pytest.raises(CorruptData, match=r"test\.parquet cannot be read"):
        text_table(tmp_path, "test", folder="e")
    (tmp_path / "empty").mkdir()
    with pytest.raises(MissingData, match=r"No table in .*empty\. Wanted are files such as train\.csv"):
        text_table(tmp_path, "test", folder="empty")


def test_no_file_outside_the_data_root_is_read(tmp_path: Path) -> None:
    write_table(tmp_path / "secret" / "test.csv", ROWS)
    (tmp_path / "root" / "d").mkdir(parents=True)
    (tmp_path / "root" / "d" / "test.csv").symlink_to(tmp_path / "secret" / "test.csv")
    with pytest.raises(ValueError, match="leads out of the data root"):
        text_table(tmp_path / "root", "test", folder="d")
    saved = tmp_path / "root" / "saved"
    saved.mkdir()
    (saved / "state.json").write_text('{"_data_files": [{"filename": "../../secret/test.csv"}]}')
    with pytest.raises(CorruptData, match=r"state\.json lists no files of data"):
        text_table(tmp_path / "root", "test", folder="saved")
