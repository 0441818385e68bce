"""Data that needs a Python package: refused where the service can look, warned of where it cannot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from assay.service.catalog.catalog import load
from assay.service.contract.errors import InvalidSpec
from assay.service.submission.validate import validate

PLAY: dict[str, Any] = {
    "kind": "evaluate",
    "model": {"name": "decision_transformer"},
    "data": {"name": "classic_control"},
    "evaluations": [{"name": "returns"}],
}
DIGITS = {"model": {"name": "vit"}, "data": {"name": "digits"}, "evaluations": [{"name": "clean"}]}


def codes(body: dict[str, Any], **options: Any) -> list[str]:
    return [warning["code"] for warning in validate(load(), body, **options).warnings]


def test_a_missing_package_is_refused_by_a_service_that_has_its_workers_packages() -> None:
    asked: list[str] = []

    def missing(name: str) -> bool:
        asked.append(name)
        return False

    with pytest.raises(InvalidSpec) as caught:
        validate(load(), PLAY, has_package=missing)
    (detail,) = caught.value.details
    assert asked == ["gymnasium"]
    assert detail.loc == ["data", "name"]
    assert "needs the Python package gymnasium" in detail.message
    assert detail.allowed is not None
    assert validate(load(), {**PLAY, **DIGITS}, has_package=missing)


def test_a_package_that_is_there_is_no_matter() -> None:
    assert "package_not_checked" not in codes(PLAY, has_package=lambda name: True)


def test_a_service_that_cannot_look_says_so() -> None:
    (warning,) = [one for one in validate(load(), PLAY).warnings if one["code"] == "package_not_checked"]
    assert warning["evidence"] == {"data": "classic_control", "package": "gymnasium"}
    assert "package_not_checked" not in codes({**PLAY, **DIGITS})


def test_a_policy_is_not_screened() -> None:
    with pytest.raises(InvalidSpec) as caught:
        validate(load(), {**PLAY, "execution": {"screening": "bfloat16"}})
    (detail,) = caught.value.details
    assert detail.loc == ["execution", "screening"]
    assert "'returns' is computed in float64" in detail.message


@pytest.mark.parametrize(("dtype", "told"), [("float32", False), ("float64", False), ("bfloat16", True)])
def test_a_dtype_without_effect_is_told(dtype: str, told: bool) -> None:
    found = validate(load(), {**PLAY, "execution": {"dtype": dtype}}).warnings
    warnings = [one["evidence"] for one in found if one["code"] == "other_dtype"]
    evidence = {"evaluation": "returns", "dtype": dtype, "computed_in": "float64"}
    assert warnings == ([evidence] if told else [])


ATTACKED: dict[str, Any] = {
    **PLAY,
    **DIGITS,
    "evaluations": [{"name": "pgd", "params": {"backend": "cleverhans"}}, {"name": "pgd"}],
}
FROSTED: dict[str, Any] = {**PLAY, **DIGITS, "evaluations": [{"name": "corruptions"}]}


def test_a_missing_reference_library_is_refused_with_the_command() -> None:
    with pytest.raises(InvalidSpec) as caught:
        validate(load(), ATTACKED, has_package=lambda name: name != "cleverhans")
    (detail,) = caught.value.details
    assert detail.loc == ["evaluations", 0, "params", "backend"]
    assert detail.allowed == "native, or this one after pip install 'assay-robustness[reference]'"
    assert validate(load(), ATTACKED, has_package=lambda name: True)


def test_a_service_that_cannot_look_for_a_library_says_so() -> None:
    (warning,) = [one for one in validate(load(), ATTACKED).warnings if one["code"] == "package_not_checked"]
    assert warning["evidence"] == {"evaluation": "pgd", "package": "cleverhans"}
    assert "pip install 'assay-robustness[reference]'" in warning["message"]


def test_frost_without_photographs_is_refused_and_with_a_folder_of_them_is_not(tmp_path: Path) -> None:
    def missing(name: str) -> bool:
        return name != "imagecorruptions"

    with pytest.raises(InvalidSpec) as caught:
        validate(load(), FROSTED, has_package=missing, data_root=tmp_path)
    (detail,) = caught.value.details
    assert detail.loc == ["evaluations", 0, "params"]
    assert "'frost-photographs' of the data root, or after pip install" in str(detail.allowed)
    fog = {**FROSTED, "evaluations": [{"name": "corruptions", "params": {"corruptions": ["fog"]}}]}
    assert validate(load(), fog, has_package=missing, data_root=tmp_path)
    (tmp_path / "frost-photographs").mkdir()
    assert validate(load(), FROSTED, has_package=missing, data_root=tmp_path)


def test_a_backend_of_another_environment_says_how_its_worker_starts() -> None:
    recipe = {"name": "pwws", "params": {"backend": "textattack"}}
    model = {"name": "text_classifier", "params": {"backbone": {"name": "lm"}}}
    body = {"kind": "evaluate", "model": model, "data": {"name": "sst"}, "evaluations": [recipe]}
    with pytest.raises(InvalidSpec) as caught:
        validate(load(), body, has_package=lambda name: name != "textattack")
    (detail,) = (one for one in caught.value.details if one.loc[-1] == "backend")
    assert detail.allowed == (
        "native, or this one after pip install 'assay-robustness[textattack]' in an environment of its own"
        " and `assay worker` there, or `docker compose --profile textattack up -d`"
    )
    assert "package_not_checked" in codes(body)
