"""`make demo`: a study of two transformers on handwritten digits over six seeds, over real HTTP.

Starts the embedded service on a free port and posts a study: symmetric attention and RPC-Attention, trained
with six seeds each, and attacked. Answers first its primary question, then prints the study's
table, what else it shows and cannot show, and what the pursuit does inside the trained models; writes the
results, a report of all runs and a plot of accuracy against epsilon, and names the pages that show them.
"""

from __future__ import annotations

import argparse
import json
import math
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from assay.service.cli import output
from assay.service.cli.progress_bars import Bars
from assay.service.client import AssayClient
from assay.service.client.local import LOG, local_service
from assay.service.contract.fractions import fraction_value
from assay.service.contract.results import EvaluationResult, Job, Metric
from assay.service.studies import text as study_tables
from assay.service.studies.power import amount
from assay.service.studies.result_wire import ArmValue, StudyCell, StudyComparison, StudyResults
from assay.service.studies.wire import StudyStatus

SHAPE = {"image_size": 32, "patch_size": 8, "depth": 2, "width": 48, "heads": 3}
BASELINE, ROBUST = "SymViT", "RPC-SymViT"
ARMS: dict[str, dict[str, Any]] = {
    BASELINE: {"name": "symvit", "params": SHAPE},
    # Published, and one at which the pursuit acts at this size; with four iterations in the first layer it
    # hardly does (docs/results.md).
    ROBUST: {
        "name": "rpc_symvit",
        "params": SHAPE | {"rpc_layers": "all", "iterations": 2, "regularization": 3.0},
    },
}
SEEDS = 6
# Attacks with their radii, markers and titles.
ATTACKS: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("demo_attacks.json").read_text())
PRIMARY = next(
    {"evaluation": name, "params": {"epsilon": attack["primary"]}}
    for name, attack in ATTACKS.items()
    if "primary" in attack
)
EPSILONS = {name: attack["epsilons"] for name, attack in ATTACKS.items()}
DATA = {"name": "digits"}
EXECUTION = {"batch_size": 64}
# Corruption that costs two passes; the ascent would take forty.
CHECK = {"name": "pursuit_check", "params": {"planted": ["noise", "occlusion"]}}
PASSING_ACCURACY = 0.9
LEVEL = 0.05
REPORT = "report-{}.html"  # on an arm's runs
HARDLY = 0.01  # Share of S that is not 0, below which the sparse part does next to nothing.

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; 0 when both models reach the clean accuracy that the README promises."""
    parser = argparse.ArgumentParser(prog="assay demo", description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=Path("demo-output"))
    parser.add_argument("--epochs", type=int, default=40)
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    state = options.output / "state"
    say(f"Starting the service (state in {state}, log in {state / LOG})")
    with local_service(state, workers=2) as client:
        study = client.submit_study(study_spec(options.epochs))
        checks = [client.submit(spec).id for spec in check_specs(study)]
        finished = follow(client, study, checks)
        failed = [job for job in finished.values() if job.state != "succeeded"]
        for job in failed:
            say(f"{job.name}: {job.state}: {job.error.message if job.error else job.message}")
        if failed:
            return 1
        results = client.study_results(study.id)
        inside = [client.results(job).evaluations[0] for job in checks]
        for arm in study.runs:
            text = client.report([run.evaluate for run in arm.runs])
            (options.output / REPORT.format(arm.name)).write_text(text, encoding="utf-8")
    status = finish(options.output, results, inside)
    say(f"Took {time.monotonic() - begun:.0f} s.")
    return status


def study_spec(epochs: int) -> dict[str, Any]:
    """Both arms with every seed, on the images as they are and under every attack."""
    return {
        "kind": "study",
        "name": "demo",
        "tags": ["demo"],
        "arms": [{"name": name, "model": model} for name, model in ARMS.items()],
        "data": DATA,
        "recipe": {"name": "small_vit", "params": {"epochs": epochs}},
        "seeds": SEEDS,
        "evaluations": [
            {"name": "clean"},
            *(
                {"name": attack, "params": {"epsilon": epsilon}}
                for attack, epsilons in EPSILONS.items()
                for epsilon in epsilons
            ),
        ],
        "execution": EXECUTION,
        "baseline": BASELINE,
        "primary": PRIMARY,
    }


def check_specs(study: StudyStatus) -> Iterator[dict[str, Any]]:
    """A look into the pursuit of RPC-Attention with each seed; waits for the training."""
    (arm,) = [arm for arm in study.runs if arm.name == ROBUST]
    for run in arm.runs:
        yield {
            "kind": "evaluate",
            "name": f"pursuit, seed {run.seed}",
            "tags": ["demo"],
            "seed": run.seed,
            "model": {"name": ARMS[ROBUST]["name"], "weights": {"job": run.train}},
            "data": DATA,
            "evaluations": [CHECK],
            "execution": EXECUTION,
        }


def follow(client: AssayClient, study: StudyStatus, checks: Sequence[str]) -> dict[str, Job]:
    """Draw a progress bar per job until all have ended."""
    jobs: dict[str, str] = {}
    for arm in study.runs:
        for run in arm.runs:
            if run.train is not None:
                jobs[f"train {arm.name}, seed {run.seed}"] = run.train
            jobs[f"attack {arm.name}, seed {run.seed}"] = run.evaluate
    jobs |= {f"look into {ROBUST}, seed {seed}": job for seed, job in enumerate(checks)}
    with Bars(list(jobs)) as bars:
        while True:
            now: dict[str, Job] = {label: client.job(job_id) for label, job_id in jobs.items()}
            bars.draw(now)
            if all(job.state.terminal for job in now.values()):
                return now
            time.sleep(1.0)


def finish(folder: Path, results: StudyResults, inside: Sequence[EvaluationResult]) -> int:
    """Print the table and what follows from it, write the files, say where they and the pages are."""
    say(f"\n{answer(results)}\n")
    say(output.table(study_tables.header(results), list(study_tables.rows(results))))
    for line in [*study_tables.lines(results), pursuit_text(inside), verdict(results), advice(results)]:
        say(f"- {line}")
    body = {
        "study": results.model_dump(mode="json"),
        "pursuit": [one.model_dump(mode="json") for one in inside],
    }
    (folder / "results.json").write_text(json.dumps(body, indent=2) + "\n")
    (folder / "study.csv").write_text(study_tables.to_csv(results))
    plot = folder / "accuracy-against-epsilon.png"
    accuracy_against_epsilon(results, plot)
    say(f"\nResults JSON  {folder / 'results.json'}")
    say(f"Study as CSV  {folder / 'study.csv'}")
    say(f"Plot          {plot}")
    say(f"Reports       {', '.join(str(folder / REPORT.format(arm)) for arm in results.arms)}")
    say(f"\nThe page of this study, once `assay serve --state {shlex.quote(str(folder / 'state'))}` runs:")
    say(f"http://127.0.0.1:8000/studies/{results.study}")
    clean = next(cell for cell in results.cells if cell.evaluation == "clean")
    low = [arm.arm for arm in clean.arms if (arm.mean or 0.0) < PASSING_ACCURACY]
    for label in low:
        say(f"{label}: mean clean accuracy is below {PASSING_ACCURACY:.0%}")
    return 1 if low else 0


def answer(results: StudyResults) -> str:
    """The primary question, when it was fixed, and what the study answers."""
    cell, found = _primary(results)
    when = (
        "after the first" if results.fixing is not None and results.fixing.fixed == "after" else "before the"
    )
    question = f"Fixed {when} run: is {ROBUST} more robust than {BASELINE} under {study_tables.label(cell)}?"
    answered = results.primary
    if answered is None or answered.p_value is None or found.difference is None:
        return f"{question} No answer: the runs gave no test."
    word = "Yes" if found.difference > 0 else "No, it is less robust"
    if not answered.holds:
        word = "Not told apart"
    return (
        f"{question}\n{word}: {_points(found)} points, p = {answered.p_value:.2g}, one test.{_power(found)}"
    )


def _primary(results: StudyResults) -> tuple[StudyCell, StudyComparison]:
    pairs = ((cell, found) for cell in results.cells for found in cell.comparisons)
    return next((cell, found) for cell, found in pairs if found.primary)


def _power(found: StudyComparison) -> str:
    """What the study's seeds find in one test, and twice as many."""
    if found.power is None:
        return ""
    power = found.power
    if power.resolves is None or power.with_twice is None:
        return ""
    return (
        f" {power.seeds} seeds find a difference of {amount(power.resolves, 'proportion')} with 80 % power,"
        f" {2 * power.seeds} seeds {amount(power.with_twice, 'proportion')}."
    )


