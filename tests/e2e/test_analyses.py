"""Analyses through the real service: with an attack, with their plots, and in a comparison."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from assay.models.symvit import symvit
from assay.service.contract.errors import InvalidSpec
from assay.service.contract.results import LayerBreakdown
from tests.e2e.jobs import SHAPE, attacking, finished, outcomes, pgd, rows
from tests.e2e.running import RunningService

EVALUATIONS = [
    pgd(steps=2),
    {"name": "projection_loss", "params": {"form": "paper"}},
    {"name": "eigenvector_check", "params": {"layers": "last"}},
    {"name": "efficiency", "params": {"batch_size": 4, "repeats": 3, "warmup": 1}},
    {"name": "attention_spectrum"},
    {"name": "head_distance", "params": {"normalisation": "row"}},
]


@pytest.mark.costly
def test_the_pursuit_of_a_model_is_checked_and_an_idle_one_is_warned_of(
    shared: RunningService, tmp_path: Path
) -> None:
    client = shared.client
    check = {"name": "pursuit_check", "params": {"adversarial_steps": 1}}
    with pytest.raises(InvalidSpec, match="needs RPC-Attention in some layer, which the model 'symvit'"):
        client.submit(attacking(None, [check]))
    idle = {"name": "rpc_symvit", "params": {**SHAPE, "regularization": 1e6}}
    spec = {**attacking(None, [check, {"name": "clean"}], limit=12), "model": idle}
    sizes = [{"device": "cpu", "batch_size": size} for size in (5, 12)]
    jobs = [client.submit({**spec, "execution": size}).id for size in sizes]
    for job in jobs:
        finished(client, job)
    pursuit, clean = client.results(jobs[0]).evaluations
    for row in (pursuit, clean):
        (warning,) = [one for one in row.warnings if one.code == "inactive_pursuit"]
        assert warning.evidence == {"largest_share": 0.0, "examples": 12}
    assert pursuit.metrics["nonzero_share"].value == 0.0
    assert pursuit.metrics["top1"].value == clean.metrics["top1"].value
    assert pursuit.metrics["top1_no_sparse"].value == clean.metrics["top1"].value
    labels = [part.label for part in pursuit.breakdown]
    assert labels[:5] == [*(f"layer 0/iteration {number}" for number in (1, 2, 3, 4)), "layer 0"]
    assert {"adversarial", "no_sparse/adversarial", "dual_sign_plus/noise"} <= {*labels}
    (plot,) = [one for one in client.artifacts(jobs[0]) if one.name.startswith("plot-0")]
    ElementTree.fromstring(client.download(jobs[0], plot.name, tmp_path).read_text())
    compared = {(row["evaluation"], row["metric"]): row for row in client.compare(jobs)["rows"]}
    assert compared["pursuit_check", "top1"]["test"]["p_value"] == 1
    assert abs(compared["pursuit_check", "residual"]["difference"]) < 1e-4


@pytest.mark.costly
def test_analyses_stand_beside_an_attack(shared: RunningService, trained: str, tmp_path: Path) -> None:
    client = shared.client
    causal = {"name": "vit", "params": {"image_size": 32, "attention": "rpc_causal", "layers": "first"}}
    with pytest.raises(InvalidSpec, match="'rpc_causal' does not offer"):
        client.submit({**attacking(None, EVALUATIONS), "model": causal})
    jobs = [
        client.submit(
            attacking(trained, EVALUATIONS, limit=12, execution={"device": "cpu", "batch_size": size})
        ).id
        for size in (5, 12)
    ]
    for job in jobs:
        assert finished(client, job).progress.done == 5 * 12 + 3
    _, loss, vectors, cost, spectrum, distance = client.results(jobs[0]).evaluations
    assert loss.metrics["projection_loss"].n == 12
    (layer,) = loss.breakdown
    assert isinstance(layer, LayerBreakdown)
    assert layer.metrics["projection_loss"].value == pytest.approx(
        loss.metrics["projection_loss"].value, rel=1e-9
    )
    assert [part.label for part in vectors.breakdown] == ["random", "permuted", "layer 0"]
    assert 0 < vectors.metrics["eigenvector_cosine"].value <= 1 + 1e-9
    assert cost.metrics["parameters"].value == sum(
        part.numel() for part in symvit(10, 1, **SHAPE).parameters()
    )
    assert cost.metrics["test_seconds"].n == 3
    assert [w.code for w in cost.warnings] == ["measures_the_machine"]
    assert 1 <= spectrum.metrics["rank_90"].value <= 17
    assert 0 < spectrum.metrics["explained_by_largest"].value <= 1
    assert 0 < distance.metrics["head_distance"].value < 2**0.5

    # Those of the analyses, by their place; plots of the whole job have kinds for names.
    plots = [a for a in client.artifacts(jobs[0]) if a.name.startswith("plot-0")]
    names = ["projection_loss", "eigenvector_check", "efficiency", "attention_spectrum", "head_distance"]
    assert [plot.name for plot in plots] == [f"plot-{n:03d}-{name}.svg" for n, name in enumerate(names, 1)]
    for plot in plots:
        assert plot.media_type == "image/svg+xml"
        ElementTree.fromstring(client.download(jobs[0], plot.name, tmp_path).read_text())
    tables = [outcomes(client, job, tmp_path / job) for job in jobs]
    for name, count in (("outcomes-001-projection_loss.csv", 12), ("outcomes-003-efficiency.csv", 3)):
        assert len(rows(tables[0][name])) == count
    # Another batch size changes rounding only.
    compared = {(r["evaluation"], r["metric"]): r for r in client.compare(jobs)["rows"]}
    for key in (
        ("projection_loss", "projection_loss"),
        ("eigenvector_check", "eigenvector_cosine"),
        ("attention_spectrum", "explained_by_largest"),
        ("head_distance", "head_distance"),
    ):
        assert abs(compared[key]["difference"]) < 1e-4
        assert compared[key]["test"]["adjusted_p_value"] == 1.0
