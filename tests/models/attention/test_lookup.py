from __future__ import annotations

import pytest

from models.attention.lookup import attentions, find_attention
from models.attention.rpc import RPCAttention


def test_finds_every_mechanism_by_its_name() -> None:
    assert {"softmax", "symmetric", "rpc"} <= set(attentions())
    assert find_attention("rpc") is RPCAttention


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"no attention is called 'simmetric'; did you mean 'symmetric'\?"):
        find_attention("simmetric")