def advice(results: StudyResults) -> str:
    """What a reader does with the answer, for models of their own."""
    cell, _ = _primary(results)
    kept = " and ".join(f"{100 * (arm.mean or 0.0):.0f} % ({arm.arm})" for arm in cell.arms)
    told = results.primary is not None and results.primary.holds
    more = "" if told else "; more seeds (`assay studies extend`) or a stronger training tell them apart"
    return (
        "for models of yours: neither model was trained against attacks, and"
        f" {study_tables.label(cell)} leaves {kept} of the digits"
        f" right{more}. The same study of your arms is one file (docs/studies.md)"
    )


def verdict(results: StudyResults) -> str:
    """What the other differences show, in one sentence or two."""
    tested = [
        (study_tables.label(cell), found, found.test.adjusted_p_value)
        for cell in results.cells
        for found in cell.comparisons
        if found.test is not None and not found.primary
    ]
    shown = [(label, found) for label, found, p in tested if p < LEVEL]
    if shown:
        listed = "; ".join(f"{label} {_points(found)}" for label, found in shown)
        return (
            f"shown beside it: {len(shown)} of {len(tested)} other differences hold for other seeds and"
            f" digits after adjustment ({listed}); of the others the study shows none"
        )
    label, _, least = min(tested, key=lambda one: one[2])
    return (
        f"shown beside it: no difference. The smallest adjusted p of {len(tested)} others is {least:.2g}"
        f" ({label}); the study says nothing about differences smaller than those it would find"
    )


