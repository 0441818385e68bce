"""Jobs on pulled weights: the library's own logits, pinned content, and the fit to the data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import timm as library
import torch
from PIL import Image

from assay.service.contract.errors import WeightsUnavailable
from assay.workers.jobs import provenance
from assay.workers.jobs.failures import BadWeights
from assay.workers.jobs.session import Session
from assay.workers.weights.pulled import PulledWeights
from tests.support.pulled import pull_tensors

CLASSES = 1000


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PulledWeights:
    """timm's tiny ResNet as if pulled, and a data root with its thousand classes."""
    root = tmp_path / "weights"
    monkeypatch.setenv("ASSAY_WEIGHTS_ROOT", str(root))
    monkeypatch.setenv("ASSAY_DATA_ROOT", str(tmp_path / "data"))
    torch.manual_seed(1)
    state = {k: v.clone() for k, v in library.create_model("test_resnet").state_dict().items()}
    return pull_tensors(root, "timm:test_resnet.r160_in1k", state, aliases=["timm:test_resnet"])


@pytest.fixture
def images(tmp_path: Path) -> None:
    for number in range(CLASSES):
        folder = tmp_path / "data" / "thousand" / "val" / f"c{number:04}"
        folder.mkdir(parents=True)
        if number == 0:
            Image.new("RGB", (8, 8)).save(folder / "0.png")
        else:
            (folder / "0.png").symlink_to(tmp_path / "data" / "thousand" / "val" / "c0000" / "0.png")


def job(sha256: str | None = None, tag: str | None = "r160_in1k", **changes: Any) -> Any:
    params = {"architecture": "test_resnet", "tag": tag, "image_size": None}
    weights = {"pulled": True, "sha256": sha256}
    data = {"folder": "thousand", "splits": "auto", "resize": "bicubic", "crop_fraction": 0.875}
    spec = {
        "kind": "evaluate",
        "seed": 0,
        "model": {"name": "timm", "params": params, "weights": weights},
        "data": {"name": "image_folder", "params": data},
        "evaluations": [],
        "execution": {"device": "cpu", "dtype": "float32", "batch_size": 2},
    }
    return spec | changes


@pytest.mark.usefixtures("images")
@pytest.mark.parametrize("tag", ["r160_in1k", None], ids=["named", "default"])
def test_logits_are_the_librarys(made: PulledWeights, tag: str | None) -> None:
    """Its own loading of the file, behind its own normalisation."""
    loaded = Session().classifier(job(made.sha256, tag), device="cpu", weights=None)
    overlay = {"file": str(made.folder / "model.safetensors")}
    theirs = library.create_model("test_resnet", pretrained=True, pretrained_cfg_overlay=overlay).eval()
    config: Any = theirs.pretrained_cfg
    mean, std = (torch.tensor(config[name]).view(3, 1, 1) for name in ("mean", "std"))
    pixels = torch.rand(2, 3, 160, 160)
    with torch.no_grad():
        assert torch.equal(loaded.classifier(pixels), theirs((pixels - mean) / std))
    assert (loaded.image_size, loaded.untrained) == (160, False)
    about = provenance.collect(loaded.device, loaded.dtype, job(made.sha256, tag))
    assert about["pulled"] == made.origin


@pytest.mark.usefixtures("images")
def test_the_older_spelling_is_the_same(made: PulledWeights) -> None:
    model = {**job()["model"], "weights": {"timm": True}}
    first = Session().classifier(job(model=model), device="cpu", weights=None)
    assert first.weights_sha256 == Session().classifier(job(), device="cpu", weights=None).weights_sha256


@pytest.mark.usefixtures("images")
def test_only_the_content_of_the_spec_will_do(made: PulledWeights) -> None:
    with pytest.raises(WeightsUnavailable, match=f"have the content {made.sha256}, the spec names"):
        Session().classifier(job("0" * 64), device="cpu", weights=None)
    (made.folder / "pulled.json").unlink()
    with pytest.raises(WeightsUnavailable, match=r"Run: assay pull timm:test_resnet\.r160_in1k$"):
        Session().classifier(job(made.sha256), device="cpu", weights=None)


def test_data_of_other_classes_are_refused(made: PulledWeights) -> None:
    digits = {"name": "digits", "params": {}}
    with pytest.raises(BadWeights, match="are for 1000 classes, the data set 'digits' has 10"):
        Session().classifier(job(made.sha256, data=digits), device="cpu", weights=None)
