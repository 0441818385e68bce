"""Exported programs in the worker: the check at upload, and the classifier that a job runs."""

from __future__ import annotations

import hashlib
import os
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.service.contract.weights.checkpoints import Verdict
from assay.workers import accelerator
from assay.workers.jobs import check, plan
from assay.workers.jobs.failures import BadWeights, describe
from assay.workers.jobs.session import Session
from assay.workers.weights import program_check, programs
from assay.workers.weights.program_check import Unfit, examine
from assay.workers.weights.programs import as_classifier, read_program
from tests.support.archives import archive
from tests.support.programs import Net, export, export_texts

Answer = Callable[[Any, Tensor], Any]
CHANNELS, SIZE, DIGITS = 1, 16, 10


class OfDigits(Net):
    """A classifier of digits, which have one channel."""

    def __init__(self, answer: Answer | None = None) -> None:
        super().__init__(answer)
        self.head = torch.nn.Linear(6, DIGITS)
        torch.nn.init.normal_(self.head.weight, generator=torch.Generator().manual_seed(1))
        torch.nn.init.zeros_(self.head.bias)

    def plain(self, x: Tensor) -> Tensor:
        return super().plain(x.expand(-1, 3, -1, -1))


def program(folder: Path, answer: Answer | None = None, **how: Any) -> Path:
    return export(OfDigits(answer), folder / "net.pt2", shape=(CHANNELS, SIZE, SIZE), **how)


def checked(path: Path) -> tuple[dict[str, Any], str | None]:
    model = {"name": "exported", "params": {}, "weights": {"checkpoint": "c"}}
    answer = check.run({"weights": str(path), "spec": {"model": model}}, Session(), lambda _: None)
    assert answer["type"] == "checked"
    Verdict.model_validate(answer["verdict"])
    return answer["verdict"], answer["error"]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return program(tmp_path_factory.mktemp("plain"))


@pytest.fixture
def job(spec: dict[str, Any]) -> dict[str, Any]:
    spec["model"] = {"name": "exported", "params": {}, "weights": {"checkpoint": "c", "sha256": "0"}}
    return spec


def test_a_right_program_is_ready_and_says_what_it_takes(plain: Path) -> None:
    verdict, error = checked(plain)
    assert error is None
    assert (verdict["layout"], verdict["classes"], verdict["channels"]) == ("program", DIGITS, CHANNELS)
    dtypes = ["float32", "float64", "bfloat16"]
    facts = {"image_size": SIZE, "dtypes": dtypes, "random": False, "gradients": True}
    facts |= {"task": "classification", "length": None, "vocabulary": None}
    assert verdict["program"] == facts | {"gradients_compared": False, "probabilities": False}
    assert verdict["other"] == []


def test_the_check_asks_the_same_of_the_same_file(plain: Path) -> None:
    assert checked(plain) == checked(plain)


def _noisy(net: Any, x: Tensor) -> Tensor:
    logits: Tensor = net.plain(x + 0.01 * torch.randn_like(x))
    return logits


def test_a_random_program_is_taken_and_said_to_be_random(tmp_path: Path) -> None:
    verdict, error = checked(program(tmp_path, _noisy))
    assert error is None
    assert verdict["program"]["random"] is True


@pytest.mark.parametrize(
    "answer",
    [lambda net, x: net.plain(x.detach()), lambda net, x: net.plain((x * 8).round() / 8)],
    ids=["cut", "rounded"],
)
def test_a_program_without_gradients_is_taken_and_said_to_have_none(tmp_path: Path, answer: Answer) -> None:
    verdict, error = checked(program(tmp_path, answer))
    assert error is None
    assert verdict["program"]["gradients"] is False
    assert verdict["program"]["dtypes"] == ["float32", "float64", "bfloat16"]


def _mixed(net: Any, x: Tensor) -> Any:
    return net.plain(x - x.mean(0, keepdim=True))


