"""Ensembles of attacks, strength against passes: `python -m benchmarks.ensembles --data ROOT --state DIR`.

Every ensemble attacks the same test images of the networks of `benchmarks.robust_networks`, in the engine.
Passes are images through the network, forward and backward, the clean pass and the verification of successes
included; "x" is AutoAttack's forward and backward passes together over those of the other. Flips are counted
both ways: examples that AutoAttack alone broke, and that the other alone broke. Each run is kept in DIR/runs.
`DIR/curves.json` has, for every network, epsilon and ensemble, robust accuracy over cumulative passes,
`DIR/curves.vl.json` a Vega-Lite plot of them, and `--picture FILE` is that plot as an SVG.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, get_args

import torch
import vl_convert
from torch import Tensor, nn

from assay.attacks.adversarial.apgd import apgd
from assay.attacks.adversarial.apgd_t import apgd_t
from assay.attacks.adversarial.assay_fast import assay_fast
from assay.attacks.adversarial.autoattack import autoattack
from assay.attacks.adversarial.kernels.losses import LossName
from assay.attacks.adversarial.pgd import pgd
from assay.attacks.randomness import Randomness
from assay.service.plots.theme import DASHES, HEIGHT, PALETTES, SCHEMA, WIDTH, config
from assay.workers.evaluation.engine.protocols import attack_pixel
from benchmarks.robust_networks import NETWORKS, images, load

BATCH = 64
EPSILONS = (4, 8)
REFERENCE = "autoattack"
Run = dict[str, Any]


def _apgd(epsilon: float, **parameters: Any) -> Any:
    return apgd(epsilon=epsilon, **parameters)


def _pgd(epsilon: float, **parameters: Any) -> Any:
    return pgd(epsilon=epsilon, relative_step_size=0.1, **parameters)


ENSEMBLES: dict[str, Callable[[float], Any]] = {
    REFERENCE: lambda epsilon: autoattack(epsilon=epsilon),
    "assay_fast": lambda epsilon: assay_fast(epsilon=epsilon),
    "apgd_t 2 x 20": lambda epsilon: apgd_t(epsilon=epsilon, steps=20, targets=2),
    "apgd_t 2 x 20 malt": lambda epsilon: apgd_t(epsilon=epsilon, steps=20, targets=2, order="malt"),
    "apgd pma 30": lambda epsilon: apgd(epsilon=epsilon, steps=30, loss="pma"),
    "pgd ce 40": lambda epsilon: pgd(epsilon=epsilon, steps=40, relative_step_size=0.1),
}
# Only if asked for by name: the losses in Auto-PGD and in PGD, 40 steps each.
LOSSES: dict[str, Callable[[float], Any]] = {
    f"{kind} {loss} 40 steps": partial(make, steps=40, loss=loss)
    for kind, make in (("apgd", _apgd), ("pgd", _pgd))
    for loss in get_args(LossName)
}


def run(attack: Any, model: nn.Module, pixels: Tensor, labels: Tensor, seed: int) -> Run:
    """Attacks the images; flags, passes, and the cost of each example in the order of its end."""

    def images_of(rows: Sequence[int]) -> Tensor:
        return pixels[list(rows)]

    begun, ids = time.process_time(), [f"test/{row:05d}" for row in range(len(pixels))]
    outcomes = attack_pixel(
        attack, model, images_of, labels, ids, randomness=Randomness(seed, attack.name), batch_size=BATCH
    )
    stages = [
        {"name": stage.name, "left": stage.n - stage.broken, "passes": stage.forward + stage.backward}
        for stage in outcomes.stages
    ]
    return {
        "correct": outcomes.correct.tolist(),
        "clean": outcomes.clean_correct.tolist(),
        "by": list(outcomes.broken_by or ()),
        "forward": int(outcomes.forward.sum()),
        "backward": int(outcomes.backward.sum()),
        "of_example": (outcomes.forward + outcomes.backward).tolist(),
        "stages": stages,
        "cpu_seconds": round(time.process_time() - begun, 1),
    }


def kept(path: Path, make: Callable[[], Run]) -> Run:
    """The run of this file, or a new one."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(make()))
    found: Run = json.loads(path.read_text())
    return found


def curve(run: Run) -> list[tuple[int, float]]:
    """Robust accuracy over cumulative passes, were the examples attacked in parallel.

    After p passes for each example, those that broke with fewer are broken; the passes of all examples up to
    there are added up. Verification passes are part of an example's own.
    """
    spent, correct = torch.tensor(run["of_example"]), torch.tensor(run["correct"])
    fallen = torch.tensor(run["clean"]) & ~correct
    points = [(0, sum(run["clean"]) / len(correct))]
    for limit in spent[fallen].unique().tolist():
        left = 1 - float(((fallen & (spent <= limit)) | ~torch.tensor(run["clean"])).float().mean())
        points.append((int(spent.clamp(max=limit).sum()), left))
    return [*points, (int(spent.sum()), float(correct.float().mean()))]


