"""Control, learnt from trajectories."""

from __future__ import annotations

from collections.abc import Sequence

from assay.workers.evaluation.engine.probe import Question, logits_question
from assay.workers.evaluation.engine.rollout import opening
from assay.workers.evaluation.engine.shard import Shard
from assay.workers.tasks.classification import Task

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
    def question(self, shard: Shard, rows: Sequence[int]) -> Question:
        """The contexts at the beginning of episodes."""
        return logits_question(shard, opening(shard, rows))


def control() -> Task:
    """Control: the return of a policy that acts in an environment."""
    return _ControlTask()