def _lowest_by_minus_one(net: Any, x: Tensor) -> Any:
    lowest = -torch.full((1,), 2**63 - 1) - 1
    return net.plain(x) + torch.div(lowest, -1, rounding_mode="trunc")


def _by_rank(net: Any, x: Tensor) -> Any:
    return net.plain(x) * (1 + torch.arange(x.shape[0], dtype=torch.float32)[:, None])


@pytest.mark.costly
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda net, x: net.plain(x).softmax(1), "it returns probabilities, which hide gradients"),
        (
            lambda net, x: net.plain(x).softmax(1),
            "of a mean of softmaxes, which has no logits, return the log",
        ),
        (lambda net, x: net.plain(x) / 0, "its logits are not finite"),
        (lambda net, x: net.plain((x - x).sqrt() + x), "with respect to the pixels are not finite"),
        (lambda net, x: net.plain(x)[:, :1], "one logit for each image"),
        (lambda net, x: net.plain(x).to(torch.int64), "type torch.int64, wanted"),
        (
            lambda net, x: net.plain(x)[:, torch.tensor([0, 1, 99 * (SIZE - 15)])],
            "it cannot be run for a batch of 1",
        ),
        (
            _mixed,
            "answers differently when they come alone: an answer depends on the other images of the batch",
        ),
        (_by_rank, "answers differently when they come alone"),
        # The processor would stop at this quotient, and the evaluator with it.
        (_lowest_by_minus_one, "mode with other -1, allowed: other divisors of -9223372036854775808"),
    ],
)
def test_what_cannot_be_attacked_is_rejected_with_the_reason(
    tmp_path: Path, answer: Answer, reason: str
) -> None:
    verdict, error = checked(program(tmp_path, answer))
    assert error is not None
    assert reason in error
    assert verdict["other"] == [error]
    assert verdict["program"] is None
    assert verdict["classes"] is not None


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (lambda net, x: net.plain(x).sigmoid(), True),
        (lambda net, x: 20 * net.plain(x).softmax(1), True),
        (lambda net, x: (net.plain(x).softmax(1) + net.plain(x.flip(3)).softmax(1)).log(), False),
        (lambda net, x: net.plain(x), False),
    ],
)
def test_other_probabilities_are_accepted_and_told(tmp_path: Path, answer: Answer, found: bool) -> None:
    verdict, error = checked(program(tmp_path, answer))
    assert error is None
    assert verdict["program"]["probabilities"] == found


def test_a_file_that_is_no_program_is_rejected(tmp_path: Path, plain: Path) -> None:
    (tmp_path / "a").write_bytes(archive())
    verdict, error = checked(tmp_path / "a")
    assert error is not None
    assert error.startswith("the exported program is not taken: the field 'schema_version' is missing")
    assert verdict["classes"] is None
    (tmp_path / "a").write_bytes(plain.read_bytes()[:-2000])
    assert "damaged or cut off" in str(checked(tmp_path / "a")[1])
    (tmp_path / "a").unlink()
    with pytest.raises(BadWeights, match="is gone"):
        checked(tmp_path / "a")


def test_a_program_that_changes_itself_behind_a_view_is_rejected(tmp_path: Path) -> None:
    def hidden(net: Any, x: Tensor) -> Any:
        net.counter.view(1).add_(1)
        return net.plain(x)

    assert "changes its own tensors while it answers" in str(checked(program(tmp_path, hidden))[1])


def test_a_program_that_cannot_be_run_in_a_type_says_so(tmp_path: Path) -> None:
    def bits(net: Any, x: Tensor) -> Any:
        # As many integers as there are pixels only where these have four bytes each.
        integers = x.detach().view(torch.int32).reshape(-1, SIZE * SIZE)
        return net.plain(x) + 1e-12 * integers.float().mean(1, keepdim=True)

    verdict, error = checked(program(tmp_path, bits))
    assert error is None
    assert verdict["program"]["dtypes"] == ["float32", "bfloat16"]


