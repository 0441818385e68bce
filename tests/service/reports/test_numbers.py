from __future__ import annotations

from typing import Any

import pytest

from assay.service.catalog.catalog import load
from assay.service.contract.results import Metric, Unit
from assay.service.reports import numbers


def test_control_characters_are_shown_not_sent() -> None:
    assert numbers.printable("a\x1b[31m\r\nb\u202e\u00e9") == "a\\x1b[31m\\r\\nb\\u202e\u00e9"


@pytest.mark.parametrize(
    ("unit", "value", "text"),
    [
        ("proportion", 0.81389, "81.4 %"),
        ("number", 12.3456, "12.35"),
        ("proportion", None, "-"),
        ("ratio", 0.7475, "74.8 %"),
        (None, 0.7475, "0.7475"),
        ("count", 28460.0, "28460"),
        ("count", 5_272_744.0, "5272744"),
        ("count", 12.3456, "12.35"),
        ("count", 12345.6, "12346"),
        ("bytes", 1.5e9, "1500000000"),
    ],
)
def test_proportions_and_ratios_are_percent(unit: Unit | None, value: float | None, text: str) -> None:
    assert numbers.number(value, unit) == text


def test_an_exact_count_has_no_interval_and_a_mean_of_counts_has_one() -> None:
    ends: dict[str, Any] = {"ci_low": 28460.0, "ci_high": 28460.0, "higher_is_better": False, "unit": "count"}
    exact = Metric(value=28460.0, n=1, ci_method="exact", **ends)
    assert numbers.metric_cells(exact) == ("28460", "-", "1")
    mean = Metric(value=28460.0, n=7, ci_method="bootstrap", **ends)
    assert numbers.metric_cells(mean) == ("28460", "[28460, 28460]", "7")


def test_differences_have_a_sign() -> None:
    assert numbers.number(0.02, "proportion", sign=True) == "+2.0 points"
    assert numbers.number(-0.02, "proportion", sign=True) == "-2.0 points"


def test_halves_are_rounded_away_from_zero_as_in_plots() -> None:
    shown = [numbers.number(value, "proportion") for value in (69 / 80, 77 / 80, 0.0005, 0.00049)]
    assert shown == ["86.3 %", "96.3 %", "0.1 %", "0.0 %"]
    assert numbers.number(-69 / 80, "proportion", sign=True) == "-86.3 points"
    assert numbers.tenths(float("nan")) == "NaN"


def test_a_strength_is_told_at_its_default_too() -> None:
    assert numbers.chosen_params("gaussian_noise", {"sigma": 0.1, "draws": 1}) == {"sigma": 0.1}
    assert numbers.chosen_params("fmn", {"norm": "Linf", "steps": 100}) == {"norm": "Linf"}
    shown, shared = numbers.split_params([("word_swap", {"rate": 0.05, "window": "blocks"})])
    assert (shown, shared) == (["rate=0.05"], ["word_swap: window=blocks"])


def test_rows_show_what_tells_them_apart() -> None:
    common = {"norm": "Linf", "step_size": None}
    shown, shared = numbers.split_params(
        [
            ("clean", {"data": "digits"}),
            ("pgd", {"epsilon": "2/255", "steps": 20, **common}),
            ("pgd", {"epsilon": "4/255", "steps": 40, **common}),
            ("fgsm", {"epsilon": "4/255", "targeted": False}),
            ("noise", {"norm": "L2"}),
            ("noise", {"draws": 1}),
        ]
    )
    apart = ["", "epsilon=2/255 steps=20", "epsilon=4/255 steps=40", "epsilon=4/255", "norm=L2", "draws=1"]
    assert shown == apart
    assert shared == ["clean: data=digits", "pgd: norm=Linf", "fgsm: targeted=false"]
    versions = [
        ("autoattack", {"epsilon": "8/255", "version": "custom", "stages": ["apgd_ce"]}),
        ("clean", {"version": "x"}),
    ]
    apart, shared = numbers.split_params(versions)
    assert apart == ["epsilon=8/255 version=custom", "version=x"], "no namesake of standard AutoAttack"
    assert shared == ["autoattack: stages=(apgd_ce)"]
    versions[0][1].update(version="standard", stages=None)
    assert numbers.split_params(versions)[0][0] == "epsilon=8/255"


def test_a_radius_of_whole_steps_of_pixels_is_their_fraction() -> None:
    assert (
        numbers.params_text({"epsilon": 1 / 255, "step_size": 1 / 255})
        == f"epsilon=1/255 step_size={1 / 255}"
    )
    assert numbers.params_text({"epsilon": 0.03}) == "epsilon=0.03"
    assert numbers.params_text({"epsilon": "0.5/255"}) == "epsilon=0.5/255"
    assert numbers.params_text({"epsilon": 1.0}) == "epsilon=1.0"
    assert numbers.params_text({"epsilon": None}) == "epsilon=null"


def test_parameters_at_their_defaults_are_left_out_but_the_radius() -> None:
    given = {"epsilon": "1/255", "steps": 20, "restarts": 3, "loss": None, "of_old": 1}
    assert numbers.chosen_params("pgd", given) == {"epsilon": "1/255", "restarts": 3, "of_old": 1}
    assert numbers.chosen_params("of_an_earlier_version", {"steps": 20}) == {"steps": 20}


def test_a_default_is_told_beside_a_namesake_that_has_another_value() -> None:
    given = [
        ("pgd", {"epsilon": "1/255", "steps": 20}),
        ("pgd", {"epsilon": "1/255", "steps": 50, "loss": None}),
    ]
    assert numbers.telling_params([*given, ("fgsm", {"epsilon": "1/255"})]) == [
        {"epsilon": "1/255", "steps": 20},
        {"epsilon": "1/255", "steps": 50},
        {"epsilon": "1/255"},
    ]


def test_a_label_begins_with_its_folder() -> None:
    label = (
        "image_folder(channels=1, class_names=['b', 'a'], class_names_file=None, folder=photos, splits=all)"
    )
    found = "image_folder(folder=photos, channels=1, class_names=(b, a), splits=all)"
    assert numbers.label_title(label) == found
    assert numbers.label_title("digits") == "digits"
    assert numbers.label_title("image_folder(labels=None)") == "image_folder"
    fields = load().find("data", "image_folder").parameters["properties"]
    every = ", ".join(f"{key}={part['default']}" for key, part in sorted(fields.items()) if "default" in part)
    assert numbers.label_title(f"image_folder({every}, channels=1)") == "image_folder(channels=1)"
