"""Names and row blocks of released weights."""

from __future__ import annotations

import torch

from assay.models.weights.key_maps import NVIDIA_FAN, SAME, SEGMENTER, Part


def test_cut_rows_are_a_view_of_ours() -> None:
    whole = torch.zeros(9, 3)
    queries, rest = NVIDIA_FAN.parts("blocks.0.attn.qkv.weight")
    assert (queries, rest) == (
        Part("blocks.0.attn.q.weight", 0, 1, 3),
        Part("blocks.0.attn.kv.weight", 1, 2, 3),
    )
    assert (queries.shape((9, 3)), rest.shape((9, 3)), rest.shape((9,))) == ((3, 3), (6, 3), (6,))
    rest.rows(whole).fill_(1.0)
    assert whole.sum(1).tolist() == [0, 0, 0, 3, 3, 3, 3, 3, 3]
    assert SAME.parts("a.weight") == SEGMENTER.parts("a.weight") == (Part("a.weight"),)
    assert Part("a").rows(whole) is whole
