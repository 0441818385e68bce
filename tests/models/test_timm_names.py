from __future__ import annotations

import pytest
import timm
import torch

from assay.models import timm_names

NAMES = (
    "symvit_tiny_patch16_224",
    "symvit_base_patch16_224",
    "rpc_symvit_tiny_patch16_224",
    "rpc_symvit_base_patch16_224",
    "rpc_asymvit_tiny_patch16_224",
    "rpc_asymvit_base_patch16_224",
)


def test_every_name_is_registered() -> None:
    assert set(NAMES) <= set(timm.list_models())


def test_the_module_offers_no_components() -> None:
    assert not hasattr(timm_names, "__all__")


@pytest.mark.parametrize("name", NAMES)
def test_parameter_counts(name: str) -> None:
    with torch.device("meta"):
        model = timm.create_model(name)
    symmetric, asymmetric = (5_272_744, 5_717_416) if "tiny" in name else (79_480_552, 86_567_656)
    expected = asymmetric if "asym" in name else symmetric
    assert sum(parameter.numel() for parameter in model.parameters()) == expected


@pytest.mark.costly
def test_primal_attention_is_in_the_last_layer() -> None:
    with torch.device("meta"):
        model = timm.create_model("primal_plus_deit_small_patch16_224")
    assert sum(parameter.numel() for parameter in model.parameters()) == 22_142_696


def test_understands_timms_arguments_and_our_parameters() -> None:
    model = timm.create_model(
        "rpc_symvit_tiny_patch16_224",
        num_classes=10,
        in_chans=1,
        img_size=32,
        patch_size=8,
        depth=3,
        drop_rate=0.3,
        drop_path_rate=0.2,
        iterations=6,
        rpc_layers="all",
    ).eval()
    assert model(torch.zeros(2, 1, 32, 32)).shape == (2, 10)
    assert [block.attn.iterations for block in model.blocks] == [6, 6, 6]
    assert model.blocks[2].drop_path.rate == pytest.approx(0.2)
    assert model.pos_drop.p == 0.3


def test_states_its_preprocessing() -> None:
    with torch.device("meta"):
        config = timm.data.resolve_data_config(model=timm.create_model("symvit_base_patch16_224"))
    assert config["input_size"] == (3, 224, 224)
    assert config["mean"] == (0.485, 0.456, 0.406)
    assert config["interpolation"] == "bicubic"


def test_pretrained_weights_are_refused() -> None:
    with pytest.raises(ValueError, match="symvit_tiny_patch16_224 has no pretrained weights"):
        timm.create_model("symvit_tiny_patch16_224", pretrained=True)


def test_images_must_be_square() -> None:
    with pytest.raises(ValueError, match="img_size must be square"):
        timm.create_model("symvit_tiny_patch16_224", img_size=(32, 64))


def test_misspelt_parameters_are_refused() -> None:
    with pytest.raises(TypeError, match="iteration"):
        timm.create_model("rpc_symvit_tiny_patch16_224", iteration=2)
