"""What a model draws while it answers (dropout at test time, random resizing), made to repeat.

Such draws come from torch's global generators, so from a state that depends on all that ran before in the
process. Here they begin anew with each shard, keyed by the job's seed, the evaluation and the first example.

They belong to passes, not to examples, unlike all draws of our own (`attacks.randomness`). So a random model
repeats its outcomes with the same shards, batch size and device class; with another one, or where memory ran
out on the way, it doesn't, and `random_outputs` says so. Draws of numpy's and Python's own generators are not
seeded.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from assay.workers.training.randomness import caller_generators_restored, derive_seed, seed_generators


@contextmanager
def keyed_answers(seed: int, evaluation: str, first: str, device: torch.device) -> Iterator[None]:
    """Seeds torch's global generators inside the block, and leaves them as they were found.

    Args:
        seed: The job's.
        evaluation: Name of the evaluation or attack.
        first: Id of the shard's first example.
        device: Where the model is; its generator is seeded, and the CPU's.
    """
    with caller_generators_restored(device):
        seed_generators(derive_seed(seed, f"answers/{evaluation}/{first}", 0), device)
        yield
