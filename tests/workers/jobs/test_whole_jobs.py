"""Whole evaluation jobs in one process: plan, shards, merge, results. Planted faults raise warnings."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import safetensors
import torch
from torch import Tensor, nn

from assay.models.layers.layers import Classifier
from assay.service.api.results import finished_results
from assay.service.contract.findings.traces import TraceFile
from assay.service.contract.gallery import Gallery
from assay.service.contract.results import Breakdown, EvaluationResult, Results, StageBreakdown
from assay.service.store.rows import Claim, OutcomeRow
from assay.service.store.store import Store
from assay.workers.catalog import load
from assay.workers.evaluation.engine import compiled
from assay.workers.jobs import evaluate, plan
from assay.workers.jobs.loading import Loaded
from assay.workers.jobs.session import Session
from assay.workers.settings import WorkerSettings
from assay.workers.supervision.completion import merge_and_finish
from tests.support import networks
from tests.support.jobs import add, claim, evaluate_spec, succeeded, train_spec

EPSILON = "24/255"
SIZE = 8


class Prepared(Session):
    """A session whose classifier is the test's."""

    def __init__(self, model: nn.Module, others: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self.models = {"": model, **others}

    def _of(self, name: str) -> Loaded:
        channels = getattr(self.models[name], "channels", 1)
        classifier = (
            Classifier(self.models[name], (0.0,) * channels, (1.0,) * channels).eval().requires_grad_(False)
        )
        device = torch.device("cpu")
        return Loaded(classifier, SIZE, "planted", untrained=False, device=device, dtype=torch.float32)

    def classifier(self, spec: Any, *, device: str, weights: str | None) -> Loaded:
        return self._of("")

    def other(self, source: Any, execution: Any, *, device: str) -> Loaded:
        return self._of(source["weights"])


Run = Callable[..., Results]


class Bench:
    """A store, a state folder, and a worker that is a function."""

    def __init__(self, folder: Path, store: Store) -> None:
        self.folder = folder
        self.store = store
        self.settings = WorkerSettings(state=folder)
        self.messages: list[str] = []

    def run(
        self,
        model: nn.Module,
        *evaluations: Mapping[str, Any],
        others: Mapping[str, nn.Module] | None = None,
        shard_seconds: float = 1e9,
        **spec: Any,
    ) -> Results:
        trained = {name: self._trained() for name in others or {}}
        planted = {trained[name]: other for name, other in (others or {}).items()}
        renamed = [self._with_job(item, trained) for item in evaluations]
        self.job_id = add(self.store, self._spec(renamed, spec))
        session = Prepared(model, planted)
        while not self._over():
            held = claim(self.store)
            self._work(held, session, shard_seconds)
        return finished_results(self.store, self.store.jobs.get(self.job_id), load())

    def table(self, index: int, name: str) -> list[dict[str, str]]:
        path = self.settings.folder(self.job_id) / f"outcomes-{index:03d}-{name}.csv"
        return list(csv.DictReader(path.read_text().splitlines()))

    def _trained(self) -> str:
        """A training job that has succeeded."""
        job_id = add(self.store, train_spec())
        succeeded(self.store, self.store.jobs.get(job_id))
        return job_id

    def _with_job(self, item: Mapping[str, Any], trained: Mapping[str, str]) -> dict[str, Any]:
        params = dict(item.get("params", {}))
        if "job" in params:
            params["job"] = trained[params["job"]]
        if "others" in params:
            params["others"] = [trained[name] for name in params["others"]]
        return {**item, "params": params}

    def _spec(self, evaluations: Any, changes: Mapping[str, Any]) -> dict[str, Any]:
        spec = evaluate_spec() | {"data": {"name": "digits", "params": {}}, **changes}
        filled = []
        for item in evaluations:
            component = load().find_evaluation(item["name"])
            defaults = {
                name: schema["default"]
                for name, schema in component.parameters["properties"].items()
                if "default" in schema
            }
            filled.append({"name": item["name"], "params": defaults | item.get("params", {}), "data": None})
        execution = {"device": "cpu", "dtype": "float32", "batch_size": 64} | changes.get("execution", {})
        return spec | {"evaluations": filled, "execution": execution}

    def _over(self) -> bool:
        return str(self.store.jobs.get(self.job_id).state) == "succeeded"

    def _work(self, held: Claim, session: Prepared, shard_seconds: float) -> None:
        request = {
            "kind": held.kind, "job": held.job_id, "spec": held.spec, "plan": held.plan,
            "evaluation": held.evaluation, "start": held.start, "stop": held.stop,
            "folder": str(self.settings.folder(held.job_id)), "weights": None,
            "sources": {name: {"spec": train_spec(), "weights": name} for name in session.models},
            "shard_seconds": shard_seconds,
        }  # fmt: skip

        def report(message: Mapping[str, Any]) -> None:
            self.messages.append(str(message.get("message", "")))

        if held.kind == "plan":
            planned = json.loads(json.dumps(plan.run(request, session, report)["plan"]))
            assert self.store.shards.finish_plan(held, planned)
            return
        answer = json.loads(json.dumps(evaluate.run(request, session, report)))
        fields = ("n", "columns", "seconds", "forward_passes", "backward_passes", "extra")
        row = OutcomeRow(held.evaluation or 0, held.number, *(answer[field] for field in fields))
        finished = self.store.shards.finish(held, row)
        assert finished is not None
        merge_and_finish(self.store, self.settings, held, finished)


@pytest.fixture
def bench(tmp_path: Path, store: Store) -> Bench:
    return Bench(tmp_path, store)


class Plain(nn.Module):
    """Knows the digits, and never looks at the first pixel, which is always white."""

    def __init__(self, stored: str = "blind") -> None:
        super().__init__()
        self.layers = networks.network(stored)

    def _logits(self, flat: Tensor) -> Tensor:
        seen = torch.cat([torch.zeros_like(flat[:, :1]), flat[:, 1:]], 1)
        logits: Tensor = self.layers(seen)
        return logits

    def forward(self, images: Tensor) -> Tensor:
        return self._logits(images.flatten(1))


class Masked(Plain):
    """Rounds its input: gradients are zero, and the weakness is still there."""

    def forward(self, images: Tensor) -> Tensor:
        return self._logits((images.flatten(1) * 12).round() / 12)


class Backdoor(Plain):
    """Predicts 0 if the first pixel is grey. No gradient leads there."""

    def forward(self, images: Tensor) -> Tensor:
        logits = self._logits(images.flatten(1))
        grey = (images.flatten(1)[:, 0] > 0.03).to(logits.dtype)
        return torch.cat([logits[:, :1] + 100 * grey[:, None], logits[:, 1:]], 1)


class Dice(Plain):
    """Draws random numbers."""

    def forward(self, images: Tensor) -> Tensor:
        logits = self._logits(images.flatten(1))
        return logits + 2 * torch.randn_like(logits)


class Neighbours(Plain):
    """Looks at the other images of the batch."""

    def forward(self, images: Tensor) -> Tensor:
        logits = self._logits(images.flatten(1))
        return logits - logits.mean(0)


def codes(row: EvaluationResult) -> set[str]:
    return {warning.code for warning in row.warnings}


def across(results: Results) -> set[str]:
    return {warning.code for warning in results.warnings} - {"top5_upper_bound"}


GRID = (
    {"name": "clean"},
    {"name": "uniform_noise", "params": {"epsilon": EPSILON, "draws": 10}},
    {"name": "fgsm", "params": {"epsilon": EPSILON}},
    {"name": "pgd", "params": {"epsilon": EPSILON, "steps": 20}},
    {"name": "square", "params": {"epsilon": EPSILON, "queries": 200}},
)


@pytest.mark.costly
def test_a_plain_model_raises_no_alarm(bench: Bench) -> None:
    # After 20 steps 8 of 355 images are not converged on these draws, a little more than 2 %.
    longer = {"name": "pgd", "params": {"epsilon": EPSILON, "steps": 40}}
    results = bench.run(Plain(), *GRID[:3], longer, *GRID[4:])
    assert across(results) == set()
    alarms = {"zero_gradient", "random_outputs", "batch_dependent", "unverified", "unconverged"}
    assert not set().union(*map(codes, results.evaluations)) & alarms
    clean, noise, fgsm, pgd, square = (row.metrics["top1"].value for row in results.evaluations)
    assert clean > noise > fgsm >= pgd
    assert square > pgd - 0.02
    assert results.evaluations[4].metrics["queries"].value > 50
    assert "queries" not in results.evaluations[3].metrics
    assert 0 < results.evaluations[3].metrics["median_linf"].value <= 24 / 255 + 1e-6


@pytest.mark.costly
def test_masked_gradients_are_noticed(bench: Bench) -> None:
    results = bench.run(Masked(), *GRID)
    by_name = {row.name: row for row in results.evaluations}
    assert "zero_gradient" in codes(by_name["fgsm"])
    assert "zero_gradient" in codes(by_name["pgd"])
    assert {"black_box_stronger_than_white_box", "noise_stronger_than_gradient"} <= across(results)


@pytest.mark.costly
def test_a_hidden_example_is_found_by_what_needs_no_gradient(bench: Bench) -> None:
    results = bench.run(Backdoor(), *GRID)
    by_name = {row.name: row for row in results.evaluations}
    assert by_name["uniform_noise"].metrics["top1"].value < 0.2
    assert "noise_stronger_than_gradient" in across(results)


@pytest.mark.costly
def test_a_model_that_rolls_dice_is_noticed(bench: Bench) -> None:
    torch.manual_seed(0)
    results = bench.run(Dice(), *GRID[:4])
    assert all("random_outputs" in codes(row) for row in results.evaluations)
    assert "unverified" in codes(results.evaluations[1])


@pytest.mark.costly
def test_a_model_that_rolls_dice_rolls_the_same_again(bench: Bench) -> None:
    """Independent of earlier work in the process, in or outside the job, in one shard or several."""
    model, attack = Dice(), {"name": "pgd", "params": {"epsilon": EPSILON, "steps": 5, "eot": 2}}

    def outcomes(*evaluations: Mapping[str, Any], **options: Any) -> list[dict[str, str]]:
        torch.rand(7)
        bench.run(model, *evaluations, **options)
        return bench.table(len(evaluations) - 1, "pgd")

    first = outcomes(attack)
    assert {row["correct"] for row in first} == {"0", "1"}
    assert outcomes(attack) == first
    assert outcomes({"name": "fgsm"}, {"name": "clean"}, attack) == first
    assert outcomes(attack, seed=1) != first
    parts = outcomes(attack, shard_seconds=1e-9)
    assert len(list(bench.store.shards.of(bench.job_id))) > 2
    assert outcomes(attack, shard_seconds=1e-9) == parts != first


@pytest.mark.costly
def test_random_models_have_expected_accuracies(bench: Bench) -> None:
    """Those of the final draws, in the results, by stage, in the CSV and in the words of the warning."""
    torch.manual_seed(0)
    averaged = {"epsilon": EPSILON, "steps": 4, "eot": 3, "model_draws": 20}
    results = bench.run(
        Dice(),
        {"name": "pgd", "params": averaged},
        {"name": "pgd", "params": averaged | {"judgement": "single_draw"}},
        {"name": "autoattack", "params": {"epsilon": EPSILON, "version": "rand", "model_draws": 10}},
        limit=20,
    )
    expected, single, ensemble = results.evaluations
    assert list(expected.metrics)[:2] == ["expected_top1", "clean_expected_top1"]
    assert "top1" not in expected.metrics
    table = bench.table(0, "pgd")
    share = [float(row["expected"]) for row in table]
    metric = expected.metrics["expected_top1"]
    assert metric.value == pytest.approx(sum(share) / len(share))
    assert metric.ci_low is not None
    assert metric.unit == "proportion"
    assert all(round(20 * one) == pytest.approx(20 * one) for one in share)
    assert next(iter(single.metrics)) == "top1"
    said = {row.name + row.params["judgement"]: warning for row in results.evaluations
            for warning in row.warnings if warning.code == "random_outputs"}  # fmt: skip
    assert said["pgdexpected"].severity == "note"
    assert "those to expect over its draws" in said["pgdexpected"].message
    assert said["pgdsingle_draw"].severity == "caution"
    assert "those of single draws" in said["pgdsingle_draw"].message
    stages = [part for part in ensemble.breakdown if isinstance(part, StageBreakdown)]
    assert [part.stage for part in stages] == ["apgd_ce", "apgd_dlr"]
    assert stages[-1].metrics["expected_top1"].value == ensemble.metrics["expected_top1"].value
    assert "unverified" not in codes(expected)


@pytest.mark.costly
def test_a_model_that_looks_at_its_neighbours_is_noticed(bench: Bench) -> None:
    results = bench.run(Neighbours(), {"name": "clean"})
    assert "batch_dependent" in codes(results.evaluations[0])


@pytest.mark.costly
def test_an_attack_that_stops_too_early_is_noticed(bench: Bench) -> None:
    short = {"epsilon": EPSILON, "steps": 20, "relative_step_size": 0.02, "random_start": False}
    enough = {"epsilon": EPSILON, "steps": 100, "relative_step_size": 0.05, "random_start": False}
    results = bench.run(Plain(), {"name": "pgd", "params": short}, {"name": "pgd", "params": enough})
    assert "unconverged" in codes(results.evaluations[0])
    assert "unconverged" not in codes(results.evaluations[1])


AUTOATTACK = {"name": "autoattack", "params": {"epsilon": "12/255", "queries": 100}}


@pytest.mark.slow
def test_autoattack_shows_its_stages_in_shards_as_in_one(bench: Bench) -> None:
    few: dict[str, Any] = {"limit": 80, "execution": {"batch_size": 32}}
    whole = bench.run(Plain(), AUTOATTACK, **few).evaluations[0]
    tables = bench.table(0, "autoattack")
    cut = bench.run(Plain(), AUTOATTACK, shard_seconds=1e-9, **few).evaluations[0]
    assert len(list(bench.store.shards.of(bench.job_id))) == 1 + 3, "the plan, and three shards"
    assert [stage.stage for stage in _stages(whole)] == ["apgd_ce", "apgd_t", "fab_t", "square"]
    for one, other in zip(_stages(whole), _stages(cut), strict=True):
        assert (one.n, one.broken, one.metrics) == (other.n, other.broken, other.metrics)
    assert _stages(whole)[-1].metrics["top1"].value == whole.metrics["top1"].value
    assert {"adaptive_attack_needed"} <= codes(whole)
    assert {row["broken_by"] for row in tables} >= {"", "apgd_ce"}
    assert any(": " in message and "left after apgd_t" in message for message in bench.messages)


def _stages(row: EvaluationResult) -> list[StageBreakdown]:
    assert all(isinstance(part, StageBreakdown) for part in row.breakdown)
    return [part for part in row.breakdown if isinstance(part, StageBreakdown)]


@pytest.mark.costly
def test_the_librarys_batches_are_not_cut_into_shards(bench: Bench) -> None:
    params = {"epsilon": EPSILON, "steps": 5, "backend": "compatible"}
    compatible = {"name": "apgd_ce", "params": params}
    native = {"name": "apgd_ce", "params": {**params, "backend": "native"}}
    bench.run(Plain(), compatible, native, shard_seconds=1e-9)
    shards = [shard for shard in bench.store.shards.of(bench.job_id) if shard.kind == "evaluate"]
    assert [shard.evaluation for shard in shards].count(0) == 1
    assert [shard.evaluation for shard in shards].count(1) == 6


@pytest.mark.costly
def test_autoattack_in_a_paper_job_is_labelled_pixel(bench: Bench) -> None:
    pgd = {"name": "pgd", "params": {"epsilon": "12/255", "steps": 3}}
    results = bench.run(Plain(), pgd, AUTOATTACK, protocol="paper", limit=8)
    assert [row.protocol for row in results.evaluations] == ["paper", "pixel"]


def test_steps_are_kept_of_the_first_examples_and_change_no_number(bench: Bench) -> None:
    pgd = {"name": "pgd", "params": {"epsilon": EPSILON, "steps": 3}}
    results = bench.run(Plain(), pgd, shard_seconds=1e-9, save_traces=30)
    files = [a for a in bench.store.artifacts.of(bench.job_id) if a.name.startswith("trace-000-pgd-")]
    kept = [TraceFile.model_validate_json(Path(file.path).read_bytes()).examples for file in files]
    table = bench.table(0, "pgd")
    attacked = [line["id"] for line in table if int(line["queries"])]
    first = {line["id"] for line in table[:30]}
    assert len(files) == 1
    assert {key for one in kept for key in one} == first & set(attacked)
    again = bench.run(Plain(), pgd, shard_seconds=1e-9)
    assert results.evaluations[0].metrics == again.evaluations[0].metrics
    assert table == bench.table(0, "pgd")


def test_adversarial_examples_are_kept_on_request(bench: Bench) -> None:
    pgd = {"name": "pgd", "params": {"epsilon": EPSILON, "steps": 10}}
    results = bench.run(Plain(), pgd, shard_seconds=1e-9, save_adversarial=True)
    row = results.evaluations[0]
    kept = [a for a in bench.store.artifacts.of(bench.job_id) if a.name.endswith(".safetensors")]
    assert len(kept) == 6
    table = {line["id"]: line for line in bench.table(0, "pgd")}
    broken = {key for key, line in table.items() if line["clean_correct"] == "1" and line["correct"] == "0"}
    found: set[str] = set()
    for artifact in kept:
        with safetensors.safe_open(artifact.path, framework="pt") as file:
            ids = json.loads(file.metadata()["ids"])
            images, labels = file.get_tensor("images"), file.get_tensor("labels")
        found |= set(ids)
        assert images.shape[1:] == (1, SIZE, SIZE)
        assert (Plain()(images).argmax(1) != labels).all()
    assert found == broken
    assert row.metrics["top1_8bit"].value >= row.metrics["top1"].value
    assert all(line["correct8"] in "01" for line in table.values())


def gallery_of(bench: Bench, name: str) -> Gallery:
    content = (bench.settings.folder(bench.job_id) / name).read_bytes()
    assert name in {artifact.name for artifact in bench.store.artifacts.of(bench.job_id)}
    return Gallery.model_validate_json(content)


@pytest.mark.costly
@pytest.mark.parametrize("protocol", ["paper", "pixel"])
def test_a_gallery_shows_the_same_examples_for_any_shards(bench: Bench, protocol: str) -> None:
    pgd = {"name": "pgd", "params": {"epsilon": EPSILON, "steps": 10}}
    found, passes = [], []
    for seconds in (1e9, 1e-9):
        execution = {"batch_size": 16}
        results = bench.run(
            Plain(), pgd, shard_seconds=seconds, protocol=protocol, limit=60, execution=execution
        )
        found.append(gallery_of(bench, "gallery-000-pgd.json"))
        passes.append(results.evaluations[0].forward_passes)
        table = {line["id"]: line for line in bench.table(0, "pgd")}
    assert passes[0] == passes[1]
    assert not list(bench.settings.folder(bench.job_id).glob("gallery-*-0*-*.json")), "shards' files are gone"
    one, many = ([(item.id, item.rank, item.succeeded) for item in gallery.items] for gallery in found)
    assert one == many
    assert len(one) == 12
    for item in found[1].items:
        line = table[item.id]
        assert line["clean_correct"] == "1"
        assert item.before.prediction == item.label == int(line["label"])
        assert item.after.prediction == int(line["prediction"])
        assert item.succeeded == (line["correct"] == "0") == (float(line["margin"]) < 0)
        assert item.linf == float(line["linf"])


@pytest.mark.costly
def test_a_gallery_of_corruptions_has_one_example_at_the_highest_severity(bench: Bench) -> None:
    cells = {"corruptions": ["fog", "contrast"], "severities": [1, 4]}
    bench.run(Plain(), {"name": "corruptions", "params": cells}, {"name": "clean"}, limit=40)
    gallery = gallery_of(bench, "gallery-000-corruptions.json")
    assert [(item.corruption, item.severity) for item in gallery.items] == [("fog", 4), ("contrast", 4)]
    assert [item.clean is None for item in gallery.items] == [False, True]
    assert len({item.id for item in gallery.items}) == 1
    names = {artifact.name for artifact in bench.store.artifacts.of(bench.job_id)}
    assert "gallery-001-clean.json" not in names


@pytest.mark.costly
def test_tf32_on_a_cpu_is_float32_and_says_so(bench: Bench) -> None:
    plain = bench.run(Plain(), {"name": "clean"}).evaluations[0]
    execution = {"device": "auto", "dtype": "tf32", "channels_last": True}
    result = bench.run(Plain(), {"name": "clean"}, execution=execution)
    (said,) = [warning for warning in result.evaluations[0].warnings if warning.code == "other_dtype"]
    assert said.message == "clean was computed in float32: the device has no TF32"
    assert said.evidence == {"evaluation": "clean", "dtype": "tf32", "computed_in": "float32"}
    device = result.provenance.device
    assert (device["dtype"], device["tf32"], device["channels_last"]) == ("float32", False, True)
    assert result.evaluations[0].metrics["top1"] == plain.metrics["top1"]
    assert "other_dtype" not in codes(plain)


@pytest.mark.costly
def test_screening_is_labelled_and_never_raises_accuracy(bench: Bench) -> None:
    pgd = {"name": "pgd", "params": {"epsilon": "12/255", "steps": 10}}
    plain = bench.run(Plain(), pgd).evaluations[0]
    screened = bench.run(Plain(), pgd, execution={"screening": "bfloat16"}).evaluations[0]
    assert screened.metrics["top1"].value <= plain.metrics["top1"].value
    assert "screened" in codes(screened)
    assert "screened" not in codes(plain)
    mixed = bench.run(Plain(), pgd, execution={"screening": "bfloat16_gradients"}).evaluations[0]
    (said,) = [warning for warning in mixed.warnings if warning.code == "screened"]
    assert "gradients were in bfloat16" in said.message
    assert 0 < said.evidence["in_float32"] <= said.evidence["iterates"]
    assert said.evidence["above_bound"] == 0 < said.evidence["bound"]
    rough = bench.run(Plain(), pgd, execution={"dtype": "bfloat16"}).evaluations[0]
    (again,) = [warning for warning in rough.warnings if warning.code == "screened"]
    assert (again.message, again.evidence.keys()) == (said.message, said.evidence.keys())
    assert again.evidence["screening"] == "bfloat16_gradients"
    for other in (mixed, rough):
        assert other.metrics["top1"].value == pytest.approx(plain.metrics["top1"].value, abs=0.02)


@pytest.mark.costly
def test_what_ran_compiled_is_told_beside_the_device(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The backend traces alone, and needs no compiler. Nothing is captured on a CPU."""
    monkeypatch.setattr(compiled, "BACKEND", "aot_eager")
    monkeypatch.setattr(compiled, "_compiler_of", lambda device: "a compiler 1.0")
    pgd = {"name": "pgd", "params": {"epsilon": "12/255", "steps": 20}}
    found = bench.run(Plain(), {"name": "clean"}, pgd, execution={"compile": "on", "capture": True})
    device = found.provenance.device
    assert device["captured"] == {"replays": 0, "shards": 0, "of": device["compiled"]["of"]}
    assert device["compiled"]["passes"] > 0
    assert device["compiled"]["shards"] == device["compiled"]["of"] > 0
    assert device["compiled"]["compilers"] == ["a compiler 1.0"]
    assert "trial" not in device["compiled"]
    trial = bench.run(Plain(), pgd, execution={"compile": "auto"}).provenance.device["compiled"]["trial"]
    assert trial == {"chosen": False, "seconds": None, "ratio": None, "refused": None}
    assert not {"captured", "compiled"} & bench.run(Plain(), pgd).provenance.device.keys()


def test_progress_says_that_passes_are_compiled() -> None:
    reports: list[Any] = []
    messages = evaluate._Messages(
        reports.append, {"name": "pgd", "params": {"epsilon": "2/255"}, "data": None}, 9, 9
    )
    messages.staged("first", 5)
    messages.progress(4)
    messages.preparing("compiling passes")
    messages.preparing(None)
    assert [(one["message"], one["done"], one.get("at_once", False)) for one in reports[1:]] == [
        ("pgd 2/255: 5 of 9 left after first", 4, False),
        ("pgd 2/255: compiling passes", 4, True),
        ("pgd 2/255: 5 of 9 left after first", 4, True),
    ]


@pytest.mark.costly
def test_several_models_and_gradients_of_another_reach_the_attack(bench: Bench) -> None:
    """Of an ensemble, and of BPDA against a model that rounds its gradients away."""
    both = {"epsilon": EPSILON, "job": "twin", "others": ["other twin"], "steps": 10}
    borrowed = {"epsilon": EPSILON, "job": "twin", "steps": 20}
    results = bench.run(
        Masked(),
        {"name": "transfer", "params": both},
        {"name": "bpda", "params": borrowed},
        {"name": "pgd", "params": {"epsilon": EPSILON, "steps": 20}},
        others={"twin": Plain(), "other twin": Plain("blind-twin")},
    )
    transferred, bpda, direct = results.evaluations
    assert bpda.metrics["top1"].value < transferred.metrics["top1"].value < direct.metrics["top1"].value
    assert "zero_gradient" in codes(direct)
    assert "zero_gradient" not in codes(bpda)
    assert results.provenance is not None


@pytest.mark.costly
def test_a_transfer_attack_uses_the_other_model(bench: Bench) -> None:
    params = {"epsilon": EPSILON, "job": "twin"}
    attack = {"name": "transfer", "params": params}
    direct = {"name": "pgd", "params": {"epsilon": EPSILON, "steps": 40}}
    results = bench.run(Plain(), attack, direct, others={"twin": Plain("blind-twin")})
    transferred, attacked = results.evaluations
    clean = transferred.metrics["attack_success_rate"]
    assert 0 < clean.value < attacked.metrics["attack_success_rate"].value
    # No early exit; an example whose iterates repeat takes no more of the 40 steps.
    assert transferred.forward_passes > transferred.backward_passes > 355 * 30
    assert results.provenance is not None
    (source,) = results.provenance.sources.values()
    assert source.model_dump() == {"model": {"name": "symvit", "params": {}}, "weights_sha256": "planted"}
    same = bench.run(Plain(), attack, others={"twin": Plain()}).evaluations[0]
    assert same.metrics["top1"].value < transferred.metrics["top1"].value


@pytest.mark.costly
def test_a_masked_model_falls_to_a_transfer_attack(bench: Bench) -> None:
    attack = {"name": "transfer", "params": {"epsilon": EPSILON, "job": "twin"}}
    direct = {"name": "pgd", "params": {"epsilon": EPSILON, "steps": 40}}
    results = bench.run(Masked(), attack, direct, others={"twin": Plain("blind-twin")})
    assert "black_box_stronger_than_white_box" in across(results)


@pytest.mark.costly
def test_a_job_under_corruptions_has_every_cell_with_any_shards(bench: Bench) -> None:
    params = {"corruptions": ["gaussian_noise", "fog", "jpeg_compression"], "severities": [1, 5]}
    item = {"name": "corruptions", "params": params}
    model = Plain()
    [whole] = bench.run(model, item, seed=3).evaluations
    [row] = bench.run(model, item, seed=3, shard_seconds=1e-9).evaluations
    assert {name: metric.model_dump() for name, metric in row.metrics.items()} == {
        name: metric.model_dump() for name, metric in whole.metrics.items()
    }
    assert set(row.metrics) == {"top1", "top5", "corrupted_top1"}
    cells = [part for part in row.breakdown if isinstance(part, Breakdown) and part.severity is not None]
    assert [part.label for part in cells] == [
        f"{name}/{severity}" for name in params["corruptions"] for severity in (1, 5)
    ]
    values = [part.metrics["top1"].value or 0.0 for part in cells]
    assert row.metrics["corrupted_top1"].value == pytest.approx(sum(values) / 6)
    assert 0 < min(values) < max(values)
    assert row.metrics["top1"].value is not None
    assert row.metrics["top1"].value > row.metrics["corrupted_top1"].value  # type: ignore[operator]
    assert row.forward_passes == 7 * row.metrics["top1"].n
    [other] = bench.run(model, item, seed=4).evaluations
    assert other.metrics["corrupted_top1"].value != row.metrics["corrupted_top1"].value
    table = bench.table(0, "corruptions")
    assert all(len(line["corrupted"]) == 6 for line in table)
