"""`make demo`: train two transformers on handwritten digits, attack both, compare them, over real HTTP.

Starts the embedded service on a free port, posts two training jobs and two evaluation jobs that wait
for them, follows all four, prints one table with 95 % intervals and paired tests, and writes the results
JSON and a plot of accuracy against epsilon.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.service.cli.progress_bars import Bars
from assay.service.client import AssayClient
from assay.service.contract.fractions import fraction_value
from assay.service.contract.results import EvaluationResult, Job, Results

MODELS = {"SymViT": "symvit", "RPC-SymViT": "rpc_symvit"}
SHAPE = {"image_size": 32, "patch_size": 8, "depth": 4, "width": 96, "heads": 3}
OWN = {"symvit": {}, "rpc_symvit": {"iterations": 4, "rpc_layers": "first"}}
EPSILONS = ("0.5/255", "1/255", "2/255", "4/255", "8/255", "16/255")
DATA = {"name": "digits"}
PASSING_ACCURACY = 0.95

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")
MARKERS = {"uniform_noise": "s", "fgsm": "^", "pgd": "o"}
TITLES = {"uniform_noise": "Uniform noise", "fgsm": "FGSM", "pgd": "PGD-20"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; 0 when both models reach the clean accuracy that the README promises."""
    parser = argparse.ArgumentParser(prog="assay demo", description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("demo-output"))
    parser.add_argument("--epochs", type=int, default=40)
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    with service(options.output / "state", workers=2) as client:
        jobs = submit(client, options.epochs)
        finished = follow(client, jobs)
        failed = [job for job in finished.values() if job.state != "succeeded"]
        for job in failed:
            say(f"{job.name}: {job.state}: {job.error.message if job.error else job.message}")
        if failed:
            return 1
        results = {label: client.results(jobs[f"attack {label}"]) for label in MODELS}
        comparison = client.compare([jobs[f"attack {label}"] for label in MODELS])
    return finish(options.output, results, comparison, time.monotonic() - begun)


@contextlib.contextmanager
def service(state: Path, *, workers: int) -> Iterator[AssayClient]:
    """An embedded service of its own, stopped at the end."""
    port = free_port()
    say(f"Starting the service on http://127.0.0.1:{port} (state in {state}, log in {state}.log)")
    environment = os.environ | {
        "ASSAY_STATE": str(state.resolve()),
        "ASSAY_PORT": str(port),
        "ASSAY_WORKERS": str(workers),
    }
    state.parent.mkdir(parents=True, exist_ok=True)
    with Path(f"{state}.log").open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "assay.workers.embedded"],
            env=environment,
            stdout=output,
            stderr=output,
        )
        try:
            with AssayClient(f"http://127.0.0.1:{port}") as client:
                wait_until_ready(client, process, f"{state}.log")
                yield client
        finally:
            process.terminate()
            process.wait(timeout=60)


def wait_until_ready(client: AssayClient, process: subprocess.Popen[bytes], log: str) -> None:
    """Return when the service answers.

    Raises:
        SystemExit: the service ended instead.
    """
    deadline = time.monotonic() + 60
    while not client.ready():
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"the service did not start; its log is {log}")
        time.sleep(0.2)


def submit(client: AssayClient, epochs: int) -> dict[str, str]:
    """Post the four jobs; label -> job id."""
    jobs: dict[str, str] = {}
    for label, model in MODELS.items():
        params = SHAPE | OWN[model]
        spec = {
            "kind": "train",
            "name": f"train {label}",
            "tags": ["demo"],
            "priority": 9,
            "model": {"name": model, "params": params},
            "data": DATA,
            "recipe": {"name": "small_vit", "params": {"epochs": epochs}},
            "execution": {"batch_size": 64},
        }
        jobs[f"train {label}"] = client.submit(spec).id
    for label, model in MODELS.items():
        spec = {
            "kind": "evaluate",
            "name": f"attack {label}",
            "tags": ["demo"],
            "model": {"name": model, "weights": {"job": jobs[f"train {label}"]}},
            "data": DATA,
            "evaluations": evaluations(),
            "execution": {"batch_size": 64},
        }
        jobs[f"attack {label}"] = client.submit(spec).id
    return jobs


def evaluations() -> list[dict[str, Any]]:
    """The clean evaluation, and every attack over the epsilon grid."""
    grid: list[dict[str, Any]] = [{"name": "clean"}]
    for attack in ("uniform_noise", "fgsm", "pgd"):
        grid += [{"name": attack, "params": {"epsilon": epsilon}} for epsilon in EPSILONS]
    return grid


def follow(client: AssayClient, jobs: dict[str, str]) -> dict[str, Job]:
    """Draw a progress bar per job until all have ended."""
    bars = Bars(list(jobs))
    while True:
        now = {label: client.job(job_id) for label, job_id in jobs.items()}
        bars.draw(now)
        if all(job.state.terminal for job in now.values()):
            bars.close()
            return now
        time.sleep(0.5)


