"""Arguments of valid calls, by position, for operators whose arguments random ones rarely satisfy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.fuzz.calls import T, Word

IMAGES, LINES, BLOCKS = T((2, 4, 6, 6)), T((2, 4, 6)), T((1, 2, 4, 4, 4))
SQUARE, WIDE, VECTOR, NUMBER = T((4, 4)), T((3, 4)), T((4,)), T(())
BATCHES, COUNTS, FLAGS = T((2, 4, 4)), T((4,), "int64", "small"), T((4, 4), "bool")
CHANNELS, VARIANCES = T((4,)), T((4,), fill="positive")
GRID, SPACE = T((2, 5, 5, 2)), T((1, 3, 3, 3, 3))
COMPLEX, WHOLE = T((3, 4), "complex64"), T((3, 4), "int64", "small")
CPU, INT64 = Word("as_device", {"type": "cpu"}), Word("as_scalar_type", 5)


def recurrent(gates: int, layers: int = 1, directions: int = 1) -> list[Any]:
    """Arguments of a recurrent network of three features and four hidden units, two sequences."""
    states = [T((layers * directions, 2, 4)) for _ in range(2 if gates == 4 else 1)]
    weights = [
        T(shape)
        for layer in range(layers)
        for _ in range(directions)
        for shape in (
            (4 * gates, 3 if layer == 0 else 4 * directions),
            (4 * gates, 4),
            (4 * gates,),
            (4 * gates,),
        )
    ]
    hidden: Any = states if gates == 4 else states[0]
    return [T((5, 2, 3)), hidden, weights, True, layers, 0.0, False, directions == 2, False]


def _convolutions() -> dict[str, tuple[list[Any], ...]]:
    one, two, three = T((2, 4, 3)), T((2, 4, 3, 3)), T((2, 2, 3, 3, 3))
    grouped = [IMAGES, T((4, 2, 3, 3)), None, [1, 1], [0, 0], [1, 1], False, [0, 0], 2]
    switches = [False, False, False]
    return {
        "conv1d.default": ([LINES, one, T((2,)), [1], [1]],),
        "conv1d.padding": ([LINES, one, None, [1], "same"],),
        "conv2d.default": (
            [IMAGES, two, T((2,)), [2, 1], [1, 1], [1, 1]],
            [IMAGES, T((4, 1, 3, 3)), None, 1, 1, 1, 4],
        ),
        "conv2d.padding": ([IMAGES, two, None, [1, 1], "same"],),
        "conv3d.default": ([BLOCKS, three, None, [1, 1, 1], [1, 1, 1]],),
        "conv3d.padding": ([BLOCKS, three, None, [1, 1, 1], "valid"],),
        "conv_tbc.default": ([T((5, 2, 3)), T((2, 3, 4)), T((4,)), 1],),
        "conv_transpose1d.default": ([LINES, T((4, 2, 3)), T((2,)), [2], [1], [1]],),
        "conv_transpose2d.input": ([IMAGES, T((4, 2, 3, 3)), None, [2, 2], [1, 1], [1, 1]],),
        "conv_transpose3d.input": ([BLOCKS, T((2, 2, 3, 3, 3)), None, [1, 1, 1], [1, 1, 1]],),
        "convolution.default": (
            grouped,
            [IMAGES, T((4, 2, 3, 3)), None, [2, 2], [1, 1], [1, 1], True, [1, 1], 1],
        ),
        "_convolution.default": ([*grouped, *switches, False],),
        "_convolution.deprecated": ([*grouped, *switches],),
    }


def _scalings() -> dict[str, tuple[list[Any], ...]]:
    found: dict[str, tuple[list[Any], ...]] = {}
    for name, given, sizes, corners in (
        ("upsample_linear1d", LINES, 1, True),
        ("upsample_nearest1d", LINES, 1, False),
        ("upsample_bilinear2d", IMAGES, 2, True),
        ("upsample_bicubic2d", IMAGES, 2, True),
        ("upsample_nearest2d", IMAGES, 2, False),
        ("_upsample_nearest_exact2d", IMAGES, 2, False),
        ("_upsample_bilinear2d_aa", IMAGES, 2, True),
        ("_upsample_bicubic2d_aa", IMAGES, 2, True),
        ("upsample_trilinear3d", BLOCKS, 3, True),
    ):
        flag = [False] if corners else []
        found[f"{name}.default"] = ([given, [9] * sizes, *flag], [given, [3] * sizes, *flag])
        found[f"{name}.vec"] = ([given, None, *flag, [1.5] * sizes], [given, [7] * sizes, *flag, None])
    return found


def _poolings() -> dict[str, tuple[list[Any], ...]]:
    found: dict[str, tuple[list[Any], ...]] = {}
    for sizes, given in ((1, LINES), (2, IMAGES), (3, BLOCKS)):
        window = [given, [3] * sizes, [2] * sizes, [1] * sizes]
        for kind in ("", "_with_indices"):
            found[f"max_pool{sizes}d{kind}.default"] = (window, [*window, [1] * sizes, True])
        found[f"avg_pool{sizes}d.default"] = (window, [*window, True, False])
        for kind in ("avg", "max"):
            found[f"adaptive_{kind}_pool{sizes}d.default"] = ([given, [2] * sizes], [given, [5] * sizes])
    found["_adaptive_avg_pool2d.default"] = ([IMAGES, [2, 3]],)
    found["fractional_max_pool2d.default"] = ([IMAGES, [2, 2], [3, 3], T((2, 4, 2), fill="positive")],)
    found["max_unpool2d.default"] = ([T((1, 1, 2, 2)), T((1, 1, 2, 2), "int64", "small"), [4, 4]],)
    return found


def _normalisations() -> dict[str, tuple[list[Any], ...]]:
    per_channel = [IMAGES, CHANNELS, CHANNELS, CHANNELS, VARIANCES, False, 0.1, 1e-5]
    per_image = [IMAGES, None, None, None, None, True, 0.1, 1e-5, False]
    return {
        "batch_norm.default": ([*per_channel, False],),
        "native_batch_norm.default": (per_channel,),
        "_native_batch_norm_legit.default": (per_channel,),
        "_native_batch_norm_legit.no_stats": ([IMAGES, CHANNELS, CHANNELS, False, 0.1, 1e-5],),
        "_native_batch_norm_legit_functional.default": (per_channel,),
        "_native_batch_norm_legit_no_training.default": ([*per_channel[:5], *per_channel[6:]],),
        "instance_norm.default": (per_image, [*per_channel[:5], False, 0.1, 1e-5, False]),
        "native_group_norm.default": ([IMAGES, CHANNELS, CHANNELS, 2, 4, 36, 2, 1e-5],),
        "group_norm.default": ([IMAGES, 2, CHANNELS, CHANNELS],),
        "layer_norm.default": ([WIDE, [4], CHANNELS, CHANNELS],),
        "native_layer_norm.default": ([WIDE, [4], CHANNELS, CHANNELS, 1e-5],),
        "rms_norm.default": ([WIDE, [4], CHANNELS],),
        "_fused_rms_norm.default": ([WIDE, [4], CHANNELS, 1e-5],),
    }


def _matrices() -> dict[str, tuple[list[Any], ...]]:
    return {
        **{f"{name}.default": ([SQUARE, BATCHES, BATCHES],) for name in ("addbmm", "addbmm_")},
        **{f"{name}.default": ([BATCHES, BATCHES, BATCHES],) for name in ("baddbmm", "baddbmm_")},
        **{f"{name}.default": ([SQUARE, SQUARE, SQUARE],) for name in ("addmm", "addmm_")},
        **{f"{name}.default": ([VECTOR, SQUARE, VECTOR],) for name in ("addmv", "addmv_")},
        **{f"{name}.default": ([SQUARE, VECTOR, VECTOR],) for name in ("addr", "addr_")},
        **{f"{name}.default": ([VECTOR, VECTOR],) for name in ("dot", "outer", "vdot", "inner")},
        **{f"{name}.default": ([T((2, 3)), T((2, 3))],) for name in ("cross", "linalg_cross")},
        "bmm.default": ([BATCHES, BATCHES],),
        "mm.default": ([WIDE, SQUARE],),
        "mv.default": ([WIDE, VECTOR],),
        "bilinear.default": ([WIDE, T((3, 5)), T((2, 4, 5)), T((2,))],),
        "_trilinear.default": ([T((2, 3)), T((2, 3)), T((2, 3)), [], [], [], [0]],),
        "cdist.default": ([WIDE, T((5, 4))],),
        "einsum.default": (["ij,jk->ik", [WIDE, SQUARE]], ["bij,bjk->bk", [BATCHES, BATCHES]]),
        "linalg_multi_dot.default": ([[WIDE, SQUARE, SQUARE]],),
        "linalg_norm.ord_str": ([SQUARE, "nuc"], [SQUARE, "fro"]),
        "nuclear_norm.dim": ([SQUARE, [0, 1]],),
        "linear.default": ([WIDE, T((2, 4)), T((2,))],),
        "scaled_dot_product_attention.default": (
            [T((1, 2, 5, 8)), T((1, 2, 6, 8)), T((1, 2, 6, 8)), T((5, 6))],
        ),
    }


def _places() -> dict[str, tuple[list[Any], ...]]:
    indices = T((2, 4), "int64", "small")
    found: dict[str, tuple[list[Any], ...]] = {}
    for suffix in ("", "_"):
        for reduce in ("add", "multiply"):
            found[f"scatter{suffix}.reduce"] = ([WIDE, 0, indices, T((2, 4)), reduce],)
            found[f"scatter{suffix}.value_reduce"] = ([WIDE, 0, indices, 2.0, reduce],)
        found[f"scatter{suffix}.src"] = ([WIDE, 0, indices, T((2, 4))],)
        found[f"scatter_add{suffix}.default"] = ([WIDE, 0, indices, T((2, 4))],)
        found[f"scatter_reduce{suffix}.two"] = (
            [WIDE, 0, indices, T((2, 4)), "amax", True],
            [WIDE, 0, indices, T((2, 4)), "mean", False],
        )
        found[f"index_copy{suffix}.default"] = ([WIDE, 1, COUNTS, WIDE],)
        found[f"index_add{suffix}.default"] = ([WIDE, 1, COUNTS, WIDE],)
        found[f"index_fill{suffix}.int_Tensor"] = ([WIDE, 1, COUNTS, NUMBER],)
        found[f"index_put{suffix}.default"] = ([WIDE, [T((2,), "int64", "small"), None], VECTOR, True],)
        found[f"masked_fill{suffix}.Tensor"] = ([SQUARE, FLAGS, NUMBER],)
        found[f"masked_scatter{suffix}.default"] = ([SQUARE, FLAGS, SQUARE],)
        found[f"fill{suffix}.Tensor"] = ([SQUARE, NUMBER],)
    found |= {
        "gather.default": ([WIDE, 0, indices],),
        "index.Tensor": ([WIDE, [T((2,), "int64", "small"), None]], [SQUARE, [FLAGS]]),
        "index_select.default": ([WIDE, 1, COUNTS],),
        "embedding.default": ([WIDE, COUNTS],),
        "take.default": ([WIDE, indices],),
        "take_along_dim.default": ([WIDE, indices, 0],),
        "select_scatter.default": ([WIDE, VECTOR, 0, 1],),
        "slice_scatter.default": ([WIDE, T((2, 4)), 0, 0, 2],),
        "bincount.default": ([COUNTS], [COUNTS, VECTOR, 5]),
        "bucketize.Tensor": ([WIDE, VECTOR],),
        "searchsorted.Tensor": ([T((3, 5)), WIDE],),
        "one_hot.default": ([COUNTS], [COUNTS, 3]),
        "repeat_interleave.Tensor": ([COUNTS],),
        "repeat_interleave.self_Tensor": ([WIDE, COUNTS, 1],),
        "narrow.Tensor": ([WIDE, 1, T((), "int64", "ones"), 2],),
        "tensor_split.tensor_indices_or_sections": ([WIDE, T((), "int64", "ones")], [WIDE, T((2,), "int64")]),
        "split_with_sizes.default": ([WIDE, [1, 3], 1],),
    }
    return found


def _others() -> dict[str, tuple[list[Any], ...]]:
    found: dict[str, tuple[list[Any], ...]] = {}
    for name in ("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift"):
        for suffix in ("", "_"):
            found[f"{name}{suffix}.Tensor"] = ([WHOLE, WHOLE],)
            found[f"{name}{suffix}.Scalar"] = ([WHOLE, 2],)
            found[f"{name}{suffix}.Tensor_Scalar"] = ([WHOLE, 2],)
        found[f"{name}.Scalar_Tensor"] = ([2, WHOLE],)
    for name in ("bitwise_not", "bitwise_not_"):
        found[f"{name}.default"] = ([WHOLE], [FLAGS])
    for name in ("fmod", "fmod_", "remainder", "remainder_", "floor_divide", "floor_divide_"):
        found[f"{name}.Tensor"] = ([T((4,)), VARIANCES],)
    return found


def _rows_and_borders() -> dict[str, tuple[list[Any], ...]]:
    found: dict[str, tuple[list[Any], ...]] = {}
    for name in ("linspace", "logspace"):
        for kind, ends in (
            ("Tensor_Tensor", [NUMBER, NUMBER]),
            ("Tensor_Scalar", [NUMBER, 3.0]),
            ("Scalar_Tensor", [1.0, NUMBER]),
            ("default", [0.0, 1.0]),
        ):
            found[f"{name}.{kind}"] = ([*ends, 5],)
    for name in ("replication_pad", "reflection_pad"):
        for sizes, given in ((1, LINES), (2, IMAGES), (3, BLOCKS)):
            found[f"{name}{sizes}d.default"] = ([given, [1, 2] * sizes], [given, [1, -1] * sizes])
    for sampler, given, grid in (
        ("grid_sampler", IMAGES, GRID),
        ("grid_sampler_2d", IMAGES, GRID),
        ("grid_sampler_3d", T((1, 2, 4, 4, 4)), SPACE),
    ):
        found[f"{sampler}.default"] = tuple(
            [given, grid, mode, padding, False] for mode in (0, 1) for padding in (0, 1, 2)
        )
    for view in ("movedim", "moveaxis"):
        found[f"{view}.int"] = ([WIDE, 0, 1],)
        found[f"{view}.intlist"] = ([WIDE, [0, 1], [1, 0]],)
    return found


def _draws() -> dict[str, tuple[list[Any], ...]]:
    generators = {
        "rand.generator": [[3, 4], None],
        "rand_like.generator": [WIDE, None],
        "randint.generator": [5, [3, 4], None],
        "randint.low_generator": [1, 5, [3, 4], None],
        "randint_like.Tensor": [WIDE, T((), "int64", "ones")],
        "randint_like.generator": [WIDE, 5, None],
        "randint_like.Tensor_generator": [WIDE, T((), "int64", "ones"), None],
        "randint_like.low_generator_dtype": [WIDE, 1, 5, None],
        "randn.generator": [[3, 4], None],
        "randn_like.generator": [WIDE, None],
        "randperm.generator": [7, None],
        "randperm.default": [7],
        "randint.default": [5, [3, 4]],
        "randint.low": [1, 5, [3, 4]],
    }
    return {name: (given,) for name, given in generators.items()}


def _more() -> dict[str, tuple[list[Any], ...]]:
    return {
        "bernoulli.Tensor": ([WIDE, T((3, 4), fill="positive")],),
        "bernoulli_.Tensor": ([WIDE, T((3, 4), fill="positive")],),
        "normal.Tensor_Tensor": ([WIDE, T((3, 4), fill="positive")],),
        "float_power_.Tensor": ([T((3, 4), "float64"), T((3, 4), "float64")],),
        "affine_grid_generator.default": (
            [T((2, 2, 3)), [2, 3, 4, 4], False],
            [T((1, 3, 4)), [1, 2, 3, 3, 3], True],
        ),
        "im2col.default": ([IMAGES, [2, 2], [1, 1], [0, 0], [1, 1]],),
        "col2im.default": ([T((2, 16, 25)), [6, 6], [2, 2], [1, 1], [0, 0], [1, 1]],),
        "fft_rfft2.default": ([SQUARE], [SQUARE, [4, 4], [0, 1], "ortho"]),
        "_fft_c2c.default": ([COMPLEX, [1], 0, True],),
        "_fft_r2c.default": ([WIDE, [1], 0, True],),
        "_fft_c2r.default": ([COMPLEX, [1], 0, 6],),
        "_conj.default": ([COMPLEX],),
        "view_as_real.default": ([COMPLEX],),
        "view_as_complex.default": ([T((3, 2))],),
        "gru.input": (recurrent(3), recurrent(3, 2, 2)),
        "lstm.input": (recurrent(4), recurrent(4, 2, 2)),
        "meshgrid.default": ([[VECTOR, T((3,))]],),
        "meshgrid.indexing": ([[VECTOR, T((3,))], "xy"],),
        "native_channel_shuffle.default": ([IMAGES, 2],),
        "channel_shuffle.default": ([IMAGES, 2],),
        "pixel_shuffle.default": ([IMAGES, 2],),
        "pixel_unshuffle.default": ([IMAGES, 2],),
        "stft.default": ([T((64,)), 16, 8, None, None, False, True, True],),
        "stft.center": ([T((64,)), 16, 8, None, None, True, "reflect", False, True, True],),
        "to.device": ([WIDE, CPU, INT64],),
        "unfold.default": ([WIDE, 1, 2, 1],),
        "unflatten.int": ([WIDE, 1, [2, 2]],),
        "kthvalue.default": ([WIDE, 2, 1],),
        "topk.default": ([WIDE, 2, 1],),
        "quantile.default": ([WIDE, T((2,), fill="positive"), 1],),
        "median.dim": ([WIDE, 1],),
        "prelu.default": ([IMAGES, CHANNELS],),
        "glu.default": ([IMAGES, 1],),
    }


BY_POSITION: Mapping[str, Sequence[Sequence[Any]]] = {
    **_convolutions(),
    **_scalings(),
    **_poolings(),
    **_normalisations(),
    **_matrices(),
    **_places(),
    **_others(),
    **_rows_and_borders(),
    **_draws(),
    **_more(),
}


def seeds(name: str, arguments: Sequence[str]) -> tuple[Mapping[str, Any], ...]:
    """Arguments by name of valid calls of an overload, which takes these arguments."""
    return tuple(dict(zip(arguments, given, strict=False)) for given in BY_POSITION.get(name, ()))
