"""The suites have the rows that their tables and the checks across evaluations need."""

from __future__ import annotations

from typing import Any

import pytest

from assay.service.catalog.catalog import load
from assay.service.catalog.component import Component
from assay.service.contract.errors import InvalidSpec
from assay.service.contract.results import EvaluationResult, Metric
from assay.service.metrics.compare.sanity_checks import cross_checks
from assay.service.metrics.tables.spectral_error import TARGETS
from assay.service.submission.validate import validate
from assay.workers.published.imagenet import TABLES
from assay.workers.published.match import ADE20K, IMAGENET, MeasuredRow, references

DATA = {"name": "digits", "params": {}}


def expanded(suite: str, protocol: str = "pixel", model: str = "symvit_tiny") -> dict[str, Any]:
    """A job with the suite, with every default filled in."""
    body = {
        "kind": "evaluate",
        "protocol": protocol,
        "model": {"name": model},
        "data": {"name": "digits"},
        "evaluations": [{"suite": suite}],
    }
    return validate(load(), body).spec


@pytest.mark.parametrize(("suite", "tables"), [("rpc_table2", {"table 1", "table 2"})])
def test_every_row_of_the_papers_table_has_its_published_numbers(suite: str, tables: set[str]) -> None:
    spec = expanded(suite, "paper")
    folder = {"name": "image_folder", "params": {"resize": "bicubic", "crop_fraction": 0.875}}
    named = set()
    for item in spec["evaluations"]:
        properties = load().find_evaluation(item["name"]).parameters["properties"]
        found = references(
            MeasuredRow(
                spec["model"],
                folder,
                item,
                # An ensemble is run under `pixel`.
                protocol="pixel" if item["name"] == "autoattack" else "paper",
                known_as=IMAGENET,
                defaults={key: schema.get("default") for key, schema in properties.items()},
            )
        )
        assert [reference.metric for reference in found] == ["top1", "top5"], item
        named.add(item["name"])
    known = {attacked.name for table, attacked, _ in TABLES if table in tables and attacked.data == IMAGENET}
    assert named == known - {"top1"}  # which is clean by another name


def test_the_natural_shifts_have_their_published_numbers() -> None:
    body = {
        "kind": "evaluate",
        "model": {"name": "symvit_tiny"},
        "data": {"name": "imagenet"},
        "evaluations": [{"suite": "natural_shifts"}],
    }
    spec = validate(load(), body).spec
    found = [
        (reference.metric, reference.value)
        for item in spec["evaluations"]
        for reference in references(
            MeasuredRow(
                spec["model"],
                item["data"],
                item,
                protocol="pixel",
                known_as=item["data"]["name"],
                defaults=item["params"],
            )
        )
    ]
    assert found == [
        ("top1", 0.7044), ("top5", 0.9017), ("top1", 0.2898), ("top1", 0.0651), ("aupr", 0.1743)
    ]  # fmt: skip


def test_table_1_has_its_published_numbers() -> None:
    body = {
        "kind": "evaluate",
        "model": {"name": "rpc_symvit_tiny", "params": {"iterations": 4, "rpc_layers": "first"}},
        "data": {"name": "imagenet"},
        "evaluations": [{"suite": "rpc_table1"}],
    }
    spec = validate(load(), body).spec
    found = {
        item["data"]["name"]: {
            reference.metric: reference.value
            for reference in references(
                MeasuredRow(
                    spec["model"],
                    item["data"],
                    item,
                    protocol="pixel",
                    known_as=item["data"]["name"],
                    defaults=item["params"],
                )
            )
        }
        for item in spec["evaluations"]
    }
    corrupted = found.pop("imagenet_c")
    assert found == {
        "imagenet": {"top1": 0.7094, "top5": 0.9047},
        "imagenet_r": {"top1": 0.2999},
        "imagenet_a": {"top1": 0.0696},
        "imagenet_o": {"aupr": 0.1932},
    }
    assert (corrupted["corrupted_top1"], corrupted["mce"], corrupted["fog/top1"]) == (0.4235, 0.7358, 0.4603)
    assert len(corrupted) == 17


def test_full_has_every_attack_of_the_other_suites_once() -> None:
    rows = expanded("full", "paper")["evaluations"]
    attacks = [
        row for name in ("quick", "standard", "rpc_table2") for row in expanded(name, "paper")["evaluations"]
    ]
    assert all(row in rows for row in attacks)
    assert all(rows.count(row) == 1 for row in rows)