def test_a_lack_of_memory_is_an_accident_and_no_verdict(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    classifier = as_classifier(read_program(plain)).eval()

    def full(_: Tensor) -> Tensor:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(classifier.backbone, "_run", full)
    with pytest.raises(torch.OutOfMemoryError):
        examine(classifier)

    def broken(_: Tensor) -> Tensor:
        raise IndexError("beyond the end")

    monkeypatch.setattr(classifier.backbone, "_run", broken)
    with pytest.raises(Unfit, match="it cannot be run for a batch of 1: IndexError: beyond the end"):
        examine(classifier)


def _raises(_: Tensor) -> Tensor:
    raise RuntimeError("no kernel for this device")


@pytest.mark.parametrize(
    ("there", "reason"),
    [
        (None, None),
        (lambda logits: logits + 1, "on the GPU it answers differently from the CPU"),
        (lambda logits: logits * torch.tensor(float("nan")), "on the GPU the gradients"),
        (_raises, "it cannot be run on the GPU: RuntimeError: no kernel for this device"),
    ],
)
def test_a_program_has_to_run_on_the_gpu_too(
    plain: Path, monkeypatch: pytest.MonkeyPatch, there: Callable[[Tensor], Tensor] | None, reason: str | None
) -> None:
    """The CPU poses as the GPU, on which a program behaves as `there`."""

    def moved(module: torch.nn.Module, device: torch.device) -> torch.nn.Module:
        assert device == torch.device("cpu")
        run = module.backbone._run  # type: ignore[union-attr]
        if there is not None:
            vars(module.backbone)["_run"] = lambda images: there(run(images))  # type: ignore[operator]
        return module

    classifier = as_classifier(read_program(plain)).eval()
    monkeypatch.setattr(accelerator, "is_available", lambda: True)
    monkeypatch.setattr(accelerator, "kind", "cpu")
    monkeypatch.setattr(type(classifier), "to", moved)
    if reason is None:
        assert examine(classifier) == (["float32", "float64", "bfloat16"], True)
    else:
        with pytest.raises(Unfit, match=reason):
            examine(classifier)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_a_job_runs_the_program_as_it_is(plain: Path, job: dict[str, Any], dtype: str) -> None:
    job["execution"]["dtype"] = dtype
    loaded = Session().classifier(job, device="cpu", weights=str(plain))
    assert loaded.image_size == SIZE
    assert not loaded.untrained
    assert loaded.weights_sha256 == hashlib.sha256(plain.read_bytes()).hexdigest()
    assert not loaded.classifier.training
    images = torch.rand(4, CHANNELS, SIZE, SIZE, dtype=loaded.classifier.mean.dtype)
    wanted = OfDigits().eval().to(images.dtype)(images)
    assert torch.equal(loaded.classifier.normalize(images), images)
    torch.testing.assert_close(loaded.classifier(images), wanted, rtol=0, atol=1e-6)


def test_the_hash_is_of_the_bytes_that_were_loaded(
    plain: Path, job: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that takes the program's name while it is read is neither run nor hashed."""
    path = tmp_path / "net.pt2"
    shutil.copyfile(plain, path)
    load = programs.load_program

    def swapped(*found: Any, **options: Any) -> Any:
        (tmp_path / "other").write_bytes(b"another file")
        (tmp_path / "other").replace(path)
        return load(*found, **options)

    monkeypatch.setattr(programs, "load_program", swapped)
    loaded = Session().classifier(job, device="cpu", weights=str(path))
    assert loaded.weights_sha256 == hashlib.sha256(plain.read_bytes()).hexdigest()


@pytest.mark.parametrize("kind", ["link", "folder", "pipe"])
def test_what_is_no_file_is_no_program(plain: Path, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "net.pt2"
    makers: dict[str, Callable[[], None]] = {
        "link": lambda: path.symlink_to(plain),
        "folder": path.mkdir,
        "pipe": lambda: os.mkfifo(path),
    }
    makers[kind]()
    with pytest.raises(BadWeights, match=r"is gone|is no file"):
        read_program(path)


def test_other_data_is_refused_with_the_reason(
    plain: Path, job: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    job["data"] = {"name": "shapes", "params": {}}
    with pytest.raises(BadWeights, match="program is for classification, the data for segmentation"):
        Session().classifier(job, device="cpu", weights=str(plain))
    examples = Session().data(job["data"], "test")
    monkeypatch.setattr(type(examples), "task", "classification")
    with pytest.raises(BadWeights, match="the exported program has 10 classes, the data"):
        Session().classifier(job, device="cpu", weights=str(plain))
    with pytest.raises(BadWeights, match="has no weights but those of a checkpoint") as raised:
        Session().classifier(job, device="cpu", weights=None)
    assert describe(raised.value)["retry"] is False


def test_a_plan_of_a_program(plain: Path, job: dict[str, Any]) -> None:
    request = {"spec": job, "weights": str(plain), "shard_seconds": 60, "sources": {}}
    planned = plan.run(request, Session(), lambda _: None)["plan"]
    assert planned["image_size"] == SIZE
    assert planned["weights_sha256"] == hashlib.sha256(plain.read_bytes()).hexdigest()
    assert planned["forward_flops"] > 1000
    assert planned["parameters"] > 100


def _hungry(net: Any, x: Tensor) -> Tensor:
    many = x.mean() * torch.ones(2**25)
    logits: Tensor = net.plain(x) + 0 * many.cumsum(0).mean()
    return logits


@pytest.mark.costly
def test_a_check_has_a_limit_of_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = program(tmp_path, _hungry)
    monkeypatch.setattr(check, "FIXED_BYTES", 64 * 2**20)
    before = resource.getrlimit(resource.RLIMIT_DATA)
    verdict, error = checked(path)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    limit, size = check.memory_limit(path.stat().st_size), path.stat().st_size
    assert error == (
        f"its check needs more than {limit} bytes of memory (6 times the file's {size} bytes and"
        f" {64 * 2**20} bytes)"
    )
    assert verdict["other"] == [error]
    monkeypatch.setattr(check, "FIXED_BYTES", 2 * 2**30)
    assert checked(path)[1] is None


def test_a_segmentation_with_many_logits_is_checked_with_fewer_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def per_pixel(net: Any, x: Tensor) -> Tensor:
        logits: Tensor = net.conv(x.expand(-1, 3, -1, -1))
        return logits

    classifier = as_classifier(read_program(program(tmp_path, per_pixel))).eval()
    run, sizes = classifier.backbone._run, []

    def counted(inputs: tuple[Tensor, ...]) -> Tensor:
        sizes.append(len(inputs[0]))
        return run(inputs)

    monkeypatch.setattr(classifier.backbone, "_run", counted)
    for limit, largest in ((2**25, 5), (2 * 6 * SIZE * SIZE, 2), (1, 2)):
        sizes.clear()
        monkeypatch.setattr(program_check, "MAX_LOGITS", limit)
        assert examine(classifier)[1]
        assert max(sizes) == largest


def test_probabilities_of_words_are_rejected(tmp_path: Path) -> None:
    def predicted(net: Any, ids: Tensor) -> Any:
        return net.predict(net.embedding(ids)).softmax(-1)

    error = program_check.run(export_texts(tmp_path, answer=predicted))["error"]
    assert error is not None
    assert error.startswith("it returns probabilities, which hide gradients")


def test_logits_of_words_that_sum_to_one_over_the_places_are_accepted(tmp_path: Path) -> None:
    def over_places(net: Any, ids: Tensor) -> Any:
        return net.predict(net.embedding(ids)).softmax(1)

    assert program_check.run(export_texts(tmp_path, answer=over_places))["error"] is None
