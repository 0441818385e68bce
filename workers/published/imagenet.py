"""Published robustness of RPC-Attention's models on ImageNet-1K, and of Segmenter on ADE20K, as tables.

Source: Teo and Nguyen 2024, "Unveiling the Hidden Structure of Self-Attention via Kernel Principal Component
Analysis" (NeurIPS), tables 1, 2, 7, 8, 9, 10 and 14: top-1 and top-5 accuracy in percent; and table 6, on
ADE20K. Table 5 (Square) is left out: it states no epsilon.

Also clean accuracy of Primal-Attention's DeiT-Small/16 (Chen et al. 2023, NeurIPS, table 7a) and of the
Conv2D attention in DeiT-tiny with 4 heads (Nguyen et al. 2023, ICLR, table 6). ImageNet-100 is left out: the
paper does not list its classes.

Parameters are the released attack code's where it exists; a note says where the paper's text differs.
"""

from __future__ import annotations

from assay.service.contract.results import Reference
from assay.service.contract.stored_specs import Params
from assay.workers.published.match import (
    ADE20K,
    Architecture,
    MeasuredRow,
    Preparation,
    PublishedEvaluation,
    PublishedTable,
    architecture,
    image_references,
    same_model,
)
from assay.workers.published.sequences import DUAL, PRIMAL

__all__ = ["ade20k", "imagenet"]

PAPER = "Teo and Nguyen 2024 (RPC-Attention, NeurIPS)"
TIMM = "Wightman, PyTorch image models (timm)"


_TINY = {"image_size": 224, "patch_size": 16, "width": 192, "depth": 12, "heads": 3, "mlp_ratio": 4.0}
_SMALL = _TINY | {"width": 384, "heads": 6}
_BASE = _TINY | {"width": 768, "heads": 12}
_RPC = {"threshold": "code", "mu_width": "full", "dual_sign": -1}
_FIRST = _RPC | {"attention": "rpc", "layers": "first", "regularization": 4.0}
# Lambda for all layers: 3 in the text, 4 in the released evaluation.
_ALL = _RPC | {"attention": "rpc", "layers": "all", "iterations": 2, "regularization": (3.0, 4.0)}
_SYMMETRIC = {"attention": "symmetric"}
_FAN = _TINY | {"family": "fan", "heads": 4}

MODELS = {
    "SymViT": Architecture(_TINY | _SYMMETRIC),
    "RPC-SymViT (4iter/layer1)": Architecture(_TINY | _FIRST | {"iterations": 4}),
    "RPC-SymViT (5iter/layer1)": Architecture(_TINY | _FIRST | {"iterations": 5}),
    "RPC-SymViT (6iter/layer1)": Architecture(_TINY | _FIRST | {"iterations": 6}),
    "RPC-SymViT (2iter/all-layer)": Architecture(_TINY | _ALL),
    "SymViT-base": Architecture(_BASE | _SYMMETRIC),
    "RPC-SymViT-base (2iter/all-layer)": Architecture(_BASE | _ALL),
    "ViT": Architecture(_TINY | {"attention": "softmax"}),
    "RPC-AsymViT (4iter/layer1)": Architecture(
        _TINY | _FIRST | {"iterations": 4, "attention": "rpc_asymmetric", "others": "softmax"}
    ),
    "RPC-AsymViT (Sym/Asym)": Architecture(_TINY | _FIRST | {"iterations": 4, "others": "softmax"}),
    "FAN-tiny": Architecture(_FAN | _SYMMETRIC, Preparation("bicubic", 1.0)),
    "RPC-FAN-tiny (4iter/layer1)": Architecture(
        _FAN | _FIRST | {"iterations": 4}, Preparation("bicubic", 1.0)
    ),
    "DeiT-Small/16": Architecture(_SMALL | {"attention": "softmax"}),
    "Primal.+DeiT-Small/16": Architecture(
        _SMALL
        | {"attention": "primal", "layers": "last", "rank": (32, 64, 96), "rank_multi": 10}
        | {"projection": "data_dependent", "r_scores": True}
    ),
    "Baseline Softmax Deit": Architecture(_TINY | {"heads": 4, "attention": "softmax"}),
    "Attention-Conv2D Deit": Architecture(_TINY | {"heads": 4, "attention": "conv2d_attention", "size": 2}),
    **{
        f"deit_{size}_patch16_224": Architecture(
            # timm's default, also by name.
            {"architecture": f"deit_{size}_patch16_224", "tag": (None, "fb_in1k")},
            Preparation("bicubic", 0.9),
        )
        for size in ("tiny", "small", "base")
    },
}

