"""Verified and attacked accuracy of two stored networks: `python -m benchmarks.bracket`.

The networks are those of the tests, on their held-out digits (8 x 8): convolutional ones, without a defence
and trained with FGSM at 0.15. Attacked is PGD with 40 steps and 5 restarts. Seconds an image are wall time of
one thread, the trace of the graph included. `python -m benchmarks.bracket transformers` has the interval
bounds of the stored transformers (digits at 32 pixels) instead: the mean lower margin at ever smaller radii.

`python -m benchmarks.bracket jobs DIR` runs real jobs through an embedded service with its state in DIR:
one of a small convolutional network that is trained here on FGSM examples at 0.1, exported and uploaded as a
program, and those of `docs/bracket.jobs.json` (the demo's SymViT). Prints their tables and brackets.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any, get_args

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from assay.attacks.adversarial.pgd import pgd
from assay.attacks.randomness import Randomness
from assay.service.cli.output import results_table
from assay.service.client.local import local_service
from assay.workers.data.digits import digits as digits_data
from assay.workers.evaluation.engine.attack.bound_operators import UnsupportedModel
from assay.workers.evaluation.engine.attack.linear_bounds import MarginBounds, Method, proved
from assay.workers.evaluation.engine.protocols import attack_pixel
from tests.support import networks

N = networks.CONVOLUTIONAL_FROM
EPSILONS = (2 / 255, 8 / 255, 16 / 255)
NETWORKS = ("convolutional", "convolutional-fgsm-trained")
TRANSFORMERS = ("symvit", "rpc_symvit")
LIST = Path(__file__).resolve().parents[1] / "docs" / "bracket.jobs.json"
RADII = ("8/255", "16/255", "24/255")
# Of the convolutional network.
JOB: dict[str, Any] = {
    "kind": "evaluate",
    "name": "bracket of a program",
    "tags": ["bracket"],
    "model": {"name": "exported", "weights": {"checkpoint": "convolutional"}},
    "data": {"name": "digits"},
    "limit": 100,
    "evaluations": [
        {"name": "clean"},
        *(
            {"name": "verified", "params": {"epsilon": epsilon, "method": method}}
            for epsilon in RADII
            for method in ("IBP", "CROWN")
        ),
        {"name": "verified", "params": {"epsilon": RADII[-1], "method": "alpha-CROWN"}},
        *({"name": "pgd", "params": {"epsilon": epsilon, "steps": 40, "restarts": 5}} for epsilon in RADII),
        {"name": "verified", "params": {"norm": "L2", "epsilon": 0.25}},
        {"name": "pgd", "params": {"norm": "L2", "epsilon": 0.25, "steps": 40, "restarts": 5}},
        {"name": "randomized_smoothing", "params": {"sigmas": [0.12, 0.25], "draws": 1000}},
    ],
    "execution": {"device": "cpu", "batch_size": 64},
}


def say(line: str) -> None:
    """Writes a line."""
    sys.stdout.write(f"{line}\n")


def convolutional() -> None:
    """A line per network, radius and method."""
    pixels, labels = (values[:N] for values in networks.digits())
    ids = [f"digit-{row}" for row in range(N)]
    say("network | epsilon | attacked | method | verified | contradictions | seconds an image")
    for name in NETWORKS:
        model = networks.network(name)
        for epsilon in EPSILONS:
            attacked = attack_pixel(
                pgd(epsilon=epsilon, steps=40, restarts=5),
                model,
                lambda rows: pixels[list(rows)],
                labels,
                ids,
                randomness=Randomness(0, "pgd"),
                batch_size=N,
            )
            for method in get_args(Method):
                begun = time.monotonic()
                bounds, logits = MarginBounds(model, pixels[:1], method).lower(
                    pixels, labels, "Linf", epsilon
                )
                seconds = (time.monotonic() - begun) / N
                safe = proved(bounds, logits)
                both = int((safe & ~attacked.correct).sum())
                left, held = int(attacked.correct.sum()), int(safe.sum())
                setting = f"{name} | {255 * epsilon:.0f}/255 | {left}/{N} | {method}"
                say(f"{setting} | {held}/{N} | {both} | {seconds:.3f}")


def transformers() -> None:
    """A line per network and radius; why the other methods refuse."""
    data = digits_data(None, "test")
    images, labels = data.images(range(8), 32), data.labels[:8]
    say("network | epsilon | method | verified | mean lower margin | seconds an image")
    for name in TRANSFORMERS:
        model = networks.network(name)
        for epsilon in (1e-9, 1e-8, 1e-7, 1e-6, 1e-5):
            begun = time.monotonic()
            bounds, logits = MarginBounds(model, images[:1], "IBP").lower(images, labels, "Linf", epsilon)
            seconds = (time.monotonic() - begun) / len(images)
            safe = int(proved(bounds, logits).sum())
            margin = float(bounds.amin(1).mean())
            say(f"{name} | {epsilon:.0e} | IBP | {safe}/8 | {margin:.3g} | {seconds:.3f}")
        for method in ("CROWN", "alpha-CROWN"):
            try:
                MarginBounds(model, images[:1], method)
            except UnsupportedModel as error:
                say(f"{name} | {method}: {error}")


def program(path: Path) -> Path:
    """The network of the job, trained on the training digits for a few seconds, as a program."""
    torch.manual_seed(0)
    data = digits_data(None, "train")
    pixels, labels = data.images(range(len(data.ids)), 8), data.labels
    first, second = nn.Conv2d(1, 16, 3, 1, 1), nn.Conv2d(16, 16, 4, 2, 1)
    head = nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 10)
    model = nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.Flatten(), *head)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(30):
        for rows in torch.randperm(len(labels)).split(64):
            fitted = networks.attacked(model, pixels[rows], labels[rows], 0.1)
            optimizer.zero_grad()
            cross_entropy(model(fitted), labels[rows]).backward()
            optimizer.step()
    exported = torch.export.export(
        model.eval(), (pixels[:2],), dynamic_shapes=({0: torch.export.Dim("batch", min=1)},)
    )
    torch.export.save(exported, path)
    return path


def jobs(folder: Path) -> None:
    """The results of the jobs, as `assay results` prints them."""
    folder.mkdir(parents=True, exist_ok=True)
    with local_service(folder / "state", workers=1) as client:
        client.upload_checkpoint("convolutional", program(folder / "convolutional.pt2"))
        client.wait_for_checkpoint("convolutional", timeout_seconds=120)
        listed = json.loads(LIST.read_text())
        trained: dict[str, str] = {}
        for spec in [JOB, *(listed["defaults"][one["kind"]] | one for one in listed["jobs"])]:
            weights = spec["model"].get("weights", {})
            if "job" in weights:
                weights["job"] = trained[weights["job"].removeprefix("@")]
            begun = time.monotonic()
            done = client.wait(client.submit(spec).id, timeout_seconds=3600)
            trained[spec["name"]] = done.id
            say(f"{spec['name']}: {done.id} {done.state}, {time.monotonic() - begun:.0f} s")
            say(results_table(client.results(done.id)))


if __name__ == "__main__":
    torch.set_num_threads(1)
    match sys.argv[1:]:
        case ["jobs", folder]:
            jobs(Path(folder))
        case ["transformers"]:
            transformers()
        case _:
            convolutional()
