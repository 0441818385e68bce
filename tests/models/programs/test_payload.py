"""Tables of tensors in hostile programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.hostile_programs import CODE, WEIGHTS, Edit, refused

pytestmark = pytest.mark.usefixtures("nothing_runs")


def _first(content: Any) -> Any:
    return next(iter(content["config"].values()))


def _set(content: Any, **meta: Any) -> None:
    _first(content)["tensor_meta"].update(meta)


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (lambda c: _set(c, sizes=[{"as_int": 10**9}], strides=[{"as_int": 1}]), "takes 1000000000 elements"),
        (lambda c: _set(c, sizes=[{"as_int": 2**62}] * 4, strides=[{"as_int": 0}] * 4), "elements up to 0"),
        (lambda c: _set(c, storage_offset={"as_int": 10**6}), "its bytes have"),
        (lambda c: _set(c, storage_offset={"as_int": -1}), "from -1"),
        (lambda c: _set(c, sizes=[{"as_int": -4}], strides=[{"as_int": 1}]), r"the sizes \[-4\]"),
        (lambda c: _set(c, sizes=[{"as_int": 2}], strides=[]), "strides"),
        (lambda c: _set(c, sizes=[{"as_expr": {"expr_str": CODE}}]), "weights have fixed sizes"),
        (lambda c: _set(c, sizes=[{"as_int": 10**30}]), "does not fit|too large"),
        (lambda c: _set(c, dtype=29), "dtype 29"),
        (lambda c: _set(c, dtype="7"), "'dtype' must be int"),
        (lambda c: _set(c, layout=1), "type or layout"),
        (lambda c: _first(c).update(path_name="../../etc/passwd"), "is no tensor"),
        (lambda c: _first(c).update(path_name="opaque_obj_0"), "is no tensor"),
        (lambda c: _first(c).update(path_name="weight_77"), "no entry 'data/weights/weight_77'"),
        (lambda c: _first(c).update(tensor_meta=None), "'tensor_meta' must be dict"),
        (lambda c: c["config"].clear(), "is not in the file"),
        (
            lambda c: c["config"].update({f"copy{n}": _first(c) for n in range(300)}),
            "more than 4 times the bytes",
        ),
    ],
)
def test_tables_of_tensors_are_not_believed(plain: Path, tmp_path: Path, edit: Edit, reason: str) -> None:
    refused(plain, tmp_path, edit, reason, WEIGHTS)
