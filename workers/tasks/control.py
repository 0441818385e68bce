"""Control, learnt from trajectories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from assay.service.contract.stored_specs import EvaluationItem
from assay.service.submission.estimate import BACKWARD_COST
from assay.workers import catalog
from assay.workers.data.formats.control.trajectories import ControlSet, policy_for
from assay.workers.data.formats.dataset import ExampleSet
from assay.workers.evaluation.engine.probe import Question, logits_question
from assay.workers.evaluation.engine.rollout import opening
from assay.workers.evaluation.engine.shard import Shard
from assay.workers.evaluation.returns import Returns
from assay.workers.jobs.loading import Loaded, ModelRequest
from assay.workers.tasks.classification import Task

if TYPE_CHECKING:
    from assay.workers.training.batches import Source
    from assay.workers.training.losses import TrainingLoss
    from assay.workers.training.recipe import Recipe
    from assay.workers.training.source import Batching

__all__ = ["control"]

FACTS = {
    "noun": "episodes",
    "protocols": {"pixel": "control", "paper": "control"},
    # With the environment's own target return.
    "final": {"name": "returns"},
    "sizes": {"channels": "numbers of an observation", "classes": "actions", "length": "steps"},
    "example": {
        "model": "decision_transformer",
        "data": "classic_control",
        "recipe": "small_control",
        "model_params": {"width": 32, "depth": 2, "heads": 2, "context": 10},
        "recipe_params": {"steps": 200},
    },
}


class _ControlTask(Task):
    def load(self, request: ModelRequest) -> Loaded:
        acted = cast(ControlSet, request.data)
        policy = policy_for(request.backbone(discrete=acted.environment.discrete), acted)
        return request.prepared(policy, metadata=request.load_file(policy).metadata)

    def trial_inputs(self, data: ExampleSet, size: int, count: int) -> Tensor:
        contexts = torch.zeros(count, size, data.channels + data.classes + 3)  # steps that exist, of zeros
        contexts[..., -1] = 1.0
        return contexts

    def windows(self, item: EvaluationItem, data: ExampleSet, size: int) -> float:
        """The passes of an episode's most steps, a pass with a gradient by its cost."""
        made = catalog.build("evaluation", item["name"], item["params"])()
        forward, backward = made.passes_per_step if isinstance(made, Returns) else (1, 0)
        return cast(ControlSet, data).environment.max_steps * (forward + BACKWARD_COST * backward)

    def check_fit(
        self, data: ExampleSet, model_data: ExampleSet, trained: Sequence[str] | None, where: str
    ) -> None:
        for whose, names in (("the job's data", model_data.class_names), ("its training", trained)):
            if names is not None and tuple(names) != tuple(data.class_names):
                raise ValueError(
                    f"{where}: the model is to act in {_environment(data.class_names)!r}, {whose} is in"
                    f" {_environment(names)!r}; name the same environment"
                )

    def batches(self, data: ExampleSet, recipe: Recipe, how: Batching) -> Source:
        from assay.workers.training.trajectories import TrajectoryBatches  # trainings alone

        return TrajectoryBatches(
            cast(ControlSet, data),
            length=how.image_size,
            seed=how.seed,
            batch_size=how.batch_size,
            device=how.device,
            processes=how.processes,
        )

    def loss(self) -> TrainingLoss:
        from assay.workers.training.losses import ActionLoss

        return ActionLoss()

    def question(self, shard: Shard, rows: Sequence[int]) -> Question:
        return logits_question(shard, opening(shard, rows))


def _environment(class_names: Sequence[str]) -> str:
    return class_names[0].partition(" ")[0]


def control() -> Task:
    """Control: the return of a policy that acts in an environment."""
    return _ControlTask()
