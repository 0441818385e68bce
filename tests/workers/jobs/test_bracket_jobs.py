"""Whole jobs with a bracket: verified from below, attacked from above, and a falsified certificate."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from assay.service.cli.output import results_table
from assay.workers.evaluation import verified
from tests.support import networks
from tests.workers.jobs.test_whole_jobs import Bench, bench

__all__ = ["bench"]

pytestmark = pytest.mark.filterwarnings("ignore")
JOB = (
    {"name": "verified", "params": {"epsilon": "8/255"}},
    {"name": "verified", "params": {"epsilon": "16/255"}},
    {"name": "pgd", "params": {"epsilon": "8/255", "steps": 10}},
    {"name": "apgd_ce", "params": {"epsilon": "16/255", "steps": 10}},
    {"name": "pgd", "params": {"epsilon": 0.5, "norm": "L2", "steps": 5}},
)
ROBUST = "convolutional-fgsm-trained"


@pytest.mark.parametrize("shard_seconds", [1e9, 1e-9])
def test_a_job_has_a_bracket_whatever_its_shards(bench: Bench, shard_seconds: float) -> None:
    results = bench.run(networks.network(ROBUST), *JOB, shard_seconds=shard_seconds, limit=48)
    assert [point.norm for point in results.bracket] == ["Linf", "Linf"]
    small, large = results.bracket
    for point in (small, large):
        assert point.verified is not None
        assert point.attacked is not None
        assert point.verified.value is not None
        assert point.attacked.value is not None
        assert 0 < point.verified.value <= point.attacked.value <= 1
        assert point.n == 48
    assert small.attacked_by == ["pgd"]
    assert large.attacked_by == ["pgd", "apgd_ce"]
    first, second, ascent = results.evaluations[:3]
    assert small.verified == first.metrics["verified_top1"]
    assert large.verified == second.metrics["verified_top1"]
    assert small.attacked == ascent.metrics["top1"]
    assert not [one for one in results.warnings if one.code == "certified_and_broken"]
    assert "(verified) to" in results_table(results)


def test_a_falsified_certificate_is_a_contradiction(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def everything(bounds: Tensor, logits: Tensor) -> Tensor:
        return torch.ones(len(bounds), dtype=torch.bool)

    monkeypatch.setattr(verified, "proved", everything)
    results = bench.run(networks.network("convolutional"), *JOB, limit=48)
    found = [one for one in results.warnings if one.code == "certified_and_broken"]
    assert found
    assert {one.severity for one in found} == {"invalid"}
    broken = [
        row["id"] for row in bench.table(2, "pgd") if row["correct"] == "0" and row["clean_correct"] == "1"
    ]
    assert set(broken) <= set(results.bracket[0].contradictions)
    assert set(found[0].evidence["examples"]) <= set(results.bracket[0].contradictions)
    assert "certified_and_broken" in results_table(results)


def test_an_unsupported_operator_is_named_in_the_error(bench: Bench) -> None:
    class Sorted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(64, 10)

        def forward(self, images: Tensor) -> Tensor:
            logits: Tensor = self.head(images.flatten(1).sort(1).values)
            return logits

    with pytest.raises(ValueError, match=r"auto_LiRPA has no bounds for this model: .*(TopK|Sort|sort)"):
        bench.run(Sorted(), {"name": "verified"}, limit=4)
