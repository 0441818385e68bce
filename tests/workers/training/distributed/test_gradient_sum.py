"""Gradients are summed during the backward pass, and a process that runs out of memory holds up no other."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from assay.workers.training.distributed.gradient_sum import GradientSum
from assay.workers.training.distributed.processes import ALONE
from assay.workers.training.result import WEIGHTS_NAME

pytestmark = pytest.mark.trains

SCRIPT = Path(__file__).with_name("reducing.py")
LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {}


@pytest.fixture(scope="module")
def reduced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the two processes of `reducing.py` left."""
    folder = tmp_path_factory.mktemp("reduced")
    environment = os.environ | LOOPBACK | {"OMP_NUM_THREADS": "1"}
    both = [
        subprocess.Popen([sys.executable, str(SCRIPT), str(folder), str(rank), "2"], env=environment)
        for rank in range(2)
    ]
    assert [process.wait(timeout=250) for process in both] == [0, 0]
    return folder


@pytest.fixture(scope="module", params=[0, 1])
def gradients(request: pytest.FixtureRequest, reduced: Path) -> Any:
    return torch.load(reduced / f"gradients-{request.param}.pt")


@pytest.mark.costly
def test_the_sums_are_those_of_torchs_data_parallel(gradients: Any) -> None:
    found, expected = gradients["overlapped"][0], gradients["torch"]
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        if name.startswith("never"):
            assert gradient is None
            assert found[name] is None
        else:
            torch.testing.assert_close(found[name], gradient, rtol=1e-14, atol=1e-16, msg=name)


def test_the_bits_do_not_depend_on_time(gradients: Any) -> None:
    found, buckets_sent = gradients["overlapped"]
    for other in ("again", "blocking"):
        for name, gradient in gradients[other][0].items():
            assert (found[name] is None) == (gradient is None)
            assert gradient is None or torch.equal(found[name], gradient), name
    *accumulating, last = buckets_sent
    assert accumulating == [0, 0], "only the last pass of a step sends"
    assert last >= 3, "most buckets have left when the pass ends"
    assert gradients["blocking"][1] == [0, 0, 0]


@pytest.mark.parametrize("where", ["forward", "backward"])
def test_all_halve_when_one_runs_out_of_memory(reduced: Path, where: str) -> None:
    found, asked = ((reduced / name / "sgd" / WEIGHTS_NAME).read_bytes() for name in (where, "asked"))
    assert found == asked


def test_the_smallest_pass_is_the_end_for_all(reduced: Path) -> None:
    for rank in range(2):
        assert "not even 1 of 8 examples" in (reduced / f"never-{rank}.txt").read_text()


def test_statistics_of_uneven_parts_do_not_wait_for_each_other(reduced: Path) -> None:
    """The processes of such a training did different numbers of passes, and gloo aborted one."""
    assert load_file(reduced / "statistics" / "sgd" / WEIGHTS_NAME)


def test_a_single_process_has_no_hooks() -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    total = GradientSum(ALONE, [weight], overlapped=True)
    with total.during(last=True):
        weight.sum().backward()
    total.finish()
    assert weight.grad is not None
    assert weight.grad.tolist() == [1.0, 1.0]
    assert not getattr(weight, "_post_accumulate_grad_hooks", None)
