"""Arguments that made operators of torch read beyond their tensors or die are refused before the call."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.models.programs.guards import GUARDS, guarded
from assay.models.programs.operators import find_operator
from assay.models.programs.reading import UnsafeProgram
from tests.support.programs import CLASSES, Net, edited, export, load

MIN_INTEGER, MAX_INTEGER = -(2**63), 2**63 - 1
Arguments = list[Any]


def values(*shape: int) -> Tensor:
    return torch.linspace(-1, 1, torch.Size(shape).numel()).reshape(shape)


def changed(arguments: Arguments, place: int, value: Any) -> Arguments:
    return [*arguments[:place], value, *arguments[place + 1 :]]


def network(gates: int, layers: int = 1, directions: int = 1, steps: int = 5) -> Arguments:
    """Arguments of a recurrent network of three features and four hidden units, two sequences."""
    states = [values(layers * directions, 2, 4) for _ in range(2 if gates == 4 else 1)]
    weights = [
        tensor
        for layer in range(layers)
        for _ in range(directions)
        for tensor in (
            values(gates * 4, 3 if layer == 0 else 4 * directions),
            values(gates * 4, 4),
            values(gates * 4),
            values(gates * 4),
        )
    ]
    hidden: Any = states if gates == 4 else states[0]
    return [values(steps, 2, 3), hidden, weights, True, layers, 0.0, False, directions == 2, False]


IMAGES = values(2, 4, 3, 3)
NORM = [IMAGES, *(values(4).abs() for _ in range(4)), False, 0.1, 1e-5]
GROUPS = [IMAGES, values(4), values(4), 2, 4, 9, 2, 1e-5]
GRID = [values(2, 3, 4, 4), values(2, 5, 5, 2), 0, 0, False]
SPACE = [values(1, 3, 4, 4, 4), values(1, 5, 5, 5, 3), 0, 0, False]
POOL = [values(1, 1, 6, 6), [2, 2], [2, 2], [1, 1], [3, 3], True]
QUERIES = [values(2, 3, 5, 8), values(2, 3, 6, 8), values(2, 3, 6, 8)]
NUMBERS = torch.tensor([MIN_INTEGER, 5])
ENLARGE = [values(1, 2, 5, 5), [7, 7], False, 1.5, 1.5]

RIGHT: dict[str, list[Arguments]] = {
    "_fft_r2c.default": [[values(3, 4), [0, 1], 0, True]],
    "_fft_c2c.default": [[values(3, 4) + 0j, [1], 2, False]],
    "_fft_c2r.default": [[values(3, 4) + 0j, [1], 0, 6]],
    "native_batch_norm.default": [NORM, changed(NORM, 1, None)],
    "_native_batch_norm_legit.default": [NORM],
    "_native_batch_norm_legit_functional.default": [NORM],
    "_native_batch_norm_legit_no_training.default": [NORM[:5] + NORM[6:]],
    "native_group_norm.default": [GROUPS, changed(GROUPS, 2, None)],
    "grid_sampler.default": [GRID, SPACE],
    "grid_sampler_2d.default": [GRID, changed(GRID, 2, 2)],
    "grid_sampler_3d.default": [SPACE, changed(SPACE, 3, 2)],
    "upsample_bilinear2d.default": [ENLARGE, [*ENLARGE[:3]]],
    "upsample_bilinear2d.vec": [[values(1, 2, 5, 5), None, False, [1.5, 1.5]]],
    "upsample_nearest2d.default": [[values(1, 2, 5, 5), [3, 3], 0.6, None]],
    "_upsample_bicubic2d_aa.default": [ENLARGE],
    "max_pool2d.default": [POOL, changed(POOL, 3, 0), [values(1, 1, 6, 6), 2]],
    "max_pool2d_with_indices.default": [POOL],
    "max_pool3d.default": [[values(1, 2, 6, 6, 6), [3, 3, 3], [2, 2, 2], [1, 1, 1]]],
    "div.Tensor_mode": [[NUMBERS, torch.tensor([3, -1])], [values(3), values(3) + 2]],
    "median.dim": [[values(3, 4).expand(2, 3, 4), 2], [values(3, 4).T, 0]],
    "scaled_dot_product_attention.default": [QUERIES, [*QUERIES, values(5, 6)]],
    "lstm.input": [network(4), network(4, layers=2, directions=2)],
    "gru.input": [network(3), network(3, layers=2, directions=2)],
}
WRONG: list[tuple[str, Arguments, str]] = [
    (
        "_fft_r2c.default",
        [values(3, 4), [MAX_INTEGER, 1], 0, True],
        "dim .* different dimensions from 0 to 1",
    ),
    ("_fft_r2c.default", [values(3, 4), [1, 1], 0, True], "dim"),
    ("_fft_r2c.default", [values(3, 4), [], 0, True], "dim"),
    ("_fft_r2c.default", [values(3, 4), [1], 2**31, True], "normalization 2147483648, allowed: 0 to 2"),
    ("_fft_c2c.default", [values(3, 4) + 0j, [-(2**31)] * 2, 0, True], "dim"),
    ("_fft_c2r.default", [values(3, 4) + 0j, [0] * 70, 0, 6], "dim"),
    ("_fft_c2r.default", [values(3, 4, 5) + 0j, [1, 2], 0, 3], "last_dim_size 3, allowed: 8 or 9"),
    ("native_batch_norm.default", changed(NORM, 3, values(0)), r"running_mean of shape \(0,\)"),
    ("native_batch_norm.default", changed(NORM, 2, values(1)), r"bias .* the shape \(4,\)"),
    ("_native_batch_norm_legit.default", changed(NORM, 4, values(1)), "running_var"),
    ("_native_batch_norm_legit_functional.default", changed(NORM, 1, values(2)), "weight"),
    ("_native_batch_norm_legit_no_training.default", changed(NORM[:5] + NORM[6:], 3, values(0)), "running"),
    ("native_group_norm.default", changed(GROUPS, 3, 0), "N 0, allowed: 2"),
    ("native_group_norm.default", changed(GROUPS, 5, 2**40), "HxW"),
    ("native_group_norm.default", changed(GROUPS, 6, 0), "group 0, allowed: a divisor of 4"),
    ("native_group_norm.default", changed(GROUPS, 1, values(1)), "weight"),
    ("grid_sampler_2d.default", changed(GRID, 2, MAX_INTEGER), "interpolation_mode"),
    ("grid_sampler_2d.default", changed(GRID, 3, -1), "padding_mode -1, allowed: 0 to 2"),
    ("grid_sampler_3d.default", changed(SPACE, 2, 2), "interpolation_mode 2, allowed: 0 to 1"),
    ("upsample_bilinear2d.default", changed(ENLARGE, 3, 1e-30), "scales_h"),
    ("_upsample_bicubic2d_aa.default", [values(1, 2, 5, 1), *ENLARGE[1:]], "scales_w 1.5, allowed: none, or"),
    ("upsample_nearest2d.default", [values(1, 2, 5, 5), [3, 3], -0.6, None], "scales_h"),
    ("upsample_nearest2d.default", [values(1, 2, 5, 5), [3, 3], float("nan"), None], "scales_h"),
    ("max_pool2d.default", changed(POOL, 4, [1, 7]), "dilation"),
    ("max_pool3d_with_indices.default", [values(1, 1, 6, 6, 6), 2, 2, 1, 7, True], "dilation 7"),
    ("div.Tensor_mode", [NUMBERS, torch.tensor([-1, 2])], "other -1"),
    ("div_.Tensor_mode", [NUMBERS.clone(), torch.tensor(-1)], "other -1"),
    ("median.dim", [values(3, 1).expand(3, 2**20), 1], "self of strides"),
    ("scaled_dot_product_attention.default", changed(QUERIES, 2, values(2, 3, 9, 8)), "value"),
    ("scaled_dot_product_attention.default", [*QUERIES, values(5, 7)], "attn_mask"),
    ("lstm.input", changed(network(4), 4, 2**62), "num_layers"),
    ("lstm.input", changed(network(4), 4, 2), "hx"),
    ("lstm.input", changed(network(4), 8, True), "hx"),
    ("lstm.input", changed(network(4), 2, [values(3, 0), *network(4)[2][1:]]), "params"),
    ("lstm.input", changed(network(4), 2, []), "params"),
    ("gru.input", changed(network(3), 1, values(2**10, 1, 1)), "hx"),
    ("gru.input", changed(network(3), 4, -1), "num_layers -1, allowed: 1 to 1000"),
]


def keywords(name: str) -> dict[str, Any]:
    return {"rounding_mode": "trunc"} if name.startswith("div") else {}


@pytest.mark.parametrize(("name", "arguments", "reason"), WRONG)
def test_what_would_leave_the_tensors_is_refused(name: str, arguments: Arguments, reason: str) -> None:
    call = guarded(find_operator(f"torch.ops.aten.{name}"))
    assert call is not find_operator(f"torch.ops.aten.{name}"), "the call itself could end this process"
    with pytest.raises(UnsafeProgram, match=rf"it calls aten.{name} with {reason}"):
        call(*arguments, **keywords(name))


@pytest.mark.parametrize("name", RIGHT)
def test_right_arguments_give_what_the_operator_gives(name: str) -> None:
    operator = find_operator(f"torch.ops.aten.{name}")
    for arguments in RIGHT[name]:
        ours = guarded(operator)(*arguments, **keywords(name))
        theirs = operator(*arguments, **keywords(name))
        pairs = [(ours, theirs)] if isinstance(ours, Tensor) else zip(ours, theirs, strict=True)
        for our, their in pairs:
            assert torch.equal(torch.nan_to_num(our), torch.nan_to_num(their))


def test_operators_without_a_check_are_called_as_they_are() -> None:
    for name in ("relu.default", "add.Tensor", "div.Tensor", "conv2d.default", "linear.default"):
        operator = find_operator(f"torch.ops.aten.{name}")
        assert guarded(operator) is operator


def test_every_check_is_of_a_listed_operator() -> None:
    for name in GUARDS:
        packet = getattr(torch.ops.aten, name)
        allowed = []
        for overload in packet.overloads():
            try:
                allowed.append(find_operator(f"torch.ops.aten.{name}.{overload}"))
            except UnsafeProgram:
                continue
        assert allowed, name


@pytest.mark.parametrize(
    "target",
    [
        "_reshape_alias.default",
        "remainder.int",
        "remainder.default",
        "floordiv.int",
        "add.t",
        "mul.left_t",
        "add.str",
        "split.str",
        "sort.str",
        "select.t",
        "eq.Tensor_list",
        "copy.Dict_Tensor",
        "lstm.data",
        "gru.data",
    ],
)
def test_overloads_that_check_nothing_are_not_listed(target: str) -> None:
    with pytest.raises(UnsafeProgram, match="not among the operators that are allowed"):
        find_operator(f"torch.ops.aten.{target}")


def insert(plain: Path, target: Path, call: str, *more: Any) -> Path:
    """The program with a call before all others, whose first argument is the images."""

    def edit(content: Any) -> None:
        module = content["graph_module"]
        images = module["signature"]["input_specs"][-1]["user_input"]["arg"]
        inputs = [{"name": "", "arg": argument, "kind": 1} for argument in (images, *more)]
        schema = find_operator(call)._schema
        for argument, given in zip(schema.arguments, inputs, strict=False):
            given["name"] = argument.name
        node = {"target": call, "inputs": inputs, "outputs": [{"as_tensor": {"name": "evil"}}]}
        module["graph"]["nodes"].insert(0, {**node, "metadata": {}})

    return edited(plain, target, edit)


def test_a_program_with_such_a_call_fails_with_the_reason(plain: Path, tmp_path: Path) -> None:
    arguments = ({"as_ints": [MAX_INTEGER, 0]}, {"as_int": 0}, {"as_bool": True})
    program = load(insert(plain, tmp_path / "evil.pt2", "torch.ops.aten._fft_r2c.default", *arguments))
    with pytest.raises(UnsafeProgram, match=r"it calls aten\._fft_r2c\.default with dim"):
        program(torch.rand(2, 3, 8, 8))


def _recurrent(net: Any, images: Tensor) -> Tensor:
    steps: Tensor = net.plain(images)[:, None].expand(-1, 3, -1)
    found: Tensor = net.lstm(steps)[0][:, -1]
    return found


def _attentive(net: Any, images: Tensor) -> Tensor:
    tokens = torch.nn.functional.interpolate(images, scale_factor=1.3, mode="bilinear").flatten(2)
    added: Tensor = net.plain(images) + torch.nn.functional.scaled_dot_product_attention(
        tokens, tokens, tokens, is_causal=True
    ).mean((1, 2), keepdim=True).squeeze(2)
    return added


@pytest.mark.costly
@pytest.mark.parametrize("answer", [_recurrent, _attentive])
def test_real_programs_pass_the_checks_bit_for_bit(
    tmp_path: Path, answer: Callable[[Any, Tensor], Tensor]
) -> None:
    net = Net(answer)
    net.lstm = torch.nn.LSTM(CLASSES, CLASSES, 2, batch_first=True, bidirectional=False)
    program = load(export(net, tmp_path / "net.pt2"))
    net.eval().requires_grad_(False)
    ours, theirs = (torch.rand(3, 3, 8, 8, generator=torch.Generator().manual_seed(1)) for _ in "ab")
    ours.requires_grad_()
    theirs.requires_grad_()
    logits, wanted = program(ours), net(theirs)
    assert torch.equal(logits, wanted)
    logits.logsumexp(1).sum().backward()
    wanted.logsumexp(1).sum().backward()
    assert ours.grad is not None
    assert theirs.grad is not None
    assert torch.equal(ours.grad, theirs.grad)
