"""An ONNX graph as a module that `torch.export` can follow.

`onnx2torch` makes a module of each node, in a `torch.fx` graph. Sizes are tensors in ONNX (`Shape`,
`Gather`, then `Reshape`), and no export can follow an operator with sizes from a tensor. The graph is
therefore interpreted here: values that depend on shapes and constants alone stay Python numbers, among them
the symbolic size of the batch, and the few operators that take sizes get them as numbers.
"""

from __future__ import annotations

import operator
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from onnx2torch import convert  # type: ignore[import-untyped]
from torch import Tensor, fx, nn

from assay.workers.weights.onnx_graph import UnknownOperator

# A tensor with more elements is data, not sizes.
MAX_SIZES = 64


@dataclass(frozen=True)
class Known:
    """Numbers known without running the model."""

    values: npt.NDArray[np.object_]  # an array of numbers, also symbolic ones; of any shape
    dtype: torch.dtype  # as a tensor
    stored: Tensor | None = None  # the tensor of the model that has them; None if they were computed

    def tensor(self) -> Tensor:
        """The numbers as a tensor."""
        return (
            self.stored if self.stored is not None else torch.tensor(self.values.tolist(), dtype=self.dtype)
        )

    # What the modules of onnx2torch ask of a tensor of sizes.
    def tolist(self) -> Any:
        """The numbers as lists."""
        return self.values.tolist()

    def nelement(self) -> int:
        """Their count."""
        return int(self.values.size)


def known_of(tensor: Tensor) -> Known | None:
    """The numbers of a small tensor that may be sizes; None for others."""
    if tensor.dim() > 1 or tensor.numel() > MAX_SIZES:
        return None
    values = np.empty(tuple(tensor.shape), dtype=object)
    values[...] = tensor.tolist() if tensor.dim() else tensor.item()
    return Known(values, tensor.dtype, tensor)


class OnnxModule(nn.Module):
    """A model of ONNX, its input to its result; UnknownOperator of a node without counterpart."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        try:
            self.graph: fx.GraphModule = convert(model).eval()
        except (KeyError, ValueError, RuntimeError, IndexError) as error:
            raise UnknownOperator(f"onnx2torch cannot convert it: {type(error).__name__}: {error}") from error
        for part in self.graph.modules():
            if isinstance(part, nn.LayerNorm) and part.weight is not None:
                # Its converter takes it from sizes that the file may leave open.
                part.normalized_shape = tuple(part.weight.shape)
            if type(part).__name__ == "OnnxConstantOfShape":
                part.number = part.value.item()
        # Read before an export, in which tensors have no values.
        self._known = {
            name: found
            for name, tensor in self.graph.named_buffers()
            if (found := known_of(tensor)) is not None
        }

    def forward(self, images: Tensor) -> Any:
        """The result for images (B, C, S, S)."""
        return _Interpreter(self.graph, self._known).run(images)


def failed_node(error: BaseException | None) -> str:
    """The node of the graph that an error came from, with its operator; else empty."""
    found = ""
    for frame, _ in traceback.walk_tb(error.__traceback__ if error is not None else None):
        runner, node = frame.f_locals.get("self"), frame.f_locals.get("n")
        if isinstance(runner, _Interpreter) and isinstance(node, fx.Node) and node.op == "call_module":
            kind = type(runner.fetch_attr(str(node.target))).__name__.removeprefix("Onnx")
            found = f"{node.target} ({kind})"
    return found


class _Interpreter(fx.Interpreter):
    """Runs a graph of onnx2torch with the known numbers kept as numbers."""

    def __init__(self, graph: fx.GraphModule, known: Mapping[str, Known]) -> None:
        super().__init__(graph, garbage_collect_values=False)
        self.known = known

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        """A stored tensor, with its numbers where they may be sizes."""
        stored = super().get_attr(target, args, kwargs)
        found = self.known.get(target)
        return stored if found is None else Known(found.values, found.dtype, stored)

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        """The result of a node: numbers, where its operator is one of sizes and all it takes is known."""
        part = self.fetch_attr(target)
        kind = type(part).__name__
        if kind == "OnnxConstant" and f"{target}.value" in self.known:
            found = self.known[f"{target}.value"]
            return Known(found.values, found.dtype, part.value)
        values = (*args, *kwargs.values())
        if kind in OF_SIZES and all(isinstance(value, Known) for value in values):
            found = OF_SIZES[kind](part, *args, **kwargs)
            if found is not None:
                return found
        if kind in TAKES_SIZES and all(isinstance(value, Known) for value in values[1:]):
            return TAKES_SIZES[kind](part, *args, **kwargs)
        if kind not in READS_LISTS:
            args, kwargs = fx.node.map_aggregate((args, kwargs), _tensor)
        elif args and isinstance(args[0], Known):
            args = (args[0].tensor(), *args[1:])
        return part(*args, **kwargs)

    def output(self, target: Any, args: Any, kwargs: Any) -> Any:
        """The model's result."""
        return fx.node.map_aggregate(super().output(target, args, kwargs), _tensor)


