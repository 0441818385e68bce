"""Every code that a warning may have. `docs/warnings.md` explains each with its cause and remedy."""

from __future__ import annotations

from typing import Literal

WarningCode = Literal[
    # about the model and the data
    "untrained_weights",
    "foreign_normalization",
    "trained_on_examples",
    "selected_on_test",
    "class_names_differ",
    "incomplete_data",
    "regenerated_set",
    "subset",
    "random_outputs",
    "batch_dependent",
    "leaks_future",
    "nonfinite",
    "analysis_only",
    "inactive_pursuit",
    # about one attack
    "zero_gradient",
    "nonfinite_gradient",
    "unconverged",
    "unverified",
    "out_of_ball",
    "out_of_box",
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
    "published_batch_not_reached",
    "scaled_learning_rate",
    "screened",
    "undefined_metric",
    "no_worker_with_devices",
    "package_not_checked",
    "other_dtype",
    "left_out",
    # about an analysis
    "quotients_left_out",
    "measures_the_machine",
    # across the evaluations of a job
    "noise_stronger_than_gradient",
    "single_step_stronger_than_iterative",
    "black_box_stronger_than_white_box",
    "accuracy_rises_with_epsilon",
    "accuracy_rises_with_effort",
    "robust_at_large_epsilon",
    # across jobs
    "incomplete",
    "not_common",
    "partial_overlap",
    "different_data",
    "different_seeds",
]
