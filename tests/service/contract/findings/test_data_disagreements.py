"""Which data sets workers have with several contents, and what is said of them to whom."""

from __future__ import annotations

from assay.service.contract.findings.data_disagreements import counted, disagreements, on_workers

LABEL = "image_folder(folder=<b>pictures</b>)"


def test_sets_with_one_content_or_one_worker_are_left_out() -> None:
    told = [("box:1", {"a": "1" * 64, LABEL: "2" * 64}), ("box:0", {"a": "1" * 64, LABEL: "3" * 64})]
    assert disagreements([*told, ("box:2", {"alone": "4" * 64, LABEL: "2" * 64})]) == {
        LABEL: {"3" * 64: ["box:0"], "2" * 64: ["box:1", "box:2"]}
    }
    assert disagreements([]) == {}


def test_names_are_listed_up_to_five_and_counts_have_nothing_of_a_job() -> None:
    by_hash = {"2" * 64: ["box:0"], "3" * 64: [f"other:{number}" for number in range(7)]}
    assert on_workers(by_hash) == (
        "222222222222 on box:0; 333333333333 on other:0, other:1, other:2, other:3, other:4 and 2 more"
    )
    said = "222222222222 on 1 workers; 333333333333 on 7 workers"
    assert counted(LABEL, by_hash) == f"image_folder: {said}"
    assert counted("stored_corruptions blur/3", by_hash) == f"stored_corruptions: {said}"
