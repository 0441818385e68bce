"""The box itself: `assay doctor`, the self-test of its devices, and the arithmetic that evaluators choose."""

from __future__ import annotations

import json
import subprocess
import sys

import torch
import torch.utils.deterministic

from assay.workers.jobs import self_test
from benchmarks.acceptance.context import Context
from benchmarks.acceptance.process import ROOT
from benchmarks.acceptance.record import Row, at_most, exactly, told

# A product of 1 + 2^-12 with itself: TF32, which keeps 10 bits, and bfloat16 round it to 1.
FINE, ROUNDED_TO = 1 + 2.0**-12, 1.0
SIZE = 512


def doctor(context: Context) -> list[Row]:
    """`assay doctor` finds nothing that fails, and every device gives the known sums."""
    command = [sys.executable, "-P", "-m", "assay.workers.doctor", "--json", "--no-data"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603 (itself)
    sys.stderr.write(done.stderr)
    findings = json.loads(done.stdout)["findings"]
    failed = [f"{one['name']}: {one['text']}" for one in findings if one["status"] == "fail"]
    warned = [one["name"] for one in findings if one["status"] == "warn"]
    rows = [
        told("lines of assay doctor --no-data", len(findings)),
        exactly("lines that fail", len(failed), 0, "; ".join(failed) or None),
        told("lines that warn", ", ".join(warned) or "none"),
    ]
    with context.opened() as device:
        rows += [
            exactly("checksum of the matmul", self_test.checksum(self_test.matmul(device)), self_test.MATMUL),
            exactly(
                "checksum of the convolution and its gradients",
                self_test.checksum(self_test.convolution(device)),
                self_test.CONVOLUTION,
            ),
        ]
    if context.kind == "cuda":
        report = self_test.run(
            {"kind": "self_test", "folder": "", "weights": None, "device_classes": ["cuda"]}
        )
        rows += [
            exactly(f"fault of {one['device']}", one["fault"] or "none", "none") for one in report["devices"]
        ]
    return rows


def precision(context: Context) -> list[Row]:
    """TF32 is off, in the switches and in what is computed; deterministic algorithms are demanded."""
    rows = [
        exactly("torch.backends.cuda.matmul.allow_tf32", str(torch.backends.cuda.matmul.allow_tf32), "False"),
        exactly("torch.backends.cudnn.allow_tf32", str(torch.backends.cudnn.allow_tf32), "False"),
        exactly("torch.backends.cudnn.benchmark", str(torch.backends.cudnn.benchmark), "False"),
        exactly("deterministic algorithms", str(torch.are_deterministic_algorithms_enabled()), "True"),
    ]
    fine = torch.full((SIZE, SIZE), FINE)
    # Exact in float32 up to the rounding of the sum: SIZE terms of 1 + 2^-11 + 2^-24.
    expected = SIZE * FINE**2
    image, weights = torch.full((4, SIZE, 16, 16), FINE), torch.full((SIZE, SIZE, 1, 1), FINE)
    with context.opened() as device:
        product = (fine.to(device) @ fine.to(device)).cpu()
        mapped = torch.nn.functional.conv2d(image.to(device), weights.to(device)).cpu()
    # TF32 would lose 2^-11 of it; float32 rounds by at most SIZE units of 2^-24.
    bound = SIZE * 2.0**-24
    for what, found in (("matmul", product), ("convolution", mapped)):
        error = float((found.double() / expected - 1).abs().max())
        rows.append(at_most(f"relative error of a {what} whose factors TF32 would round", error, bound))
    rows.append(told("relative error that TF32 would have", 1 - SIZE * ROUNDED_TO / expected))
    return rows
