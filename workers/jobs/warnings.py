"""Warnings about one row of the results; `warning_codes.json` has the cause and the remedy of each.

Sources: the checks of AutoAttack's `flags_doc` (Croce and Hein 2020); Carlini et al. 2019, "On Evaluating
Adversarial Robustness"; Pintor et al. 2022, "Indicators of Attack Failure"; Tramer et al. 2020, "On Adaptive
Attacks to Adversarial Example Defenses".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from assay.service.catalog.catalog import load
from assay.service.contract.records import Evidence, Plan, PlannedEvaluation
from assay.service.contract.results import StageBreakdown, Warning
from assay.service.contract.stored_specs import Params
from assay.service.contract.warning_codes import SEVERITY, Severity
from assay.service.metrics.answers import Answers
from assay.service.metrics.arithmetic import attack_arithmetic
from assay.service.metrics.compare.sanity_checks import MIN_EXAMPLES, TOLERANCE
from assay.service.metrics.tables.classification import TOP5_CLASSES
from assay.service.submission.warnings import arithmetic_of
from assay.workers.jobs.data_warnings import of_data, of_generated
from assay.workers.jobs.library_backends import describe
from assay.workers.jobs.model_warnings import of_answers, of_gradients
from assay.workers.jobs.training_warnings import of_training
from assay.workers.jobs.weights_warnings import of_weights

CountedCode = Literal[
    "zero_gradient",
    "nonfinite_gradient",
    "nonfinite",
    "unconverged",
    "unverified",
    "out_of_ball",
    "out_of_box",
]
ProbedCode = Literal["random_outputs", "batch_dependent"]
TextCount = Literal["words", "unknown_words", "cut_texts", "swapped", "swapped_unknown"]
# Counts of examples, in the shards' evidence under the warning's code.
COUNTED: dict[CountedCode, str] = {
    "zero_gradient": "the gradient at the first step was exactly zero for {count} of {n} examples:"
    " gradients may be masked, or the loss has underflowed; attack with another loss (apgd_dlr) or without"
    " gradients (square)",
    "nonfinite_gradient": "the gradient at the first step was not finite for {count} of {n} examples; these"
    " were not moved: look for divisions by zero and overflow in the model",
    "nonfinite": "the logits were not finite for {count} of {n} examples; they count as wrong",
    "unconverged": "the loss still rose in the last tenth of the steps for {count} of {n} examples: more"
    " steps would find more; accuracy is too high",
    "unverified": "{count} adversarial examples of {n} examples were right when judged again in float32, and"
    " were not counted: low precision, or outputs that change from run to run or with the batch; their attack"
    " ended there, so accuracy is an upper bound",
    "out_of_ball": "{count} adversarial examples of {n} examples lay outside the ball of radius epsilon, and"
    " were not counted: the attack has a defect",
    "out_of_box": "{count} adversarial examples of {n} examples had pixels outside [0, 1], and were not"
    " counted: the attack has a defect",
}
# Their meaning for an attack on a segmentation model, with any loss.
OF_PIXELS: dict[CountedCode, str] = {
    "zero_gradient": "the gradient at the first step was exactly zero for {count} of {n} images under some"
    " loss: gradients may be masked, or the loss has underflowed; there is no attack without gradients here"
    " to check it with",
    "nonfinite_gradient": "the gradient at the first step was not finite for {count} of {n} images under some"
    " loss; these were not moved by it: look for divisions by zero and overflow in the model",
    "nonfinite": "pixels of {count} of {n} images had logits that are not finite; they count as wrong",
    "unconverged": "more than 1 % of the pixels went wrong in the last tenth of the steps in {count} of {n}"
    " images under some loss: more steps would find more; the accuracies and mIoU are too high",
    "unverified": "{count} of {n} attacked images had more than 1 % more right pixels when judged again in"
    " float32 than when they were found: low precision, or outputs that change from run to run or with the"
    " batch; the second judgement counts, and is an upper bound",
    "out_of_ball": "{count} attacked images of {n} lay outside the ball of radius epsilon, and were not"
    " counted: the attack has a defect",
    "out_of_box": "{count} attacked images of {n} had pixels outside [0, 1], and were not counted: the attack"
    " has a defect",
}
# No warning up to this share of the examples: a hovering loss may rise last.
RARE: dict[CountedCode, float] = {"unconverged": 0.02}
# Found by probing the first images; only the first shard does.
PROBED: dict[ProbedCode, str] = {
    "random_outputs": "the logits of {count} of the first {noun} changed between two passes: the model draws"
    " random numbers, and the numbers of this row are those of single draws; an attack that does not average"
    " over them (autoattack version rand, eot) is not the strongest, and may count lucky draws; the outcomes"
    " repeat with the same shards and batch size only",
    "batch_dependent": "the logits of {count} of the first {noun} changed with the batch: an example's result"
    " depends on its neighbours, and is another than the model gives for it alone",
}
# For a row with expected accuracies.
EXPECTED = (
    "the logits of {count} of the first {noun} changed between two passes: the model draws random numbers;"
    " the accuracies of this row are those to expect over its draws; they repeat with the same shards and"
    " batch size only"
)
# What became of passes that were to be captured or compiled, before the reason.
OWN = "its own passes ran, and the numbers are right. The reason"
# Share of unknown words above which a warning is due.
MANY_UNKNOWN = 0.1
OF_TEXTS: tuple[TextCount, ...] = ("words", "unknown_words", "cut_texts", "swapped", "swapped_unknown")


@dataclass(frozen=True)
class Row:
    """Input for the warnings of a row."""

    name: str  # of the evaluation or attack
    params: Params
    backend: str  # "native", or the library that ran the attack
    attack: bool
    worst_case: bool  # per example, as under every protocol but `paper`
    planned: PlannedEvaluation
    breakdown: Sequence[StageBreakdown] = ()
    undefined: Mapping[str, str] = field(default_factory=dict)  # metrics without a value, and the reasons
    dtype: str = "float32"  # that the job asked for
    screening: str | None = None
    without_tf32: bool = False  # asked for, on a device that lacks it
    expected: bool = False  # whether the accuracies are expected ones over draws of the model
    per_pixel: bool = False  # whether an answer is a class for each pixel
    noun: str = "images"  # what one example is called
    answers: Answers | None = None  # to the unattacked examples
    attacks: Sequence[str] = ()  # every evaluation of the job on the same data
    chosen_against_models: bool = False  # the data are examples that models get wrong
    data: str = ""  # the name of the data set


def of_evaluation(plan: Plan, evidence: Sequence[Evidence], row: Row) -> list[Warning]:
    """The warnings for a row of the results; `evidence` are the reports of the shards."""
    return [
        *_counted(evidence, row),
        *_probed(evidence, row),
        *_inactive(evidence, row.noun),
        *of_data(row.planned, row.noun),
        *of_training(row.planned),
        *_of_model(plan, evidence, row),
        *_of_classes(row),
        *_of_stages(row),
        *of_weights(plan, evidence, row.name, row.params),
        *_of_run(plan, evidence, row),
        *_of_reading(row),
        *of_generated(row.params, row.planned.get("known_as") or row.data, plan.get("image_size")),
        *_of_texts(evidence, row.planned["n"]),
    ]


def _of_model(plan: Plan, evidence: Sequence[Evidence], row: Row) -> Iterator[Warning]:
    guesses = plan["untrained"] or row.chosen_against_models
    yield from of_answers(row.answers, row.planned.get("classes"), guesses=guesses, noun=row.noun)
    if row.attack:
        yield from of_gradients(evidence, row.name, row.attacks, row.noun, row.params)


def _counted(evidence: Sequence[Evidence], row: Row) -> Iterator[Warning]:
    n, texts = row.planned["n"], OF_PIXELS if row.attack and row.per_pixel else {}
    for code, text in (COUNTED | texts).items():
        count = sum(shard.get(code, 0) for shard in evidence)
        if count > RARE.get(code, 0) * n:
            stages = _by_stage(evidence, code)
            found = {"count": count, "n": n, **({"stages": stages} if stages else {})}
            attacked = sum(shard.get("gradients", 0) for shard in evidence) or n
            most = n if row.per_pixel else attacked / 2  # of several losses an image counts for any
            meaningless = code == "zero_gradient" and count >= most and not row.breakdown
            severity: Severity = "invalid" if meaningless else SEVERITY[code]
            yield Warning(code=code, severity=severity, message=text.format(count=count, n=n), evidence=found)


def _by_stage(evidence: Sequence[Evidence], code: CountedCode) -> dict[str, int]:
    counts: dict[str, int] = {}
    for stage in (stage for shard in evidence for stage in shard.get("stages", ())):
        if count := stage.get(code, 0):
            counts[stage["name"]] = counts.get(stage["name"], 0) + count
    return dict(sorted(counts.items()))


def _probed(evidence: Sequence[Evidence], row: Row) -> Iterator[Warning]:
    for code, text in PROBED.items():
        count = sum(shard.get(code, 0) for shard in evidence)
        if count:
            found: dict[str, float] = {"count": count}
            if largest := max(_changes(evidence, code), default=0.0):  # shards of earlier versions do not say
                found["largest_change"] = largest
            stated = row.expected and code == "random_outputs"
            message = (EXPECTED if stated else text).format(count=count, noun=row.noun)
            severity: Severity = "note" if stated else SEVERITY[code]
            yield Warning(code=code, severity=severity, message=message, evidence=found)


def _changes(evidence: Sequence[Evidence], code: ProbedCode) -> list[float]:
    if code == "random_outputs":
        return [shard.get("random_outputs_change", 0.0) for shard in evidence]
    return [shard.get("batch_dependent_change", 0.0) for shard in evidence]


def _inactive(evidence: Sequence[Evidence], noun: str) -> Iterator[Warning]:
    if evidence and (found := evidence[0].get("inactive_pursuit")):  # every shard looks at its own examples
        message = (
            f"the sparse part of RPC-Attention is nearly empty: at most {100 * found['largest_share']:.2g} %"
            f" of it is not 0 in any layer and iteration, over the first {found['examples']} {noun}; a"
            " difference to symmetric attention does not come from a robust decomposition"
        )
        yield Warning(code="inactive_pursuit", message=message, evidence=dict(found))


def _of_classes(row: Row) -> Iterator[Warning]:
    classes = row.planned.get("classes")
    if classes is None or not row.attack:
        return
    attacks = [row.name, *(stage.stage for stage in row.breakdown)]
    threats = [threat for name in attacks if (threat := load().threat_of(name)) is not None]
    tried = max((threat.targets or 0 for threat in threats), default=0)
    targets = row.params.get("targets", tried) if tried else 0
    if targets > classes - 1:
        message = (
            f"{row.name} was to attack {targets} target classes, there are only {classes - 1} wrong ones:"
            " fewer targets make the same attack"
        )
        evidence = {"targets": targets, "classes": classes}
        yield Warning(code="fewer_classes_than_targets", message=message, evidence=evidence)
    needed = max((threat.needs_classes or 0 for threat in threats), default=0)
    if classes < needed and row.params.get("loss", "dlr") == "dlr":
        message = (
            f"the DLR loss of {row.name} needs {needed} classes, there are {classes}: it is not defined;"
            " use attacks on the cross-entropy or the margin (apgd_ce, square)"
        )
        evidence = {"classes": classes, "needed": needed}
        yield Warning(code="too_few_classes_for_dlr", message=message, evidence=evidence)


def _of_stages(row: Row) -> Iterator[Warning]:
    """For an ensemble: a black box that breaks examples left by white boxes; and the limits of the result."""
    n = row.planned["n"]
    # A second stage on a share of the examples: one that it breaks stands for many.
    share = row.params.get("check_share", 1.0)
    for number, (before, stage) in enumerate(zip(row.breakdown, row.breakdown[1:], strict=False)):
        few = stage.broken < MIN_EXAMPLES or stage.broken <= TOLERANCE * n
        if number == 0 and share < 1:
            few = stage.broken == 0
        if _without_gradients(stage) and not _without_gradients(before) and not few:
            message = (
                f"{stage.stage} broke {stage.broken} of the {stage.n} examples that the gradient attacks"
                " before it had left: gradients are masked, and an attack made for this model may break many"
                " more"
            )
            evidence = {"stage": stage.stage, "broken": stage.broken, "n": n}
            yield Warning(code="black_box_stage_stronger", message=message, evidence=evidence)
    threat = load().threat_of(row.name)
    if threat is not None and threat.upper_bound is not None:
        yield Warning(code="adaptive_attack_needed", message=threat.upper_bound)


def _without_gradients(stage: StageBreakdown) -> bool:
    threat = load().threat_of(stage.stage)
    return threat is not None and threat.without_gradients


def _judgement(evidence: Sequence[Evidence]) -> dict[str, float | None]:
    """How iterates with gradients in bfloat16 were judged: sums over shards, and the largest bound."""
    parts = [shard["judgement"] for shard in evidence if "judgement" in shard]
    if not parts:
        return {}
    bounds = [bound for part in parts if (bound := part["bound"]) is not None]
    largest = max(bounds) if len(bounds) == len(parts) else None
    sums = {key: sum(part[key] for part in parts) for key in ("iterates", "in_float32", "above_bound")}
    return {**sums, "bound": largest}


def _of_run(plan: Plan, evidence: Sequence[Evidence], row: Row) -> Iterator[Warning]:
    n, available = row.planned["n"], row.planned["available"]
    if n < available and "repeats" not in row.planned:
        message = f"{n} of {available} examples: those with the smallest sha256 of data name and example id"
        yield Warning(code="subset", message=message, evidence={"n": n, "available": available})
    yield from _screened(evidence, row)
    if row.without_tf32 and arithmetic_of(load(), row.name) is None:
        message = f"{row.name} was computed in float32: the device has no TF32"
        dtypes = {"dtype": "tf32", "computed_in": "float32"}
        yield Warning(code="other_dtype", message=message, evidence={"evaluation": row.name, **dtypes})
    reduced = [shard["reduced_batch"] for shard in evidence if shard.get("reduced_batch")]
    if reduced:
        asked, used = max(r["asked"] for r in reduced), min(r["used"] for r in reduced)
        message = (
            f"memory was enough for {used} examples at a time, not for {asked}: the numbers differ by"
            " rounding only, but it took longer; ask for a smaller execution.batch_size"
        )
        yield Warning(code="reduced_batch", message=message, evidence={"asked": asked, "used": used})
    yield from _unprepared(evidence)
    if row.backend != "native":
        stages = [stage.stage for stage in row.breakdown]
        message = f"backend {row.backend}: {describe(row.backend, row.name, row.params, stages)}"
        size = {"batch_size": plan["batch_size"]}
        yield Warning(code="library_backend", message=message, evidence=size)


def _screened(evidence: Sequence[Evidence], row: Row) -> Iterator[Warning]:
    """For an attack with a stage that ran in autocast; shards of earlier versions do not name the stages."""
    if (stages := _stages_in_autocast(evidence, row)) is None:
        return
    several = bool(stages) and len(row.breakdown) > 1
    if row.screening == "bfloat16_gradients":
        what = f"the gradients of {', '.join(stages)}" if several else "the attack's gradients"
        message = f"{what} were in bfloat16: in float32 it may find a few more, or fewer"
    else:
        message = (
            f"{', '.join(stages) if several else 'the attack'} ran in {row.screening} first, and again on"
            " what that had left: the worst case of two runs may be lower than after a single run"
        )
    more = {"stages": stages} if several else {}
    told = {"screening": row.screening, **more, **_judgement(evidence)}
    yield Warning(code="screened", message=message, evidence=told)


def _stages_in_autocast(evidence: Sequence[Evidence], row: Row) -> list[str] | None:
    """Names of the stages of an attack that ran in autocast, as far as known; None: no stage did."""
    if row.screening is None or not (row.attack and row.worst_case) or row.expected:
        return None
    named = [shard["screened"] for shard in evidence if "screened" in shard]
    stages = [*dict.fromkeys(name for names in named for name in names)]
    return None if len(named) == len(evidence) > 0 and not stages else stages


def row_arithmetic(evidence: Sequence[Evidence], row: Row) -> str | None:
    """What a row was computed in, in words; None where the job asked for plain float32 or float64."""
    dtype = arithmetic_of(load(), row.name) or ("float32" if row.without_tf32 else row.dtype)
    if row.screening is None or not (row.attack and row.worst_case):
        return None if row.screening is None and row.dtype in ("float32", "float64") else dtype
    stages = _stages_in_autocast(evidence, row)
    some = stages if stages and len(row.breakdown) > len(stages) else ()
    return attack_arithmetic("float32" if row.expected else dtype, row.screening, stages is not None, some)


def _unprepared(evidence: Sequence[Evidence]) -> Iterator[Warning]:
    refused = [shard["captured"]["refused"] for shard in evidence if shard.get("captured")]
    if reasons := sorted({reason for reason in refused if reason is not None}):
        message = f"passes were not replayed as graphs of the device; {OWN}: {'; '.join(reasons)}"
        yield Warning(code="not_captured", message=message, evidence={"reasons": reasons})
    refused = [shard["compiled"]["refused"] for shard in evidence if shard.get("compiled")]
    if reasons := sorted({reason for reason in refused if reason is not None}):
        n = len(refused) - refused.count(None)
        numbers = {"shards": n, "of": len(evidence)}
        message = f"passes were not compiled in {n} of {len(evidence)} shards; {OWN}: {'; '.join(reasons)}"
        yield Warning(code="not_compiled", message=message, evidence={"reasons": reasons, **numbers})


def _of_reading(row: Row) -> Iterator[Warning]:
    few = (row.planned.get("classes") or TOP5_CLASSES) < TOP5_CLASSES
    if row.attack and row.worst_case and not row.per_pixel and not few:
        message = (
            "top5 was measured under an attack on top-1, which does not try to leave the five highest:"
            " it is an upper bound of accuracy under an attack on top-5"
        )
        yield Warning(code="top5_upper_bound", message=message)
    if left_out := (load().find_evaluation(row.name).facts or {}).get("omitted_constraints"):
        message = (
            f"{row.name} ran without these constraints of the published recipe: {', '.join(left_out)}; it may"
            " use texts that the recipe refuses: do not compare its success rate with published ones"
        )
        yield Warning(code="recipe_left_out", message=message, evidence={"left_out": [*left_out]})
    if row.undefined:
        message = "; ".join(f"{name} has no value: {why}" for name, why in row.undefined.items())
        yield Warning(code="undefined_metric", message=message, evidence={"metrics": [*row.undefined]})


def _of_texts(evidence: Sequence[Evidence], n: int) -> Iterator[Warning]:
    found = {key: sum(shard.get(key, 0) for shard in evidence) for key in OF_TEXTS}
    if found["unknown_words"] > MANY_UNKNOWN * found["words"]:
        message = (
            "{unknown_words} of {words} words are not in the model's vocabulary: it reads <unk> for them"
            " already, so that changing them changes nothing"
        )
        counts = {key: found[key] for key in ("unknown_words", "words")}
        yield Warning(code="many_unknown_words", message=message.format(**found), evidence=counts)
    if cut := found["cut_texts"]:
        message = f"{cut} of {n} texts are longer than what the model reads: their first words are read"
        yield Warning(code="cut_texts", message=message, evidence={"count": cut, "n": n})
    if found["swapped_unknown"]:
        counts = {key: found[key] for key in ("swapped_unknown", "swapped")}
        message = (
            "{swapped_unknown} of the {swapped} swapped words became words that the vocabulary does not have:"
            " the model reads and has to predict <unk> there"
        )
        yield Warning(code="swapped_to_unknown", message=message.format(**found), evidence=counts)
