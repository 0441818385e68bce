"""Values of the store that are computed from others."""

from __future__ import annotations

from assay.service.store.rows import OutcomeRow, columns_of


def test_columns_of_shards_are_joined_in_their_order() -> None:
    shards = [
        OutcomeRow(0, 0, 2, {"id": ["a", "b"], "loss": [1.0, 2.0]}, 0.1, 2, 0, {}),
        OutcomeRow(0, 1, 1, {"id": ["c"], "loss": [3.0], "curve": [[0.1]]}, 0.1, 1, 0, {}),
    ]
    assert columns_of(shards) == {"id": ["a", "b", "c"], "loss": [1.0, 2.0, 3.0], "curve": [[0.1]]}
    assert columns_of([]) == {}
    assert shards[0].columns["id"] == ["a", "b"], "a shard's own columns stay"