BOTH = ("paper", "pixel")
CLEAN = PublishedEvaluation("clean", {}, PAPER, protocols=BOTH)
TOP1 = CLEAN._replace(name="top1")
SHIFT_A = TOP1._replace(data="imagenet_a", metrics=("top1",))
SHIFT_R = SHIFT_A._replace(data="imagenet_r")
SHIFT_O = CLEAN._replace(name="aupr", data="imagenet_o", metrics=("aupr",))
PGD = PublishedEvaluation(
    "pgd",
    {"epsilon": 6 / 255, "norm": "Linf", "steps": 20, "step_size": None, "relative_step_size": 0.15},
    PAPER,
    "step 0.15 epsilon as in the released code",
)
FGSM = PublishedEvaluation("fgsm", {"epsilon": 6 / 255, "norm": "Linf"}, PAPER)
SPSA = PublishedEvaluation(
    "spsa",
    {"epsilon": 0.1, "steps": 10, "samples": 128, "gradient_point": "shifted"},
    PAPER,
    "10 steps as in the released code; the text says 40",
)
SLD = PublishedEvaluation("sparse_l1_descent", {"epsilon": 10.0}, PAPER)
CW = PublishedEvaluation(
    "carlini_wagner",
    {"confidence": 0.03, "shared_constant": True},
    PAPER,
    "the released code clips normalised images to [0, 1], which alone costs much of the accuracy",
)
NOISE = PublishedEvaluation("uniform_noise", {"epsilon": 0.3, "norm": "Linf", "draws": 1}, PAPER)
AUTOATTACK = PublishedEvaluation(
    "autoattack",
    {"epsilon": 1 / 255, "norm": "Linf", "version": "standard"},
    PAPER,
    "no code was released, and the space of epsilon is not stated",
    protocols=("pixel",),
    protocol="not stated",
)

TINY_MODELS = tuple(MODELS)[:5]
# Table 6, clean ADE20K: mean accuracy and intersection over union, by backbone.
SEGMENTED = dict(
    zip(
        TINY_MODELS,
        ((44.27, 34.00), (45.61, 34.69), (45.51, 34.63), (45.27, 34.24), (43.61, 33.50)),
        strict=True,
    )
)
# Under the fifteen corruptions.
SEGMENTED_CORRUPTED = dict(
    zip(
        TINY_MODELS,
        ((14.85, 10.47), (16.06, 11.47), (16.15, 11.35), (16.44, 11.60), (15.04, 10.64)),
        strict=True,
    )
)
SEGMENTED_NOTE = "Segmenter; its decoder and windows are not stated, the released windows are assumed"
CORRUPTED_NOTE = (
    "which severities it is a mean over, and at which size images were corrupted, is not stated either"
)
# The second also evaluates them clean.
WHOLE_IMAGES = ("sliding_window", "sliding_window_corruptions")
# Segmenter's released inference.
WINDOWS = {"short_side": 512, "window": 512, "stride": 512, "average": "logits"}
# To (top-1, top-5) by model.
TABLES: list[PublishedTable] = [
    (table, attacked, dict(zip(TINY_MODELS, values, strict=True)))
    for table, attacked, *values in (
        ("table 1", CLEAN, (70.44, 90.17), (70.94, 90.47), (71.31, 90.59), (71.49, 90.68), (70.59, 90.15)),
        ("table 2", PGD, (4.98, 10.41), (5.15, 11.20), (5.11, 11.13), (5.20, 11.34), (6.12, 13.24)),
        ("table 2", FGSM, (23.38, 53.82), (26.62, 56.87), (26.75, 57.19), (27.22, 57.55), (29.20, 59.63)),
        ("table 2", SPSA, (47.94, 82.63), (48.13, 82.87), (49.29, 83.52), (48.75, 83.27), (51.01, 83.66)),
        ("table 2", SLD, (67.91, 89.68), (68.48, 90.16), (68.60, 90.18), (68.99, 90.38), (67.60, 89.79)),
        ("table 2", CW, (48.44, 72.68), (50.00, 74.24), (50.08, 74.14), (50.36, 74.46), (48.77, 72.91)),
        ("table 2", NOISE, (67.81, 88.51), (68.37, 89.00), (68.72, 89.13), (68.81, 89.27), (68.09, 88.64)),
        (
            "table 2", AUTOATTACK,
            (23.09, 63.48), (24.56, 65.11), (24.68, 65.09), (24.74, 65.13), (23.51, 64.06),
        ),
    )
]  # fmt: skip
TABLES += [
    ("table 7", CLEAN, {"SymViT-base": (80.62, 94.78), "RPC-SymViT-base (2iter/all-layer)": (80.72, 94.82)}),
    ("table 8", PGD, {"SymViT-base": (12.11, 25.55), "RPC-SymViT-base (2iter/all-layer)": (13.41, 26.68)}),
    ("table 8", FGSM, {"SymViT-base": (53.61, 78.05), "RPC-SymViT-base (2iter/all-layer)": (54.68, 78.06)}),
    ("table 9", CLEAN, {"FAN-tiny": (77.89, 94.20), "RPC-FAN-tiny (4iter/layer1)": (77.98, 94.27)}),
    ("table 10", PGD, {"FAN-tiny": (2.92, 4.86), "RPC-FAN-tiny (4iter/layer1)": (6.25, 10.01)}),
    ("table 10", FGSM, {"FAN-tiny": (32.01, 61.72), "RPC-FAN-tiny (4iter/layer1)": (35.12, 63.40)}),
    (
        "table 14",
        CLEAN,
        {
            "ViT": (72.11, 90.97),
            "RPC-AsymViT (4iter/layer1)": (72.34, 91.12),
            "RPC-AsymViT (Sym/Asym)": (72.34, 91.38),
        },
    ),
]
ASYMMETRIC = ("ViT", "RPC-AsymViT (4iter/layer1)", "RPC-AsymViT (Sym/Asym)")
BASE_MODELS = ("SymViT-base", "RPC-SymViT-base (2iter/all-layer)")
FAN_MODELS = ("FAN-tiny", "RPC-FAN-tiny (4iter/layer1)")
# Top-1, or AUPR, by model.
TABLES += [
    (table, shift, {model: (value,) for model, value in zip(models, values, strict=True)})
    for table, shift, models, values in (
        ("table 1", SHIFT_R, TINY_MODELS, (28.98, 29.99, 30.28, 30.03, 29.23)),
        ("table 1", SHIFT_A, TINY_MODELS, (6.51, 6.96, 7.27, 7.33, 7.55)),
        ("table 1", SHIFT_O, TINY_MODELS, (17.43, 19.32, 20.35, 20.29, 19.18)),
        ("table 7", SHIFT_A, BASE_MODELS, (24.03, 24.97)),
        ("table 7", SHIFT_O, BASE_MODELS, (23.96, 26.01)),
        ("table 9", SHIFT_R, FAN_MODELS, (41.79, 42.02)),
        ("table 9", SHIFT_A, FAN_MODELS, (13.40, 13.55)),
        ("table 14", SHIFT_R, ASYMMETRIC, (32.41, 32.23, 32.79)),
        ("table 14", SHIFT_A, ASYMMETRIC, (7.65, 7.75, 7.23)),
        ("table 14", SHIFT_O, ASYMMETRIC, (17.36, 17.54, 17.58)),
    )
]
TABLES += [
    (
        "table 7a",
        CLEAN._replace(
            source=PRIMAL, metrics=("top1",), note="runs and preparation of the images not stated"
        ),
        {"DeiT-Small/16": (79.8,), "Primal.+DeiT-Small/16": (79.8,)},
    ),
    (
        "table 6",
        CLEAN._replace(source=DUAL, note="preparation of the images not stated; no code was released"),
        {"Baseline Softmax Deit": (72.23, 91.13), "Attention-Conv2D Deit": (73.18, 91.52)},
    ),
]
# Alias of the same accuracy.
TABLES += [
    (table, attacked._replace(name="top1"), rows)
    for table, attacked, rows in TABLES
    if attacked.name == "clean"
]
# Rounded to two digits.
TABLES += [
    (
        "results-imagenet-a.csv",
        SHIFT_A._replace(source=TIMM),
        {"deit_base_patch16_224": (27.17,), "deit_small_patch16_224": (18.72,)},
    ),
    (
        "results-imagenet-r.csv",
        SHIFT_R._replace(source=TIMM),
        {
            "deit_base_patch16_224": (44.91,),
            "deit_small_patch16_224": (42.27,),
            "deit_tiny_patch16_224": (32.71,),
        },
    ),
]


