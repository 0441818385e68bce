"""The Decision Transformer's network: a causal transformer over returns-to-go, observations and actions.

Chen et al., "Decision Transformer: Reinforcement Learning via Sequence Modeling", NeurIPS 2021, section 3 and
its released code for gym. The tokens of a window of K steps are

    R_1, s_1, a_1, R_2, s_2, a_2, ...        each embedded by a linear layer of its own

plus an embedding of the step's number in the episode; then LayerNorm, dropout, pre-LayerNorm blocks without
position embeddings, LayerNorm. The output at s_t is the action a_t: tanh of a linear layer, or logits of
discrete actions. Blocks begin normal with standard deviation 0.02, biases 0; embeddings as in torch.

Deviations: discrete actions enter as one-hot vectors, and have logits (released for gym: continuous only);
windows are padded on either side (released: on the left), and padding takes no part (released: its keys are
masked with -1e4).

A context is a window as one tensor (B, K, S + A + 3), the last axis in this order: observation, action,
return-to-go, number of the step, and 1 where the step exists, 0 where it is padding.

K = steps of a window, N = 3 K tokens, C = width, S = numbers of an observation, A = discrete actions, or
numbers of a continuous one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from assay.models.layers.heads import CausalFactory, check_past_only, make_attention
from assay.models.layers.layers import Classifier

INITIAL_STD = 0.02
TOKENS = 3  # of a step: return-to-go, observation, action


class Context(NamedTuple):
    """The parts of a window."""

    observations: Tensor  # (B, K, S)
    actions: Tensor  # (B, K, A), one-hot or in [-1, 1]; the last step's is not looked at
    returns: Tensor  # returns-to-go, (B, K, 1)
    steps: Tensor  # the steps' numbers in the episode, from 0, (B, K, 1)
    present: Tensor  # 1 where the step exists, 0 where it is padding, (B, K, 1)

    def packed(self) -> Tensor:
        """One tensor (B, K, S + A + 3)."""
        return torch.cat(self, dim=-1)

    @staticmethod
    def of(packed: Tensor, observations: int) -> Context:
        """Parts of a packed context, S = `observations`. ValueError: not three axes, or no action."""
        actions = packed.shape[-1] - observations - 3
        if packed.dim() != 3 or actions < 1:
            raise ValueError(
                f"contexts must be (batch, steps, {observations} numbers of an observation, actions, and 3):"
                f" got {tuple(packed.shape)}"
            )
        return Context(*packed.split([observations, actions, 1, 1, 1], dim=-1))


class PolicyNetwork(nn.Module):
    """Maps standardised contexts to actions, with one attention factory, with a causal form, per layer.

    If `discrete`, an action is one of A. A window has at most `context` steps K, which no weight depends on,
    an episode at most `timesteps`. MLPs have `mlp_ratio` times C hidden units; dropout acts on the embedding,
    after the attention and after the MLP.
    """

    def __init__(
        self,
        attentions: Sequence[CausalFactory],
        *,
        observations: int,
        actions: int,
        discrete: bool,
        context: int,
        timesteps: int,
        width: int,
        heads: int,
        mlp_ratio: float,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if context < 1 or timesteps < 1:
            raise ValueError(f"context and timesteps must be at least 1: got {context} and {timesteps}")
        self.context_length = context
        self.discrete = discrete
        self.num_features = width
        self.embed_step = nn.Embedding(timesteps, width)
        self.embed_return = nn.Linear(1, width)
        self.embed_observation = nn.Linear(observations, width)
        self.embed_action = nn.Linear(actions, width)
        self.embed_norm = nn.LayerNorm(width)
        self.drop = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(
            PolicyBlock(
                make_attention(make, width, heads, prefix_tokens=0, tokens=TOKENS * context, causal=True),
                width,
                int(width * mlp_ratio),
                dropout,
            )
            for make in attentions
        )
        for block in self.blocks:
            check_past_only(block.attn)  # type: ignore[arg-type]
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, actions)
        self.blocks.apply(_initialize)

    @property
    def timesteps(self) -> int:
        """The most steps of an episode."""
        return self.embed_step.num_embeddings

    def forward(self, packed: Tensor) -> Tensor:
        """Actions (B, K, A), or logits of discrete ones, of standardised contexts (B, K, S + A + 3).

        The output of a step depends on no later step, nor on its own action; at padding it has no meaning.
        """
        given = Context.of(packed, self.embed_observation.in_features)
        batch, steps = packed.shape[:2]
        if steps > self.context_length or given.actions.shape[-1] != self.embed_action.in_features:
            raise ValueError(
                f"contexts must have at most {self.context_length} steps and {self.embed_action.in_features}"
                f" numbers of an action: got {steps} and {given.actions.shape[-1]}"
            )
        place = self.embed_step(given.steps[..., 0].long())  # (B, K, C)
        tokens = [
            self.embed_return(given.returns) + place,
            self.embed_observation(given.observations) + place,
            self.embed_action(given.actions) + place,
        ]
        x = torch.stack(tokens, dim=2).flatten(1, 2)  # (B, N, C)
        mask = given.present[..., 0].bool().repeat_interleave(TOKENS, dim=1)  # (B, N)
        x = self.drop(self.embed_norm(x))
        for block in self.blocks:
            x = block(x, mask)
        features = self.norm(x).view(batch, steps, TOKENS, -1)[:, :, 1]  # the observations'
        outputs: Tensor = self.head(features)
        return outputs if self.discrete else outputs.tanh()

    def no_weight_decay(self) -> set[str]:
        """None, besides vectors."""
        return set()


class PolicyBlock(nn.Module):
    """Pre-LayerNorm layer: x + attn(norm1(x)), then x + mlp(norm2(x)) with ReLU.

    Dropout acts after the attention and after the MLP.
    """

    def __init__(self, attention: nn.Module, width: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attn = attention
        self.norm2 = nn.LayerNorm(width)
        self.fc1 = nn.Linear(width, hidden)
        self.fc2 = nn.Linear(hidden, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Apply the layer to (B, N, C); `mask` is boolean (B, N), true for tokens that exist."""
        x = x + self.dropout(self.attn(self.norm1(x), mask=mask))
        output: Tensor = x + self.dropout(self.fc2(self.fc1(self.norm2(x)).relu()))
        return output


class PolicyModel(Classifier):
    """`Classifier` of contexts as the environment has them: standardises them, then applies the backbone.

    Mean and standard deviation of each number of an observation over the training set, (S,), and the divisor
    of returns-to-go are part of the state dict. The backbone is a `PolicyNetwork`, or any module from
    standardised contexts to (B, K, A).
    """

    return_scale: Tensor

    def __init__(
        self, backbone: nn.Module, mean: Sequence[float], std: Sequence[float], return_scale: float
    ) -> None:
        super().__init__(backbone, mean, std)
        if not return_scale > 0:
            raise ValueError(f"return_scale must be above 0: got {return_scale}")
        self.mean, self.std = self.mean.flatten(), self.std.flatten()  # (S,)
        self.register_buffer("return_scale", torch.tensor(return_scale))

    def normalize(self, pixels: Tensor) -> Tensor:
        """Standardise contexts (B, K, S + A + 3); padded steps become 0."""
        given = Context.of(pixels, len(self.mean))
        standardized = given._replace(
            observations=(given.observations - self.mean) / self.std,
            returns=given.returns / self.return_scale,
        )
        packed = standardized.packed()
        return packed.masked_fill(given.present == 0, 0.0)


def _initialize(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=INITIAL_STD)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
