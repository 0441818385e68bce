from __future__ import annotations

import json
import math
import random
import struct
import zlib

import pytest

from assay.service.store.columns import (
    FLOAT_TAG,
    STEP_BYTES,
    _Packed,
    pack,
    seen_cells,
    unpack,
    unpack_columns,
)


def bits(value: float) -> bytes:
    return struct.pack("<d", value)


def test_finite_floats_come_back_bit_for_bit() -> None:
    draw = random.Random(1)
    values = [struct.unpack("<d", draw.randbytes(8))[0] for _ in range(2000)]
    values = [value for value in values if math.isfinite(value)]
    values += [0.0, -0.0, 5e-324, 1.7976931348623157e308, 0.1, 1 / 3]
    columns, _ = unpack(pack({"loss": values}, {}))
    assert [bits(value) for value in columns["loss"]] == [bits(value) for value in values]


def test_values_that_are_not_finite_come_back_among_text_that_looks_like_them() -> None:
    columns = {
        "id": ["nan", "inf", "-inf", "x"],
        "loss": [math.nan, math.inf, -math.inf, 1.5],
        "scores": [[1, math.inf], [], [math.nan], [2.0]],
        "correct": [True, False, True, None],
    }
    extra = {"largest": -math.inf, "of": {"deep": [math.nan]}, "empty": {}}
    back, back_extra = unpack(pack(columns, extra))
    assert back["id"] == columns["id"]
    assert back["correct"] == columns["correct"]
    assert math.isnan(back["loss"][0])
    assert back["loss"][1:] == [math.inf, -math.inf, 1.5]
    assert back["scores"][:2] == [[1, math.inf], []]
    assert math.isnan(back["scores"][2][0])
    assert back_extra["largest"] == -math.inf
    assert math.isnan(back_extra["of"]["deep"][0])
    assert back_extra["empty"] == {}


@pytest.mark.parametrize(
    "columns",
    [
        {},
        {"id": [], "correct": []},
        {"id": ['"correct":[0]', "]", "\\", "é\ud800"], "correct": [1, 0, True, None]},
        {"loss": [1e300, -0.5, 0, 1], "correct": [1, 2, 3, 4]},
        {"cells": [{"correct": [7]}, [[1], ["]"]]], "id": ["a", "b"], "correct": [True, False]},
        {"id": ["a"], 'odd "]name': [1], "loss": [math.inf], "correct": [2.5]},
    ],
)  # fmt: skip
def test_some_columns_are_those_of_the_whole(columns: dict[str, list[object]]) -> None:
    payload = pack(columns, {"correct": [9], "id": "x"})
    for names in (["id", "correct"], ["correct"], ["loss", "nothing"], list(columns)):
        expected = {name: cells for name, cells in columns.items() if name in names}
        assert unpack_columns(payload, names) == expected


def test_columns_of_many_rows_are_read_as_far_as_they_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(0)
    ids = [f'a "picture" ] of {draw.random()}' for _ in range(20_000)]
    table = {"id": ids, "loss": [draw.random() for _ in ids], "correct": [True] * len(ids), "last": ids}
    payload = pack(table, {})
    assert len(zlib.decompress(payload)) > 4 * STEP_BYTES
    for names in (["id", "correct"], ["loss"], ["last"], ["nothing", "correct"]):
        expected = {name: table[name] for name in names if name in table}
        assert unpack_columns(payload, names) == expected
    cut = zlib.compress(zlib.decompress(payload)[: STEP_BYTES + 1000])
    with pytest.raises(ValueError, match="damaged"):
        unpack_columns(cut, ["correct"])
    inflated = []
    monkeypatch.setattr(_Packed, "more", lambda self, more=_Packed.more: inflated.append(self) or more(self))
    unpack_columns(payload, ["id"])
    first = len(inflated)
    unpack_columns(payload, ["last"])
    assert 0 < first < len(inflated) - first, "what stands behind stays packed"


def test_cells_that_were_seen_are_taken_for_equal_text() -> None:
    ids, others = ["a", 'b"]', "é"], ["a", 'b"]', "f"]
    seen = seen_cells(ids)
    found = unpack_columns(pack({"id": ids, "correct": [1, 0, 1]}, {}), ["id", "correct"], seen)
    assert found == {"id": ids, "correct": [1, 0, 1]}
    assert found["id"] is ids
    assert unpack_columns(pack({"id": others}, {}), ["id"], seen) == {"id": others}


def test_what_is_stored_is_strict_json() -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    text = zlib.decompress(pack({"loss": [math.nan]}, {})).decode("ascii")
    assert json.loads(text, parse_constant=refuse)["columns"]["loss"] == [{FLOAT_TAG: "nan"}]


def test_what_json_does_not_know_is_refused() -> None:
    with pytest.raises(TypeError):
        pack({"loss": [object()]}, {})
