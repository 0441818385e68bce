"""Whole jobs with a bracket: verified from below, attacked from above, and a falsified certificate."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import get_args

import pytest
import torch
from torch import Tensor, nn

from assay.service.api.results import finished_results
from assay.service.catalog.catalog import load as load_catalog
from assay.service.cli.output import results_table
from assay.service.contract.errors import NoResults
from assay.service.leaderboard.methods import ranked_methods
from assay.service.leaderboard.pages import LeaderboardCache
from assay.service.store.tenants import TenantStore, View
from assay.service.studies.rows import StudyJobRow
from assay.service.studies.stored_results import _measured
from assay.workers.evaluation import verified
from assay.workers.evaluation.engine.attack.linear_bounds import Method
from assay.workers.jobs.failures import describe
from tests.support import networks
from tests.support.programs import export, load
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


@pytest.mark.costly
@pytest.mark.parametrize("shard_seconds", [1e9, 1e-9])
def test_a_job_has_a_bracket_with_any_shards(bench: Bench, shard_seconds: float) -> None:
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


@pytest.mark.costly
def test_a_falsified_certificate_is_a_contradiction(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    falsified(monkeypatch)
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
    summary = bench.store.jobs.get(bench.job_id).summary
    assert summary is not None
    assert "certified_and_broken" in summary.invalid


def falsified(monkeypatch: pytest.MonkeyPatch) -> None:
    """Verifies every example that is right."""
    monkeypatch.setattr(verified, "proved", lambda bounds, logits: torch.ones(len(bounds), dtype=torch.bool))


@pytest.mark.costly
def test_a_contradicted_job_has_no_rank_and_its_study_says_so(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = TenantStore(bench.store, View(None, everything=True))
    found = {}
    for name in ("fine", "contradicted"):
        if name == "contradicted":
            falsified(monkeypatch)
        bench.run(networks.network("convolutional"), *JOB, {"name": "clean"}, limit=48)
        entries, unread = LeaderboardCache().of(view, load_catalog(), [bench.job_id])
        assert unread == 0
        threats = {one.group.threat: ranked_methods([one])[0] for one in entries}
        assert threats.keys() == {"no attack", "Linf 8/255", "Linf 16/255", "L2 0.5"}
        run = StudyJobRow(0, 0, "evaluate", bench.job_id, "succeeded", 1.0, "")
        marks = {
            place: "certified_and_broken" in {warning.code for warning in one.warnings}
            for place, one in _measured(view, run).results.items()
        }
        found[name] = {threat: one.rank for threat, one in threats.items()}, marks
    assert set(found["fine"][0].values()) == {1}
    assert not any(found["fine"][1].values())
    ranks, marks = found["contradicted"]
    assert ranks == {"no attack": 1, "Linf 8/255": None, "Linf 16/255": None, "L2 0.5": 1}
    assert [place for place, marked in marks.items() if marked] == [0, 1, 2, 3]


@pytest.mark.costly
@pytest.mark.parametrize("contradicted", [False, True])
def test_a_poll_reads_no_outcomes_that_an_earlier_poll_read(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, contradicted: bool
) -> None:
    if contradicted:
        falsified(monkeypatch)
    outcomes, over = bench.store.results.outcomes, bench._over
    polls: list[list[int | None]] = []

    def poll() -> bool:
        for _ in range(2):
            polls.append([])
            job = bench.store.jobs.get(bench.job_id)
            with monkeypatch.context() as patched, suppress(NoResults):
                patched.setattr(
                    bench.store.results,
                    "outcomes",
                    lambda job_id, place: polls[-1].append(place) or outcomes(job_id, place),
                )
                finished_results(bench.store, job, load_catalog())  # type: ignore[arg-type]
        return over()

    monkeypatch.setattr(bench, "_over", poll)
    bench.run(networks.network("convolutional"), *JOB, shard_seconds=1e-9, limit=48)
    assert len(polls) > 2 * len(JOB)
    assert not any(polls[1::2])
    # The attack in L2 has no part: nothing is verified there.
    read = [place for one in polls for place in one]
    assert read[:4] == [0, 1, 2, 3] if not contradicted else set(read) == {0, 1, 2, 3}
    # Once more for the ids, at each radius, after an attack has ended.
    assert len(read) == 4 if not contradicted else 4 < len(read) <= 8


class Block(nn.Module):
    """One operator between two layers."""

    def __init__(self, operator: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.project = nn.Linear(64, 64)
        self.operator = operator

    def forward(self, features: Tensor) -> Tensor:
        return self.operator(self.project(features))


class Nested(nn.Module):
    """A network whose operators are in `blocks.0.attention` and `blocks.1.attention`."""

    def __init__(self, *operators: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList(nn.ModuleDict({"attention": Block(one)}) for one in operators)
        self.head = nn.Linear(64, 10)

    def forward(self, images: Tensor) -> Tensor:
        features = images.flatten(1)
        for block in self.blocks:
            features = block["attention"](features)  # type: ignore[operator,index]
        logits: Tensor = self.head(features)
        return logits


def descending(features: Tensor) -> Tensor:
    return features.sort(1).values


UNSUPPORTED = {
    "CROWN: blocks.0.attention: Erf (and in 1 more module) (IBP has them); allowed": (torch.erf, torch.erf),
    "CROWN: blocks.1.attention: Softmax (IBP has them); allowed": (torch.relu, lambda x: x.softmax(1)),
    "CROWN: blocks.0.attention: TopK; allowed": (descending,),
    "CROWN: blocks.0.attention: Erf; blocks.1.attention: Sqrt (IBP": (torch.erf, lambda x: (x + 9).sqrt()),
    "IBP: blocks.1.attention: Square: a power other than 2": (torch.relu, lambda x: x**3),
    "IBP: blocks.0.attention: Quotient: a division by what may be 0 or less": (lambda x: x / x,),
}


@pytest.mark.sampled
@pytest.mark.parametrize("exported", [False, True], ids=["native", "program"])
@pytest.mark.parametrize("named", UNSUPPORTED)
def test_an_unsupported_operator_ends_the_job_when_it_is_planned(
    bench: Bench, tmp_path: Path, named: str, exported: bool
) -> None:
    model: nn.Module = Nested(*UNSUPPORTED[named])
    if exported:
        model = load(export(model, tmp_path / "nested.pt2", shape=(1, 8, 8)))
    proof = {"name": "verified", "params": {"method": named.partition(":")[0]}}
    with pytest.raises(ValueError, match=r"evaluations\[1\], 'verified': no sound bounds by ") as error:
        bench.run(model, {"name": "clean"}, proof, limit=4)
    assert named in str(error.value)
    assert describe(error.value) | {"message": ""} == {
        "error_type": "invalid_value",
        "message": "",
        "retry": False,
    }
    assert bench.store.jobs.get(bench.job_id).plan is None
    assert bench.store.results.outcomes(bench.job_id, None) == []


@pytest.mark.parametrize("dtype", ["bfloat16", "tf32"])
def test_coarse_arithmetic_is_refused_when_the_job_is_planned(bench: Bench, dtype: str) -> None:
    half = {"device": "auto", "dtype": dtype, "batch_size": 4}
    with pytest.raises(ValueError, match=rf"verified needs execution\.dtype float32 or float64, not {dtype}"):
        bench.run(networks.network(ROBUST), {"name": "verified"}, execution=half, limit=4)
    assert bench.store.jobs.get(bench.job_id).plan is None


@pytest.mark.costly
@pytest.mark.parametrize("name", [ROBUST, "regularised"])
def test_a_program_gives_what_its_network_gives(bench: Bench, tmp_path: Path, name: str) -> None:
    network = networks.network(name)
    program = load(export(network, tmp_path / "network.pt2", shape=(1, 8, 8)))
    smoothing = {"name": "randomized_smoothing", "params": {"selection": 10, "draws": 100, "sigmas": [0.1]}}
    proofs = [{"name": "verified", "params": {"method": method}} for method in get_args(Method)]
    job = (*proofs, {"name": "pgd", "params": {"epsilon": "1/255", "steps": 3}}, smoothing)
    found = []
    for model in (network, program):
        results = bench.run(model, *job, limit=12)
        tables = [bench.table(place, one["name"]) for place, one in enumerate(job)]
        found.append((tables, results.bracket, [one.metrics for one in results.evaluations]))
    assert found[0] == found[1]
    assert found[0][1][0].verified is not None
    assert found[0][1][0].verified.value > 0  # type: ignore[operator]
