"""Published numbers stand next to the measured ones of the same thing, and next to nothing else."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from timm.data import ImageNetInfo

from assay.attacks.corruptions.imaging.imagenet_c import FIFTEEN
from assay.service.catalog.catalog import load
from assay.service.contract.results import Reference
from assay.service.store.store import Store
from assay.workers import published
from assay.workers.data.formats.images.imagenet_classes import class_list
from assay.workers.jobs import merge
from assay.workers.jobs.data_facts import facts_of
from assay.workers.published.corruptions import ALEXNET_ERRORS, CORRUPTION_TABLES, WHOLE
from assay.workers.published.imagenet import (
    MODELS,
    SEGMENTED,
    SEGMENTED_CORRUPTED,
    TABLES,
    WINDOWS,
)
from assay.workers.published.match import (
    ADE20K,
    IMAGENET,
    MeasuredRow,
    Preparation,
    PublishedEvaluation,
    architecture,
    known_as,
    known_corrupted_as,
    publications,
    references,
    stated,
)
from tests.support.jobs import add, evaluate_spec
from tests.support.outcomes import rows

TINY = {"image_size": 224, "patch_size": 16, "drop_path": 0.1}
RPC = {
    "rpc_layers": "first",
    "iterations": 4,
    "regularization": 4.0,
    "threshold": "code",
    "mu_width": "full",
    "dual_sign": -1,
}
ALL = RPC | {"rpc_layers": "all", "iterations": 2, "regularization": 3.0}
SOFTMAX = {
    "attention": {"name": "softmax", "params": {}},
    "layers": "all",
    "width": 192,
    "depth": 12,
    "heads": 3,
}
PRIMAL = {"rank": 96, "rank_multi": 10, "projection": "data_dependent", "r_scores": True, "eta": 0.05}
KSVD = {"ksvd_form": "code", "ksvd_reduction": "batch", "ksvd_trace": "parameters"}
ANYWHERE = {"attention": {"name": "softmax", "params": {"dropout": 0.0}}, "layers": "all"}
CONV2D = {"attention": {"name": "conv2d_attention", "params": {"size": 2, "dropout": 0.0}}, "layers": "all"}
SPECS = {
    "SymViT": ("symvit_tiny", TINY),
    "RPC-SymViT (4iter/layer1)": ("rpc_symvit_tiny", TINY | RPC),
    "RPC-SymViT (5iter/layer1)": ("rpc_symvit_tiny", TINY | RPC | {"iterations": 5}),
    "RPC-SymViT (6iter/layer1)": ("rpc_symvit_tiny", TINY | RPC | {"iterations": 6, "rpc_layers": [0]}),
    "RPC-SymViT (2iter/all-layer)": ("rpc_symvit_tiny", TINY | ALL),
    "SymViT-base": ("symvit_base", TINY),
    "RPC-SymViT-base (2iter/all-layer)": ("rpc_symvit_base", TINY | ALL | {"regularization": 4.0}),
    "ViT": ("vit", TINY | SOFTMAX | {"mlp_ratio": 4.0, "dropout": 0.0}),
    "RPC-AsymViT (4iter/layer1)": ("rpc_asymvit_tiny", TINY | RPC | {"rpc_form": "rpc_asymmetric"}),
    "RPC-AsymViT (Sym/Asym)": ("rpc_asymvit_tiny", TINY | RPC | {"rpc_form": "rpc"}),
    "FAN-tiny": ("fan_vit_tiny", TINY | {"attention": {"name": "symmetric", "params": {"dropout": 0.0}}}),
    "RPC-FAN-tiny (4iter/layer1)": ("rpc_fan_vit_tiny", TINY | RPC),
    "DeiT-Small/16": ("deit_small", TINY | ANYWHERE),
    "Primal.+DeiT-Small/16": ("primal_plus_deit_small", TINY | PRIMAL | KSVD),
    "Baseline Softmax Deit": ("deit_tiny_4heads", TINY | ANYWHERE),
    "Attention-Conv2D Deit": ("deit_tiny_4heads", TINY | CONV2D),
    **{
        f"deit_{size}_patch16_224": (
            "timm",
            {"architecture": f"deit_{size}_patch16_224", "tag": None, "image_size": None},
        )
        for size in ("tiny", "small", "base")
    },
}
TOP1_DEFAULTS = {"ece_bins": 15, "rms_bin_size": 100, "rms_bins": "released"}
PGD = {
    "epsilon": "6/255",
    "norm": "Linf",
    "steps": 20,
    "step_size": None,
    "relative_step_size": 0.15,
    "random_start": True,
    "restarts": 1,
    "backend": "cleverhans",
}
DEFAULTS = {"epsilon": 1 / 255, "random_start": True, "restarts": 1} | TOP1_DEFAULTS


def found(
    model: tuple[str, dict[str, Any]] = SPECS["SymViT"],
    evaluation: tuple[str, dict[str, Any]] = ("pgd", PGD),
    *,
    data: dict[str, Any] | None = None,
    protocol: str = "paper",
    known: str | None = IMAGENET,
    defaults: dict[str, Any] | None = None,
) -> list[Reference]:
    prepared = {"folder": "imagenet", "splits": "auto", "resize": "bicubic", "crop_fraction": 0.875}
    weights = {"timm": True} if model[0] == "timm" else None
    return references(
        MeasuredRow(
            {"name": model[0], "params": model[1], "weights": weights},
            {"name": "image_folder", "params": prepared | (data or {})},
            {"name": evaluation[0], "params": evaluation[1]},
            protocol=protocol,
            known_as=known,
            defaults=defaults or DEFAULTS,
        )
    )


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("table", "attacked", "model", "values"),
    [(t, a, m, v) for t, a, columns in TABLES for m, v in columns.items()],
    ids=lambda value: value.name if isinstance(value, PublishedEvaluation) else str(value),
)
def test_every_cell_of_the_tables_is_found_by_its_own_row_alone(
    table: str, attacked: PublishedEvaluation, model: str, values: tuple[float, ...]
) -> None:
    crop = MODELS[model].preparation.crop_fraction
    (protocol, *_) = attacked.protocols
    evaluation = (attacked.name, dict(attacked.params))
    rows = found(
        SPECS[model], evaluation, data={"crop_fraction": crop}, protocol=protocol, known=attacked.data
    )
    assert tuple(row.metric for row in rows) == attacked.metrics
    assert [100 * row.value for row in rows] == [pytest.approx(value) for value in values]
    assert all(table in row.source and model in row.source for row in rows)
    assert rows[0].protocol == ("not stated" if attacked.name == "autoattack" else "paper")


@pytest.mark.parametrize(
    ("model", "changed"),
    [
        ("Primal.+DeiT-Small/16", {"rank": 48}),
        ("Primal.+DeiT-Small/16", {"rank_multi": 5}),
        ("Primal.+DeiT-Small/16", {"r_scores": False}),
        ("Primal.+DeiT-Small/16", {"projection": "data_independent"}),
        ("Primal.+DeiT-Small/16", {"image_size": 384}),
        ("Attention-Conv2D Deit", {"layers": "last"}),
        ("Attention-Conv2D Deit", {"attention": {"name": "conv2d_attention", "params": {"size": 3}}}),
        ("Baseline Softmax Deit", {"attention": {"name": "attention_bn", "params": {"beta": 1.0}}}),
    ],
)
def test_other_parameters_than_the_published_have_no_numbers(model: str, changed: dict[str, Any]) -> None:
    name, params = SPECS[model]
    evaluation = ("top1", TOP1_DEFAULTS)
    assert found((name, params), evaluation)
    assert found((name, params | changed), evaluation) == []


def test_primal_attention_matches_by_what_it_is_and_not_by_its_name_or_training() -> None:
    sizes = {"width": 384, "depth": 12, "heads": 6, "mlp_ratio": 4.0}
    params = TINY | PRIMAL | KSVD | sizes | {"rank": 32, "eta": 0.2}
    evaluation = ("top1", TOP1_DEFAULTS)
    assert [row.value for row in found(("primal_vit", params | {"primal_layers": "last"}), evaluation)] == [
        0.798
    ]
    assert [row.value for row in found(("primal_vit", params | {"primal_layers": [11]}), evaluation)] == [
        0.798
    ]
    assert found(("primal_vit", params | {"primal_layers": "all"}), evaluation) == []
    assert found(("primal_deit_small", TINY | PRIMAL | KSVD), evaluation) == []


def test_the_tables_are_whole() -> None:
    cells = {(table, attacked.name, attacked.data): len(columns) for table, attacked, columns in TABLES}
    second = {"pgd", "fgsm", "spsa", "sparse_l1_descent", "carlini_wagner", "uniform_noise", "autoattack"}
    assert {name for table, name, _ in cells if table == "table 2"} == second
    papers = 8 * 5 + 6 * 2 + 3 + 2 * 2
    shifts = 3 * 5 + 4 * 2 + 3 * 3
    again = 5 + 2 * 2 + 3 + 2 * 2  # clean accuracy by the name of top1
    timms = 2 + 3
    assert sum(cells.values()) == papers + shifts + again + timms
    assert {name for _, _, columns in TABLES for name in columns} == set(MODELS) == set(SPECS)
    assert MODELS["FAN-tiny"].preparation == Preparation("bicubic", 1.0)


@pytest.mark.parametrize(
    "changes",
    [
        {"epsilon": "5/255"},
        {"steps": 40},
        {"relative_step_size": 0.25},
        {"step_size": 0.01},
        {"restarts": 2},
        {"random_start": False},
        {"norm": "L2"},
    ],
)
def test_another_parameter_is_another_evaluation(changes: dict[str, Any]) -> None:
    assert found()
    assert not found(evaluation=("pgd", PGD | changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"iterations": 3},
        {"regularization": 3.0},
        {"threshold": "paper"},
        {"mu_width": "head"},
        {"dual_sign": 1},
        {"image_size": 256},
        {"patch_size": 8},
        {"rpc_layers": "last"},
    ],
)
def test_another_architecture_has_no_published_number(changes: dict[str, Any]) -> None:
    name, params = SPECS["RPC-SymViT (4iter/layer1)"]
    assert found((name, params))
    assert found((name, params | {"drop_path": 0.0}))
    assert not found((name, params | changes))
    assert not found(("linear", {}))


def test_a_fact_allows_the_values_that_its_file_lists_as_any() -> None:
    models = stated("imagenet.json")["models"]
    assert models["Primal.+DeiT-Small/16"]["rank"] == (32, 64, 96)
    assert models["FAN-tiny"]["preparation"] == ["bicubic", 1.0]


def symmetric(**params: Any) -> dict[str, Any]:
    return {"attention": {"name": "symmetric", "params": params}}


FREE = {"layers": "all", "width": 192, "depth": 12, "mlp_ratio": 4.0, "dropout": 0.1}
RPC_FREE = {"width": 192, "depth": 12, "heads": 4, "mlp_ratio": 4.0, "attention_dropout": 0.1}


@pytest.mark.parametrize(
    ("model", "same"),
    [
        (("fan_vit", TINY | FREE | {"heads": 4} | symmetric()), "FAN-tiny"),
        (("rpc_fan_vit", TINY | RPC | RPC_FREE), "RPC-FAN-tiny (4iter/layer1)"),
        (("vit", TINY | FREE | {"heads": 3} | symmetric(dropout=0.1)), "SymViT"),
        (("vit", TINY | FREE | {"heads": 3} | symmetric() | {"layers": "first"}), None),
        (("vit", TINY | FREE | {"heads": 4} | symmetric()), None),
        (
            ("vit", TINY | FREE | {"heads": 3, "attention": {"name": "softmax", "params": {"dropout": 0.1}}}),
            "ViT",
        ),
        (("fan_vit_tiny", TINY | {"attention": {"name": "softmax", "params": {}}}), None),
        (("fan_vit_small", TINY | symmetric()), None),
    ],
)
def test_a_model_whose_sizes_are_written_out_is_the_same_model(
    model: tuple[str, dict[str, Any]], same: str | None
) -> None:
    crop = {"crop_fraction": 1.0 if "fan" in model[0] else 0.875}
    references = found(model, ("clean", {}), data=crop)
    assert references == (found(SPECS[same], ("clean", {}), data=crop) if same else [])
    assert bool(references) == bool(same)


def test_an_attack_has_references_under_its_own_protocol_only() -> None:
    assert not found(protocol="pixel")
    ensemble = ("autoattack", {"epsilon": "1/255", "norm": "Linf", "version": "standard"})
    assert found(evaluation=ensemble, protocol="pixel")
    assert not found(evaluation=ensemble, protocol="paper")
    clean = [found(evaluation=("clean", {}), protocol=protocol) for protocol in ("paper", "pixel")]
    assert [[(r.metric, r.value, r.protocol) for r in rs] for rs in clean] == [
        [("top1", 0.7044, protocol), ("top5", 0.9017, protocol)] for protocol in ("paper", "pixel")
    ]


@pytest.mark.parametrize("data", [{"resize": "bilinear"}, {"crop_fraction": 1.0}])
def test_images_prepared_otherwise_are_other_data(data: dict[str, Any]) -> None:
    assert not found(data=data)


class Examples:
    """As much of a data set as is needed."""

    task = "classification"

    def __init__(self, class_names: list[str], n: int) -> None:
        self.class_names, self.classes, self.ids = class_names, len(class_names), range(n)
        self.labels = range(self.classes)


def test_a_shift_has_the_numbers_of_its_own_set_only() -> None:
    model = SPECS["RPC-SymViT (4iter/layer1)"]
    values = {
        known: [row.value for row in found(model, ("top1", TOP1_DEFAULTS), known=known)]
        for known in ("imagenet", "imagenet_a", "imagenet_r", "imagenet_o", None)
    }
    assert values == {
        "imagenet": [0.7094, 0.9047],
        "imagenet_a": [0.0696],
        "imagenet_r": [0.2999],
        "imagenet_o": [],
        None: [],
    }
    assert [row.value for row in found(model, ("aupr", {}), known="imagenet_o")] == [0.1932]
    assert not found(model, ("top1", TOP1_DEFAULTS | {"x": 1}), known="imagenet_a")


@pytest.mark.parametrize(
    ("table", "attacked", "model", "values"),
    [(t, a, m, v) for t, a, columns in CORRUPTION_TABLES for m, v in columns.items()],
    ids=lambda value: str(value.data) if isinstance(value, PublishedEvaluation) else str(value),
)
def test_corrupted_images_have_the_numbers_of_the_stored_set_and_say_so(
    table: str, attacked: PublishedEvaluation, model: str, values: tuple[float, ...]
) -> None:
    defaults = load_defaults("corruptions", "evaluation")
    stored = attacked.data == "imagenet_c"
    evaluation = ("corruptions", {**defaults, **attacked.params})
    kinds = {"known": attacked.data, "protocol": "pixel", "defaults": defaults}
    rows = [row for row in found(SPECS[model], evaluation, **kinds) if table in row.source]
    assert tuple(row.metric for row in rows) == attacked.metrics
    assert [100 * row.value for row in rows] == [pytest.approx(value) for value in values]
    assert {row.protocol for row in rows} == {"stored ImageNet-C"}
    assert all(("another test set than this row's" in row.source) is not stored for row in rows)
    other = {"source": "generated" if stored else "stored"}
    for changed in (other, {"severities": [5]}, {"corruptions": ["fog"]}):
        assert not found(SPECS[model], (evaluation[0], evaluation[1] | changed), **kinds)


def test_the_accuracies_under_each_corruption_come_to_the_published_mean() -> None:
    (_, first, whole), _, (_, third, by_corruption), *_ = CORRUPTION_TABLES
    assert (first.metrics, len(third.metrics)) == (WHOLE, 15)
    for model, each in by_corruption.items():
        accuracy, mce = whole[model]
        assert sum(each) / 15 == pytest.approx(accuracy, abs=0.011)
        relative = [(100 - value) / ALEXNET_ERRORS[name] for name, value in zip(FIFTEEN, each, strict=True)]
        # Three of the paper's cells contradict each other by up to 0.22, which is 0.015 of the mean.
        assert sum(relative) / 15 == pytest.approx(mce, abs=0.03)


def test_a_whole_stored_set_is_known_and_is_not_imagenet() -> None:
    every = class_list("imagenet")
    assert known_corrupted_as(every, 50_000) == "imagenet_c"
    assert known_corrupted_as(every, 49_999) is None
    assert known_corrupted_as(every[:-1], 50_000) is None


def test_timms_numbers_are_those_of_its_own_weights() -> None:
    name, params = SPECS["deit_small_patch16_224"]
    data = {"crop_fraction": 0.9}
    (reference,) = found((name, params), ("top1", {}), known="imagenet_a", data=data)
    assert (reference.value, "timm" in reference.source) == (0.1872, True)
    assert found((name, params | {"tag": "fb_in1k"}), ("top1", {}), known="imagenet_a", data=data)
    for other in ({"architecture": "deit3_small_patch16_224"}, {"tag": "another"}, {"image_size": 384}):
        assert not found((name, params | other), ("top1", {}), known="imagenet_a", data=data)
    weights = {"name": name, "params": params, "weights": {"checkpoint": "mine"}}
    assert architecture(weights) == {}


def test_sets_are_known_by_classes_length_and_the_models_classes() -> None:
    every = class_list("imagenet")
    for name, size in (("imagenet_a", 7500), ("imagenet_r", 30_000), ("imagenet_o", 12_000)):
        assert known_as(class_list(name), size, every) == name
        assert known_as(class_list(name), size - 1, every) is None
        assert known_as(class_list(name), size) is None  # a model of 200 classes is another model


def test_imagenet_is_known_by_its_classes_and_its_length() -> None:
    classes = ImageNetInfo("imagenet-1k").label_names()
    assert known_as(classes, 50_000) == IMAGENET
    assert known_as(classes, 49_999) is None
    assert known_as(classes[::-1], 50_000) is None
    assert facts_of(Examples(classes, 50_000), 1000) == {  # type: ignore[arg-type]
        "n": 1000, "available": 50_000, "classes": 1000, "known_as": IMAGENET,
    }  # fmt: skip


def test_digits_get_none_and_imagenet_gets_its_own(store: Store) -> None:
    spec = evaluate_spec()
    item = {"name": "pgd", "params": load_defaults("pgd") | {"epsilon": "6/255"}, "data": None}
    model = {"name": "symvit_tiny", "params": TINY, "weights": None}
    spec |= {"evaluations": [item], "protocol": "paper", "model": model}
    job = store.jobs.get(add(store, spec))
    facts = {"batch_size": 4, "untrained": False, "weights_sha256": "w", "data_sha256": {"digits": "d"}}
    measured = {"n": 4, "available": 4, "classes": 10}
    outcomes = rows(1)

    def merged(planned: dict[str, Any], data: dict[str, Any]) -> list[Reference]:
        planned_job = replace(job, plan=facts | {"evaluations": [planned]}, spec=job.spec | {"data": data})
        return merge.merge_evaluation(planned_job, 0, outcomes).result.reference

    folder = {"name": "image_folder", "params": load_defaults("image_folder", "data") | {"folder": "i"}}
    assert merged(measured, {"name": "digits", "params": {}}) == []
    assert merged(measured, folder) == []
    (top1, top5) = merged(measured | {"known_as": IMAGENET}, folder)
    assert (top1.value, top5.value) == (0.0498, 0.1041)


def load_defaults(name: str, kind: str = "attack") -> dict[str, Any]:
    properties = load().find(kind, name).parameters["properties"]
    return {key: schema.get("default") for key, schema in properties.items()}


def segmented(
    backbone: tuple[str, dict[str, Any]], evaluation: str = "sliding_window", **changes: Any
) -> Any:
    properties = load().find("evaluation", evaluation).parameters["properties"]
    defaults = {key: part.get("default") for key, part in properties.items()}
    inner = {"name": backbone[0], "params": backbone[1]}
    return references(
        MeasuredRow(
            {"name": "segmenter", "params": {"backbone": inner, "decoder": "mask_transformer"}},
            {"name": "ade20k", "params": {"folder": "ade20k"}},
            {"name": evaluation, "params": defaults | changes},
            protocol="pixel",
            known_as=ADE20K,
            defaults=defaults,
        )
    )


@pytest.mark.parametrize("name", SEGMENTED)
def test_segmenter_on_ade20k_with_the_published_backbones(name: str) -> None:
    model, params = SPECS[name]
    for size in (224, 512):
        accuracy, miou = segmented((model, params | {"image_size": size}))
        assert (accuracy.metric, miou.metric) == ("mean_accuracy", "miou")
        assert (100 * accuracy.value, 100 * miou.value) == pytest.approx(SEGMENTED[name])
        assert "table 6" in miou.source
        assert f"{name};" in miou.source


@pytest.mark.parametrize("name", SEGMENTED_CORRUPTED)
def test_segmenter_on_corrupted_ade20k_with_the_published_backbones(name: str) -> None:
    backbone = SPECS[name]
    found = segmented(backbone, "sliding_window_corruptions")
    assert [reference.metric for reference in found] == [
        "mean_accuracy", "miou", "corrupted_mean_accuracy", "corrupted_miou"
    ]  # fmt: skip
    published = (*SEGMENTED[name], *SEGMENTED_CORRUPTED[name])
    assert [100 * reference.value for reference in found] == pytest.approx(published)
    assert ["severities" in reference.source for reference in found] == [False, False, True, True]
    # Other corruptions or severities have other means; the images as they are stay what they are.
    for other in ({"severities": [3]}, {"corruptions": ["fog"]}):
        few = segmented(backbone, "sliding_window_corruptions", **other)
        assert few == found[:2]
    backwards = segmented(backbone, "sliding_window_corruptions", severities=[5, 4, 3, 2, 1])
    assert backwards == found
    assert not segmented(backbone, "sliding_window_corruptions", window=256)
    assert not segmented(backbone, "corruptions")


def test_segmenter_has_no_references_elsewhere() -> None:
    assert not segmented(SPECS["ViT"])
    assert not segmented(SPECS["FAN-tiny"])
    assert not segmented(SPECS["SymViT"], stride=256)
    assert not segmented(SPECS["SymViT"], average="probabilities")
    assert not segmented(SPECS["SymViT"], evaluation="clean")
    assert not segmented((SPECS["SymViT"][0], SPECS["SymViT"][1] | {"patch_size": 32}))
    assert known_as(["wall", "sky"], 2000) is None
    parameters = load().find("evaluation", "sliding_window").parameters["properties"]
    assert {key: part["default"] for key, part in parameters.items()} == WINDOWS


PAPER_OF_A_TEST = """
from assay.service.contract.results import Reference

__all__ = ["digits_of_a_paper"]


def digits_of_a_paper(row):
    if row.known_as != "well_known_digits":
        return []
    return [Reference(metric="top1", value=0.97, source="A paper, table 1", protocol=row.protocol)]
"""


def test_a_new_file_of_the_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a_new_paper.py").write_text(PAPER_OF_A_TEST)
    monkeypatch.setattr(published, "__path__", [*published.__path__, str(tmp_path)])
    publications.cache_clear()
    try:
        assert [row.source for row in found(known="well_known_digits")] == ["A paper, table 1"]
        assert all("A paper" not in row.source for row in found())
    finally:
        publications.cache_clear()
        sys.modules.pop("assay.workers.published.a_new_paper")
