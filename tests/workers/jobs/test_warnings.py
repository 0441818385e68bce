"""The warnings of one row: each is raised by its evidence, and by nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from assay.service.catalog.catalog import load
from assay.service.contract.results import StageBreakdown, Warning
from assay.service.store.store import Store
from assay.workers.jobs import merge
from assay.workers.jobs.warnings import COUNTED, OF_PIXELS, PROBED, Row, of_evaluation, row_arithmetic
from tests.support.jobs import add, evaluate_spec
from tests.support.outcomes import rows

FACTS = {"batch_size": 4, "untrained": False}
ASSUMED = {"data": "digits", "mean": [0.5], "std": [0.25]}
PLANNED = {"n": 12, "available": 12, "classes": 10}
PGD = Row("pgd", {"epsilon": "8/255"}, "native", attack=True, worst_case=False, planned=PLANNED)
STANDARD = {"epsilon": "8/255", "version": "standard"}
STAGES = ["apgd_ce", "apgd_t", "fab_t", "square"]


def raised(
    *evidence: dict[str, Any], plan: dict[str, Any] | None = None, **changes: Any
) -> dict[str, dict[str, Any]]:
    row = replace(PGD, **changes)
    return {w.code: w.evidence for w in of_evaluation(FACTS | (plan or {}), evidence or [{}], row)}


def test_nothing_to_say_is_no_warning() -> None:
    quiet = {"zero_gradient": 0, "gradients": 9, "unverified": 0, "random_outputs": 0}
    assert raised(quiet, quiet) == {}


def test_cut_sequences_are_told() -> None:
    assert raised(planned={"n": 40, "available": 40, "classes": 10, "cut": 7}) == {
        "cut_sequences": {"count": 7, "n": 40}
    }


def test_a_program_without_a_vocabulary_is_told() -> None:
    assert raised(plan={"unstated_vocabulary": True}) == {"unstated_vocabulary": {}}
    assert raised(plan={"unstated_vocabulary": False}) == {}
    (told,) = of_evaluation(FACTS | {"unstated_vocabulary": True}, [{}], PGD)
    assert "as vocabulary in extra/assay.json (export_program(..., vocabulary=...))" in told.message


@pytest.mark.parametrize("noun", sorted({load().task(name).noun for name in load().names("task")}))
def test_examples_are_called_what_they_are(noun: str) -> None:
    row = replace(PGD, planned=PLANNED | {"published": 7500}, noun=noun)  # type: ignore[arg-type]
    odd = [w.message for w in of_evaluation(FACTS, [{"batch_dependent": 1}], row)]
    assert len(odd) == 2
    assert all(f" {noun}" in message for message in odd)
    assert noun == "images" or not any("images" in message for message in odd)


@pytest.mark.parametrize("code", COUNTED)
def test_counts_of_shards_add_up(code: str) -> None:
    assert raised({code: 1}, {}, {code: 2, "gradients": 9}) == {code: {"count": 3, "n": 12}}
    stages = [{"name": "apgd_ce", code: 1}, {"name": "apgd_t", code: 0}, {"name": "fab_t", code: 2}]
    (found,) = raised({code: 3, "stages": stages}, {code: 1, "stages": stages[:1]}).values()
    assert found == {"count": 4, "n": 12, "stages": {"apgd_ce": 2, "fab_t": 2}}


@pytest.mark.parametrize("code", OF_PIXELS)
def test_of_segmentation_the_same_codes_say_what_they_mean_there(code: Any) -> None:
    row = replace(PGD, name="segpgd", worst_case=True, per_pixel=True)
    (found,) = of_evaluation(FACTS, [{code: 2}, {code: 1}], row)
    assert (found.code, found.evidence) == (code, {"count": 3, "n": 12})
    assert found.message == OF_PIXELS[code].format(count=3, n=12)
    assert not any(name in found.message for name in ("apgd_dlr", "square", "examples"))


def test_sea_is_an_upper_bound_and_says_nothing_of_top5() -> None:
    assert raised(name="sea", worst_case=True, per_pixel=True) == {"adaptive_attack_needed": {}}


@pytest.mark.parametrize("code", PROBED)
def test_the_first_shard_looks_at_the_models_answers(code: str) -> None:
    assert raised({code: 16}, {}) == {code: {"count": 16}}  # of an earlier version
    found = raised({code: 16, f"{code}_change": 3e-6}, {})
    assert found == {code: {"count": 16, "largest_change": 3e-6}}


def test_an_empty_sparse_part_is_told_once_with_its_share() -> None:
    found = {"largest_share": 0.00055, "examples": 16}
    assert raised({"inactive_pursuit": found}, {}) == {"inactive_pursuit": found}
    assert raised({}, {"inactive_pursuit": found}) == {}
    (warning,) = of_evaluation(FACTS, [{"inactive_pursuit": found}] * 2, PGD)  # type: ignore[arg-type,list-item]
    assert "at most 0.055 % of it is not 0" in warning.message
    assert "the first 16 images" in warning.message
    text = replace(PGD, name="perplexity", attack=False, noun="windows")
    (warning,) = of_evaluation(FACTS, [{"inactive_pursuit": found}], text)  # type: ignore[arg-type,list-item]
    assert "the first 16 windows" in warning.message


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"plan": {"untrained": True}}, {"untrained_weights": {}}),
        ({"plan": {"assumed_normalization": None}}, {}),
        ({"plan": {"assumed_normalization": ASSUMED}}, {"foreign_normalization": ASSUMED}),
        ({"planned": PLANNED | {"n": 5}}, {"subset": {"n": 5, "available": 12}}),
        ({"planned": PLANNED | {"seen": 3}}, {"trained_on_examples": {"count": 3, "n": 12}}),
        ({"planned": PLANNED | {"selected_on_test": 1}}, {"selected_on_test": {}}),
        (
            {"planned": PLANNED | {"published_batch": 1024, "step_batch": 64}},
            {"published_batch_not_reached": {"published": 1024, "batch_size": 64}},
        ),
        (
            {
                "planned": PLANNED
                | {"published_batch": 1024, "step_batch": 64, "peak": 6.25e-5, "published_peak": 1e-3}
            },
            {
                "published_batch_not_reached": {"published": 1024, "batch_size": 64},
                "scaled_learning_rate": {"used": 6.25e-5, "published": 1e-3},
            },
        ),
        ({"planned": PLANNED | {"renamed": 2}}, {"class_names_differ": {"count": 2}}),
        (
            {"planned": PLANNED | {"published": 7500}},
            {"incomplete_data": {"available": PLANNED["available"], "published": 7500}},
        ),
        ({"backend": "cleverhans"}, {"library_backend": {"batch_size": 4}}),
        ({"backend": "compatible"}, {"library_backend": {"batch_size": 4}}),
        ({"worst_case": True}, {"top5_upper_bound": {}}),
        ({"worst_case": True, "attack": False}, {}),
        (
            {"worst_case": True, "screening": "bfloat16_gradients"},
            {"top5_upper_bound": {}, "screened": {"screening": "bfloat16_gradients"}},
        ),
        ({"worst_case": True, "screening": "bfloat16_gradients", "expected": True}, {"top5_upper_bound": {}}),
        ({"worst_case": True, "attack": False, "screening": "bfloat16"}, {}),
        (
            {"undefined": {"attack_success_rate": "why", "median_l2": "why not"}},
            {"undefined_metric": {"metrics": ["attack_success_rate", "median_l2"]}},
        ),
    ],
)
def test_facts_of_the_plan_and_the_row(changes: dict[str, Any], expected: dict[str, Any]) -> None:
    assert raised(**changes) == expected


@pytest.mark.parametrize(
    ("backend", "name", "params", "stages", "said", "unsaid"),
    [
        ("cleverhans", "pgd", {}, [], "mean over the batch", "depends on those"),
        ("cleverhans", "carlini_wagner", {}, [], "keyed by example", "mean"),
        ("cleverhans", "spsa", {}, [], "only the images that it returns", "mean"),
        ("cleverhans", "uniform_noise", {}, [], "float32", "mean"),
        ("pyautoattack", "apgd_ce", {"restarts": 3}, [], "library's own code ran", "depends on those"),
        ("pyautoattack", "square", {}, [], "of square were drawn for a whole batch", "not depend"),
        ("pyautoattack", "fab", {}, [], "of fab were drawn for a whole batch", "not depend"),
        ("pyautoattack", "fab_t", {"restarts": 1}, [], "does not depend on the batch", "drawn for"),
        ("compatible", "apgd_ce", {}, [], "our kernels ran the attack; the random numbers of apgd", "not"),
        ("compatible", "fab", {"restarts": 1}, [], "our kernels ran the attack; an example's", "drawn for"),
        ("pyautoattack", "autoattack", {}, STAGES, "numbers of square were drawn", "apgd_ce"),
        ("pyautoattack", "autoattack", {}, ["apgd_ce", "apgd_dlr"], "does not depend", "drawn for"),
        ("compatible", "autoattack", {}, STAGES, "numbers of apgd_ce, apgd_t, square were", "fab_t"),
        ("textattack", "pwws", {}, [], "seeded by example: an example's result does not depend", "drawn"),
    ],
)  # fmt: skip
def test_what_is_said_of_a_library_is_true_for_its_attack(
    backend: str, name: str, params: dict[str, Any], stages: list[str], said: str, unsaid: str
) -> None:
    breakdown = [part(stage, 12, 0) for stage in stages]
    row = replace(PGD, name=name, params=params, backend=backend, breakdown=breakdown)
    (message,) = [w.message for w in of_evaluation(FACTS, [{}], row) if w.code == "library_backend"]
    assert message.startswith(f"backend {backend}: ")
    assert said in message
    assert unsaid not in message


def test_the_smallest_batch_of_all_shards_is_told() -> None:
    found = raised(
        {"reduced_batch": {"asked": 64, "used": 32}}, {}, {"reduced_batch": {"asked": 64, "used": 16}}
    )
    assert found == {"reduced_batch": {"asked": 64, "used": 16}}
    assert raised({"reduced_batch": None}) == {}


@pytest.mark.parametrize("screening", ["bfloat16", "bfloat16_gradients"])
def test_screening_is_told_of_the_stages_that_ran_so(screening: str) -> None:
    """Shards of earlier versions do not name them (the table above)."""

    def told(*named: list[str], **changes: Any) -> list[tuple[str, dict[str, Any]]]:
        row = replace(PGD, worst_case=True, per_pixel=True, screening=screening, **changes)
        found = of_evaluation(FACTS, [{"screened": stages} for stages in named], row)
        return [(one.message, one.evidence) for one in found if one.code == "screened"]

    assert told([], []) == []
    earlier = replace(PGD, worst_case=True, per_pixel=True, screening=screening)
    both_versions: list[Any] = [{"screened": []}, {}]
    assert "screened" in {one.code for one in of_evaluation(FACTS, both_versions, earlier)}, (
        "one does not say"
    )
    ((message, evidence),) = told([], ["pgd"])
    assert "the attack" in message
    assert evidence == {"screening": screening}
    both = [part(stage, 12, 0) for stage in STAGES]
    ((message, evidence),) = told(["apgd_ce"], ["apgd_ce", "apgd_t"], breakdown=both)
    assert "apgd_ce, apgd_t " in message
    assert evidence == {"screening": screening, "stages": ["apgd_ce", "apgd_t"]}


ROUGH = "bfloat16_gradients"


@pytest.mark.parametrize(
    ("changes", "screened", "told"),
    [
        ({}, [], None),
        ({"dtype": "float64"}, [], None),
        ({"dtype": "bfloat16", "screening": ROUGH, "attack": False}, [], "bfloat16"),
        ({"dtype": "bfloat16", "screening": ROUGH, "worst_case": False}, [], "bfloat16"),
        (
            {"dtype": "bfloat16", "screening": ROUGH},
            ["pgd"],
            "gradients in bfloat16, successes judged in float32",
        ),
        ({"dtype": "bfloat16", "screening": ROUGH}, [], "float32; clean answers in bfloat16"),
        ({"dtype": "bfloat16", "screening": ROUGH, "expected": True}, ["pgd"], "float32"),
        ({"screening": "bfloat16"}, ["pgd"], "bfloat16 first, then float32"),
        ({"screening": "bfloat16"}, [], "float32"),
        ({"screening": "bfloat16", "attack": False}, [], "float32"),
        (
            {"screening": ROUGH, "breakdown": True},
            ["apgd_ce", "apgd_t"],
            "gradients in bfloat16 (apgd_ce, apgd_t), successes judged in float32",
        ),
        ({"dtype": "tf32"}, [], "tf32"),
        ({"dtype": "tf32", "without_tf32": True}, [], "float32"),
        ({"dtype": "tf32", "name": "returns"}, [], "float64"),
    ],
)
def test_a_row_says_what_it_was_computed_in(
    changes: dict[str, Any], screened: list[str], told: str | None
) -> None:
    if changes.get("breakdown"):
        changes = {**changes, "breakdown": [part(stage, 12, 0) for stage in STAGES]}
    row = replace(PGD, **{"worst_case": True, **changes})
    assert row_arithmetic([{"screened": screened}, {"screened": []}], row) == told


def test_why_passes_were_not_captured_is_told_once() -> None:
    memory, waits = (
        {"captured": {"replays": 9, "refused": reason}} for reason in ("memory was short", "a wait")
    )
    found = raised(memory, {"captured": {"replays": 3, "refused": None}}, waits, memory, {})
    assert found == {"not_captured": {"reasons": ["a wait", "memory was short"]}}
    assert raised({"captured": {"replays": 3, "refused": None}}) == {}


def test_in_which_shards_passes_were_not_compiled_is_told() -> None:
    done, wall = (
        {"compiled": {"passes": count, "compiler": None, "refused": reason}}
        for count, reason in ((9, None), (0, "the worker has no C++ compiler"))
    )
    reasons = ["the worker has no C++ compiler"]
    assert raised(done, wall, {}, wall) == {"not_compiled": {"reasons": reasons, "shards": 2, "of": 4}}
    (told,) = of_evaluation(FACTS, [done, wall], PGD)
    assert told.message == (
        "passes were not compiled in 1 of 2 shards; its own passes ran, and the numbers are"
        " right. The reason: the worker has no C++ compiler"
    )
    assert raised(done, done) == {}
    trial = {"chosen": False, "seconds": None, "ratio": None, "refused": "the worker has no C++ compiler"}
    assert not [*of_evaluation(FACTS | {"compile": trial}, [{}], PGD)], "a choice of auto is no warning"


@pytest.mark.parametrize(
    ("name", "params", "classes", "expected"),
    [
        ("apgd_t", {"targets": 9}, 10, []),
        ("apgd_t", {"targets": 9}, 9, ["fewer_classes_than_targets"]),
        ("apgd_t", {"targets": 2}, 3, ["too_few_classes_for_dlr"]),
        ("apgd_dlr", {}, 3, []),
        ("apgd_dlr", {}, 2, ["too_few_classes_for_dlr"]),
        ("fab_t", {"targets": 9}, 3, ["fewer_classes_than_targets"]),
        ("pgd", {}, 2, []),
    ],
)
def test_few_classes(name: str, params: dict[str, Any], classes: int, expected: list[str]) -> None:
    assert [*raised(name=name, params=params, planned=PLANNED | {"classes": classes})] == expected
    # A plan of an earlier version does not tell the number of classes.
    old = {key: value for key, value in PLANNED.items() if key != "classes"}
    assert "fewer_classes_than_targets" not in raised(name=name, params=params, planned=old)


def part(name: str, n: int, broken: int) -> StageBreakdown:
    costs = {"forward_passes": 0, "backward_passes": 0, "seconds": 0.0}
    return StageBreakdown(stage=name, metrics={}, n=n, broken=broken, **costs)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("stages", "classes", "expected"),
    [
        (["apgd_ce", "square"], 2, []),
        (["apgd_ce", "apgd_dlr"], 2, ["too_few_classes_for_dlr"]),
        (["apgd_ce", "apgd_t"], 10, []),
        (["apgd_ce", "apgd_t"], 5, ["fewer_classes_than_targets"]),
        (["apgd_t", "fab_t"], 3, ["fewer_classes_than_targets", "too_few_classes_for_dlr"]),
    ],
)
def test_few_classes_for_the_stages_of_an_ensemble(
    stages: list[str], classes: int, expected: list[str]
) -> None:
    ran = [part(name, 4, 0) for name in stages]
    planned = PLANNED | {"classes": classes}
    found = [*raised(name="autoattack", params=STANDARD, planned=planned, breakdown=ran)]
    assert found == [*expected, "adaptive_attack_needed"]


@pytest.mark.parametrize(
    ("stages", "n", "stronger"),
    [
        ([("apgd_ce", 900, 100), ("square", 800, 3)], 1000, True),
        ([("apgd_ce", 900, 100), ("square", 800, 2)], 1000, False),  # 0.2 points exactly
        ([("apgd_ce", 90, 10), ("square", 80, 1)], 100, False),  # one example decides nothing
        ([("apgd_ce", 90, 10), ("square", 80, 2)], 100, True),
        ([("square", 90, 50)], 100, False),  # alone it has nothing to be compared with
        ([("square", 90, 50), ("apgd_ce", 40, 9)], 100, False),
    ],
)
def test_a_black_box_that_breaks_what_gradients_have_left(
    stages: list[tuple[str, int, int]], n: int, stronger: bool
) -> None:
    found = raised(
        name="autoattack", planned=PLANNED | {"n": n, "available": n}, breakdown=[part(*s) for s in stages]
    )
    assert ("black_box_stage_stronger" in found) is stronger


@pytest.mark.parametrize(("broken", "stronger"), [(0, False), (1, True)])
def test_one_example_broken_in_a_sample_is_enough(broken: int, stronger: bool) -> None:
    stages = [part("apgd_pairs", 900, 100), part("square", 800, broken)]
    found = raised(name="assay_fast", params={"check_share": 0.05}, planned=PLANNED, breakdown=stages)
    assert ("black_box_stage_stronger" in found) is stronger


def test_the_merge_hands_everything_on(store: Store) -> None:
    item = {"name": "autoattack", "params": STANDARD, "data": None}
    job = store.jobs.get(add(store, evaluate_spec() | {"evaluations": [item]}))
    facts = FACTS | {"weights_sha256": "w", "data_sha256": {}}
    planned = {"n": 4, "available": 4, "classes": 6}
    job = replace(job, plan=facts | {"evaluations": [planned]})
    stages = [
        {
            "name": "apgd_ce",
            "n": 4,
            "broken": 1,
            "forward": 1,
            "backward": 1,
            "zero_gradient": 1,
            "seconds": 0.5,
        },
        {
            "name": "apgd_t",
            "n": 3,
            "broken": 0,
            "forward": 1,
            "backward": 1,
            "zero_gradient": 0,
            "seconds": 0.5,
        },
        {
            "name": "square",
            "n": 3,
            "broken": 2,
            "forward": 1,
            "backward": 0,
            "zero_gradient": 0,
            "seconds": 0.5,
        },
    ]
    outcomes = rows(1, evidence={"zero_gradient": 1, "unverified": 1, "stages": stages})
    result = merge.merge_evaluation(job, 0, outcomes).result
    assert {w.code for w in result.warnings} == {
        "zero_gradient",
        "unverified",
        "fewer_classes_than_targets",
        "black_box_stage_stronger",
        "adaptive_attack_needed",
        "top5_upper_bound",
        "undefined_metric",
    }
    assert all(isinstance(warning, Warning) for warning in result.warnings)


@pytest.mark.parametrize(
    ("count", "attacked", "severity"),
    [
        (5, 11, "caution"),
        (6, 11, "invalid"),  # the twelfth was wrong without the attack, and has no gradient
        (11, 11, "invalid"),
        (5, 0, "caution"),  # shards of earlier versions do not say how many were attacked
        (12, 0, "invalid"),
    ],
)
def test_an_attack_without_gradients_of_half_the_examples_measures_nothing(
    count: int, attacked: int, severity: str
) -> None:
    plan: Any = {"untrained": False, "batch_size": 4}
    planned: Any = {"n": 12, "available": 12}
    evidence: Any = [{"zero_gradient": 5, "gradients": attacked}, {"zero_gradient": count - 5}]
    row = Row("pgd", {}, "native", attack=True, worst_case=True, planned=planned)
    found = [one for one in of_evaluation(plan, evidence, row) if one.code == "zero_gradient"]
    assert [one.severity for one in found] == [severity]


@pytest.mark.parametrize(("unknown", "found"), [(10, {}), (11, {"unknown_words": 11, "words": 100})])
def test_a_tenth_of_unknown_words_is_many(unknown: int, found: dict[str, int]) -> None:
    shards = ({"words": 60, "unknown_words": unknown}, {"words": 40, "unknown_words": 0})
    assert raised(*shards, attack=False) == ({"many_unknown_words": found} if found else {})


def test_a_step_of_a_small_training_set_says_why() -> None:
    planned = PLANNED | {"published_batch": 1024, "step_batch": 300, "asked_batch": 512}
    (warning,) = of_evaluation(FACTS, [], replace(PGD, planned=planned))  # type: ignore[arg-type]
    assert warning.message == (
        "a step took 300 examples, in the published training 1024: 512 were asked for, and the training"
        " set has only 300"
    )


def test_texts_longer_than_the_model_reads_are_counted() -> None:
    assert raised({"cut_texts": 2}, {"cut_texts": 1}, attack=False) == {"cut_texts": {"count": 3, "n": 12}}


def test_what_a_recipe_leaves_out_is_told() -> None:
    found = {"recipe_left_out": {"left_out": ["part_of_speech", "sentence_encoder"]}}
    assert raised(name="textfooler", attack=False) == found
    assert raised(name="pwws", attack=False) == {}


def test_swapped_words_that_became_unknown_are_told() -> None:
    counts = {"swapped": 4, "swapped_unknown": 3}
    assert raised(counts, {"swapped": 1}, attack=False) == {
        "swapped_to_unknown": {"swapped": 5, "swapped_unknown": 3}
    }


def test_cut_sequences_of_a_training_are_told_apart() -> None:
    plan: Any = {"untrained": False, "batch_size": 4}
    planned: Any = {"n": 40, "available": 40, "cut": 7, "cut_in_training": 30, "training": 100}
    row = Row("top1", {}, "native", attack=False, worst_case=True, planned=planned, noun="sequences")
    found = [one for one in of_evaluation(plan, [], row) if one.code == "cut_sequences"]
    assert [one.evidence for one in found] == [
        {"count": 7, "n": 40},
        {"count": 30, "n": 100, "part": "train"},
    ]
    assert "30 of 100 training sequences" in found[1].message


@pytest.mark.parametrize(
    ("batch_norm", "text"), [(False, "differ by rounding only"), (True, "batch normalisation took")]
)
def test_a_training_says_where_memory_or_the_disk_were_short(batch_norm: bool, text: str) -> None:
    reduced = {"asked": 64, "used": 16, "batch_norm": batch_norm}
    planned: Any = PLANNED | {"reduced_in_training": reduced, "unsaved_checkpoints": 3}
    memory, disk = of_evaluation(FACTS, [{}], replace(PGD, planned=planned))
    assert (memory.code, memory.evidence) == ("reduced_batch", reduced | {"part": "train"})
    assert "passes of 16 examples in training, not of 64" in memory.message
    assert text in memory.message
    assert (disk.code, disk.severity, disk.evidence) == ("checkpoints_not_saved", "note", {"count": 3})
    assert "3 checkpoints" in disk.message


@pytest.mark.parametrize(("classes", "told"), [(5, False), (6, True)])
def test_top5_is_an_upper_bound_only_where_it_is_reported(classes: int, told: bool) -> None:
    plan: Any = {"untrained": False, "batch_size": 4}
    planned: Any = {"n": 40, "available": 40, "classes": classes}
    row = Row("fgsm", {}, "native", attack=True, worst_case=True, planned=planned)
    codes = [one.code for one in of_evaluation(plan, [], row)]
    assert ("top5_upper_bound" in codes) is told