def plot(curves: Sequence[Run]) -> Run:
    """A Vega-Lite specification with the points of the curves: one panel for each network and epsilon."""
    values = [
        {
            "case": f"{one['network']} {one['epsilon']}/255",
            "ensemble": one["ensemble"],
            "passes": passes,
            "left": left,
        }
        for one in curves
        for passes, left in one["points"]
        if passes > 0  # the axis is logarithmic
    ]
    return {
        "$schema": SCHEMA,
        "config": config("light"),
        "data": {"values": values},
        "facet": {"field": "case", "columns": 2, "title": None},
        "resolve": {"scale": {"y": "independent"}},
        "spec": {
            "width": WIDTH,
            "height": HEIGHT,
            "mark": {"type": "line", "interpolate": "step-after"},
            "encoding": {
                "x": {
                    "field": "passes",
                    "type": "quantitative",
                    "scale": {"type": "log"},
                    "title": "Passes of all examples, forward and backward",
                    "axis": {"format": "~s", "labelOverlap": True},
                },
                "y": {
                    "field": "left",
                    "type": "quantitative",
                    "scale": {"zero": False},
                    "title": "Robust accuracy",
                    "axis": {"format": "%"},
                },
                **{
                    channel: {
                        "field": "ensemble",
                        "type": "nominal",
                        "title": "Ensemble",
                        "sort": None,
                        "scale": {"range": list(marks)},
                    }
                    for channel, marks in (("color", PALETTES["light"]), ("strokeDash", DASHES))
                },
            },
        },
    }


def row(network: str, epsilon: int, name: str, one: Run, reference: Run) -> list[str]:
    """One line of the table."""
    correct, other = torch.tensor(one["correct"]), torch.tensor(reference["correct"])
    passes, full = (run["forward"] + run["backward"] for run in (one, reference))
    return [
        *(network, f"{epsilon}/255", name, f"{100 * float(correct.float().mean()):.2f}"),
        *(str(int((correct & ~other).sum())), str(int((~correct & other).sum()))),
        *(f"{one['forward']}", f"{one['backward']}", f"{full / passes:.1f}"),
    ]


def main() -> None:
    """Prints the table and writes the curves."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ensembles", description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--state", type=Path, required=True, help="the folder of benchmarks.robust_networks")
    parser.add_argument("--examples", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--networks", nargs="*", default=list(NETWORKS))
    parser.add_argument("--epsilons", nargs="*", type=int, default=list(EPSILONS), help="in 255ths")
    parser.add_argument("--ensembles", nargs="*", default=list(ENSEMBLES), help=f"also {', '.join(LOSSES)}")
    parser.add_argument("--picture", type=Path, help="an SVG file to write")
    options = parser.parse_args()
    torch.set_num_threads(1)
    n, curves = options.examples, []
    table = [["network", "epsilon", "ensemble", "left %", "AA only", "only", "forward", "backward", "x"]]
    for network in options.networks:
        model = load(network, options.state)
        pixels, labels = images(options.data, "test", NETWORKS[network].classes)
        for epsilon in options.epsilons:
            runs: dict[str, Run] = {}
            for name in options.ensembles:
                file = f"{network}-{epsilon}-{n}-{options.seed}-{name.replace(' ', '_')}.json"

                def make(name: str = name, epsilon: int = epsilon, model: nn.Module = model) -> Run:
                    attack = (ENSEMBLES | LOSSES)[name](epsilon / 255)
                    return run(attack, model, pixels[:n], labels[:n], options.seed)  # noqa: B023

                runs[name] = kept(options.state / "runs" / file, make)
                if REFERENCE in runs:
                    table.append(row(network, epsilon, name, runs[name], runs[REFERENCE]))
                curves.append(
                    {"network": network, "epsilon": epsilon, "ensemble": name, "points": curve(runs[name])}
                )
    (options.state / "curves.json").write_text(json.dumps({"n": n, "curves": curves}))
    (options.state / "curves.vl.json").write_text(json.dumps(plot(curves)))
    if options.picture is not None:
        options.picture.write_text(vl_convert.vegalite_to_svg(plot(curves), allowed_base_urls=[]))
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
    for line in table:
        cells = (cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        sys.stdout.write("  ".join(cells) + "\n")


if __name__ == "__main__":
    main()