def test_segmenters_suite_has_the_published_numbers_of_its_table() -> None:
    segmenter = {"name": "segmenter", "params": {"backbone": {"name": "rpc_symvit_tiny", "params": {}}}}
    body = {
        "kind": "evaluate",
        "model": segmenter,
        "data": {"name": "ade20k"},
        "evaluations": [{"suite": "rpc_ade20k"}],
    }
    spec = validate(load(), body).spec
    found = [
        [
            (reference.metric, reference.value)
            for reference in references(
                MeasuredRow(
                    spec["model"],
                    spec["data"],
                    item,
                    protocol="pixel",
                    known_as=ADE20K,
                    defaults=item["params"],
                )
            )
        ]
        for item in spec["evaluations"]
    ]
    as_they_are = [("mean_accuracy", 0.4561), ("miou", 0.3469)]
    corrupted = [("corrupted_mean_accuracy", 0.1606), ("corrupted_miou", 0.1147)]
    assert found == [as_they_are, as_they_are + corrupted]
    with pytest.raises(
        InvalidSpec, match="is for segmentation, the model 'symvit_tiny' is for classification"
    ):
        expanded("rpc_ade20k")


def test_the_rows_of_the_fan_tables() -> None:
    rows = expanded("rpc_fan", "paper")["evaluations"]
    assert [row["name"] for row in rows] == ["clean", "pgd", "fgsm"]
    table2 = {row["name"]: row for row in expanded("rpc_table2", "paper")["evaluations"]}
    assert all(table2[row["name"]] == row for row in rows)


def measured(item: dict[str, Any], top1: float) -> EvaluationResult:
    metric = Metric(value=top1, n=1000, ci_low=0, ci_high=1, ci_method="wilson", higher_is_better=True)
    return EvaluationResult(
        name=item["name"],
        params=item["params"],
        data=DATA,
        protocol="pixel",
        backend="native",
        metrics={"top1": metric},
        seconds=1.0,
        forward_passes=1,
        backward_passes=1,
    )


def honest(item: dict[str, Any]) -> float:
    """Accuracies as they should be, by attack."""
    if item["name"] == "pgd":
        curve = {"1/255": 0.8, "2/255": 0.7, "4/255": 0.5, "8/255": 0.3, "64/255": 0.0}
        return curve[item["params"]["epsilon"]] - 0.01 * (item["params"]["steps"] > 20)
    accuracies = {
        "clean": 0.95,
        "uniform_noise": 0.9,
        "fgsm": 0.4,
        "square": 0.45,
        "spsa": 0.5,
        "autoattack": 0.25,
    }
    return accuracies[item["name"]]


@pytest.mark.parametrize(
    ("name", "params", "top1", "code"),
    [
        ("clean", {}, 0.9, None),
        ("uniform_noise", {}, 0.2, "noise_stronger_than_gradient"),
        ("fgsm", {}, 0.1, "single_step_stronger_than_iterative"),
        ("square", {}, 0.2, "black_box_stronger_than_white_box"),
        ("spsa", {}, 0.2, "black_box_stronger_than_white_box"),
        ("pgd", {"epsilon": "2/255"}, 0.1, "accuracy_rises_with_epsilon"),
        ("pgd", {"steps": 100}, 0.6, "accuracy_rises_with_effort"),
        ("pgd", {"epsilon": "64/255"}, 0.2, "robust_at_large_epsilon"),
    ],
)
def test_every_check_across_evaluations_can_fire_on_standard(
    name: str, params: dict[str, Any], top1: float, code: str | None
) -> None:
    items = expanded("standard")["evaluations"]
    assert cross_checks([measured(item, honest(item)) for item in items], load().threat_of) == []
    planted = [
        top1 if item["name"] == name and params.items() <= item["params"].items() else honest(item)
        for item in items
    ]
    rows = [measured(item, top1) for item, top1 in zip(items, planted, strict=True)]
    found = {warning.code for warning in cross_checks(rows, load().threat_of)}
    assert found == ({code} if code else set())


def test_the_suites_of_text_are_of_their_own_task() -> None:
    text = {"model": {"name": "symmlm_tiny"}, "data": {"name": "pydoc"}}
    body = {"kind": "evaluate", "evaluations": [{"suite": "rpc_wikitext"}], **text}
    rows = [(item["name"], item["params"].get("rate")) for item in validate(load(), body).spec["evaluations"]]
    assert rows == [("perplexity", None), ("word_swap", 0.02), ("word_swap", 0.05), ("word_swap", 0.1)]
    with pytest.raises(InvalidSpec) as caught:
        validate(load(), body | {"evaluations": [{"suite": "rpc_nlu"}]})
    assert "'rpc_nlu' is for sequence" in caught.value.details[0].message
    sentences = {"model": {"name": "text_classifier"}, "data": {"name": "sst"}}
    spec = validate(load(), body | sentences | {"evaluations": [{"suite": "rpc_nlu"}]}).spec
    assert [item["name"] for item in spec["evaluations"]] == ["top1", "deepwordbug"]


