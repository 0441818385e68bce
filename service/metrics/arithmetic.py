"""The arithmetic of a job's numbers: what its passes were computed in, and which attacks ran prepared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from assay.service.contract.records import CapturedRun, CompiledRun, Evidence, PlannedCompile, PreparedRuns
from assay.service.contract.results import EvaluationResult
from assay.service.contract.stored_specs import Execution

COARSE = ("tf32", "bfloat16", "float16")  # Coarser than float32: numbers differ by more than its rounding.


def arithmetic_settings(
    execution: Execution, provenance: Mapping[str, Any], rows: Iterable[EvaluationResult]
) -> dict[str, str]:
    """The `dtype`, and what else changed numbers, by setting; what is off is left out."""
    # TF32 on devices without it is float32; without a provenance, which a job has at its end, it is what was
    # asked for. A screening counts where an attack of the job's `rows` ran so.
    dtype, device = str(execution["dtype"]), provenance.get("device", {})
    if dtype == "tf32" and device and not any(one.get("tf32") for one in (device, *device.get("mixed", ()))):
        dtype = "float32"
    found = {"dtype": dtype}
    screened = any(warning.code == "screened" for row in rows for warning in row.warnings)
    if (screening := execution.get("screening")) and screened:
        found["screening"] = screening
    if execution.get("channels_last"):
        found["channels_last"] = "true"
    if (compiled := device.get("compiled")) and compiled["passes"]:
        found["compile"] = ", ".join(compiled["compilers"])
    return found


def arithmetic_text(settings: Mapping[str, str]) -> str:
    """The dtype, then the settings beside it."""
    dtype, *more = settings.items()
    return ", ".join([dtype[1], *(name if value == "true" else f"{name} {value}" for name, value in more)])


def attack_arithmetic(dtype: str, screening: str, ran: bool, stages: Sequence[str]) -> str:
    """An attack in words: whether it, or some `stages`, ran in autocast, in a job of a dtype."""
    if not ran:
        return "float32; clean answers in bfloat16" if dtype == "bfloat16" else "float32"
    some = f" ({', '.join(stages)})" if stages else ""
    if screening == "bfloat16":
        return f"bfloat16 first{some}, then float32"
    return f"gradients in bfloat16{some}, successes judged in float32"


def prepared_passes(
    execution: Execution, trial: PlannedCompile | None, evidence: Sequence[Evidence]
) -> PreparedRuns:
    """What of the attacks, by the `evidence` of their shards, ran captured or compiled, where asked for."""
    found: PreparedRuns = {}
    if execution.get("capture"):
        captured = [shard["captured"] for shard in evidence if shard.get("captured")]
        replays = [part["replays"] for part in captured if part["replays"]]
        found["captured"] = cast(
            CapturedRun, {"replays": sum(replays), **_shares(replays, captured, evidence)}
        )
    if execution.get("compile") in ("auto", "on"):
        compiled = [shard["compiled"] for shard in evidence if shard.get("compiled")]
        passes = [part["passes"] for part in compiled if part["passes"]]
        compilers = sorted({part["compiler"] for part in compiled if part["passes"] and part["compiler"]})
        run = {"passes": sum(passes), "compilers": compilers, **_shares(passes, compiled, evidence)}
        found["compiled"] = cast(CompiledRun, run | ({} if trial is None else {"trial": {**trial}}))
    return found


def _shares(served: Sequence[int], told: Sequence[Any], evidence: Sequence[Evidence]) -> dict[str, Any]:
    """In how many of the shards of attacks prepared passes served, and why no more were prepared."""
    reasons = sorted({part["refused"] for part in told if part["refused"] is not None})
    return {"shards": len(served), "of": len(evidence), **({"refused": reasons} if reasons else {})}


def device_facts(device: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """A provenance's device without captured and compiled passes, and a sentence about these, by name."""
    found = {}
    if (captured := device.get("captured")) is not None:
        found["captured passes"] = f"{captured['replays']:,} replays {_where(captured)}"
    if (compiled := device.get("compiled")) is not None:
        by = f" by {', '.join(compiled['compilers'])}" if compiled["compilers"] else ""
        text = f"{compiled['passes']:,} passes{by} {_where(compiled)}"
        trial = compiled.get("trial")
        found["compiled passes"] = text if trial is None else f"{text}; {_trial_text(trial)}"
    return {name: fact for name, fact in device.items() if name not in ("captured", "compiled")}, found


def _where(run: Mapping[str, Any]) -> str:
    refused = f"; refused: {'; '.join(run['refused'])}" if run.get("refused") else ""
    return f"in {run['shards']} of {run['of']} shards of attacks{refused}"


def _trial_text(trial: Mapping[str, Any]) -> str:
    if trial["ratio"] is None or trial["seconds"] is None:
        why = trial["refused"] or "the attacks are too short for it to pay"
        return f"not chosen by the plan, without a finished trial: {why}"
    chosen = "chosen" if trial["chosen"] else "not chosen"
    return (
        f"{chosen} by the plan's trial: a compiled pass took {trial['ratio']:.2f} of the time of the model's"
        f" own, compiling {trial['seconds']:.1f} s"
    )