def _tensor(value: Any) -> Any:
    return value.tensor() if isinstance(value, Known) else value


def _data(value: Tensor | Known) -> Tensor:
    return value.tensor() if isinstance(value, Known) else value


def _shape(part: Any, data: Any) -> Known:
    sizes = list(data.values.shape if isinstance(data, Known) else data.shape)[part._start : part._end]
    values = np.empty(len(sizes), dtype=object)
    values[:] = sizes
    return Known(values, torch.int64)


def _array(values: Any) -> npt.NDArray[np.object_]:
    if isinstance(values, np.ndarray):
        return values.astype(object)
    found = np.empty((), dtype=object)
    found[()] = values
    return found


def _gather(part: Any, data: Known, indices: Known) -> Known:
    places = indices.values.astype(np.int64)
    return Known(_array(np.take(data.values, places, axis=part._axis)), data.dtype)


def _concat(part: Any, *parts: Known) -> Known:
    return Known(np.concatenate([one.values for one in parts], axis=part.axis), parts[0].dtype)


def _unsqueeze(part: Any, data: Known) -> Known | None:
    return Known(np.expand_dims(data.values, tuple(part._axes)), data.dtype)


def _squeeze(part: Any, data: Known, axes: Known | None = None) -> Known:
    chosen = getattr(part, "axes", None) if axes is None else axes.tolist()
    return Known(_array(np.squeeze(data.values, tuple(chosen) if chosen else None)), data.dtype)


def _reshaped(part: Any, data: Known, sizes: Known) -> Known:
    del part
    return Known(_array(np.reshape(data.values, sizes.tolist())), data.dtype)


def _cast(part: Any, data: Known) -> Known | None:
    if part.torch_dtype.is_floating_point or data.dtype.is_floating_point:
        return None
    return Known(data.values, part.torch_dtype)


def _divide(one: Any, other: Any) -> Any:
    # Quotients of sizes are not negative; ONNX rounds towards zero.
    return one // other


_ARITHMETIC: Mapping[Any, Callable[[Any, Any], Any]] = {
    torch.add: operator.add,
    torch.sub: operator.sub,
    torch.mul: operator.mul,
}


def _arithmetic(part: Any, one: Known, other: Known) -> Known | None:
    if one.dtype.is_floating_point or other.dtype.is_floating_point:
        return None
    compute = _ARITHMETIC.get(part.math_op_function, _divide)
    return Known(_array(compute(one.values, other.values)), one.dtype)


def _remainder(part: Any, one: Known, other: Known) -> Known | None:
    if one.dtype.is_floating_point or other.dtype.is_floating_point:
        return None
    return Known(_array(one.values % other.values), one.dtype)


def _cut(part: Any, data: Known, starts: Known, ends: Known, *more: Known) -> Known:
    del part
    return Known(data.values[_slices(data.values.shape, starts, ends, *more)], data.dtype)


def _transposed(part: Any, data: Known) -> Known:
    return Known(np.transpose(data.values, part.perm), data.dtype)


def _slices(shape: Sequence[int], starts: Known, ends: Known, *more: Known) -> tuple[slice, ...]:
    axes = more[0].tolist() if more else list(range(len(starts.tolist())))
    steps = more[1].tolist() if len(more) > 1 else [1] * len(axes)
    found = [slice(None)] * len(shape)
    for axis, start, end, step in zip(axes, starts.tolist(), ends.tolist(), steps, strict=True):
        # Going down, an end before the beginning takes the first, too.
        found[axis] = slice(start, None if step < 0 and end < -shape[axis] else end, step)
    return tuple(found)


def _compared(part: Any, one: Known, other: Known) -> Known | None:
    if part.compare_function is not torch.eq:
        return None
    return Known(_array(one.values == other.values), torch.bool)


