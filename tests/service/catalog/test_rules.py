from __future__ import annotations

import pytest

from assay.service.catalog.rules import MAX_DEPTH, MAX_LENGTH, UnknownName, check_syntax, evaluate

KNOWN = {
    "model": {"width": 96, "heads": 3, "layers": [0, 2], "name": "rpc", "tag": None},
    "data": {"classes": 10},
    "params": {"epsilon": 0.5, "targeted": False},
}


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("model.width % model.heads == 0", True),
        ("model.width // 5 + 2 * 3 - 1", 24),
        ("-model.width / 2", -48.0),
        ("0 < model.heads <= 3 < 4", True),
        ("0 < model.heads < 3", False),
        ("model.name in ['rpc', 'softmax']", True),
        ("3 not in model.layers", True),
        ("model.name in ('all', 'first') or max(model.layers) < model.heads", True),
        ("not params.targeted and len(model.layers) == 2", True),
        ("model.tag is None", True),
        ("model.tag is not None", False),
        ("min(model.width, 7, abs(-3))", 3),
        ("params.targeted * 100 + 1", 1),
        ("'text'", "text"),
    ],
)
def test_values(expression: str, value: object) -> None:
    assert evaluate(expression, KNOWN) == value


def test_names_are_collected() -> None:
    used = check_syntax("model.width % model.heads == 0 and data.classes > params.epsilon")
    assert used == {("model", "width"), ("model", "heads"), ("data", "classes"), ("params", "epsilon")}


@pytest.mark.parametrize("expression", ["data.size > 3", "model.depth", "params.x is None", "1 + data.size"])
def test_what_is_not_known_is_said(expression: str) -> None:
    with pytest.raises(UnknownName):
        evaluate(expression, KNOWN)


def test_a_missing_namespace_is_unknown() -> None:
    with pytest.raises(UnknownName, match=r"data\.classes"):
        evaluate("data.classes == 10", {})


def test_operands_that_do_not_count_are_not_needed() -> None:
    assert evaluate("params.targeted and data.size > 3", KNOWN) is False
    assert evaluate("model.heads or data.size", KNOWN) == 3


@pytest.mark.parametrize(
    "expression",
    [
        "model.__class__",
        "model._width",
        "model.width.bit_length",
        "model.name.upper()",
        "().__class__.__bases__[0].__subclasses__()",
        "model",
        "width",
        "os.environ",
        "__import__('os')",
        "open('x')",
        "eval('1')",
        "print(1)",
        "len(*model.layers)",
        "max(model.layers, key=len)",
        "len()",
        "[x for x in model.layers]",
        "{x: 1 for x in model.layers}",
        "(x for x in model.layers)",
        "lambda: 1",
        "f'{model.width}'",
        "9 ** 9 ** 9",
        "1 << 1000000",
        "model.width | 1",
        "~model.width",
        "model.width @ 3",
        "model.layers[0]",
        "{'a': 1}",
        "{1, 2}",
        "b'bytes'",
        "1j",
        "...",
        "1 if model.width else 2",
        "(x := 3)",
        "model.width is 96",
        "await model.width",
        "model.width; 1",
        "model.width = 3",
        "import os",
        "",
        "1 +",
        "a" * (MAX_LENGTH + 1),
        "not " * (MAX_DEPTH + 2) + "1",
        "(" * 240 + "1" + ")" * 240,
        "-" * 450 + "1",
        "1\0",
    ],
)
def test_everything_else_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match="rule"):
        check_syntax(expression)
    with pytest.raises(ValueError, match="rule"):
        evaluate(expression, KNOWN)


@pytest.mark.parametrize(
    "expression",
    [
        "model.width / 0",
        "model.width % (model.heads - 3)",
        "model.name + 1",
        "'x' * 1000000000",
        "model.layers * 1000000000",
        "model.name < 3",
        "3 in model.width",
        "len(model.width)",
        "max(model.width)",
        "model.tag + 1",
    ],
)
def test_what_cannot_be_computed_is_a_value_error(expression: str) -> None:
    with pytest.raises(ValueError, match="cannot be computed"):
        evaluate(expression, KNOWN)


def test_products_stay_small() -> None:
    known = {"params": {"n": 2**2000}}
    with pytest.raises(ValueError, match="too large"):
        evaluate("params.n * params.n * params.n", known)
