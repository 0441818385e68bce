"""Values on pages, as people read them."""

from __future__ import annotations

from typing import Any

import pytest

from assay.service.catalog.catalog import load
from assay.service.contract.results import Warning
from assay.service.contract.warning_codes import SEVERITIES
from assay.service.dashboard.formats import (
    FILTERS,
    data_title,
    duration,
    first_of_each,
    model_title,
    parameters,
    short,
    size,
)


def test_warnings_beyond_three_of_a_code_are_apart() -> None:
    codes = ["not_common"] * 5 + ["different_seeds"]
    found = [Warning.model_validate({"code": code, "message": str(n)}) for n, code in enumerate(codes)]
    shown, others = first_of_each(found)
    assert [one.message for one in shown] == ["0", "1", "2", "5"]
    assert [one.message for one in others] == ["3", "4"]


def test_values_are_written_as_people_read_them() -> None:
    assert [duration(x) for x in (None, 1.25, 59.6, 3600, 3725)] == [
        "-",
        "1.2 s",
        "1 min 0 s",
        "1 h 0 min",
        "1 h 2 min",
    ]
    assert [size(x) for x in (0, 999, 1500, 2_500_000, 5 * 10**12)] == [
        "0 B",
        "999 B",
        "1.5 kB",
        "2.5 MB",
        "5000.0 GB",
    ]
    assert short("a\nb\x1b" + "c" * 100, 5) == "a b…"
    assert SEVERITIES[0] == "invalid"


def test_titles_tell_uploads_and_folders_apart() -> None:
    assert model_title({"name": "exported", "weights": {"checkpoint": "net"}}) == "exported net"
    assert model_title({"name": "vit", "weights": {"job": "01m8"}}) == model_title({"name": "vit"}) == "vit"
    assert model_title({"name": "vit", "weights": None}) == "vit"
    assert data_title({"name": "image_folder", "params": {"folder": "photos"}}) == "image_folder photos"
    assert data_title({"name": "digits", "params": {}}) == "digits"


def defaults(kind: str, name: str) -> dict[str, Any]:
    fields = load().find(kind, name).parameters["properties"]
    return {key: part["default"] for key, part in fields.items() if "default" in part}


@pytest.mark.parametrize(
    ("kind", "name"), [("model", "fan_vit"), ("data", "image_folder"), ("recipe", "small_vit")]
)
def test_parameters_are_words_without_defaults_and_never_json(kind: str, name: str) -> None:
    given = defaults(kind, name)
    assert parameters(given, kind, name) == ""
    other = given | {"attention": {"name": "rpc", "params": {"iterations": 2}}, "sizes": [1, 3]}
    told = parameters(other, kind, name)
    assert told == "attention=rpc(iterations=2) sizes=(1, 3)"


def test_a_long_text_is_cut_between_words() -> None:
    assert short("exif_orientation=False channels=3 folder=photos", 30) == "exif_orientation=False…"


def test_names_lose_their_middle_and_keep_their_ends() -> None:
    long = 'three arms: wide "quoted" arm with a rather long name, seed '
    names = [f"{long}{seed}{part}" for seed in (0, 1) for part in ("", ", training")]
    shown = [FILTERS["short_name"](name) for name in names]
    assert len({*shown}) == 4
    assert {len(name) for name in shown} == {60}
    assert [name[-24:] for name in shown] == [name[-24:] for name in names]
    assert FILTERS["short_name"]("an\x00arm", 30) == "an arm"
