"""Settings of RPC-Attention at which its pursuit acts on the demo's digits: `python -m benchmarks.pursuit`.

Trains a model of twice the demo's depth and width once for each setting of the published grid (iterations,
layers, lambda) and for both readings of the threshold and of the width in mu, seed 0, and prints a row of
`pursuit_check`, the clean accuracy, and the accuracy under PGD-20. Shares of S are those of the layer with
most, by iteration. With --folder a second run takes the weights of the first. About a minute of one core for
each setting.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from assay.service.catalog.catalog import load
from assay.service.contract.messages import TrainRequest
from assay.service.metrics.table import Context, Summary, joined
from assay.service.studies.demo import DATA
from assay.service.submission.validate import validate
from assay.workers import catalog
from assay.workers.jobs.evaluate import evaluation_of, shard_of
from assay.workers.jobs.session import Session, configure
from assay.workers.jobs.trainer import train_model

SHAPE = {"image_size": 32, "patch_size": 8, "depth": 4, "width": 96, "heads": 3}
PGD = {"name": "pgd", "params": {"epsilon": "4/255"}}
ALL = {"rpc_layers": "all", "iterations": 2}
HEAD, PAPER = {"mu_width": "head"}, {"threshold": "paper"}
SETTINGS: dict[str, dict[str, Any]] = {
    "first layer, n = 4, lambda 4": {},
    "first layer, n = 5, lambda 4": {"iterations": 5},
    "first layer, n = 6, lambda 4": {"iterations": 6},
    "all layers, n = 2, lambda 4": ALL,
    "all layers, n = 2, lambda 3": ALL | {"regularization": 3.0},
    "first, n = 4, mu of a head": HEAD,
    "first, n = 6, mu of a head": HEAD | {"iterations": 6},
    "all, n = 2, mu of a head": ALL | HEAD,
    "all, n = 2, lambda 3, mu of a head": ALL | HEAD | {"regularization": 3.0},
    "first, n = 4, threshold of the text": PAPER,
    "first, n = 4, threshold of the text, mu of a head": PAPER | HEAD,
    "all, n = 2, lambda 3, threshold of the text": ALL | PAPER | {"regularization": 3.0},
    "all, n = 2, lambda 3, both of the text": ALL | PAPER | HEAD | {"regularization": 3.0},
    "first, n = 4, dual sign +1": {"dual_sign": 1},
}
HEADER = (
    "setting | S not 0 by iteration, % | residual | rank of K, L | AUROC noise, occlusion (keys) |"
    " clean, without S | PGD-20 4/255 | CPU s"
)


def main() -> None:
    """Prints the table, a row when it is measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="for weights; a temporary one by default")
    parser.add_argument("--epochs", type=int, default=40)
    options = parser.parse_args()
    configure(1)
    say(f"| {HEADER} |")
    say("|" + " --- |" * (HEADER.count("|") + 1))
    with tempfile.TemporaryDirectory() as made:
        folder = options.folder or Path(made)
        for name, params in [("symmetric (SymViT)", None), *SETTINGS.items()]:
            begun = time.process_time()
            cells = list(row(params, folder / name.replace(" ", "-"), options.epochs))
            say(f"| {name} | {' | '.join(cells)} | {time.process_time() - begun:.0f} |")


def row(params: dict[str, Any] | None, folder: Path, epochs: int) -> Iterator[str]:
    """The cells of one setting; None is the model with symmetric attention."""
    model = {"name": "symvit" if params is None else "rpc_symvit", "params": SHAPE | (params or {})}
    weights = trained(model, folder, epochs)
    attacked = top1(measured(model, weights, PGD), "top1")
    if params is None:
        clean = top1(measured(model, weights, {"name": "clean"}), "top1")
        yield from ("-", "-", "-", "-", clean, attacked)
        return
    found = measured(model, weights, {"name": "pursuit_check"})
    value = {name: metric.value or 0.0 for name, metric in found.metrics.items()}
    shares: dict[int, float] = {}
    for part in found.breakdown:
        if (iteration := getattr(part, "iteration", None)) is not None:
            share = 100 * (part.metrics["nonzero_share"].value or 0.0)
            shares[iteration] = max(share, shares.get(iteration, 0.0))
    yield ", ".join(f"{share:.2f}" for share in shares.values())
    yield f"{value['residual']:.2f}"
    yield f"{value['keys_effective_rank']:.1f}, {value['effective_rank']:.1f}"
    yield ", ".join(
        f"{value[f'auroc_{kind}']:.2f} ({value[f'keys_auroc_{kind}']:.2f})" for kind in ("noise", "occlusion")
    )
    yield f"{top1(found, 'top1')}, {top1(found, 'top1_no_sparse')}"
    yield attacked


def trained(model: dict[str, Any], folder: Path, epochs: int) -> Path:
    """The weights of a model after the demo's training."""
    body = {
        "kind": "train",
        "model": model,
        "data": DATA,
        "recipe": {"name": "small_vit", "params": {"epochs": epochs}},
        "execution": {"batch_size": 64},
    }
    request: Any = {
        "kind": "train",
        "spec": validate(load(), body).spec,
        "plan": None,
        "weights": None,
        "folder": str(folder),
        "checkpoint_seconds": 600,
        "cores": 1,
        "job": "pursuit",
    }
    accepted: TrainRequest = request
    return train_model(accepted, Session(), lambda _: None)[1].weights_path


def measured(model: dict[str, Any], weights: Path, evaluation: dict[str, Any]) -> Summary:
    """The summary of one evaluation of all held-out digits."""
    body = {
        "kind": "evaluate",
        "model": model,
        "data": DATA,
        "evaluations": [evaluation],
        "execution": {"batch_size": 64},
    }
    spec: Any = validate(load(), body).spec
    spec["model"]["weights"] = {"job": ""}  # those of the file
    session, item = Session(), spec["evaluations"][0]
    loaded = session.classifier(spec, device="cpu", weights=str(weights))
    data = session.data(spec["data"], "test")
    shard = shard_of(spec, loaded, data, range(len(data.ids)), batch_size=64)
    outcomes = evaluation_of(item, data.task).measure(shard)
    table = catalog.outcome_table(load().find_evaluation(item["name"]), data.task.split())
    rows = joined(table.columns, [outcomes.columns()])
    context = Context(params=item["params"], evidence=[outcomes.evidence()])  # type: ignore[list-item]
    return table.summarise(rows, context)


def top1(found: Summary, name: str) -> str:
    """An accuracy in percent."""
    return f"{100 * (found.metrics[name].value or 0.0):.1f}"


def say(text: str) -> None:
    """Prints a line at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
