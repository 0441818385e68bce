from __future__ import annotations

import pytest

from assay.models.layers.checks import at_least, did_you_mean, one_of


def test_parameters_are_refused_by_name_value_and_range() -> None:
    at_least("rank", 2, 2)
    with pytest.raises(ValueError, match="rank must be at least 2: got 1"):
        at_least("rank", 1, 2)
    with pytest.raises(ValueError, match="scale must be at least 0: got nan"):
        at_least("scale", float("nan"), 0)
    one_of("form", "b", "a", "b", "c")
    with pytest.raises(ValueError, match="form must be 'a', 'b' or 'c': got 'd'"):
        one_of("form", "d", "a", "b", "c")
    with pytest.raises(ValueError, match="sign must be -1 or 1: got 0"):
        one_of("sign", 0, -1, 1)


def test_the_nearest_name_is_told_where_one_is_near() -> None:
    assert did_you_mean("sofmax", {"softmax": 1, "linear": 2}) == "; did you mean 'softmax'?"
    assert did_you_mean("zzz", ["softmax"]) == ""
