"""Suites at submission: left-out parts and their report; the committed catalog."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from assay.attacks.corruptions.imaging.imagenet_c import FIFTEEN
from assay.service.catalog.catalog import load
from assay.service.contract.corruption_cells import SEVERITIES
from assay.service.contract.errors import InvalidSpec
from assay.service.contract.problems import Problems
from assay.service.submission.suites import expand, left_out_warnings
from assay.service.submission.validate import validate

SMALL = {"name": "symvit", "params": {"image_size": 16, "patch_size": 4, "depth": 1, "width": 8, "heads": 2}}
PURSUIT = "pursuit_check"
PAPERS = "carlini_wagner confidence=0.03 shared_constant=True"
SETS = [
    "top1 on imagenet_r",
    "top1 on imagenet_a",
    "corruptions source=stored on imagenet_c",
    "aupr on imagenet_o",
]


def job(data: str, suite: str = "full", **changes: Any) -> dict[str, Any]:
    return {
        "kind": "evaluate",
        "model": SMALL,
        "data": {"name": data, "params": {"folder": "mine"} if "folder" in data else {}},
        "evaluations": [{"suite": suite}],
        **changes,
    }


def left_out(spec: dict[str, Any]) -> dict[str, str]:
    return {one["part"]: one["reason"] for one in spec.get("left_out", [])}


def test_full_leaves_out_what_digits_cannot_be_asked_and_says_so() -> None:
    valid = validate(load(), job("digits"))
    out = left_out(valid.spec)
    assert list(out) == [*SETS, PURSUIT, PAPERS]
    assert all("the model is made for the 10 of 'digits'" in out[part] for part in SETS)
    assert "protocol paper only" in out[PAPERS]
    names = [item["name"] for item in valid.spec["evaluations"]]
    assert {"clean", "top1", "corruptions", "efficiency", "projection_loss", "eigenvector_check"} < {*names}
    attacks = {component.name for component in load().list("attack")}
    assert {"uniform_noise", "fgsm", "pgd", "square", "spsa", "autoattack", "carlini_wagner"} < attacks & {
        *names
    }
    assert all(item["data"] is None for item in valid.spec["evaluations"])
    (warning,) = [warning for warning in valid.warnings if warning["code"] == "left_out"]
    assert warning["evidence"] == {"suite": "full", "parts": out}
    assert [one.model_dump() for one in left_out_warnings(valid.spec)] == [warning]


def test_a_spec_that_is_posted_again_keeps_what_was_left_out() -> None:
    first = validate(load(), job("digits")).spec
    assert validate(load(), first).spec == first
    plain = validate(load(), job("digits", "quick")).spec
    assert "left_out" not in plain


def test_under_paper_the_papers_attack_is_there() -> None:
    spec = validate(load(), job("digits", protocol="paper")).spec
    assert PAPERS not in left_out(spec)


def test_sets_of_their_own_are_kept_where_they_are_seen(tmp_path: Path) -> None:
    for name in ("imagenet", "imagenet-a", "imagenet-o", "imagenet-c", "mine"):
        (tmp_path / name).mkdir()
    for name in FIFTEEN:
        for severity in SEVERITIES:
            (tmp_path / "imagenet-c" / name / str(severity)).mkdir(parents=True)
    out = left_out(validate(load(), job("imagenet"), data_root=tmp_path).spec)
    assert list(out) == [SETS[0], SETS[2], PURSUIT, PAPERS]
    assert out[SETS[0]] == "there is no folder 'imagenet-r' under the data root"
    assert "1000 classes are missing in every corruption" in out[SETS[2]]
    unseen = left_out(validate(load(), job("imagenet")).spec)
    assert [unseen[part].partition(":")[0] for part in SETS] == ["the service does not see the data root"] * 4
    (tmp_path / "mine" / "out").symlink_to("/usr")  # which the worker refuses
    unknown = left_out(validate(load(), job("image_folder"), data_root=tmp_path).spec)
    assert "classes of the job's data are not known" in unknown[SETS[1]]


def test_analyses_are_left_out_where_the_model_does_not_let_them_look() -> None:
    model = {"name": "timm", "params": {"architecture": "vit_tiny_patch16_224"}}
    out = left_out(validate(load(), job("digits", model=model)).spec)
    assert "needs a softmax over all tokens" in out["projection_loss"]
    assert "needs a softmax over all tokens" in out["eigenvector_check"]


def test_full_looks_into_the_pursuit_of_rpc_attention_alone() -> None:
    rpc = {"name": "rpc_symvit", "params": SMALL["params"]}
    for model, has in ((SMALL, False), (rpc, True)):
        spec = validate(load(), job("digits", model=model)).spec
        assert (PURSUIT in {item["name"] for item in spec["evaluations"]}) is has
        assert (PURSUIT in left_out(spec)) is not has
    assert "needs RPC-Attention in some layer" in left_out(validate(load(), job("digits")).spec)[PURSUIT]


@pytest.mark.parametrize("suite", ["standard", "full"])
@pytest.mark.parametrize(
    ("classes", "stages"),
    [(2, "apgd_ce,fab_t,square"), (3, "apgd_ce,apgd_dlr,fab_t,square"), (4, None)],
)
def test_of_few_classes_autoattack_has_the_stages_that_fit(
    tmp_path: Path, suite: str, classes: int, stages: str | None
) -> None:
    for number in range(classes):
        (tmp_path / "mine" / f"c{number}").mkdir(parents=True)
        (tmp_path / "mine" / f"c{number}" / "a.png").touch()
    valid = validate(load(), job("image_folder", suite), data_root=tmp_path)
    of_ball = [one for one in valid.spec["evaluations"] if one["params"].get("epsilon") == "8/255"]
    (found,) = [one["params"] for one in of_ball if one["name"] == "autoattack"]
    part = "autoattack epsilon=8/255 norm=Linf version=standard"
    if stages is None:
        assert (found["version"], found["stages"]) == ("standard", None)
        assert part not in left_out(valid.spec)
        return
    assert (found["version"], found["stages"], found["epsilon"]) == ("custom", stages.split(","), "8/255")
    reason = left_out(valid.spec)[part]
    assert reason.startswith("version standard needs at least 4 classes")
    assert reason.endswith(
        f"; in its place: autoattack epsilon=8/255 norm=Linf version=custom stages={stages}"
    )
    assert "left_out" in [warning["code"] for warning in valid.warnings]


def test_where_no_replacement_fits_the_suite_is_refused() -> None:
    suite = load().find("suite", "standard")
    problems, tried = Problems(), []

    def refuse(item: Any, found: Problems, loc: Any) -> None:
        tried.append(item["params"].get("version"))
        found.add(loc, "does not fit")

    expand(suite, refuse, problems, ("evaluations", 0))
    assert tried[-3:] == ["standard", "custom", "custom"]
    assert len(problems.details) == len(suite.evaluations or [])


def test_the_warning_of_a_suite_has_its_own_parts_alone() -> None:
    out = {("full", "clean"): "one", ("robustbench", "clean"): "two", ("full", "pgd"): "three"}
    spec: Any = {"kind": "evaluate"}
    spec["left_out"] = [{"suite": suite, "part": part, "reason": why} for (suite, part), why in out.items()]
    assert {warning.evidence["suite"]: warning.evidence["parts"] for warning in left_out_warnings(spec)} == {
        "full": {"clean": "one", "pgd": "three"},
        "robustbench": {"clean": "two"},
    }


def test_nothing_left_and_wrong_parts_of_other_suites_are_refused() -> None:
    with pytest.raises(InvalidSpec) as caught:
        validate(load(), job("digits", "rpc_table1"))
    assert len(caught.value.details) > 1
    assert caught.value.details[0].message.startswith("the suite's evaluation [0].data.name: 'imagenet' has")
    only = next(entry for entry in load().list("suite") if entry.name == "full")
    assert only.leaves_out
    assert not load().find("suite", "standard").leaves_out
