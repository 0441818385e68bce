"""Accuracy under attack against clean accuracy and cost."""

from __future__ import annotations

from dataclasses import replace

from assay.service.plots.kinds import LabelledResults, plots_of


def test_a_tradeoff_compares_what_all_jobs_have(job: LabelledResults, other_job: LabelledResults) -> None:
    def with_rows(count: int) -> LabelledResults:
        chosen = other_job.results.evaluations[:count]
        return replace(other_job, results=other_job.results.model_copy(update={"evaluations": chosen}))

    found = plots_of([job, with_rows(2)])["tradeoff"]["data"]["values"]
    assert {row["setting"] for row in found} == {"pgd, ε = 2/255"}
    assert [(row["job"], row["clean"]) for row in found] == [("a job", 0.95), ("another job", 0.85)]
    # A job without an attack is left out.
    alone = plots_of([job, with_rows(1)])["tradeoff"]["data"]["values"]
    assert {row["job"] for row in alone} == {"a job"}
    # Labels of clean accuracies stand apart: a panel of 250 pixels holds few of them.
    shares = plots_of([job, other_job])["tradeoff"]["layer"][0]["encoding"]["x"]
    assert shares["axis"]["tickCount"] == 4