def imagenet(row: MeasuredRow) -> list[Reference]:
    """Accuracy of classifiers of ImageNet and its natural shifts."""
    return image_references(TABLES, MODELS, row)


def ade20k(row: MeasuredRow) -> list[Reference]:
    """Mean accuracy and intersection over union of Segmenter."""
    model, evaluation, params = row.model, row.evaluation["name"], row.evaluation["params"]
    if row.known_as != ADE20K or model["name"] != "segmenter" or evaluation not in WHOLE_IMAGES:
        return []
    if any(params.get(name) != value for name, value in WINDOWS.items()):
        return []
    tables = [("", SEGMENTED, SEGMENTED_NOTE)]
    if evaluation != "sliding_window" and _same_cells(params, row.defaults):
        tables.append(("corrupted_", SEGMENTED_CORRUPTED, f"{SEGMENTED_NOTE}; {CORRUPTED_NOTE}"))
    facts, found = architecture(model["params"]["backbone"]), []
    for prefix, table, note in tables:
        for name, values in table.items():
            size = {"image_size": MODELS[name].facts["image_size"]}
            if facts and same_model(MODELS[name].facts, facts | size):
                source = f"{PAPER}, table 6, {name}; {note}"
                found += [
                    Reference(
                        metric=metric, value=round(percent / 100, 6), source=source, protocol=row.protocol
                    )
                    for metric, percent in zip(
                        (f"{prefix}mean_accuracy", f"{prefix}miou"), values, strict=True
                    )
                ]
    return found


def _same_cells(params: Params, defaults: Params) -> bool:
    same = all(set(params[name]) == set(defaults[name]) for name in ("corruptions", "severities"))
    return same and params.get("constants") == defaults.get("constants")
