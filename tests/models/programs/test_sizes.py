"""Results of a program's calls are bounded, before anything is allocated."""

from __future__ import annotations

import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.models.programs import program as interpreter
from assay.models.programs.guards import guarded
from assay.models.programs.operators import find_operator
from assay.models.programs.reading import UnsafeProgram
from assay.models.programs.sizes import MAX_ELEMENTS, check_prediction
from tests.support.programs import Net, export, load

Answer = Callable[[Any, Tensor], Tensor]


def _repeated(net: Any, x: Tensor) -> Tensor:
    logits: Tensor = net.plain(x) + x.sum().repeat(2**14, 2**15).mean()
    return logits


def _padded(net: Any, x: Tensor) -> Tensor:
    logits: Tensor = net.plain(x) + torch.nn.functional.pad(x, (0, 2**26)).mean()
    return logits


def _outer(net: Any, x: Tensor) -> Tensor:
    line = x.mean() * torch.ones(2**15)
    logits: Tensor = net.plain(x) + (line[:, None] * line[None]).mean()
    return logits


def _expanded(net: Any, x: Tensor) -> Tensor:
    logits: Tensor = net.plain(x) + x.sum().expand(2**40).amax()
    return logits


def _counting(net: Any, x: Tensor) -> Tensor:
    logits: Tensor = net.plain(x) + torch.arange(2**33).float().mean()
    return logits


def _deep(net: Any, x: Tensor) -> Tensor:
    logits: Tensor = net.plain(x) + x.sum().view([1] * 17).sum()
    return logits


@pytest.mark.parametrize(
    ("answer", "operator", "shape"),
    [
        (_repeated, "aten.repeat.default", "(16384, 32768)"),
        (_padded, "aten.pad.default", "(1, 3, 8, 67108872)"),
        (_outer, "aten.mul.Tensor", "(32768, 32768)"),
        (_expanded, "aten.expand.default", "(1099511627776,)"),
        (_counting, "aten.arange.default", "(8589934592,)"),
        (_deep, "aten.view.default", "(1, 1, 1, 1"),
    ],
)
def test_a_result_that_is_too_large_is_refused_with_its_node(
    tmp_path: Path, answer: Answer, operator: str, shape: str
) -> None:
    program = load(export(Net(answer), tmp_path / "bomb.pt2"))
    allowed = "allowed: at most 268435456 elements (268435456 for each image of the batch) and 16 dimensions"
    tracemalloc.start()
    try:
        with pytest.raises(
            UnsafeProgram, match=r"its node '\w+' \(" + re.escape(f"{operator}) makes a")
        ) as found:
            program(torch.rand(1, 3, 8, 8))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2**26
    assert f"of shape {shape}" in str(found.value)
    assert allowed in str(found.value)


def test_sizes_are_found_once_for_each_shape_of_the_images(
    plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    predict = interpreter.check_prediction

    def counted(operator: Any, *rest: Any) -> None:
        asked.append(operator)
        predict(operator, *rest)

    monkeypatch.setattr(interpreter, "check_prediction", counted)
    program = load(plain)
    for count, more in ((2, True), (2, False), (3, True), (2, False)):
        before = len(asked)
        program(torch.rand(count, 3, 8, 8))
        assert (len(asked) > before) is more


def test_a_batch_may_have_as_much_more(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "MAX_ELEMENTS", 6 * 8 * 8)  # the largest result, of the convolution
    program = load(plain)
    program(torch.rand(5, 3, 8, 8))
    monkeypatch.setattr(interpreter, "MAX_ELEMENTS", 6 * 8 * 8 - 1)
    with pytest.raises(UnsafeProgram, match=r"aten\.conv2d\.default"):
        program(torch.rand(4, 3, 8, 8))


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("zeros.default", [[2**20, 2**20]]),
        ("full.default", [[2**40], 1]),
        ("arange.default", [2**40]),
        ("eye.default", [2**20]),
        ("rand.default", [[2**40]]),
        ("linspace.default", [0, 1, 2**40]),
    ],
)
def test_sizes_are_found_without_a_stated_device(name: str, arguments: list[Any]) -> None:
    with pytest.raises(UnsafeProgram, match=r"its node 'made' .* makes a tensor of shape"):
        check_prediction(find_operator(f"torch.ops.aten.{name}"), arguments, {}, ["made"], MAX_ELEMENTS)


BIG = torch.zeros(20_000).expand(20_000)


@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        ("split.Tensor", [BIG, 1], "at most 10000 pieces, not 20000"),
        ("unbind.int", [BIG], "at most 10000 pieces, not 20000"),
        ("chunk.default", [BIG, 20_000], "at most 10000 pieces, not 20000"),
        ("tensor_split.sections", [torch.zeros(3), 2**62], "pieces, not 4611686018427387904"),
        ("tensor_split.tensor_indices_or_sections", [BIG, torch.tensor(2**40)], "pieces, not 1099511627776"),
        ("bincount.default", [torch.tensor([2**40])], "counts up to 1099511627777, allowed"),
        ("one_hot.default", [torch.tensor([5, 2**40])], "counts up to 1099511627777, allowed"),
        ("repeat_interleave.Tensor", [torch.tensor([2**40, 2**40])], "counts up to 2199023255552, allowed"),
        ("repeat_interleave.self_Tensor", [torch.zeros(2), torch.tensor([2**40, 1])], "counts up to"),
        ("repeat_interleave.self_Tensor", [torch.zeros(2), torch.tensor([-1, 4])], "repeats -1, allowed: at"),
    ],
)
def test_sizes_from_values_are_refused_before_the_call(name: str, arguments: list[Any], reason: str) -> None:
    with pytest.raises(UnsafeProgram, match=reason):
        guarded(find_operator(f"torch.ops.aten.{name}"))(*arguments)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("split.Tensor", [torch.zeros(7), 3]),
        ("unbind.int", [torch.zeros(7, 2), 1]),
        ("tensor_split.sections", [torch.zeros(7), 3]),
        ("tensor_split.indices", [torch.zeros(7), [1, 2, 3]]),
        ("split_with_sizes.default", [torch.zeros(7), [3, 4]]),
        ("hsplit.int", [torch.zeros(6), 3]),
        ("bincount.default", [torch.tensor([3, 1])]),
        ("one_hot.default", [torch.tensor([3, 1])]),
        ("repeat_interleave.Tensor", [torch.tensor([3, 1])]),
        ("repeat_interleave.self_int", [torch.zeros(2), 2]),
    ],
)
def test_small_ones_are_made(name: str, arguments: list[Any]) -> None:
    operator = find_operator(f"torch.ops.aten.{name}")
    found, wanted = guarded(operator)(*arguments), operator(*arguments)
    assert str(found) == str(wanted)


def test_the_limit_is_that_of_the_documents() -> None:
    text = (Path(__file__).parents[3] / "docs" / "own-models.md").read_text()
    assert MAX_ELEMENTS == 2**28
    assert "2^28 elements" in text