def _chosen(part: Any, condition: Known, one: Known, other: Known) -> Known:
    del part
    return Known(_array(np.where(condition.values.astype(bool), one.values, other.values)), one.dtype)


def _filled(part: Any, sizes: Known) -> Any:
    shape, value = sizes.tolist(), part.value
    few = len(shape) <= 1 and all(isinstance(size, int) and size <= MAX_SIZES for size in shape)
    if few and not value.is_floating_point():
        return Known(np.full(tuple(shape), part.number, dtype=object), value.dtype)
    return torch.full(shape, part.number, dtype=value.dtype)


# Sizes from sizes. None as a result: the module itself is to compute it.
OF_SIZES: Mapping[str, Callable[..., Any]] = {
    "OnnxGather": _gather,
    "OnnxConcat": _concat,
    "OnnxUnsqueezeStaticAxes": _unsqueeze,
    "OnnxSqueezeStaticAxes": _squeeze,
    "OnnxSqueezeDynamicAxes": _squeeze,
    "OnnxReshape": _reshaped,
    "OnnxCast": _cast,
    "OnnxBinaryMathOperation": _arithmetic,
    "OnnxMod": _remainder,
    "OnnxTranspose": _transposed,
    "OnnxSlice": _cut,
    "OnnxConstantOfShape": _filled,
    "OnnxCompare": _compared,
    "OnnxWhere": _chosen,
    "OnnxRange": lambda _, *numbers: torch.arange(*(number.values.item() for number in numbers)),
    "OnnxCopyIdentity": lambda _, data: data,
}


def _reshape(part: Any, data: Tensor | Known, sizes: Known) -> Tensor:
    del part
    data = _data(data)
    return data.reshape([data.shape[i] if size == 0 else size for i, size in enumerate(sizes.tolist())])


def _expand(part: Any, data: Tensor | Known, sizes: Known) -> Tensor:
    del part
    data, wanted = _data(data), sizes.tolist()
    own = [1] * (len(wanted) - data.dim()) + list(data.shape)
    wanted = [1] * (len(own) - len(wanted)) + wanted
    return data.expand([mine if size == 1 else size for mine, size in zip(own, wanted, strict=True)])


def _cut_tensor(part: Any, data: Tensor | Known, starts: Known, ends: Known, *more: Known) -> Tensor:
    data = _data(data)
    places = _slices(data.shape, starts, ends, *more)
    down = [axis for axis, place in enumerate(places) if (place.step or 1) < 0]
    if not down:
        return data[places]
    for axis in down:  # torch takes no negative step: the places themselves
        chosen = torch.tensor(range(data.shape[axis])[places[axis]])
        data = data.index_select(axis, chosen)
    return data[tuple(slice(None) if axis in down else place for axis, place in enumerate(places))]


def _taken(part: Any, data: Tensor | Known, indices: Known) -> Tensor:
    data = _data(data)
    if not indices.values.ndim:
        return data.select(part._axis, indices.values.item())
    return data.index_select(part._axis, indices.tensor().to(torch.int64))


def _unsqueezed(part: Any, data: Tensor | Known, axes: Known | None = None) -> Tensor:
    data, chosen = _data(data), part._axes if axes is None else axes.tolist()
    rank = data.dim() + len(chosen)  # of the result: the axes are its dimensions
    for axis in sorted(axis % rank for axis in chosen):
        data = data.unsqueeze(axis)
    return data


def _squeezed(part: Any, data: Tensor | Known, axes: Known | None = None) -> Tensor:
    del part
    data = _data(data)
    return data.squeeze() if axes is None else data.squeeze(tuple(axes.tolist()))


def _tiled(part: Any, data: Tensor | Known, times: Known) -> Tensor:
    del part
    return _data(data).repeat(times.tolist())


# Tensors by sizes.
TAKES_SIZES: Mapping[str, Callable[..., Any]] = {
    "OnnxGather": _taken,
    "OnnxShape": _shape,
    "OnnxReshape": _reshape,
    "OnnxExpand": _expand,
    "OnnxSlice": _cut_tensor,
    "OnnxUnsqueezeStaticAxes": _unsqueezed,
    "OnnxUnsqueezeDynamicAxes": _unsqueezed,
    "OnnxSqueezeDynamicAxes": _squeezed,
    "OnnxTile": _tiled,
}
# Modules that read sizes by `tolist` and `nelement`.
READS_LISTS = frozenset({"OnnxPadDynamic", "OnnxResize", "OnnxResizeV10", "OnnxSplit13"})
