"""A network of one's own as an exported program, over HTTP through the real service: the same as in code."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

from assay.models.layers.layers import Classifier
from assay.models.symvit import symvit
from assay.service.client import DEFAULT_URL, AssayClient
from assay.service.contract.errors import InvalidSpec, NoResults
from tests.e2e.jobs import SHAPE, attacking, finished, outcomes, pgd
from tests.e2e.running import RunningService
from tests.support import networks
from tests.support.archives import GRAPH, archive, entries_of
from tests.support.programs import export

MINE = {"name": "exported", "weights": {"checkpoint": "mine"}}
# Large enough that few examples are left for the slow attacks at the end.
AUTOATTACK = {"name": "autoattack", "params": {"epsilon": "24/255", "version": "standard"}}
PAGE = Path(__file__).resolve().parents[2] / "docs" / "own-models.md"
SIZE = SHAPE["image_size"]
# One form is enough: `test_checkpoints.py` uploads in all.
pytestmark = pytest.mark.parametrize("mode", ["embedded"], indirect=True)


@pytest.fixture
def client(shared: RunningService) -> AssayClient:
    return shared.client


@pytest.fixture(scope="module")
def known(
    shared: RunningService, trained: str, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Classifier]:
    """A training job, and its network in this process."""
    file = shared.client.download(trained, "weights.safetensors", tmp_path_factory.mktemp("trained"))
    network = Classifier(symvit(10, 1, **SHAPE), [0.0], [1.0])
    network.load_state_dict(safetensors.torch.load_file(file))
    return trained, network


@pytest.fixture(scope="module")
def program(known: tuple[str, Classifier], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That network as a program with its normalisation inside."""
    folder = tmp_path_factory.mktemp("program")
    return export(known[1], folder / "mine.pt2", shape=(1, SIZE, SIZE))


@pytest.mark.costly
def test_a_program_gives_example_by_example_what_its_network_gives(
    client: AssayClient, known: tuple[str, Classifier], program: Path, tmp_path: Path
) -> None:
    uploaded = client.upload_checkpoint("mine", program)
    evaluations = [{"name": "clean"}, pgd("8/255", steps=3), AUTOATTACK]
    limited = {"limit": 12}
    mine = client.submit(attacking(None, evaluations, **limited) | {"model": MINE}).id
    own = client.submit(attacking(known[0], evaluations, **limited)).id
    finished(client, mine)
    finished(client, own)
    ready = client.checkpoint("mine")
    assert (ready.state, ready.classes, ready.channels) == ("ready", 10, 1)
    assert ready.program is not None
    assert ready.program.image_size == SIZE
    found, wanted = outcomes(client, mine, tmp_path / "mine"), outcomes(client, own, tmp_path / "own")
    assert len(found) == 3
    assert found == wanted
    results = client.results(mine)
    assert results.provenance is not None
    assert results.provenance.weights_sha256 == uploaded.sha256
    assert not [warning for warning in results.warnings if warning.code == "untrained_weights"]
    clean, attacked, _ = [one.metrics["top1"].value for one in results.evaluations]
    assert clean is not None
    assert attacked is not None
    assert clean > attacked


@pytest.mark.costly
def test_a_program_is_attacked_from_as_its_network_is(
    client: AssayClient, known: tuple[str, Classifier], program: Path, tmp_path: Path
) -> None:
    client.upload_checkpoint("mine", program)
    wait = client.wait_for_checkpoint("mine", timeout_seconds=120)

    def attacks(source: str, others: list[str]) -> list[dict[str, Any]]:
        named = {"job": source, "epsilon": "8/255", "steps": 3}
        return [
            {"name": "transfer", "params": {**named, "others": others, "fusion": "losses"}},
            {"name": "bpda", "params": named},
        ]

    pinned = f"checkpoint:mine@{wait.sha256}"
    uploaded = client.submit(attacking(known[0], attacks("checkpoint:mine", [known[0]]), limit=12)).id
    own = client.submit(attacking(known[0], attacks(known[0], ["checkpoint:mine"]), limit=12)).id
    finished(client, uploaded)
    finished(client, own)
    found, wanted = (outcomes(client, job, tmp_path / job) for job in (uploaded, own))
    assert found == wanted
    assert len(found) == 2
    provenance = client.results(uploaded).provenance
    assert provenance is not None
    assert provenance.sources[pinned].weights_sha256 == wait.sha256
    assert provenance.sources[known[0]].model["name"] == "symvit"
    assert client.job(uploaded).spec["evaluations"][1]["params"]["job"] == pinned


@pytest.mark.costly
def test_a_defended_program_is_broken_with_the_gradients_of_another(
    client: AssayClient, known: tuple[str, Classifier], program: Path, tmp_path: Path
) -> None:
    client.upload_checkpoint("mine", program)
    client.upload_checkpoint("rounded", export(_Rounded(known[1]), tmp_path / "r.pt2", shape=(1, SIZE, SIZE)))
    model = {"name": "exported", "weights": {"checkpoint": "rounded"}}
    params = {"job": "checkpoint:mine", "epsilon": "24/255", "steps": 10}
    found = client.wait_for_checkpoint("rounded", timeout_seconds=120)
    assert found.program is not None
    assert not found.program.gradients
    with pytest.raises(InvalidSpec, match="'pgd' follows gradients, and this exported program has no grad"):
        client.submit(attacking(None, [pgd()]) | {"model": model})
    evaluations = [{"name": "clean"}, {"name": "bpda", "params": params}]
    job = client.submit(attacking(None, evaluations, limit=40) | {"model": model}).id
    finished(client, job)
    clean, attacked = (one.metrics["top1"].value for one in client.results(job).evaluations)
    assert clean is not None
    assert attacked is not None
    assert attacked < clean - 0.2


