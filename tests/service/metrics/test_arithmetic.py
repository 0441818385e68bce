"""The arithmetic of a job, by its spec and its provenance."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from assay.service.metrics.arithmetic import arithmetic_settings, device_facts, prepared_passes

WITH, WITHOUT = {"tf32": True}, {"tf32": False}


@pytest.mark.parametrize(
    ("execution", "device", "expected"),
    [
        ({"dtype": "float32"}, WITHOUT, {"dtype": "float32"}),
        ({"dtype": "tf32"}, WITH, {"dtype": "tf32"}),
        ({"dtype": "tf32"}, WITHOUT, {"dtype": "float32"}),
        ({"dtype": "tf32"}, {**WITHOUT, "mixed": [WITHOUT, WITH]}, {"dtype": "tf32"}),
        ({"dtype": "tf32"}, {}, {"dtype": "tf32"}),
        ({"dtype": "bfloat16", "screening": None}, WITHOUT, {"dtype": "bfloat16"}),
        (
            {"dtype": "float32", "screening": "bfloat16", "channels_last": True, "capture": True},
            WITHOUT,
            {"dtype": "float32", "screening": "bfloat16", "channels_last": "true"},
        ),
    ],
)
def test_settings_that_change_numbers(
    execution: Any, device: dict[str, Any], expected: dict[str, str]
) -> None:
    assert arithmetic_settings(execution, {"device": device} if device else {}, rows("screened")) == expected


def rows(code: str) -> Any:
    return [SimpleNamespace(warnings=[]), SimpleNamespace(warnings=[SimpleNamespace(code=code)])]


def test_a_screening_that_no_attack_ran_in_is_left_out() -> None:
    execution: Any = {"dtype": "float32", "screening": "bfloat16"}
    assert arithmetic_settings(execution, {}, rows("subset")) == {"dtype": "float32"}
    assert arithmetic_settings(execution, {}, []) == {"dtype": "float32"}


def test_compiled_passes_are_an_arithmetic_where_some_ran() -> None:
    ran, none = ({"compiled": {"passes": count, "compilers": ["gcc 12"] * count}} for count in (1, 0))
    execution: Any = {"dtype": "float32", "compile": "on"}
    assert arithmetic_settings(execution, {"device": ran}, []) == {"dtype": "float32", "compile": "gcc 12"}
    assert arithmetic_settings(execution, {"device": none}, []) == {"dtype": "float32"}


SERVED: Any = {
    "captured": {"replays": 5, "refused": None},
    "compiled": {"passes": 7, "compiler": "gcc 12", "refused": None},
}
REFUSED: Any = {
    "captured": {"replays": 0, "refused": "a wait"},
    "compiled": {"passes": 2, "compiler": "gcc 12", "refused": "no memory"},
}
TRIAL: Any = {"chosen": True, "seconds": 31.66, "ratio": 0.8, "refused": None}


def test_what_ran_prepared_is_told_where_it_was_asked_for() -> None:
    asked: Any = {"dtype": "float32", "capture": True, "compile": "auto"}
    found = prepared_passes(asked, TRIAL, [SERVED, {}, REFUSED])
    assert found == {
        "captured": {"replays": 5, "shards": 1, "of": 3, "refused": ["a wait"]},
        "compiled": {
            "passes": 9,
            "compilers": ["gcc 12"],
            "shards": 2,
            "of": 3,
            "refused": ["no memory"],
            "trial": TRIAL,
        },
    }
    assert prepared_passes({"device": "cpu", "dtype": "float32", "batch_size": 1}, None, [SERVED]) == {}
    none = prepared_passes({**asked, "compile": "on"}, None, [{}])
    assert none == {
        "captured": {"replays": 0, "shards": 0, "of": 1},
        "compiled": {"passes": 0, "compilers": [], "shards": 0, "of": 1},
    }
    device, texts = device_facts({"type": "cpu", **found})
    assert device == {"type": "cpu"}
    assert texts["captured passes"] == "5 replays in 1 of 3 shards of attacks; refused: a wait"
    assert texts["compiled passes"] == (
        "9 passes by gcc 12 in 2 of 3 shards of attacks; refused: no memory; chosen by the plan's trial: a"
        " compiled pass took 0.80 of the time of the model's own, compiling 31.7 s"
    )


@pytest.mark.parametrize(
    ("trial", "words"),
    [
        (
            {"chosen": False, "seconds": 5.0, "ratio": 1.2, "refused": None},
            "; not chosen by the plan's trial",
        ),
        (
            {"chosen": False, "seconds": None, "ratio": None, "refused": "no compiler"},
            "not chosen by the plan, without a finished trial: no compiler",
        ),
        (
            {"chosen": False, "seconds": None, "ratio": None, "refused": None},
            "not chosen by the plan, without a finished trial: the attacks are too short for it to pay",
        ),
    ],
)
def test_what_the_trial_found_is_told(trial: Any, words: str) -> None:
    found = prepared_passes(
        {"device": "cpu", "dtype": "float32", "batch_size": 1, "compile": "auto"}, trial, [{}]
    )
    assert words in device_facts(found)[1]["compiled passes"]
