"""ObjectNet: the best logit of ImageNet's classes that are one of its classes; no red border."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from assay.models.layers.layers import Classifier
from assay.workers.data import objectnet as module
from assay.workers.data.formats.check import list_sets
from assay.workers.data.formats.dataset import CorruptData, DataSet, MissingData, logit_groups
from assay.workers.data.formats.images.imagenet_classes import class_list
from assay.workers.data.objectnet import objectnet
from assay.workers.weights.fit import restricted
from tests.support.imagenet_trees import change, write_classes

# The order of the lists is not that of the logits: line i is logit (i + 1) * 3 modulo 1000.
LINES = {str((line + 1) * 3 % 1000): line for line in range(1000)}
IMAGENET = [f"thing {line}, object" for line in range(1000)]
FOLDERS = [f"object_{number:03d}" for number in range(115)]
LABELS = {name: name.replace("_", " ").capitalize() for name in FOLDERS}
# The last two are not ImageNet's. The first is three of its classes, the second two, the others one each.
OF_LABEL = {LABELS[name]: IMAGENET[number + 10] for number, name in enumerate(FOLDERS[:113])}
OF_LABEL["Object 000"] = f"{IMAGENET[10]}; {IMAGENET[500]}; {IMAGENET[3]}"
OF_LABEL["Object 001"] = f"{IMAGENET[11]}; {IMAGENET[400]}"


def write(root: Path, folders: list[str] = FOLDERS) -> Path:
    folder = root / "objectnet-1.0"
    write_classes(folder / "images", folders)
    lists: dict[str, Any] = {
        "folder_to_objectnet_label.json": LABELS,
        "objectnet_to_imagenet_1k.json": dict(reversed(OF_LABEL.items())),
        "pytorch_to_imagenet_2012_id.json": LINES,
    }
    (folder / "mappings").mkdir()
    for name, content in lists.items():
        (folder / "mappings" / name).write_text(json.dumps(content))
    (folder / "mappings" / "imagenet_to_label_2012_v2").write_text("\n".join(IMAGENET) + "\n")
    return folder


def law_case(root: Path, monkeypatch: pytest.MonkeyPatch, changed: str) -> Callable[[str], DataSet]:
    """For tests/laws: one image for each class, two for the first; the changed pixel is within the border."""
    del monkeypatch
    change(write(root) / "images", changed)
    return lambda split: objectnet(root, "train" if split == "train" else "test", border=0)


def test_classes_are_the_113_of_imagenet_and_their_logits_come_from_the_lists(tmp_path: Path) -> None:
    write(tmp_path)
    data = objectnet(tmp_path, "test")
    assert (data.name, data.classes, len(data)) == ("objectnet", 113, 114)
    assert data.published == module.FACTS["test"] == 18_574
    assert data.class_names[:2] == ("Object 000", "Object 001")
    assert data.model_class_names == class_list("imagenet")
    assert data.labels.tolist() == [0, *range(113)]
    assert not any(identifier.startswith(("object_113", "object_114")) for identifier in data.ids)
    groups = logit_groups(data)
    assert groups is not None
    assert groups[:3] == [[12, 33, 503], [36, 203], [39]]
    assert all(group == [(number + 11) * 3 % 1000] for number, group in enumerate(groups[2:], 2))


def test_the_largest_logit_of_a_class_counts() -> None:
    class Given(nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return images.flatten(1)

    whole = Classifier(Given(), [0.0], [1.0])
    groups = [[5], [0, 3, 4], [2, 1]]
    logits = torch.randn(64, 1, 1, 6, generator=torch.Generator().manual_seed(0), requires_grad=True)
    found = restricted(whole, groups)(logits)
    expected = torch.stack([logits.flatten(1)[:, group].amax(1) for group in groups], 1)
    assert torch.equal(found, expected)
    weights = torch.randn(64, 3, generator=torch.Generator().manual_seed(1))
    (gradient,) = torch.autograd.grad((found * weights).sum(), logits)
    (wanted,) = torch.autograd.grad((expected * weights).sum(), logits)
    assert torch.equal(gradient, wanted)
    assert restricted(whole, groups)(-1e30 * torch.ones(2, 1, 1, 6)).isfinite().all()


def test_the_border_is_cut_before_anything_else(tmp_path: Path) -> None:
    folder = write(tmp_path)
    image = folder / "images" / "object_005" / "object_005_0.png"
    image.unlink()
    pixels = np.zeros((20, 30, 3), dtype=np.uint8)
    pixels[:, :, 0] = 255
    pixels[2:-2, 2:-2] = (0, 128, 0)
    Image.fromarray(pixels).save(image)
    data = objectnet(tmp_path, "test", crop_fraction=1.0)
    index = list(data.ids).index("object_005/object_005_0.png")
    assert data.images([index], 16)[:, 0].max() == 0
    assert data.picture(index).size == (26, 16)
    assert objectnet(tmp_path, "test", border=1).picture(index).size == (28, 18)
    Image.fromarray(pixels[:4]).save(image)
    with pytest.raises(CorruptData, match="30 x 4 pixels: nothing is left within the border"):
        objectnet(tmp_path, "test").images([index], 16)


def test_the_hash_knows_the_logits(tmp_path: Path) -> None:
    folder = write(tmp_path)
    before = objectnet(tmp_path, "test").content_sha256()
    changed = OF_LABEL | {"Object 001": IMAGENET[11]}
    (folder / "mappings" / "objectnet_to_imagenet_1k.json").write_text(json.dumps(changed))
    assert objectnet(tmp_path, "test").content_sha256() != before


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("pytorch_to_imagenet_2012_id.json", {**LINES, "0": 1000}, "a line from 0 to 999"),
        ("pytorch_to_imagenet_2012_id.json", [1], "is not an object of names"),
        ("folder_to_objectnet_label.json", {**LABELS, "object_000": 3}, "does not give each name a text"),
        ("folder_to_objectnet_label.json", {**LABELS, "object_000": "Other"}, "in folder_to_.*: Object 000"),
        ("objectnet_to_imagenet_1k.json", {"Object 000": IMAGENET[0]}, "1 labels of .*, which has 113"),
        ("objectnet_to_imagenet_1k.json", {**OF_LABEL, "Object 003": "a yak"}, "does not have 'a yak' once"),
    ],
)
def test_lists_that_are_not_the_archives_are_refused(
    tmp_path: Path, name: str, content: Any, words: str
) -> None:
    (write(tmp_path) / "mappings" / name).write_text(json.dumps(content))
    with pytest.raises(CorruptData, match=words):
        objectnet(tmp_path, "test")


def test_lines_that_are_missing_or_no_json_are_refused(tmp_path: Path) -> None:
    mappings = write(tmp_path) / "mappings"
    (mappings / "imagenet_to_label_2012_v2").write_text("\n".join(IMAGENET[:-1]))
    with pytest.raises(CorruptData, match="has 999 lines"):
        objectnet(tmp_path, "test")
    (mappings / "objectnet_to_imagenet_1k.json").write_text("{")
    with pytest.raises(CorruptData, match="is not JSON"):
        objectnet(tmp_path, "test")
    (mappings / "objectnet_to_imagenet_1k.json").write_bytes(b"\xff")
    with pytest.raises(CorruptData, match="is not UTF-8"):
        objectnet(tmp_path, "test")
    (mappings / "folder_to_objectnet_label.json").unlink()
    with pytest.raises(MissingData, match=r"folder_to_objectnet_label.json is wanted"):
        objectnet(tmp_path, "test")


def test_missing_and_surplus_folders_are_listed(tmp_path: Path) -> None:
    write(tmp_path, [*FOLDERS[1:], "else"])
    with pytest.raises(MissingData, match=r"1 missing \(object_000\); 1 unexpected \(else\)"):
        objectnet(tmp_path, "test")
    (tmp_path / "objectnet-1.0" / "images" / "object_000").mkdir()
    with pytest.raises(CorruptData, match=r"1 unexpected \(else\)"):
        objectnet(tmp_path, "test")
    (tmp_path / "objectnet-1.0" / "images" / "else").rename(tmp_path / "else")
    with pytest.raises(MissingData, match="'Object 000' has no image"):
        objectnet(tmp_path, "test")


def test_there_is_nothing_to_train_on(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match="ObjectNet is a test set"):
        objectnet(tmp_path, "train")
    (tmp_path / "objectnet-1.0").mkdir()
    with pytest.raises(MissingData, match="mappings"):
        objectnet(tmp_path, "test")


def test_it_is_recognised_by_its_lists(tmp_path: Path) -> None:
    write(tmp_path)
    reports = {report.folder: report for report in list_sets(tmp_path, hashes=False) if report.folder}
    assert reports["objectnet-1.0"].name == "objectnet"
    assert reports["objectnet-1.0"].splits[1].examples == 114
