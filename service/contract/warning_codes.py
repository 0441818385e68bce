"""Every code that a warning may have. `docs/warnings.md` explains each with its cause and remedy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

Severity = Literal["invalid", "caution", "note"]
"""How much a warning matters, the gravest first.

- invalid: the number is not what its name says; do not publish it.
- caution: the number may mislead; read the message before it is used.
- note: expected here, and to be stated beside the number.
"""
SEVERITIES: tuple[Severity, ...] = get_args(Severity)

WarningCode = Literal[
    # about the model and the data
    "untrained_weights",
    "foreign_normalization",
    "unstated_vocabulary",
    "gradients_not_compared",
    "probabilities",
    "trained_on_examples",
    "selected_on_test",
    "class_names_differ",
    "labels_by_number",
    "labels_by_name",
    "class_order_guessed",
    "own_tokenizer",
    "incomplete_data",
    "other_content",
    "data_disagreement",
    "resampled_images",
    "empty_classes",
    "regenerated_set",
    "subset",
    "random_outputs",
    "batch_dependent",
    "leaks_future",
    "nonfinite",
    "below_chance",
    "constant_prediction",
    "analysis_only",
    "inactive_pursuit",
    # about one attack
    "zero_gradient",
    "nonfinite_gradient",
    "unconverged",
    "unverified",
    "out_of_ball",
    "out_of_box",
    "gradient_free_only",
    "tiny_gradients",
    "saturated_loss",
    "fewer_classes_than_targets",
    "too_few_classes_for_dlr",
    "adaptive_attack_needed",
    "black_box_stage_stronger",
    "library_backend",
    "top5_upper_bound",
    "many_unknown_words",
    "cut_texts",
    "cut_sequences",
    "swapped_to_unknown",
    "recipe_left_out",
    # about how it was run
    "reduced_batch",
    "not_captured",
    "not_compiled",
    "few_passes_to_compile",
    "checkpoints_not_saved",
    "published_batch_not_reached",
    "scaled_learning_rate",
    "screened",
    "undefined_metric",
    "no_worker_with_devices",
    "package_not_checked",
    "other_dtype",
    "repeated_evaluation",
    "left_out",
    # about an analysis
    "quotients_left_out",
    "more_features_than_tokens",
    "measures_the_machine",
    # across the evaluations of a job
    "noise_stronger_than_gradient",
    "single_step_stronger_than_iterative",
    "black_box_stronger_than_white_box",
    "accuracy_rises_with_epsilon",
    "accuracy_rises_with_effort",
    "robust_at_large_epsilon",
    "certified_and_broken",
    "repeated_differently",
    # of a row of the leaderboard
    "single_attack",
    # across jobs
    "incomplete",
    "not_common",
    "partial_overlap",
    "different_code",
    "different_arithmetic",
    "different_data",
    "different_seeds",
]

_INVALID = "leaks_future different_data certified_and_broken repeated_differently"
_NOTE = (
    "regenerated_set subset analysis_only fewer_classes_than_targets too_few_classes_for_dlr library_backend"
    " top5_upper_bound cut_texts cut_sequences swapped_to_unknown recipe_left_out reduced_batch not_captured"
    " checkpoints_not_saved scaled_learning_rate screened undefined_metric no_worker_with_devices"
    " package_not_checked repeated_evaluation left_out quotients_left_out measures_the_machine incomplete"
    " labels_by_name own_tokenizer adaptive_attack_needed gradients_not_compared not_compiled"
    " few_passes_to_compile"
)
# A warning may be graver: `zero_gradient` of every example, a model no better than a guess attacked.
SEVERITY: Mapping[WarningCode, Severity] = {
    code: "invalid" if code in _INVALID.split() else "note" if code in _NOTE.split() else "caution"
    for code in get_args(WarningCode)
}
