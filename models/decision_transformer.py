"""Decision Transformer with any causal attention.

Sizes: Chen et al., "Primal-Attention", NeurIPS 2023, and its released code: 3 layers of width 256 with 4
heads and windows of 20 steps. The Decision Transformer's own code has width 128 and 1 head.

    tokens of step t    W_R R_t + b_R,    W_s s_t + b_s,    W_a a_t + b_a,    each + E[t]
    x = LN(tokens of the window)
    x = x + attn(LN(x)),    x = x + W2 relu(W1 LN(x) + b1) + b2    in each of `depth` layers
    y = W LN(x) + b at the token of s_t;    action = tanh(y), or y the logits of discrete actions
    R_t = return-to-go, s_t = observation, a_t = action
    attn = `attention` in `layers`, softmax attention in the others; causal
"""

from __future__ import annotations

import functools
from typing import Annotated, Any, cast

from annotated_types import Interval
from torch import nn

from assay.models.attention.softmax import SoftmaxAttention
from assay.models.layers import parameters
from assay.models.layers.attention.lookup import find_attention
from assay.models.layers.heads import AttentionFactory, CausalFactory, Dropout, has_causal_form
from assay.models.layers.policy_network import PolicyNetwork
from assay.models.layers.presets import Preset

__all__ = ["decision_transformer"]

TASKS = ("control",)
RULES = (
    *parameters.WIDTH_RULES,
    parameters.layer_rule("layers"),
    ("data.max_steps <= model.timesteps", "timesteps must not be less than the steps of an episode"),
    (
        "part.attention_patches >= 3 * model.context",
        "patches, the size of S, must not be less than 3 context: a step has three tokens",
    ),
)
FACTS = {"prefix_tokens": 0, "predicts_next": True}
PAPER = (
    "Chen et al. 2021, Decision Transformer: Reinforcement Learning via Sequence Modeling; Chen et al. 2023,"
    " Primal-Attention (sizes, and Primal-Attention in the last layer)"
)

Window = Annotated[int, Interval(ge=1, le=1024)]  # steps
Timesteps = Annotated[int, Interval(ge=1, le=100_000)]


def decision_transformer(
    classes: int,
    channels: int,
    *,
    width: parameters.Width = 256,
    depth: parameters.Depth = 3,
    heads: parameters.Heads = 4,
    mlp_ratio: parameters.MlpRatio = 4.0,
    context: Window = 20,
    timesteps: Timesteps = 1000,
    attention: Annotated[AttentionFactory | str, "attention:causal_form"] = "softmax",
    layers: parameters.Layers = "all",
    dropout: parameters.DropRate = 0.1,
    attention_dropout: Dropout = 0.1,
    discrete: Annotated[bool, "system"] = True,
) -> nn.Module:
    """Decision Transformer with any causal attention in all or some layers, softmax in the others.

    Args:
        classes: number of discrete actions, or numbers of a continuous one.
        channels: numbers of an observation.
        context: the most steps that the policy looks back on, this one included; three tokens each.
        timesteps: the most steps of an episode; each has an embedding.
        attention: the attention mechanism with its parameters, or its name; one with a causal form.
        dropout: dropout rate of the embedding, after the attention and after the MLP.
        attention_dropout: dropout rate of the attention weights of softmax layers, in place of their own
            parameter `dropout`.
        discrete: whether an action is one of `classes`.

    Returns:
        Module from standardised contexts (B, K, S + A + 3) to actions (B, K, A); a
        `models.layers.policy_network.PolicyNetwork`.

    Raises:
        ValueError: a rule is broken, no attention has that name, or it has no causal form
            or sees later tokens.
    """
    factory = find_attention(attention) if isinstance(attention, str) else attention
    if not has_causal_form(factory):
        raise ValueError(f"attention must have a causal form: {attention!r} has none")
    softmax: CausalFactory = functools.partial(SoftmaxAttention, dropout=attention_dropout)
    own: Any = factory.func if isinstance(factory, functools.partial) else factory
    causal = softmax if own is SoftmaxAttention else cast(CausalFactory, factory)
    chosen = parameters.select_layers(layers, depth)
    return PolicyNetwork(
        [causal if layer in chosen else softmax for layer in range(depth)],
        observations=channels,
        actions=classes,
        discrete=discrete,
        context=context,
        timesteps=timesteps,
        width=width,
        heads=heads,
        mlp_ratio=mlp_ratio,
        dropout=dropout,
    )


D4RL = {"width": 256, "depth": 3, "heads": 4, "context": 20}
RELEASED = {"mlp_ratio": 4.0, "dropout": 0.1, "attention_dropout": 0.1}
PRESETS = {
    "d4rl_transformer": Preset(
        decision_transformer,
        "The Decision Transformer of the D4RL experiments: 3 layers of width 256 with 4 heads, windows of 20"
        " steps; 2,631,683 parameters for Hopper (11 observations, 3 actions).",
        D4RL,
        {**RELEASED, "layers": "all"},
    ),
    "primal_plus_d4rl": Preset(
        decision_transformer,
        "Primal.+DT: the same with Primal-Attention in the last layer, whose rank (32, 64, 96) goes with the"
        " data set; 2,586,563 parameters for Hopper at rank 32.",
        D4RL,
        {**RELEASED, "layers": "last"},
        defaults={"attention": "primal"},
    ),
}
