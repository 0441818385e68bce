from __future__ import annotations

import pytest

from assay.models.attention.rpc import RPCAttention
from assay.models.layers.attention.lookup import attentions, find_attention


def test_finds_every_mechanism_by_its_name() -> None:
    assert {"softmax", "softmax_standardized", "symmetric"} <= set(attentions())
    assert {"rpc", "rpc_asymmetric", "rpc_causal"} <= set(attentions())
    assert {"scaled_exact", "scaled_learned", "scaled_alpha"} <= set(attentions())
    assert find_attention("rpc") is RPCAttention


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"no attention is called 'simmetric'; did you mean 'symmetric'\?"):
        find_attention("simmetric")