def finish(output: Path, results: dict[str, Results], comparison: dict[str, Any], seconds: float) -> int:
    """Print the table, write the files, say where they are."""
    say("")
    say(table(results, comparison))
    files = {"results.json": {label: r.model_dump(mode="json") for label, r in results.items()}}
    files["comparison.json"] = comparison
    for name, body in files.items():
        (output / name).write_text(json.dumps(body, indent=2) + "\n")
    plot = output / "accuracy-against-epsilon.png"
    accuracy_against_epsilon(results, plot)
    say(f"\nResults JSON  {output / 'results.json'}")
    say(f"Comparison    {output / 'comparison.json'}")
    say(f"Plot          {plot}")
    say(f"Open the service on these jobs:  .venv/bin/assay serve --state {output / 'state'}")
    say("and then http://127.0.0.1:8000/docs or  .venv/bin/assay jobs")
    say(f"Took {seconds:.0f} s.")
    low = [label for label, r in results.items() if (clean_accuracy(r) or 0) < PASSING_ACCURACY]
    for label in low:
        say(f"{label}: clean accuracy is below {PASSING_ACCURACY:.0%}")
    return 1 if low else 0


def clean_accuracy(results: Results) -> float | None:
    """Top-1 of the clean evaluation."""
    return next(e.metrics["top1"].value for e in results.evaluations if e.name == "clean")


def table(results: dict[str, Results], comparison: dict[str, Any]) -> str:
    """Accuracy of every model in percent with its 95 % interval, and McNemar's p, a row per evaluation."""
    p_values = {
        row_key(row["evaluation"], row["params"]): row
        for row in comparison["rows"]
        if row["metric"] == "top1"
    }
    labels = list(results)
    lines = [
        f"{'Top-1 accuracy, %':<24}" + "".join(f"{label:>26}" for label in labels) + f"{'McNemar p':>12}"
    ]
    lines.append("-" * len(lines[0]))
    for parts in zip(*(r.evaluations for r in results.values()), strict=True):
        first = parts[0]
        cells = []
        for part in parts:
            m = part.metrics["top1"]
            cells.append(f"{percent(m.value)} [{percent(m.ci_low)}, {percent(m.ci_high)}]")
        row = p_values.get(row_key(first.name, first.params))
        p = row["test"]["p_value"] if row and row.get("test") else None
        name = f"{first.name} {first.params.get('epsilon', '')}".strip()
        lines.append(
            f"{name:<24}" + "".join(f"{c:>26}" for c in cells) + (f"{p:>12.3f}" if p is not None else "")
        )
    n = results[labels[0]].evaluations[0].metrics["top1"].n
    lines.append(
        f"n = {n} held-out digits; Wilson 95 % intervals; paired exact McNemar tests,"
        f" not corrected for there being {len(lines) - 2} of them."
    )
    return "\n".join(lines)


def row_key(name: str, params: dict[str, Any]) -> str:
    """Table label of an evaluation with its parameters."""
    return json.dumps([name, params], sort_keys=True)


def percent(value: float | None) -> str:
    """A proportion as a percentage."""
    return "-" if value is None else f"{100 * value:.1f}"


def free_port() -> int:
    """A free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def say(text: str) -> None:
    """Print to the terminal."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def accuracy_against_epsilon(results: Mapping[str, Results], path: Path) -> None:
    """One panel per attack, one curve per model, with 95 % intervals; written as PNG."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    attacks = list(MARKERS)
    figure, axes = pyplot.subplots(1, len(attacks), figsize=(12, 4), sharey=True, layout="constrained")
    for axis, attack in zip(axes, attacks, strict=True):
        for (label, result), colour in zip(results.items(), COLOURS, strict=False):
            rows = [e for e in result.evaluations if e.name == attack]
            clean = next(e for e in result.evaluations if e.name == "clean")
            _curve(axis, clean, rows, label, colour, MARKERS[attack])
        axis.set_title(f"{TITLES[attack]}, $L_\\infty$")
        axis.set_xlabel("epsilon (in 1/255 of the pixel range)")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("top-1 accuracy, %")
    axes[0].set_ylim(-2, 102)
    axes[-1].legend()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _curve(
    axis: object, clean: EvaluationResult, rows: list[EvaluationResult], label: str, colour: str, marker: str
) -> None:
    points = [(0.0, clean.metrics["top1"])] + [
        (255 * fraction_value(row.params["epsilon"]), row.metrics["top1"]) for row in rows
    ]
    known = [(x, m.value, m.ci_low or 0.0, m.ci_high or 0.0) for x, m in points if m.value is not None]
    x = [p[0] for p in known]
    y = [100 * p[1] for p in known]
    below = [100 * (p[1] - p[2]) for p in known]
    above = [100 * (p[3] - p[1]) for p in known]
    axis.errorbar(  # type: ignore[attr-defined]
        x, y, yerr=[below, above], label=label, color=colour, marker=marker, capsize=3, linewidth=1.5
    )


if __name__ == "__main__":
    sys.exit(main())