def _points(found: StudyComparison) -> str:
    ends = [found.difference, found.ci_low, found.ci_high]
    middle, low, high = ("?" if end is None else f"{100 * end:+.1f}" for end in ends)
    return f"{middle} [{low}, {high}]"


def pursuit_text(inside: Sequence[EvaluationResult]) -> str:
    """What the pursuit does in the trained models: means over seeds."""
    shares: dict[int, list[float]] = {}
    for result in inside:
        of_seed: dict[int, float] = {}
        for part in result.breakdown:
            if (iteration := getattr(part, "iteration", None)) is not None:
                share = _value(part.metrics["nonzero_share"])
                of_seed[iteration] = max(share, of_seed.get(iteration, 0.0))
        for iteration, share in of_seed.items():
            shares.setdefault(iteration, []).append(share)
    each = [_mean(values) for values in shares.values()]
    mean = {name: _mean([_value(result.metrics[name]) for result in inside]) for name in inside[0].metrics}
    shown = ", ".join(f"{100 * share:.2g}" for share in each)
    own, without = (f"{100 * mean[name]:.1f} %" for name in ("top1", "top1_no_sparse"))
    found = (
        f"the pursuit of {ROBUST}: S is {shown} % non-zero in iterations 1 to {len(each)}, |K - L - S| / |K|"
        f" is {mean['residual']:.2f}; the same weights without S have {without} clean accuracy in place of"
        f" {own}. S finds corrupted patches with an AUROC of {mean['auroc_noise']:.2f} (noise) and"
        f" {mean['auroc_occlusion']:.2f} (occlusion), the keys alone with {mean['keys_auroc_noise']:.2f} and"
        f" {mean['keys_auroc_occlusion']:.2f}"
    )
    acts = max(each) >= HARDLY
    return found + ("" if acts else f": it hardly acts, and a difference to {BASELINE} does not come from it")


def _value(metric: Metric) -> float:
    return math.nan if metric.value is None else metric.value


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def say(text: str) -> None:
    """Print to the terminal."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def accuracy_against_epsilon(results: StudyResults, path: Path) -> None:
    """One panel per attack, one curve per arm: mean and standard deviation over seeds; written as PNG."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    attacks = list(ATTACKS)
    accuracies = [cell for cell in results.cells if cell.metric == "top1"]
    clean = next(cell for cell in accuracies if cell.evaluation == "clean")
    figure, axes = pyplot.subplots(1, len(attacks), figsize=(12, 4), sharey=True, layout="constrained")
    for axis, attack in zip(axes, attacks, strict=True):
        cells = [clean, *(cell for cell in accuracies if cell.evaluation == attack)]
        for place, (label, colour) in enumerate(zip(results.arms, COLOURS, strict=False)):
            values = [(_epsilon(cell), cell.arms[place]) for cell in cells]
            _curve(axis, values, label, colour, ATTACKS[attack]["marker"])
        axis.set_title(f"{ATTACKS[attack]['title']}, $L_\\infty$")
        axis.set_xlabel("epsilon (in 1/255 of the pixel range)")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel(f"top-1 accuracy, %: mean and sd of {len(results.seeds)} seeds")
    axes[0].set_ylim(-2, 102)
    axes[-1].legend()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _epsilon(cell: StudyCell) -> float:
    epsilon = cell.params.get("epsilon")
    return 0.0 if epsilon is None else 255 * fraction_value(epsilon)


def _curve(
    axis: object, points: Sequence[tuple[float, ArmValue]], label: str, colour: str, marker: str
) -> None:
    known = [(x, 100 * arm.mean, 100 * (arm.sd or 0.0)) for x, arm in points if arm.mean is not None]
    x, y, deviations = ([point[part] for point in known] for part in range(3))
    axis.errorbar(  # type: ignore[attr-defined]
        x, y, yerr=deviations, label=label, color=colour, marker=marker, capsize=3, linewidth=1.5
    )


if __name__ == "__main__":
    sys.exit(main())
