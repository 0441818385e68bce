"""Returns of policies whose actions are known, and the laws of episodes: seeds, batches, the ball."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

from assay.models.decision_transformer import decision_transformer
from assay.models.layers.policy_network import Context, PolicyModel
from assay.workers.data.classic_control import ENVIRONMENTS, classic_control
from assay.workers.data.formats.control.trajectories import Trajectories
from assay.workers.evaluation.engine.probe import probe_shard
from assay.workers.evaluation.engine.rollout import exact
from assay.workers.evaluation.returns import EpisodeReturns, returns
from tests.support.shards import shard

CART, PENDULUM = "CartPole-v1", "Pendulum-v1"
EPISODES = 5


def data(name: str = CART) -> Trajectories:
    return classic_control(None, "test", environment=name, trajectories=4, episodes=EPISODES)  # type: ignore[arg-type]


class Feedback(nn.Module):
    """A policy with linear logits of the true observation: the scripted expert of CartPole."""

    discrete: ClassVar[bool] = True

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...], gains: tuple[float, ...]) -> None:
        super().__init__()
        self.gains = nn.Parameter(torch.tensor(gains))
        self.register_buffer("mean", torch.tensor(mean))
        self.register_buffer("std", torch.tensor(std))
        self.seen: list[Tensor] = []

    def forward(self, packed: Tensor) -> Tensor:
        parts = Context.of(packed, len(self.gains))
        self.seen.append(packed.detach())
        push = (parts.observations * self.std + self.mean) @ self.gains  # type: ignore[operator]
        return torch.stack([-push, push], dim=-1)


def balancing(gains: tuple[float, ...] = (0.2, 0.5, 3.0, 1.0)) -> PolicyModel:
    held_out = data()
    return PolicyModel(Feedback(held_out.mean, held_out.std, gains), held_out.mean, held_out.std, 100.0)


def network(name: str, seed: int = 0) -> PolicyModel:
    """A small random policy whose actions depend on all that it sees."""
    held_out, facts = data(name), ENVIRONMENTS[name]
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        backbone = decision_transformer(
            facts.actions,
            facts.observations,
            width=16,
            depth=1,
            heads=2,
            context=4,
            discrete=facts.discrete,
        )
        for parameter in backbone.parameters():
            nn.init.normal_(parameter, std=0.5)
    return PolicyModel(backbone, held_out.mean, held_out.std, facts.return_scale).eval()


def measured(policy: PolicyModel, name: str = CART, order: Any = None, **given: Any) -> EpisodeReturns:
    more = {key: given.pop(key) for key in ("batch_size", "seed") if key in given}
    return returns(**given).measure(shard(policy, data(name), order, image_size=4, **more))


def test_the_expert_holds_the_pole_and_its_mirror_image_drops_it() -> None:
    columns = measured(balancing()).columns()
    assert columns["return"] == [500.0] * EPISODES
    assert columns["normalized"] == [1.0] * EPISODES
    assert columns["length"] == columns["forward"] == [500] * EPISODES
    assert columns["backward"] == [0] * EPISODES
    assert "action_change" not in columns
    assert max(measured(balancing((-0.2, -0.5, -3.0, -1.0))).columns()["return"]) < 20


def test_the_policy_sees_the_steps_so_far_and_what_is_left_of_the_target() -> None:
    policy = balancing()
    measured(policy, order=[0], target_return=50.0)
    feedback: Any = policy.backbone
    with exact(shard(policy, data())) as own:
        assert own.backbone is not feedback  # the float64 copy; the shard's policy stays as it is
    seen = []
    spied = balancing().double()
    spied.backbone.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    measured(spied, order=[0], target_return=50.0)
    assert [min(step + 1, 4) for step in range(6)] == [len(one[0]) for one in seen[:6]]
    last = Context.of(seen[5][0][None], 4)
    assert (last.returns[0, :, 0] * 100).tolist() == pytest.approx([48, 47, 46, 45])  # a reward of 1 each
    assert last.steps[0, :, 0].tolist() == [2, 3, 4, 5]
    assert last.actions[0, :3].sum(-1).tolist() == [1, 1, 1]
    assert last.actions[0, 3].tolist() == [0, 0]
    before = Context.of(seen[4][0][None], 4)
    assert torch.equal(before.observations[0, 1:], last.observations[0, :3])


@pytest.mark.costly
@pytest.mark.parametrize(
    ("name", "perturbation"), [(CART, "gradient"), (PENDULUM, "gradient"), (CART, "none")]
)
def test_an_episode_is_the_same_in_any_batch(name: str, perturbation: str) -> None:
    given = {"perturbation": perturbation, "epsilon": 0.0 if perturbation == "none" else 0.2, "steps": 1}
    policy = network(name)
    together = measured(policy, name, order=[0, 1], batch_size=16, **given).columns()
    apart = measured(policy, name, order=[0, 1], batch_size=1, **given).columns()
    shuffled = measured(policy, name, order=[4, 1], batch_size=2, **given).columns()
    exactly = ("return", "normalized", "length", "forward", "backward")
    assert {key: together[key] for key in exactly} == {key: apart[key] for key in exactly}
    assert shuffled["return"][1] == together["return"][1]
    if "action_change" in together:
        assert together["action_change"] == pytest.approx(apart["action_change"], abs=1e-9)


def test_the_seed_decides() -> None:
    policy = network(PENDULUM)
    first, again, other = (
        measured(policy, PENDULUM, order=[0], seed=seed).columns()["return"] for seed in (1, 1, 2)
    )
    assert first == again != other


@pytest.mark.costly
@pytest.mark.parametrize("perturbation", ["uniform", "gradient"])
def test_what_is_shown_is_within_epsilon_and_stays_in_the_window(perturbation: str) -> None:
    policy = balancing().double()
    shown: list[Tensor] = []
    policy.backbone.register_forward_pre_hook(lambda _, inputs: shown.append(inputs[0].detach()))
    measured(policy, order=[0], perturbation=perturbation, epsilon=0.3, steps=2)
    per_step = {"uniform": 2, "gradient": 5}[perturbation]
    last: Tensor | None = None
    for step in range(0, 20 * per_step, per_step):
        true, final = shown[step][0, -1, :4], shown[step + per_step - 1][0, -1, :4]
        for other in shown[step + 1 : step + per_step]:
            assert (other[0, -1, :4] - true).abs().max() <= 0.3 + 1e-12  # in standard deviations
        assert (final != true).any()
        if last is not None:
            assert torch.equal(shown[step][0, -2, :4], last)
        last = final


def test_the_gradient_attack_is_stronger_than_noise_of_its_size() -> None:
    policy = balancing()
    found = {
        name: measured(policy, perturbation=name, epsilon=3.0, steps=3).columns()
        for name in ("uniform", "gradient")
    }
    assert sum(found["gradient"]["return"]) < 0.5 * sum(found["uniform"]["return"])
    for row in range(EPISODES):
        assert found["gradient"]["action_change"][row] > found["uniform"]["action_change"][row]
    assert found["gradient"]["backward"] == [3 * length for length in found["gradient"]["length"]]
    assert found["gradient"]["forward"] == [6 * length for length in found["gradient"]["length"]]
    assert returns(perturbation="gradient", epsilon=1.0, steps=3).passes_per_step == (6, 3)


def test_a_policy_that_is_not_finite_has_no_return() -> None:
    columns = measured(balancing((float("nan"), 0.0, 0.0, 0.0))).columns()
    assert columns["return"] == columns["normalized"] == [None] * EPISODES
    assert columns["length"] == [0] * EPISODES


def test_the_model_is_left_as_it_was() -> None:
    policy = network(CART).train().requires_grad_()
    before = {name: value.clone() for name, value in policy.state_dict().items()}
    measured(policy, order=[0], perturbation="gradient", epsilon=0.1, steps=1)
    assert policy.training
    assert all(parameter.requires_grad for parameter in policy.parameters())
    assert all(value.dtype == before[name].dtype for name, value in policy.state_dict().items())


def test_answers_are_probed_on_the_beginnings_of_episodes() -> None:
    policy = network(CART)
    assert probe_shard(shard(policy, data(), image_size=4)) == {}
    dropping = decision_transformer(2, 4, width=8, depth=1, heads=1, context=4)

    class Drawing(nn.Module):
        discrete = True

        def forward(self, packed: Tensor) -> Tensor:
            return torch.rand(*packed.shape[:2], 2)

    drawing = PolicyModel(dropping, policy.mean.tolist(), policy.std.tolist(), 1.0)
    drawing.backbone = Drawing()
    drawing.register_parameter("held", nn.Parameter(torch.zeros(1)))
    assert probe_shard(shard(drawing, data(), image_size=4))["random_outputs"] == EPISODES
