from __future__ import annotations

from pathlib import Path

import pytest

from assay.service.catalog.catalog import load
from assay.service.contract.errors import InvalidSpec
from assay.service.submission.data_folders import check_file_name, check_folder
from assay.service.submission.validate import validate


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "imagenet" / "val").mkdir(parents=True)
    (root / "imagenet-a").mkdir()
    (root / "file.txt").write_text("")
    (tmp_path / "secret").mkdir()
    (root / "out").symlink_to(tmp_path / "secret")
    (root / "inside").symlink_to(root / "imagenet")
    (root / "loop").symlink_to(root / "loop")
    return root


@pytest.mark.parametrize("name", ["imagenet", "imagenet/val", "imagenet/", "inside", "inside/val"])
def test_folders_under_the_root_are_accepted(root: Path, name: str) -> None:
    assert check_folder(name, root) is None


@pytest.mark.parametrize(
    "name",
    [
        *[
            "",
            "/etc",
            "~/x",
            "C:/x",
            "..",
            "../secret",
            "imagenet/../../secret",
            "a//b",
            "./imagenet",
            "a/./b",
        ],
        *["a\\b", "a\0b", "a\nb", "x" * 2000],
    ],
)
def test_bad_names_are_refused_with_and_without_a_root(root: Path, name: str) -> None:
    assert check_folder(name, root) is not None
    assert check_folder(name, None) is not None
    assert check_folder(name, root, must_exist=False) is not None


def test_an_absolute_path_is_refused_with_the_remedy(root: Path) -> None:
    for name in ("/srv/birds", "~/birds", "C:/birds", str(root / "imagenet")):
        problem = check_folder(name, root)
        assert problem is not None
        assert "set ASSAY_DATA_ROOT (or --data-root of `assay serve`)" in problem.message
        assert str(root) not in problem.message  # others may not learn where it is


@pytest.mark.parametrize("name", ["out", "out/deeper"])
def test_a_symbolic_link_must_not_lead_out(root: Path, name: str) -> None:
    problem = check_folder(name, root, must_exist=False)
    assert problem is not None
    assert "symbolic link" in problem.message


def test_a_missing_root_is_a_problem_where_the_workers_have_no_other(tmp_path: Path) -> None:
    body = {
        "kind": "evaluate",
        "model": {"name": "vit"},
        "data": {"name": "image_folder", "params": {"folder": "mine"}},
        "evaluations": [{"name": "clean"}],
    }
    for root, said in ((None, "is not set"), (tmp_path / "nowhere", "names no folder")):
        validate(load(), body, data_root=root)
        with pytest.raises(InvalidSpec) as caught:
            validate(load(), body, data_root=root, has_package=lambda name: True)
        (detail,) = caught.value.details
        assert detail.loc == ["data", "params", "folder"]
        assert f"ASSAY_DATA_ROOT {said}" in detail.message
        assert (detail.given, str(tmp_path) in detail.message) == ("mine", False)


def test_a_missing_folder_names_the_nearest(root: Path) -> None:
    problem = check_folder("imagenet_a", root)
    assert problem is not None
    assert problem.message == "there is no folder 'imagenet_a' under the data root"
    assert problem.nearest == "imagenet-a"
    assert isinstance(problem.allowed, list)
    assert "imagenet" in problem.allowed
    assert check_folder("imagenet_a", root, must_exist=False) is None
    assert check_folder("imagenet_a", None) is None
    assert check_folder("imagenet_a", root / "not mounted here") is None


def test_below_a_missing_folder_the_existing_ones_are_named(root: Path) -> None:
    problem = check_folder("imagenett/val", root)
    assert problem is not None
    assert problem.nearest == "imagenet"
    nested = check_folder("imagenet/vall", root)
    assert nested is not None
    assert nested.nearest == "imagenet/val"


def test_files_loops_and_endless_names_are_problems_not_errors(root: Path) -> None:
    for name in ("file.txt", "loop", "loop/x", "x" * 300):
        assert check_folder(name, root) is not None, name


def test_what_lies_outside_is_never_listed(root: Path) -> None:
    for name in ("out/x", "out", "imagenet/x"):
        problem = check_folder(name, root)
        assert problem is not None
        assert "secret" not in str(problem)


@pytest.mark.parametrize("name", ["JapaneseVowels", "PEMS-SF", "a_1"])
def test_a_single_name_is_accepted(name: str) -> None:
    assert check_file_name(name) is None


@pytest.mark.parametrize("name", ["../x", "..", "/x", "a/b", "x.y", "", "a\\b", "-x", "x" * 2000])
def test_what_is_no_single_name_is_refused(name: str) -> None:
    assert check_file_name(name) is not None


@pytest.mark.parametrize(("data", "model"), [("uea", "series_transformer"), ("tser", "series_regressor")])
def test_a_data_set_that_leads_out_of_its_folder_is_refused_at_submission(data: str, model: str) -> None:
    body = {
        "kind": "evaluate",
        "model": {"name": model},
        "data": {"name": data, "params": {"dataset": "../x"}},
        "evaluations": [{"name": "top1" if data == "uea" else "rmse"}],
    }
    with pytest.raises(InvalidSpec) as caught:
        validate(load(), body)
    (detail,) = caught.value.details
    assert detail.loc == ["data", "params", "dataset"]
    assert detail.message == 'must not contain "..", "." or empty parts'
    assert detail.given == "../x"
    assert detail.allowed is not None


REPOSITORY = ("repository", "revision")


def test_every_text_that_becomes_a_path_says_so() -> None:
    """A text parameter of data or an evaluation is a choice, a folder, the name of a file, or a job's id."""
    free = [
        f"{entry.name}.{name}"
        for kind in ("data", "evaluation", "attack", "recipe", "model")
        for entry in load().list(kind)
        for name, part in entry.parameters["properties"].items()
        for branch in part.get("anyOf", [part])
        if branch.get("type") == "string" and not {"enum", "folder", "file_name", "job"} & {*branch}
    ]
    # Names of columns, looked up in a file's header, and of parts and files, looked up in a folder.
    tables = {"text", "label", "image", "evaluated", "separator", "class_names_file"}
    free.remove("image_folder.class_names_file")
    free = [
        one for one in free if not (one.partition("_table.")[1] and one.partition("_table.")[2] in tables)
    ]
    # Words for the model to say, and parts of a reference to pulled weights, which limits their characters.
    pulled = [
        f"{one.name}.{name}" for one in load().list("model") if one.pulled == "hf" for name in REPOSITORY
    ]
    assert sorted(free) == sorted(["forced_continuation.target", *pulled, "timm.tag", "torchvision.tag"])
