"""The protocol `paper` for data whose task has another one."""

from __future__ import annotations

from typing import Any

import pytest

from assay.service.catalog.catalog import load
from assay.service.contract.errors import InvalidSpec
from assay.service.submission.validate import validate

LANGUAGE = {"kind": "evaluate", "model": {"name": "lm"}, "data": {"name": "pydoc"},
            "evaluations": [{"name": "perplexity"}]}  # fmt: skip
SEQUENCE = {"kind": "evaluate", "model": {"name": "lra_transformer"}, "data": {"name": "listops"},
            "evaluations": [{"name": "clean"}]}  # fmt: skip
IMAGES = {"kind": "evaluate", "model": {"name": "vit"}, "data": {"name": "digits"},
          "evaluations": [{"name": "clean"}]}  # fmt: skip


@pytest.mark.parametrize("body", [LANGUAGE, SEQUENCE])
def test_data_with_one_protocol_have_no_other(body: dict[str, Any]) -> None:
    validate(load(), body)
    with pytest.raises(InvalidSpec) as caught:
        validate(load(), body | {"protocol": "paper"})
    (detail,) = caught.value.details
    assert (detail.loc, detail.given, detail.allowed) == (["protocol"], "paper", ["pixel"])
    assert "has one protocol only" in detail.message


def test_images_have_both() -> None:
    assert validate(load(), IMAGES | {"protocol": "paper"}).spec["kind"] == "evaluate"