@pytest.mark.parametrize("suite", ["primal_uea", "bn_uea"])
def test_suites_of_series_are_for_series(suite: str) -> None:
    body: dict[str, Any] = {
        "kind": "evaluate",
        "model": {"name": "uea_transformer", "params": {"length": 64}},
        "data": {"name": "motions"},
        "evaluations": [{"suite": suite}],
    }
    spec = validate(load(), body).spec
    named = [(item["name"], item["params"].get("epsilon")) for item in spec["evaluations"]]
    attacked = [(name, epsilon) for name in ("fgsm", "pgd") for epsilon in (0.05, 0.1)]
    assert named == [("top1", None), *attacked]


@pytest.mark.parametrize("suite", ["primal_lra", "bn_lra", "skyformer_lra"])
def test_suites_of_the_long_range_arena_have_the_accuracy_of_sequences(suite: str) -> None:
    body = {"kind": "evaluate", "evaluations": [{"suite": suite}]}
    symbols = {"model": {"name": "lra_transformer"}, "data": {"name": "lra_text"}}
    assert [item["name"] for item in validate(load(), body | symbols).spec["evaluations"]] == ["top1"]
    words = {"model": {"name": "text_classifier"}, "data": {"name": "imdb"}}
    with pytest.raises(InvalidSpec, match="not of words") as caught:
        validate(load(), body | words)
    assert caught.value.details[0].loc == ["evaluations", 0, "suite"]


SUITES = load().list("suite")
# A model and data of each task.
OF_TASK = {
    "classification": ("vit", "imagenet"),
    "segmentation": ("segmenter", "shapes"),
    "language": ("lm", "pydoc"),
    "sequence": ("lra_transformer", "lra_text"),
    "series": ("uea_transformer", "motions"),
    "series_regression": ("series_regressor", "pulses"),
    "control": ("decision_transformer", "classic_control"),
}


@pytest.mark.parametrize("suite", SUITES, ids=[suite.name for suite in SUITES])
def test_every_suite_is_for_its_tasks_and_refused_for_every_other(suite: Component) -> None:
    assert suite.tasks
    assert set(suite.tasks) <= set(OF_TASK)
    for task, (model, data) in OF_TASK.items():
        body = {
            "kind": "evaluate",
            "model": {"name": model},
            "data": {"name": data},
            "evaluations": [{"suite": suite.name}],
            "protocol": "paper" if suite.name == "rpc_table2" and task in suite.tasks else "pixel",
        }
        if task in suite.tasks:
            assert validate(load(), body).spec["evaluations"]
            continue
        with pytest.raises(InvalidSpec) as caught:
            validate(load(), body)
        (detail,) = caught.value.details
        assert detail.loc == ["evaluations", 0, "suite"], task
        assert detail.message.startswith(f"{suite.name!r} is for")
        assert {one.name for one in SUITES if task in one.tasks} <= {*detail.allowed}  # type: ignore[misc]


def test_the_error_of_attention_is_measured_at_the_features_of_the_figure() -> None:
    text = {"model": {"name": "symmlm_tiny"}, "data": {"name": "pydoc"}}
    body = {"kind": "evaluate", "evaluations": [{"suite": "skyformer_error"}], **text}
    (item,) = validate(load(), body).spec["evaluations"]
    assert item["name"] == "spectral_error"
    assert item["params"]["features"] == [2**power for power in range(4, 9)]
    assert item["params"]["length"] == 512
    assert set(TARGETS.values()) == {"softmax", "kernelized"}


def test_the_suite_of_policies_has_their_return_on_true_observations() -> None:
    body: dict[str, Any] = {
        "kind": "evaluate",
        "model": {"name": "decision_transformer"},
        "data": {"name": "classic_control"},
        "evaluations": [{"suite": "primal_rl"}],
    }
    (item,) = validate(load(), body).spec["evaluations"]
    assert (item["name"], item["params"]["perturbation"], item["params"]["epsilon"]) == ("returns", "none", 0)
    with pytest.raises(InvalidSpec, match="is for control"):
        expanded("primal_rl")


def test_quick_has_the_same_four_epsilons_for_every_attack() -> None:
    rows = expanded("quick")["evaluations"]
    found: dict[str, list[str]] = {}
    for row in rows:
        found.setdefault(row["name"], []).append(row["params"].get("epsilon"))
    assert found.pop("clean") == [None]
    assert set(found) == {"uniform_noise", "fgsm", "pgd", "assay_fast"}
    assert set(map(tuple, found.values())) == {("1/255", "2/255", "4/255", "8/255")}
    assert not any(row["params"].get("confirm") for row in rows)
