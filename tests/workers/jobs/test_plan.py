"""The plan: ranges that cover everything once, sizes and costs that anybody computes alike."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from assay.attacks.corruptions import frost
from assay.attacks.corruptions.imaging import textures
from assay.models.layers.layers import Classifier
from assay.service.contract.extras import MissingExtra
from assay.workers import accelerator
from assay.workers.data.digits import digits
from assay.workers.data.formats.dataset import MissingData
from assay.workers.evaluation.engine import compiled
from assay.workers.jobs import cost, plan
from assay.workers.jobs.cost import (
    MAX_BATCH,
    choose_batch_size,
    example_seconds,
    measure_cost,
    trained_bytes,
)
from assay.workers.jobs.evaluate import check_folders
from assay.workers.jobs.failures import OtherData, describe
from assay.workers.jobs.loading import Loaded
from assay.workers.jobs.plan import cut
from assay.workers.jobs.session import Session
from assay.workers.jobs.sources import check_content
from tests.support import networks
from tests.support.wordnet_files import write_wordnet

PGD = {"epsilon": 0.1, "restarts": 1, "random_start": True, "backend": "native"}
CUTS = {
    "n": st.integers(1, 3000),
    "seconds": st.floats(1e-9, 1e4),
    "batch_size": st.integers(1, 700),
    "shard_seconds": st.floats(0.01, 1e4),
}


@given(**CUTS)
def test_shards_cover_every_example_once_in_whole_batches(
    n: int, seconds: float, batch_size: int, shard_seconds: float
) -> None:
    shards = cut(3, n, seconds, batch_size, shard_seconds)
    assert [s["start"] for s in shards] == [0, *(s["stop"] for s in shards[:-1])]
    assert shards[-1]["stop"] == n
    assert all(s["start"] < s["stop"] for s in shards)
    assert all(s["start"] % batch_size == 0 for s in shards)
    assert all(s["evaluation"] == 3 for s in shards)
    assert sum(s["cost"] for s in shards) == pytest.approx(n * seconds)
    # No longer than asked, unless it is a single batch.
    assert all(
        s["cost"] <= shard_seconds * (1 + 1e-9) or s["stop"] - s["start"] <= batch_size for s in shards
    )


@given(**CUTS)
def test_cutting_is_pure(n: int, seconds: float, batch_size: int, shard_seconds: float) -> None:
    arguments = (0, n, seconds, batch_size, shard_seconds)
    assert cut(*arguments) == cut(*arguments)


DIGITS = digits(None, "test")


def test_shards_are_as_long_as_asked() -> None:
    shards = cut(0, 1000, 1.0, 10, 240)
    assert [(s["start"], s["stop"]) for s in shards] == [
        (0, 240),
        (240, 480),
        (480, 720),
        (720, 960),
        (960, 1000),
    ]


@pytest.mark.parametrize(
    ("name", "gib", "budget"), [("cpu", 0, 2**28), ("cuda", 80, 2**33), ("cuda", 10, 2**30)]
)
def test_automatic_batches_are_powers_of_two_that_fit(
    monkeypatch: pytest.MonkeyPatch, name: str, gib: int, budget: int
) -> None:
    device = torch.device(name)
    memory = SimpleNamespace(mem_get_info=lambda device: (0, gib * 2**30 - 12345))
    monkeypatch.setattr(accelerator, "driver", memory)
    assert choose_batch_size("auto", device, 0) == MAX_BATCH[name]
    assert choose_batch_size("auto", device, budget // 10) == 8
    assert choose_batch_size("auto", device, budget) == 1
    assert choose_batch_size("auto", device, 10 * budget) == 1
    sizes = [choose_batch_size("auto", device, saved) for saved in range(1, budget, budget // 50)]
    assert sizes == sorted(sizes, reverse=True)


def test_an_asked_batch_size_is_taken_as_it_is() -> None:
    assert choose_batch_size(7, torch.device("cpu"), 10**15) == 7


def loaded(backbone: nn.Module, size: int = 16) -> Loaded:
    classifier = Classifier(backbone, (0.5,), (0.25,)).requires_grad_(False).eval()
    return Loaded(classifier, size, "", untrained=True, device=torch.device("cpu"), dtype=torch.float32)


def test_cost_is_counted_in_operations_and_saved_bytes() -> None:
    flops, saved = measure_cost(loaded(nn.Sequential(nn.Flatten(), nn.Linear(256, 10), nn.GELU())), DIGITS)
    assert flops == 2 * 256 * 10
    # The buffer `std` (4 bytes), by which the gradient is divided, and the GELU's input.
    assert saved == pytest.approx(10 * 4, abs=8), "weights do not grow with the batch, activations do"


def test_gradients_of_weights_need_more_bytes_than_gradients_of_the_input() -> None:
    """Copies of a model of ids were trained in 4 GiB: too little for 32 sequences of 1,024 tokens."""
    model = loaded(nn.Sequential(nn.Flatten(), nn.Linear(256, 10), nn.GELU()))
    found = trained_bytes(model, DIGITS)
    assert found == pytest.approx((256 + 10) * 4, abs=8), "the linear map's input, too"
    assert not any(weights.requires_grad for weights in model.classifier.parameters())


def test_the_model_is_gone_once_its_cost_is_known() -> None:
    """The output of softmax is saved by the pass that made it."""
    model = loaded(nn.Sequential(nn.Flatten(), nn.Linear(256, 10), nn.Softmax(1)))
    model.classifier.requires_grad_(True)
    measure_cost(model, DIGITS)
    kept = weakref.ref(next(model.classifier.parameters()))
    del model
    gc.collect()
    assert kept() is None


def test_cost_is_deterministic_and_counts_attention(spec: dict[str, Any]) -> None:
    session = Session()
    small = session.classifier(spec, device="cpu", weights=None)
    flops, saved = measure_cost(small, DIGITS)
    assert (flops, saved) == measure_cost(small, DIGITS)
    assert saved > 0
    tokens, width = 4 + 1, 12
    linear = 2 * (4 * 64 * width + tokens * width * width * (2 + 1 + 8) + width * 10)
    attention = 2 * 2 * tokens * tokens * width
    assert flops == pytest.approx(linear + attention, rel=0.05)
    assert flops - attention < flops
    without = measure_cost(loaded(nn.Sequential(nn.Flatten(), nn.Linear(256, 10))), DIGITS)[0]
    assert flops > without


def test_attention_is_part_of_the_cost() -> None:
    """torch's counter has to know the fused kernel of the CPU, or long sequences would look cheap."""

    class Attending(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q = x.flatten(1).view(-1, 1, 64, 4)
            return nn.functional.scaled_dot_product_attention(q, q, q).flatten(1)

    flops, _ = measure_cost(loaded(Attending()), DIGITS)
    assert flops == 2 * 2 * 64 * 64 * 4


@pytest.mark.parametrize("name", ["symvit", "rpc_symvit", "convolutional"])
def test_operations_are_those_of_torchs_counter(name: str) -> None:
    size = 8 if name == "convolutional" else 32
    model = loaded(networks.network(name), size)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model.classifier(torch.zeros(1, 1, size, size))
    assert measure_cost(model, DIGITS)[0] == counter.get_total_flops() > 0


PLANNED = """
import sys
from assay.workers.jobs import evaluate, plan
from assay.workers.jobs.session import Session, configure
configure(1)
session, spec = Session(), {spec!r}
request = {{"spec": spec, "weights": None, "folder": {folder!r}, "shard_seconds": 1.0, "sources": {{}}}}
planned = plan.run(request, session, print)["plan"]
shard = {{"plan": planned, "evaluation": 1, "start": 0, "stop": 4, "job": "j", "kind": "evaluate"}}
evaluate.run(request | shard, session, print)
print([name for name in ("torch._dynamo", "sklearn", "scipy", "torchvision", "timm") if name in sys.modules])
"""


@pytest.mark.costly
def test_an_evaluator_of_digits_imports_torch_and_little_else(spec: dict[str, Any], tmp_path: Path) -> None:
    """Each of these takes about a second of every evaluator's start; a training needs the first."""
    program = PLANNED.format(spec=spec, folder=str(tmp_path))
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == "[]"


def test_seconds_grow_with_the_passes_and_are_never_zero() -> None:
    clean = example_seconds({"name": "clean", "params": {}}, 1e9, "cpu", 32)
    pgd = [
        example_seconds({"name": "pgd", "params": PGD | {"steps": steps}}, 1e9, "cpu", 32)
        for steps in (5, 50)
    ]
    assert 0 < clean < pgd[0] < pgd[1]
    assert clean == pytest.approx(1e9 / cost.NOMINAL_FLOPS["cpu"])


def request(spec: dict[str, Any], shard_seconds: float = 1e-4) -> dict[str, Any]:
    return {"spec": spec, "weights": None, "shard_seconds": shard_seconds}


def test_a_plan_is_the_same_whoever_makes_it(spec: dict[str, Any]) -> None:
    reports: list[dict[str, Any]] = []
    made, again = (plan.run(request(spec), Session(), reports.append)["plan"] for _ in range(2))
    # The seconds are measured; no shard depends on them.
    assert made.pop("estimated_seconds") > 0
    assert again.pop("estimated_seconds") > 0
    assert made == again
    assert made["device"] == "cpu"
    assert (made["batch_size"], made["image_size"], made["untrained"]) == (32, 16, True)
    assert made["evaluations"] == [{"n": 355, "available": 355, "classes": 10}] * 2
    assert list(made["data_sha256"]) == ["digits"]
    assert [s["number"] for s in made["shards"]] == list(range(len(made["shards"])))
    assert len([s for s in made["shards"] if s["evaluation"] == 1]) > 1
    assert [r["done"] for r in reports[:2]] == [1, 2]


def test_a_limit_is_planned_for(spec: dict[str, Any]) -> None:
    made = plan.run(request(spec | {"limit": 50}), Session(), lambda _: None)["plan"]
    assert made["evaluations"] == [{"n": 50, "available": 355, "classes": 10}] * 2
    assert max(s["stop"] for s in made["shards"]) == 50


@pytest.mark.parametrize(("length", "cut"), [(11, None), (5, 40)])
def test_sequences_that_the_model_cuts_are_counted(
    spec: dict[str, Any], length: int, cut: int | None
) -> None:
    spec |= {"data": {"name": "recall", "params": {}}, "limit": 40}
    params = {"length": length, "width": 8, "heads": 2, "hidden": 8, "depth": 1}
    spec["model"] = {"name": "sequence_transformer", "params": params, "weights": None}
    spec["evaluations"] = [{"name": "clean", "params": {}, "data": None}]
    (found,) = plan.run(request(spec), Session(), lambda _: None)["plan"]["evaluations"]
    assert found.get("cut") == cut


def test_data_that_does_not_fit_the_model_is_refused(
    spec: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session()
    real = session.data

    class Three:
        """Another data set than the model's, with three channels."""

        name, task, classes, channels = "colours", "classification", 10, 3
        ids, labels = ("a",), torch.zeros(1, dtype=torch.int64)

    monkeypatch.setattr(session, "data", lambda s, split: Three() if s.get("other") else real(s, split))
    spec["evaluations"][1]["data"] = {"name": "digits", "params": {}, "other": True}
    with pytest.raises(ValueError, match=r"evaluations\[1\].data: 'colours' has 3 channels, the model .* 1"):
        plan.run(request(spec), session, lambda _: None)


def test_the_data_is_hashed_once(spec: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    session, calls = Session(), []
    data = type(session.data(spec["data"], "test"))
    monkeypatch.setattr(data, "content_sha256", lambda self: calls.append(1) or "h")
    plan.run(request(spec), session, lambda _: None)
    assert len(calls) == 1


def test_folders_are_looked_at_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = {"name": "pwws", "params": {"wordnet": "wordnet"}}
    monkeypatch.delenv("ASSAY_DATA_ROOT", raising=False)
    with pytest.raises(MissingData, match=r"docs/text-caches\.md"):
        check_folders(item)
    monkeypatch.setenv("ASSAY_DATA_ROOT", str(tmp_path))
    with pytest.raises(MissingData, match=r"docs/text-caches\.md"):
        check_folders(item)
    write_wordnet(tmp_path / "wordnet")
    check_folders(item)
    check_folders({"name": "deepwordbug", "params": {"max_edit_distance": 30}})


FORK = {"constants": "imagecorruptions"}


def test_the_photographs_of_frost_are_planned_with_the_data(
    spec: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    params = {"corruptions": ["fog", "frost"], "severities": [1], "source": "generated"}
    spec["evaluations"] = [{"name": "corruptions", "params": params, "data": None}]
    made = plan.run(request(spec | {"limit": 20}), Session(), lambda _: None)["plan"]
    assert made["data_sha256"]["files of frost"] == textures.photographs_sha256()
    assert made["evaluations"][0]["constants"] == "cifar_c"
    sixth = spec | {
        "limit": 20,
        "evaluations": [{"name": "corruptions", "params": params | FORK, "data": None}],
    }
    assert "files of frost" not in plan.run(request(sixth), Session(), lambda _: None)["plan"]["data_sha256"]
    both = spec | {"limit": 20, "evaluations": [*spec["evaluations"], *sixth["evaluations"]]}
    hashes = plan.run(request(both), Session(), lambda _: None)["plan"]["data_sha256"]
    assert hashes["files of frost"] == textures.photographs_sha256()
    assert hashes["files of frost imagecorruptions"] == textures.photographs_sha256("imagecorruptions")
    monkeypatch.setattr(textures, "photographs_sha256", lambda *_: "of others")
    monkeypatch.setattr(frost, "photographs_sha256", lambda *_: "of others")
    with pytest.raises(OtherData, match=r"files of frost has the content of others on this worker"):
        check_content(made, Session(), spec, spec["evaluations"][0], Session().data(spec["data"], "test"))


def test_a_plan_without_photographs_or_library_fails_at_once(
    spec: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(textures, "PACKAGE", "no_such_package")
    params = {"corruptions": ["frost"], "severities": [1], "source": "generated"}
    frosted = spec | {"evaluations": [{"name": "corruptions", "params": params, "data": None}]}
    with pytest.raises(MissingData, match=r"frost needs its six photographs .*assay-robustness\[reference\]"):
        plan.run(request(frosted), Session(), lambda _: None)
    monkeypatch.setitem(sys.modules, "cleverhans", None)
    item = {"name": "pgd", "params": {**PGD, "backend": "cleverhans"}, "data": None}
    with pytest.raises(MissingExtra) as caught:
        plan.run(request(spec | {"evaluations": [item]}), Session(), lambda _: None)
    failure = describe(caught.value)
    assert (failure["error_type"], failure["retry"]) == ("package_missing", False)
    assert "the backend 'cleverhans' of 'pgd' needs the package cleverhans: pip" in failure["message"]


def _without_memory(*given: object) -> None:
    raise torch.OutOfMemoryError("no room")


@pytest.mark.parametrize(("seconds", "chosen"), [(30.0, True), (20.0, False)])
def test_compiled_passes_are_chosen_where_a_shard_saves_more_than_compiling_takes(
    monkeypatch: pytest.MonkeyPatch, seconds: float, chosen: bool
) -> None:
    """Compiling takes 10 s; the model's own pass 1 s, a compiled pass 0.5 s."""
    took = iter([10.0, 1.0, 1.0, 1.0, 0.5, 0.5, 0.5])
    begun = [0.0]

    def clock() -> float:
        begun.append(begun[-1] + (next(took) if len(begun) % 2 == 0 else 0.0))
        return begun[-1]

    network = nn.Sequential(nn.Flatten(), nn.Linear(16 * 16, 10)).requires_grad_(False)
    own = loaded(network)
    data = SimpleNamespace(task="classification", channels=1)
    assert cost.try_compile(own, data, 4, 19.0) == cost.NOT_TRIED  # type: ignore[arg-type]
    with monkeypatch.context() as short:
        short.setattr(compiled.Compiled, "__call__", _without_memory)
        found = cost.try_compile(own, data, 4, seconds)  # type: ignore[arg-type]
        assert found == {**cost.NOT_TRIED, "refused": "memory was short"}
    monkeypatch.setattr(compiled, "BACKEND", "aot_eager")
    monkeypatch.setattr(cost, "time", SimpleNamespace(perf_counter=clock))
    told: list[str | None] = []
    found = cost.try_compile(own, data, 4, seconds, told.append)  # type: ignore[arg-type]
    assert told == ["compiling passes", None]
    assert found == {"chosen": chosen, "seconds": 10.0, "ratio": 0.5, "refused": None}
