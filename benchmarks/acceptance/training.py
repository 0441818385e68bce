"""Training by recipe on the device: with autocast, through kill -9, and by torchrun."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from assay.service.catalog.catalog import load
from assay.service.submission.validate import validate
from assay.workers.evaluator_link import die_with_parent
from assay.workers.jobs import train
from assay.workers.jobs.session import Session, configure
from assay.workers.training.distributed.launch import train_on_devices
from assay.workers.training.files import content_sha256
from benchmarks.acceptance.context import Context, dtype_offered
from benchmarks.acceptance.process import ROOT
from benchmarks.acceptance.record import Row, at_least, at_most, exactly, told
from benchmarks.acceptance.text import texts
from benchmarks.acceptance.worst import Cases
from tests.laws.test_emulated_evaluations import DATA, MODELS

# Two steps or so of each; their batches make one epoch of few steps.
FEW: dict[str, Any] = {"steps": 2, "warmup_steps": 1, "epochs": 1, "warmup_epochs": 0.0}
MORE: dict[str, dict[str, Any]] = {
    "segmenter": {"crop_size": 32, "short_side": 32},
    "lra_primal": {"task": "listops"},
    "lra_skyformer": {"task": "listops"},
    "wikitext_fairseq": {"total_tokens": 32},
}
BATCH = {"classification": 700, "segmentation": 400, "series": 300, "series_regression": 300}
MIXED = {"bfloat16": torch.bfloat16, "float16": torch.float16}
# Of a loss in mixed precision to float32, after few steps; in float16 the scaler skips the first ones.
CLOSE = {"bfloat16": 0.05, "float16": 0.5}
DRY = ("small_vit", "small_lm")
WEIGHTS = "weights.safetensors"
KILL_SECONDS = 120.0


def spec_of(
    recipe: str, task: str, context: Context, dtype: str, params: dict[str, Any], **execution: Any
) -> Any:
    """The spec of a training job."""
    body = {
        "kind": "train",
        "model": MODELS[task],
        "data": DATA[task],
        "recipe": {"name": recipe, "params": params},
        "execution": {"device": context.asked, "batch_size": BATCH.get(task, 4), "dtype": dtype, **execution},
    }
    return validate(load(), body).spec


def request_of(spec: Any, folder: Path, seconds: float = 3600.0) -> Any:
    """A train request with a checkpoint every so many seconds."""
    folder.mkdir(exist_ok=True)
    return {
        "spec": spec,
        "weights": None,
        "folder": str(folder),
        "checkpoint_seconds": seconds,
        "job": "accept",
        "cores": 1,
    }


def losses(folder: Path) -> list[float]:
    """The losses of a training log, in order."""
    records = [json.loads(line) for line in (folder / "training_log.jsonl").read_text().splitlines()]
    return [
        value
        for record in records
        for key, value in sorted(record.items())
        if "loss" in key and value is not None
    ]


def amp(context: Context) -> list[Row]:
    """Every recipe in bfloat16 and float16 with autocast: finite losses, near those in float32."""
    found = Cases()
    recipes = context.share(one for one in load().list("recipe") if not context.dry or one.name in DRY)
    with texts(context.folder / "data"), context.opened():
        for one in recipes:
            offered = one.parameters["properties"]
            params = {key: value for key, value in FEW.items() if key in offered} | MORE.get(one.name, {})
            expected: list[float] = []
            for dtype in ("float32", *MIXED):
                if not dtype_offered(context.kind, MIXED.get(dtype, torch.float32)):
                    continue
                case = f"{one.name} in {dtype}"
                with found.case(f"trainings in {dtype}", case):
                    folder = context.folder / f"{one.name}-{dtype}"
                    spec = spec_of(one.name, one.tasks[0], context, dtype, params)
                    train.run(request_of(spec, folder), Session(), lambda _: None)
                    measured = losses(folder)
                    found.hold("losses are finite", all(map(math.isfinite, measured)), case)
                    found.hold("there are losses", bool(measured), case)
                    if dtype == "float32":
                        expected = measured
                    else:
                        found.hold("mixed precision changes a loss", measured != expected, case)
                        found.worst(
                            f"relative difference of a loss in {dtype} to float32",
                            _apart(measured, expected),
                            CLOSE[dtype],
                            case,
                        )
    return found.rows()


def _apart(measured: list[float], expected: list[float]) -> float:
    pairs = zip(measured, expected, strict=True)
    return max(abs(one - other) / max(abs(other), 1e-6) for one, other in pairs)


def resumed(context: Context) -> list[Row]:
    """A training in bfloat16 that is killed by SIGKILL and goes on has the weights of an undisturbed one."""
    configure(1)  # bits depend on the number of threads, too
    params = {"epochs": 60 if context.kind == "cuda" else 12, "warmup_epochs": 1}
    spec = spec_of("small_vit", "classification", context, "bfloat16", params, batch_size=64)
    # The kill comes before anything of CUDA is used here: two contexts would share the memory.
    requests = [
        request_of(spec, context.folder / name, seconds)
        for name, seconds in (("killed", 0.2), ("calm", 3600.0))
    ]
    file = context.folder / "request.json"
    file.write_text(json.dumps(requests[0]))
    steps = _kill_in_the_middle(file, context.folder / "killed")
    for request in requests:
        train.run(request, Session(), lambda _: None)
    hashes = [_weights(context.folder / name / WEIGHTS) for name in ("killed", "calm")]
    logged = [losses(context.folder / name) for name in ("killed", "calm")]
    return [
        at_least("checkpoint, in steps, that the killed training had left", steps, 1),
        exactly("hash of the weights, resumed against undisturbed", hashes[0], hashes[1]),
        exactly(
            "losses that differ in the log", sum(one != other for one, other in zip(*logged, strict=True)), 0
        ),
        told("losses in the log", len(logged[1])),
    ]


def _weights(path: Path) -> str:
    """The hash of the tensors; the header of a file names its job."""
    return content_sha256(sorted(load_file(path).items()))


def _kill_in_the_middle(request: Path, folder: Path) -> int:
    """Trains in another process until there is a checkpoint, and kills it; the steps that it had done.

    Raises:
        RuntimeError: It ended before that, or left no checkpoint in time.
    """
    process = subprocess.Popen(  # noqa: S603 (itself)
        [sys.executable, "-m", "benchmarks.acceptance.training", str(request)], cwd=ROOT, env=dict(os.environ)
    )
    try:
        deadline = time.monotonic() + KILL_SECONDS
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise RuntimeError(f"the training ended with code {process.returncode} before the kill")
            found = sorted(folder.glob("step-*"))
            if found and not (folder / WEIGHTS).exists():
                process.send_signal(signal.SIGKILL)
                process.wait()
                left = [int(path.name.split("-")[1].split(".")[0]) for path in folder.glob("step-*")]
                return max(left)
            time.sleep(0.02)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
    raise RuntimeError(f"no checkpoint within {KILL_SECONDS:g} s")


def by_torchrun(context: Context) -> list[Row]:
    """A training through torchrun, on two GPUs where there are two, against one in this process."""
    configure(1)  # as the processes of torchrun
    gpus = torch.cuda.device_count() if context.kind == "cuda" else 0
    count = 2 if gpus >= 2 else 1
    where = (
        f"{count} process on {'one GPU: there is no second' if gpus else 'the CPU'}"
        if count == 1
        else "2 GPUs"
    )
    params = {"epochs": 2, "warmup_epochs": 1}
    spec = spec_of("small_vit", "classification", context, "float32", params, batch_size=64, devices=count)
    request = request_of(spec, context.folder / "torchrun")
    reports: list[Any] = []
    trained = train_on_devices(request, reports.append)
    alone = spec_of("small_vit", "classification", context, "float32", params, batch_size=64)
    train.run(request_of(alone, context.folder / "alone"), Session(), lambda _: None)
    logged = [losses(context.folder / name) for name in ("torchrun", "alone")]
    rows = [
        told("processes", where),
        told("steps", trained.steps),
        at_least("reports of the first process", len(reports), 1),
        # Two processes sum the gradients in another order.
        at_most(
            "largest relative difference of a loss to one process",
            _apart(*logged),
            0.0 if count == 1 else 1e-3,
        ),
    ]
    if count == 1:
        hashes = [_weights(context.folder / name / WEIGHTS) for name in ("torchrun", "alone")]
        rows.append(exactly("hash of the weights, torchrun against this process", hashes[0], hashes[1]))
    return rows


def main() -> None:
    """Trains by the request in a file, to be killed."""
    die_with_parent()
    configure(1)
    train.run(json.loads(Path(sys.argv[1]).read_text()), Session(), lambda _: None)


if __name__ == "__main__":
    main()
