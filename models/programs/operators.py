"""Allow-list of operators for exported programs: functions of tensors and numbers without side effects.

Unlisted operators are refused by name. Left out on purpose: operators that read files or uninitialised memory
(`from_file`, `empty`, `resize_`, `set_`), that do not check their indices (`_unsafe_index`) or strides
(`as_strided`, `_reshape_alias`), that exist on one kind of device only, or that return values to Python
(`item`); overloads that are not of tensors, custom operators, and everything outside `aten` except a few
functions of numbers for shapes with a dynamic batch.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import torch
from torch._ops import OpOverload

from assay.models.programs.reading import MAX_INTEGER, refuse, shown

ELEMENTWISE = """
abs absolute acos acosh add addcdiv addcmul asin asinh atan atan2 atanh bitwise_and bitwise_left_shift
bitwise_not bitwise_or bitwise_right_shift bitwise_xor ceil celu clamp clamp_max clamp_min clip copysign cos
cosh deg2rad digamma div divide elu eq erf erfc erfinv exp exp2 expm1 float_power floor floor_divide fmax
fmin fmod frac ge gelu glu greater greater_equal gt hardshrink hardsigmoid hardswish hardtanh heaviside
hypot isfinite isinf isnan ldexp le leaky_relu lerp less less_equal lgamma log log10 log1p log2 log_sigmoid
logaddexp logaddexp2 logical_and logical_not logical_or logical_xor logit lt masked_fill maximum minimum
mish mul multiply nan_to_num ne neg negative not_equal polar pow prelu reciprocal relu relu6 remainder round
rrelu rsqrt rsub selu sgn sigmoid sign silu sin sinc sinh softplus softshrink special_expit sqrt square sub
subtract tan tanh threshold true_divide trunc where xlogy
"""
REDUCTIONS = """
all amax amin any argmax argmin argsort aminmax count_nonzero cummax cummin cumprod cumsum dist
frobenius_norm kthvalue linalg_norm linalg_vector_norm log_softmax logcumsumexp logsumexp max mean median
min mode msort norm nuclear_norm prod quantile softmax sort std std_mean sum topk var var_mean _log_softmax
_softmax
"""
_SHAPES = """
adjoint alias atleast_1d atleast_2d atleast_3d broadcast_tensors broadcast_to cat channel_shuffle chunk
clone column_stack concat concatenate constant_pad_nd contiguous copy detach diag diag_embed diagonal dsplit
dstack expand expand_as fill flatten flip fliplr flipud hsplit hstack index_select mH mT matrix_H movedim
moveaxis narrow native_channel_shuffle numpy_T pad permute pixel_shuffle pixel_unshuffle ravel
reflection_pad1d reflection_pad2d reflection_pad3d repeat repeat_interleave replication_pad1d
replication_pad2d replication_pad3d reshape reshape_as resolve_conj resolve_neg roll rot90 select
select_scatter slice slice_scatter split split_with_sizes squeeze stack swapaxes swapdims t tensor_split
tile transpose trapezoid tril triu unbind unflatten unfold unsafe_chunk unsafe_split unsafe_split_with_sizes
unsqueeze view view_as view_as_complex view_as_real vsplit vstack zero _unsafe_view
"""
_MAKING = """
arange eye full full_like lift_fresh lift_fresh_copy linspace logspace meshgrid new_full new_ones new_zeros
one_hot ones ones_like scalar_tensor to type_as zeros zeros_like tril_indices triu_indices _to_copy
"""
_INDEXING = """
bincount bucketize embedding gather index index_add index_copy index_fill index_put masked_scatter scatter
scatter_add scatter_reduce searchsorted take take_along_dim
"""
_LINEAR = """
addbmm addmm addmv addr baddbmm bilinear bmm cdist conv1d conv2d conv3d conv_tbc conv_transpose1d
conv_transpose2d conv_transpose3d convolution cosine_similarity cross dot einsum inner kron linalg_cross
linalg_det linalg_inv linalg_inv_ex linalg_matmul linalg_matrix_norm linalg_multi_dot linalg_pinv
linalg_solve linalg_svd linalg_qr linear matmul mm mv outer pairwise_distance scaled_dot_product_attention
tensordot vdot _convolution _trilinear _scaled_dot_product_attention_math
"""
_LAYERS = """
adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d
adaptive_max_pool3d affine_grid_generator avg_pool1d avg_pool2d avg_pool3d batch_norm col2im dropout
alpha_dropout feature_dropout feature_alpha_dropout fft_fft fft_fft2 fft_fftshift fft_ifft fft_ifft2
fft_ifftshift fft_irfft fft_irfft2 fft_rfft fft_rfft2 fractional_max_pool2d grid_sampler grid_sampler_2d
grid_sampler_3d group_norm gru im2col instance_norm layer_norm lstm max_pool1d max_pool1d_with_indices
max_pool2d max_pool2d_with_indices max_pool3d max_pool3d_with_indices max_unpool2d native_batch_norm
native_dropout native_group_norm native_layer_norm rms_norm upsample_bicubic2d upsample_bilinear2d
upsample_linear1d upsample_nearest1d upsample_nearest2d upsample_trilinear3d _adaptive_avg_pool2d _fft_c2c
_fft_c2r _fft_r2c _fused_rms_norm _native_batch_norm_legit _native_batch_norm_legit_functional
_native_batch_norm_legit_no_training _upsample_bicubic2d_aa _upsample_bilinear2d_aa
_upsample_nearest_exact2d complex conj conj_physical _conj _conj_physical imag real stft
"""
RANDOM = frozenset(
    [
        "bernoulli",
        "normal",
        "normal_functional",
        "rand",
        "rand_like",
        "randint",
        "randint_like",
        "randn",
        "randn_like",
        "randperm",
        "uniform",
    ]
)
ALLOWED = RANDOM.union(
    *(group.split() for group in (ELEMENTWISE, REDUCTIONS, _SHAPES, _MAKING, _INDEXING, _LINEAR, _LAYERS)),
    ("sym_size", "sym_numel", "sym_stride"),
)
# Some trust the lengths of packed sequences, which no listed operator produces. Others are TorchScript's (its
# `to` ends the process when it is differentiated), exist on one kind of device only, or take lists that a
# graph cannot hold.
LEFT_OUT = {
    *(("gru", "data"), ("lstm", "data"), ("einsum", "sublist")),
    *(("to", kind) for kind in ("prim_Device", "prim_dtype", "prim_other")),
    *((name, "dtype") for name in ("addmm", "baddbmm", "bmm", "mm")),
}
# They compare shapes and dtypes with those at export (the check at upload runs the program instead), or
# computed a dtype that the graph holds as a constant.
SKIPPED = re.compile(
    r"torch\.ops\.aten\.(_assert_\w+|sym_constrain_range\w*|_print|promote_types|result_type)\.\w+"
)
ATEN = re.compile(r"torch\.ops\.aten\.([A-Za-z_][A-Za-z0-9_]*)\.([A-Za-z][A-Za-z0-9_]*)")
# Arguments that switch an operator to training, where its result depends on the batch or on chance.
TRAINING = {
    "batch_norm": "training",
    "native_batch_norm": "training",
    "_native_batch_norm_legit": "training",
    "_native_batch_norm_legit_functional": "training",
    "dropout": "train",
    "native_dropout": "train",
    "alpha_dropout": "train",
    "feature_dropout": "train",
    "feature_alpha_dropout": "train",
    "rrelu": "training",
    "lstm": "train",
    "gru": "train",
}


def _whole(value: float) -> int:
    return int(value)


NUMBERS: Mapping[str, Callable[..., Any]] = {
    **{
        f"_operator.{function.__name__}": function
        for function in (
            operator.add,
            operator.sub,
            operator.mul,
            operator.floordiv,
            operator.mod,
            operator.neg,
        )
    },
    **{
        f"_operator.{function.__name__}": function
        for function in (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
    },
    "_operator.truediv": operator.truediv,
    "math.ceil": math.ceil,
    "math.floor": math.floor,
    "math.trunc": math.trunc,
    "torch.sym_int": _whole,
    "torch.sym_float": float,
    "torch.sym_max": max,
    "torch.sym_min": min,
    "torch.sym_not": operator.not_,
}


def on_numbers(target: str) -> Callable[..., Any] | None:
    """Integer function named by a target, with its result bounded; None if it names none."""
    function = NUMBERS.get(target)
    if function is None:
        return None

    def bounded(*numbers: Any) -> Any:
        # Other types would run their own methods.
        if not all(isinstance(number, int | float) for number in numbers):
            refuse(f"{target} is called with something that is no number")
        result = function(*numbers)
        if abs(result) > MAX_INTEGER:
            refuse(f"{target} leads to {shown(result)}, which is no size")
        return result

    return bounded


def find_operator(target: str) -> OpOverload[..., Any]:
    """Operator of `aten` named by a target. Raises UnsafeProgram: not allowed, or unknown to this torch."""
    match = ATEN.fullmatch(target)
    if match is None:
        _refuse_other(target)
    name, overload = match.groups()
    if name not in ALLOWED and (not name.endswith("_") or name.removesuffix("_") not in ALLOWED):
        refuse(
            f"it calls {target}, which is not among the operators that are allowed; programs as"
            " torch.export.export gives them, without run_decompositions, need the fewest"
        )
    packet = getattr(torch.ops.aten, name, None)
    if packet is None or overload not in packet.overloads():
        refuse(f"it calls {target}, which the torch of this worker ({torch.__version__}) does not have")
    found = getattr(packet, overload)
    if (name, overload) in LEFT_OUT or not _of_tensors(found):
        refuse(
            f"it calls {target}, which is not among the operators that are allowed: of {name}, those are that"
            " give tensors and take no packed sequences"
        )
    if not isinstance(found, OpOverload) or any(argument.is_out for argument in found._schema.arguments):
        refuse(f"it calls {target}, which writes to a tensor that is given")
    return found


def _of_tensors(found: Any) -> bool:
    """Whether an overload returns tensors or sizes; others, on texts and numbers, are TorchScript's."""
    schema = found._schema
    kinds = {str(result.type) for result in schema.returns}
    return schema.name.startswith("aten::sym_") or (bool(kinds) and kinds <= {"Tensor", "List[Tensor]"})


def _refuse_other(target: str) -> NoReturn:
    if target.startswith("torch.ops.higher_order."):
        what = target.removeprefix("torch.ops.higher_order.")
        refuse(
            f"it has a part of its own for control flow, autocast or switched gradients ({shown(what)}):"
            " export the model without torch.no_grad, autocast, cond and the like in its forward (write"
            " x.detach(), and torch.utils.checkpoint with use_reentrant=False)"
        )
    if target.startswith("torch.ops."):
        refuse(f"it calls the custom operator {shown(target)}, whose code is not in the file")
    refuse(f"it calls {shown(target)}, which is no operator of torch")
