"""Jobs on test sets with 200 of a model's 1000 classes, from the plan to the columns of their shards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from assay.service.catalog.catalog import load
from assay.service.submission.validate import validate
from assay.workers.data.formats.dataset import logit_groups
from assay.workers.data.imagenet_a import imagenet_a
from assay.workers.data.objectnet import objectnet
from assay.workers.jobs import evaluate, plan
from assay.workers.jobs.session import Session
from assay.workers.weights.fit import check_fit
from tests.support.imagenet_trees import write_classes, write_set
from tests.workers.data.test_objectnet import write as write_objectnet

MODEL = {
    "name": "symvit",
    "params": {"image_size": 8, "patch_size": 4, "depth": 1, "width": 8, "heads": 2},
}
TOP1 = {"name": "top1"}
AUPR = {"name": "aupr", "data": {"name": "imagenet_o"}}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_set(tmp_path, "imagenet_a")
    monkeypatch.setenv("ASSAY_DATA_ROOT", str(tmp_path))
    return tmp_path


def spec_of(
    *evaluations: dict[str, Any], data: str | dict[str, Any] = "imagenet_a", **changes: Any
) -> dict[str, Any]:
    body = {
        "kind": "evaluate",
        "model": MODEL,
        "data": {"name": data} if isinstance(data, str) else data,
        "evaluations": list(evaluations),
        "execution": {"device": "cpu", "batch_size": 64},
        **changes,
    }
    return validate(load(), body).spec


def planned(spec: dict[str, Any], session: Session, seconds: float = 1e9) -> dict[str, Any]:
    request = {"spec": spec, "weights": None, "shard_seconds": seconds}
    made: dict[str, Any] = plan.run(request, session, lambda _: None)["plan"]
    return made


def shards(spec: dict[str, Any], seconds: float = 1e9) -> list[dict[str, Any]]:
    session = Session()
    made = planned(spec, session, seconds)
    common = {"spec": spec, "plan": made, "weights": None}
    return [evaluate.run(common | shard, session, lambda _: None) for shard in made["shards"]]


def joined(outcomes: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {
        name: [value for outcome in outcomes for value in outcome["columns"][name]]
        for name in outcomes[0]["columns"]
    }


def test_the_200_logits_are_compared_and_the_softmax_is_over_them(root: Path) -> None:
    spec = spec_of(TOP1)
    (outcome,) = shards(spec)
    columns = outcome["columns"]
    data, loaded = imagenet_a(root, "test"), Session().classifier(spec, device="cpu", weights=None)
    with torch.no_grad():
        logits = loaded.classifier(data.images(range(len(data)), 8))
    assert logits.shape == (201, 1000)
    masked = logits[:, [place for (place,) in logit_groups(data) or ()]].double()
    assert columns["prediction"] == masked.argmax(1).tolist()
    assert columns["label"] == data.labels.tolist()
    assert columns["correct"] == (masked.argmax(1) == data.labels).tolist()
    expected = masked.softmax(1).amax(1)
    torch.testing.assert_close(torch.tensor(columns["confidence"], dtype=torch.float64), expected)
    ranks = (masked > masked.gather(1, data.labels[:, None])).sum(1)
    assert columns["correct5"] == (ranks < 5).tolist()


def test_several_logits_may_be_one_class(root: Path) -> None:
    write_objectnet(root)
    spec = spec_of(TOP1, {"name": "fgsm", "params": {"epsilon": "4/255"}}, data="objectnet")
    top1, fgsm = shards(spec)
    data, loaded = objectnet(root, "test"), Session().classifier(spec, device="cpu", weights=None)
    with torch.no_grad():
        logits = loaded.classifier(data.images(range(len(data)), 8)).double()
    largest = torch.stack([logits[:, group].amax(1) for group in data.logit_groups], 1)
    assert largest.shape == (114, 113)
    assert top1["columns"]["prediction"] == largest.argmax(1).tolist()
    assert top1["columns"]["correct"] == (largest.argmax(1) == data.labels).tolist()
    right = sum(top1["columns"]["correct"])
    assert sum(fgsm["columns"]["correct"]) <= right
    assert len(fgsm["columns"]["correct"]) == 114


def test_shards_add_up_to_the_whole_and_clean_agrees(root: Path) -> None:
    whole, parts = shards(spec_of(TOP1)), shards(spec_of(TOP1), 1e-9)
    assert (len(whole), len(parts)) == (1, 4)
    assert joined(parts) == joined(whole)
    clean = shards(spec_of({"name": "clean"}))[0]["columns"]
    assert "confidence" not in clean
    assert clean == {name: column for name, column in whole[0]["columns"].items() if name != "confidence"}


@pytest.mark.parametrize("protocol", ["pixel", "paper"])
def test_attacks_see_the_200_logits_only(root: Path, protocol: str) -> None:
    attack = {"name": "fgsm", "params": {"epsilon": "32/255"}}
    columns = joined(shards(spec_of(attack, protocol=protocol)))
    assert max(columns["prediction"]) < 200
    assert columns["clean_correct"] == shards(spec_of(TOP1))[0]["columns"]["correct"]


def test_anomalies_are_scored_by_the_softmax_of_200(root: Path) -> None:
    write_set(root, "imagenet_o")
    write_set(root, "imagenet", "val")
    spec = spec_of(AUPR, data="imagenet")
    whole, parts = shards(spec), shards(spec, 1e-9)
    columns = joined(whole)
    assert joined(parts) == columns
    assert len(parts) > 2
    assert sum(columns["anomaly"]) == 201
    assert set(columns) == {"id", "anomaly", "prediction", "confidence", "forward", "backward"}
    assert all(1 / 200 <= value <= 1 for value in columns["confidence"])
    assert whole[0]["extra"]["evidence"]["nonfinite"] == 0


def test_a_plan_knows_the_sets_and_what_they_lack(root: Path) -> None:
    made = planned(spec_of(TOP1, limit=50), Session())
    assert made["evaluations"] == [{"n": 50, "available": 201, "classes": 200, "published": 7500}]
    (label,) = made["data_sha256"]
    assert label == "imagenet_a(crop_fraction=0.875, folder=imagenet-a, resize=bicubic)"


def test_a_model_whose_logits_have_other_names_is_refused(root: Path) -> None:
    names = [f"{number:04d}" for number in range(1000)]
    write_classes(root / "mine" / "val", names)
    mine = {"name": "image_folder", "params": {"folder": "mine"}}
    item = {"name": "top1", "data": {"name": "imagenet_a"}}
    with pytest.raises(ValueError, match=r"calls class 0 '0000' instead of 'n01440764'; use the data set"):
        planned(spec_of(item, data=mine), Session())
    write_set(root, "imagenet", "val")
    usual = {"name": "image_folder", "params": {"folder": "imagenet"}}
    planned(spec_of(item, data=usual), Session())


def test_what_the_weights_were_trained_on_counts(root: Path) -> None:
    data = imagenet_a(root, "test")
    names = data.model_class_names
    check_fit(data, data, names, "data")
    swapped = (names[1], names[0], *names[2:])
    with pytest.raises(ValueError, match=r"data: 'imagenet_a' .* the data of its training calls class 0"):
        check_fit(data, data, swapped, "data")


def test_too_few_classes_for_autoattack_are_refused_when_the_data_are_loaded(root: Path) -> None:
    """Where the service does not see the data root: in the plan, of the evaluation's own data too."""
    pixels = torch.zeros(8, 8, 3, dtype=torch.uint8).numpy()
    for name in "abc":
        (root / "three" / "val" / name).mkdir(parents=True)
        Image.fromarray(pixels).save(root / "three" / "val" / name / "0.png")
    few = {"name": "image_folder", "params": {"folder": "three"}}
    for own in (None, few):
        spec = spec_of(TOP1, {"name": "autoattack", "data": own}, data=few)
        with pytest.raises(ValueError, match=r"evaluations\[1\].*needs at least 4 classes.*classes is 3"):
            planned(spec, Session())
    stages = {"version": "custom", "stages": ["apgd_ce", "apgd_dlr", "fab_t", "square"], "queries": 5}
    planned(spec_of({"name": "autoattack", "params": stages}, data=few), Session())