@pytest.mark.costly
def test_other_ways_to_run_a_program(client: AssayClient, program: Path) -> None:
    client.upload_checkpoint("mine", program)
    paper = attacking(None, [pgd("8/255", steps=2)], limit=8, protocol="paper") | {"model": MINE}
    double = attacking(None, [pgd("8/255", steps=2)], limit=8) | {"model": MINE}
    double["execution"] = {"device": "cpu", "dtype": "float64", "batch_size": 8}
    screened = attacking(None, [pgd("8/255", steps=2)], limit=8) | {"model": MINE}
    screened["execution"] = {"device": "cpu", "batch_size": 8, "screening": "bfloat16"}
    library = attacking(None, [pgd("8/255", steps=2, backend="cleverhans")], limit=8) | {"model": MINE}
    for spec in (paper, double, screened, library):
        finished(client, client.submit(spec).id)


@pytest.mark.costly
def test_programs_have_a_bracket_and_what_cannot_be_verified_is_refused_at_planning(
    client: AssayClient, tmp_path: Path
) -> None:
    job = [
        {"name": "verified", "params": {"epsilon": "4/255"}},
        pgd("4/255", steps=5),
        {"name": "randomized_smoothing", "params": {"selection": 10, "draws": 100, "sigmas": [0.1]}},
    ]
    for name, network in (("relu", "convolutional-fgsm-trained"), ("gelu", "gelu")):
        client.upload_checkpoint(
            name, export(networks.network(network), tmp_path / f"{name}.pt2", shape=(1, 8, 8))
        )
    specs = [
        attacking(None, job, limit=24) | {"model": {"name": "exported", "weights": {"checkpoint": name}}}
        for name in ("relu", "gelu")
    ]
    done = finished(client, client.submit(specs[0]).id)
    results = client.results(done.id)
    (bracket,) = results.bracket
    assert bracket.verified is not None
    assert bracket.attacked is not None
    assert 0 < (bracket.verified.value or 0) <= (bracket.attacked.value or 0)
    assert results.evaluations[2].metrics["smoothed_top1"].n == 24
    refused = client.wait(client.submit(specs[1]).id, timeout_seconds=120)
    assert refused.state == "failed"
    assert refused.error is not None
    assert refused.error.type == "invalid_value"
    assert "evaluations[0], 'verified': no sound bounds by CROWN: 2: Erf" in refused.error.message
    with pytest.raises(NoResults):
        client.results(refused.id)
    # One attempt to plan, no shard of an evaluation.
    moves = [event.data["state"] for event in client.events(refused.id) if event.type == "state"]
    assert moves.count("starting") == 1, moves
    assert "running" not in moves
    smoothed = specs[1] | {"evaluations": job[1:]}
    assert not client.results(finished(client, client.submit(smoothed).id).id).bracket


@pytest.mark.costly
def test_the_example_of_the_page_runs(
    client: AssayClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, *_ = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert DEFAULT_URL in code
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "page"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, about its own calls
        exec(compile(code.replace(DEFAULT_URL, client.url), str(PAGE), "exec"), namespace)
    assert namespace["checked"].state == "ready"
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["clean", "pgd"]
    client.delete_checkpoint("resnet")


@pytest.mark.costly
def test_programs_that_cannot_be_attacked_or_trusted_never_get_to_a_job(
    client: AssayClient, program: Path, tmp_path: Path
) -> None:
    path = export(_Probabilities(), tmp_path / "soft.pt2", shape=(1, 8, 8))
    client.upload_checkpoint("soft", path)
    rejected = client.wait_for_checkpoint("soft", timeout_seconds=120)
    assert rejected.state == "rejected"
    assert rejected.error is not None
    assert "it returns probabilities" in rejected.error.message
    spec = attacking(None, [pgd()]) | {"model": {"name": "exported", "weights": {"checkpoint": "soft"}}}
    with pytest.raises(InvalidSpec, match="this checkpoint was rejected: it returns probabilities"):
        client.submit(spec)

    entries = entries_of(program)
    trace = tmp_path / "hacked"
    first = b'"target": "torch.ops.aten.sub.Tensor"'
    assert first in entries[GRAPH]
    entries[GRAPH] = (
        entries[GRAPH]
        .replace(first, b'"target": "torch.os.system"')
        .replace(b"positive=True", f"positive=__import__('os').system('touch {trace}')".encode())
    )
    path.write_bytes(archive(entries))
    client.upload_checkpoint("hostile", path)
    rejected = client.wait_for_checkpoint("hostile", timeout_seconds=120)
    assert rejected.state == "rejected"
    assert not trace.exists()
    path.write_bytes(program.read_bytes()[:-500])
    with pytest.raises(InvalidSpec, match="damaged or cut off"):
        client.upload_checkpoint("cut", path)


class _Rounded(nn.Module):
    """A defence whose gradient is zero everywhere."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.network((x * 8).round() / 8)
        return logits


class _Probabilities(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(x.mean((1, 2)), dim=1)
