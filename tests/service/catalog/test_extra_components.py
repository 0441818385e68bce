"""The file with components of other packages: what is read of it, and what is said of a broken file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assay.service.catalog.extra_components import BadPackageComponents, how_to_write, read, text

ENTRY: dict[str, Any] = {
    "name": "mifgsm",
    "package": {"name": "mypkg", "version": "1.2"},
    "summary": "é\u202e<b>",
}
REMEDY = "python -P -m assay.workers.catalog --out"


def written(folder: Path, content: object) -> Path:
    file = folder / "extra.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return file


def test_what_is_written_is_read_again_and_always_the_same(tmp_path: Path) -> None:
    reasons = {"b 2.0": "no module named x", "a 1.0": "é"}
    content = text([ENTRY], reasons)
    found = read(written(tmp_path, content))
    assert list(found.components) == [ENTRY]
    assert dict(found.left_out) == reasons
    assert content == text([ENTRY], dict(reversed(reasons.items()))), "in any order of the packages"
    assert content.endswith("}\n")
    assert "é" in content, "people read it"


def test_what_json_does_not_have_is_not_written() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        text([{**ENTRY, "facts": float("nan")}], {})


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "null",
        "[]",
        {},
        {"components": []},
        {"components": None, "left_out": {}},
        {"components": ["mifgsm"], "left_out": {}},
        {"components": [{"name": "mifgsm"}], "left_out": {}},
        {"components": [{"package": ENTRY["package"]}, {"package": None}], "left_out": {}},
        {"components": [], "left_out": []},
        {"components": [], "left_out": {"a 1.0": 3}},
    ],
)
def test_another_form_is_told_with_the_remedy(tmp_path: Path, content: object) -> None:
    file = written(tmp_path, content)
    with pytest.raises(BadPackageComponents) as told:
        read(file)
    assert str(told.value).startswith(f"{file} is no catalog of components (")
    assert str(told.value).endswith(how_to_write(file))
    assert f"{REMEDY} {file}," in str(told.value)


def test_entries_of_assay_itself_are_refused_by_name(tmp_path: Path) -> None:
    """Else a file could replace an attack of Assay's."""
    own = [{**ENTRY, "name": name, "package": None} for name in ("pgd", "fgsm")]
    with pytest.raises(BadPackageComponents, match=r"\['pgd', 'fgsm'\] are of no package"):
        read(written(tmp_path, {"components": [ENTRY, *own], "left_out": {}}))


def test_a_long_error_is_cut(tmp_path: Path) -> None:
    own = [{**ENTRY, "name": "q" * 10_000, "package": None}]
    with pytest.raises(BadPackageComponents) as told:
        read(written(tmp_path, {"components": own, "left_out": {}}))
    assert 0 < str(told.value).count("q") <= 200


def test_files_that_cannot_be_read_are_told_by_their_reason(tmp_path: Path) -> None:
    with pytest.raises(BadPackageComponents, match=f"cannot read {tmp_path}/absent: No such file"):
        read(tmp_path / "absent")
    with pytest.raises(BadPackageComponents, match=f"cannot read {tmp_path}: Is a directory"):
        read(tmp_path)
    file = tmp_path / "latin"
    file.write_bytes(b'{"components": [], "left_out": {"\xff": ""}}')
    with pytest.raises(BadPackageComponents, match="UnicodeDecodeError"):
        read(file)
