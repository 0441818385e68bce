"""The published accuracies of sequences against a transcript of the papers' texts, and where they are shown.

`tests/vectors/published_sequences.csv` was taken from the texts by a program, with names as they are printed.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from assay.workers.published.match import MeasuredRow, references
from assay.workers.published.sequences import (
    ARCHIVE,
    DUAL,
    PRIMAL,
    ROWS,
    SKYFORMER,
    TASKS,
    PublishedRow,
    known_sequences,
    sequences,
)

VECTORS = Path(__file__).parents[2] / "vectors" / "published_sequences.csv"
PLACES = {SKYFORMER: "skyformer", PRIMAL: "primal", DUAL: "dual"}
# The supplement's columns are mislabelled: by task, the label above the number.
MISLABELLED = {
    "listops": "listops",
    "image": "text",
    "pathfinder": "retrieval",
    "retrieval": "image",
    "text": "pathfinder",
}


def transcript() -> dict[tuple[str, str, str], float]:
    with VECTORS.open(encoding="utf-8") as file:
        return {
            (row["place"], row["model"].strip(), row["column"].lower()): float(row["printed"])
            for row in csv.DictReader(file)
        }


def place_of(row: PublishedRow) -> str:
    return f"{PLACES[row.source]} {row.table.replace(',', '')}"


def test_every_cell_is_the_printed_one() -> None:
    printed = transcript()
    for row in (row for rows in ROWS.values() for row in rows):
        for task, percent in row.accuracies.items():
            label = MISLABELLED[task] if "supplement" in row.table else task
            assert percent == printed[place_of(row), row.model, label.lower()], (row.model, task)


def test_the_mislabelled_columns_are_those_that_table_3_contradicts() -> None:
    printed, model = transcript(), "Primal.+Trans."
    for task, label in MISLABELLED.items():
        found = printed["primal supplement table 4", f"{model} data-dependent", label]
        assert found == printed["primal table 3", model, task]


def test_every_row_of_the_tables_is_there_or_left_out_for_a_reason() -> None:
    """Left out: other mechanisms than ours, averages, baselines printed twice, and what other tables have."""
    stored = {(place_of(row), row.model) for rows in ROWS.values() for row in rows}
    missing = {(place, model) for place, model, _ in transcript()} - stored
    quoted = {"Linear.", "Re.", "Long.", "Per.", "YOSO-E", "Cos.", "SOFT", "Flow."}
    assert missing == {
        *(("primal table 1", model) for model in quoted),
        ("primal table 3", "Long."),
        ("primal table 3", "YOSO-E"),
        ("primal table 8", "Primal. w/"),
        ("primal table 8", "Primal.+Trans. w/"),
        ("primal supplement table 4", "Primal.+Trans. data-dependent"),
        ("dual table 7", "Baseline Softmax"),
        ("dual table 11", "Attention-BN ( beta as a hyperparameter)"),
        ("dual table 11", "Attention-BN+SH ( beta as a hyperparameter)"),
    }


def test_parts_are_known_by_name_classes_and_count() -> None:
    assert known_sequences("uea", 9, 370) == "uea/JapaneseVowels"
    assert known_sequences("uea", 9, 369) is None
    assert known_sequences("motions", 9, 370) is None
    assert known_sequences("lra_listops", 10, 2000) == "lra/listops"
    assert known_sequences("listops", 10, 2000) is None, "generated anew"
    assert known_sequences("lra_text", 2, 24_999) is None
    assert len({facts[0] for facts in TASKS.values()}) == 5
    assert len(ARCHIVE) == 10


def found(
    attention: Any, task: str = "lra/retrieval", name: str = "clean", **params: Any
) -> dict[tuple[str, str], float]:
    given = {"length": 4096, "layers": "all", **params, "attention": attention}
    model: Any = {"name": "lra_transformer" if task.startswith("lra") else "uea_transformer", "params": given}
    evaluation: Any = {"name": name, "params": {}, "data": None}
    data: Any = {"name": "any", "params": {}}
    shown = references(MeasuredRow(model, data, evaluation, protocol="pixel", known_as=task, defaults={}))
    assert all(reference.metric == "top1" for reference in shown)
    return {(r.source.split(" (")[1].split(",")[0], r.source.split(", ")[-1]): r.value for r in shown}


def primal(**changes: Any) -> dict[str, Any]:
    params = {"rank": 20, "projection": None, "r_scores": True, "eta": 0.1} | changes
    return {"name": "primal", "params": params}


def bn(**changes: Any) -> dict[str, Any]:
    return {"name": "attention_bn", "params": {"form": "beta", "learn_beta": False, "beta": 1.0} | changes}


def test_softmax_has_the_baselines_of_all_papers_in_any_layers() -> None:
    expected = {
        ("Skyformer", "Self-Attention"): 0.8069,
        ("Primal-Attention", "Trans."): 0.794,
        ("Primal-dual framework", "Baseline Softmax"): 0.7968,
    }
    assert found("softmax") == expected
    assert found({"name": "softmax", "params": {"dropout": 0.1}}, layers="last", name="top1") == expected


def test_layers_and_parameters_decide() -> None:
    assert found(primal()) == {("Primal-Attention", "Primal."): 0.778}
    assert found(primal(), layers="last") == {("Primal-Attention", "Primal.+Trans."): 0.81}
    assert found(primal(), layers=[1]) == found(primal(), layers="last")
    assert found(primal(), layers=[1, 0]) == found(primal())
    assert found(primal(), layers="first") == {}
    assert found(primal(rank=21)) == {}
    assert found(primal(r_scores=False)) == {("Primal-Attention", "Primal. w/o"): 0.582}
    independent = primal(projection="data_independent")
    assert list(found(independent, layers="last").values()) == [0.808]
    assert found(independent) == {}


def test_beta_is_that_of_the_task() -> None:
    assert found(bn()) == {("Primal-dual framework", "Attention-BN"): 0.8105}
    assert found(bn(beta=0.5)) == {}
    assert found(bn(beta=0.5), task="lra/listops") == {("Primal-dual framework", "Attention-BN"): 0.3732}
    assert list(found(bn(learn_beta=True)).values()) == [0.8077]
    assert found(bn(form="full")) == {}


def test_other_sizes_evaluations_and_lengths_have_none() -> None:
    assert found("softmax", length=3999) == {}
    assert found("softmax", task="lra/image", length=1024) != {}
    assert found("softmax", name="pgd") == {}
    sizes = {"width": 64, "depth": 2, "heads": 2, "hidden": 128, "embedding": None}
    general: Any = {
        "name": "sequence_transformer",
        "params": {"attention": "softmax", "length": 4096, **sizes},
    }
    clean: Any = {"name": "clean", "params": {}, "data": None}
    assert len(sequences(MeasuredRow(general, clean, clean, "pixel", "lra/text", {}))) == 3
    general["params"]["width"] = 128
    assert sequences(MeasuredRow(general, clean, clean, "pixel", "lra/text", {})) == []


def test_series_have_those_of_primal_attention_and_of_flowformers_framework() -> None:
    assert found(primal(rank=40), task="uea/PEMS-SF") == {("Primal-Attention", "Primal."): 0.896}
    assert list(found("softmax", task="uea/PEMS-SF").values()) == [0.821, 0.8266]
    assert list(found("softmax", task="uea/Heartbeat").values()) == [0.761]


@pytest.mark.parametrize("benchmark", ROWS)
def test_rows_say_how_they_were_selected(benchmark: str) -> None:
    model: Any = {"name": f"{benchmark}_transformer", "params": {"attention": "softmax", "length": 4096}}
    task = {"lra": "text", "uea": "PEMS-SF"}[benchmark]
    clean: Any = {"name": "clean", "params": {}, "data": None}
    shown = sequences(MeasuredRow(model, clean, clean, "pixel", f"{benchmark}/{task}", {}))
    assert shown
    assert all("test set" in r.protocol or "no code" in r.protocol for r in shown)
