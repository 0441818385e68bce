"""Every code that a warning may have, and what `warning_codes.json` says of each."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict

Severity = Literal["invalid", "caution", "note"]
"""How much a warning matters, the gravest first.

- invalid: the number is not what its name says; do not publish it.
- caution: the number may mislead; read the message before it is used.
- note: expected here, and to be stated beside the number.
"""
SEVERITIES: tuple[Severity, ...] = get_args(Severity)

WarningCode = Literal[
    "untrained_weights", "foreign_normalization", "unstated_vocabulary", "gradients_not_compared",
    "probabilities", "trained_on_examples", "selected_on_test", "class_names_differ", "labels_by_number",
    "labels_by_name", "class_order_guessed", "own_tokenizer", "incomplete_data", "other_content",
    "data_disagreement", "resampled_images", "resized_images", "empty_classes", "skipped_files",
    "regenerated_set", "subset", "held_out_fifth", "random_outputs", "batch_dependent",
    "leaks_future", "nonfinite", "below_chance", "chance_not_excluded",
    "constant_prediction", "one_class_under_attack", "analysis_only", "inactive_pursuit",
    "zero_gradient", "nonfinite_gradient", "unconverged", "unverified", "out_of_ball", "out_of_box",
    "gradient_free_only", "tiny_gradients", "saturated_loss", "fewer_classes_than_targets",
    "too_few_classes_for_dlr", "adaptive_attack_needed", "black_box_stage_stronger", "library_backend",
    "top5_upper_bound", "many_unknown_words", "cut_texts", "cut_sequences", "swapped_to_unknown",
    "recipe_left_out",
    "reduced_batch", "not_captured", "not_compiled", "few_passes_to_compile", "checkpoints_not_saved",
    "published_batch_not_reached",
    "scaled_learning_rate", "screened", "undefined_metric", "no_worker_with_devices", "package_not_checked",
    "other_dtype", "repeated_evaluation", "left_out",
    "quotients_left_out", "more_features_than_tokens", "measures_the_machine",
    "noise_stronger_than_gradient", "single_step_stronger_than_iterative",
    "black_box_stronger_than_white_box", "accuracy_rises_with_epsilon", "accuracy_rises_with_effort",
    "robust_at_large_epsilon", "certified_and_broken", "repeated_differently",
    "single_attack",
    "incomplete", "not_common", "partial_overlap", "different_code", "different_arithmetic", "different_data",
    "different_seeds",
]  # fmt: skip
WarningPlace = Literal["submission", "row", "job", "comparison", "study", "leaderboard"]
"""Where a warning appears: on a submission and its dry run, on a row of results, on a job's results, ..."""

_FACTS: dict[WarningCode, dict[str, Any]] = json.loads(
    Path(__file__).with_suffix(".json").read_text(encoding="utf-8")
)
_LINK = re.compile(r"\[([^\]]*)\]\(([^)]*)\)")

# A warning may be graver: `zero_gradient` of half the examples, a model no better than a guess attacked.
SEVERITY: Mapping[str, Severity] = {code: facts["severity"] for code, facts in _FACTS.items()}


class WarningMeaning(BaseModel):
    """What a code of a warning means; `evidence` says what the warning's own `evidence` holds."""

    model_config = ConfigDict(extra="forbid")

    code: WarningCode
    severity: Severity
    group: str
    where: list[WarningPlace]
    cause: str
    evidence: str
    remedy: str


def warning_meanings(*, links: bool = False) -> list[WarningMeaning]:
    """All codes with their meanings, in the order of `WarningCode`; `links`: texts keep links of Markdown."""
    return [WarningMeaning(code=code, **_texts(facts, links=links)) for code, facts in _FACTS.items()]


def _texts(facts: Mapping[str, Any], *, links: bool) -> dict[str, Any]:
    if links:
        return dict(facts)
    plain = {key: _LINK.sub(r"\1 (docs/\2)", facts[key]) for key in ("cause", "evidence", "remedy")}
    return {**facts, **plain}
