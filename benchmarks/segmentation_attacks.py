"""SegPGD of the engine, a plain loop, PGD and SEA: `python -m benchmarks.segmentation_attacks`.

A small Segmenter is trained on `shapes`; then 64 test images are attacked. The plain loop does what released
code usually does: `loss.backward()`, with gradients of the parameters too, and whole batches for all steps.
Start and steps are the same. Both keep the iterate with the fewest correct pixels, so the counts must agree
except for rounding. Times are CPU times of this process, one thread; those of SEA and PGD are for scale.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.attacks.adversarial.sea import sea
from assay.attacks.adversarial.segmentation_pgd import segmentation_pgd
from assay.attacks.adversarial.segpgd import segpgd
from assay.attacks.randomness import Randomness
from assay.attacks.segmentation.losses import IGNORE, class_weights
from assay.service.catalog.catalog import load
from assay.service.contract.messages import TrainRequest
from assay.service.contract.stored_specs import EvaluateJobSpec
from assay.service.submission.validate import validate
from assay.workers.data.shapes import shapes
from assay.workers.evaluation.engine.segmentation.attack import attack_segmentation
from assay.workers.evaluation.engine.segmentation.attacked import AttackedPixels
from assay.workers.jobs import train
from assay.workers.jobs.session import Session
from assay.workers.tasks.segmentation import pixels_of_classes

N, SIDE, BATCH, STEPS, RELATIVE = 64, 32, 16, 100, 0.15
BACKBONE = {"image_size": SIDE, "patch_size": 4, "width": 48, "depth": 3, "heads": 2, "drop_path": 0.0}
MODEL = {
    "name": "segmenter",
    "params": {"backbone": {"name": "vit", "params": BACKBONE}, "decoder": "linear"},
}


def trained() -> nn.Module:
    """Segmenter after 20 epochs on `shapes`, with its normalisation inside."""
    spec = validate(
        load(),
        {
            "kind": "train",
            "model": MODEL,
            "data": {"name": "shapes"},
            "recipe": {"name": "small_segmenter", "params": {"epochs": 20}},
            "execution": {"device": "cpu", "batch_size": 32},
        },
    )
    with tempfile.TemporaryDirectory() as folder:
        common = {"weights": None, "folder": Path(folder), "checkpoint_seconds": 3600, "job": "j", "cores": 1}
        request = cast(TrainRequest, {"spec": spec.spec, **common})
        train.run(request, Session(), lambda _: None)
        weights = str(next(Path(folder).glob("*.safetensors")))
        measured = cast(EvaluateJobSpec, {**spec.spec, "kind": "evaluate"})
        return Session().classifier(measured, device="cpu", weights=weights).classifier


def plain_segpgd(model: nn.Module, images: Tensor, maps: Tensor, start: Tensor, epsilon: float) -> Tensor:
    """Correct pixels of each image's worst iterate, (N,); parameters get gradients, no early exit."""
    model.eval().requires_grad_(True)
    fewest = []
    for part in torch.arange(len(images)).split(BATCH):
        x0, y, x = images[part], maps[part].long(), start[part]
        best = (model(x0).argmax(1) == y).flatten(1).sum(1)
        for step in range(STEPS + 1):
            x = x.detach().requires_grad_()
            logits = model(x)
            right = logits.argmax(1) == y
            best = torch.minimum(best, right.flatten(1).sum(1))
            share = step / (2 * STEPS)
            entropy = functional.cross_entropy(logits, y, ignore_index=IGNORE, reduction="none")
            (entropy * torch.where(right, 1 - share, share)).mean().backward()
            assert x.grad is not None
            moved = x + RELATIVE * epsilon * x.grad.sign()
            x = torch.clamp(moved, x0 - epsilon, x0 + epsilon).clamp(0, 1)
        fewest.append(best)
    model.zero_grad()
    return torch.cat(fewest)


def main() -> None:
    """Prints the table."""
    torch.set_num_threads(1)
    model, data = trained(), shapes(None, "test")
    rows = range(N)
    images, maps = data.images(rows, SIDE), data.label_maps(rows, SIDE)
    ids = [data.ids[row] for row in rows]
    weights = class_weights(pixels_of_classes(shapes(None, "train"), SIDE))

    def run(attack: Any) -> tuple[AttackedPixels, float]:
        begun = time.process_time()
        found = attack_segmentation(
            attack,
            model,
            lambda some: images[list(some)],
            lambda some: maps[list(some)],
            ids,
            classes=data.classes,
            seed=0,
            batch_size=BATCH,
            class_weights=weights,
        )
        return found, time.process_time() - begun

    judged = int((maps != IGNORE).sum())
    for number in (4, 16, 64):
        epsilon = number / 255
        found, seconds = run(segpgd(epsilon=epsilon, steps=STEPS, relative_step_size=RELATIVE))
        draws = Randomness(0, "segpgd/segpgd").uniform(ids, tuple(images.shape[1:]))
        start = (images + (2 * draws - 1) * epsilon).clamp(0, 1)
        begun = time.process_time()
        plain = plain_segpgd(model, images, maps, start, epsilon)
        loop = time.process_time() - begun
        right = found.intersection[:, 1].sum(1)
        cells = [
            f"segpgd {number}/255: {seconds:.2f} s here, {loop:.2f} s plain, {loop / seconds:.2f}x",
            f"passes {int(found.forward.sum())}/{int(found.backward.sum())}",
            f"pixel accuracy {int(right.sum()) / judged:.4f}, plain {int(plain.sum()) / judged:.4f}",
            f"largest difference of an image {int((right - plain).abs().max())} pixels",
        ]
        for attack in (segmentation_pgd(epsilon=epsilon, steps=STEPS), sea(epsilon=epsilon, steps=STEPS)):
            found, seconds = run(attack)
            right = found.intersection.sum(2).amin(1)
            cells.append(f"{attack.name} {seconds:.2f} s, {int(right.sum()) / judged:.4f}")
        sys.stdout.write("; ".join(cells) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
