"""A segmentation model as an exported program gives pixel by pixel what its network gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from assay.service.catalog.catalog import load
from assay.service.submission.validate import validate
from assay.workers.jobs import check, evaluate, plan
from assay.workers.jobs.failures import BadWeights
from assay.workers.jobs.session import Session
from assay.workers.weights.export import export_program

BACKBONE = {"image_size": 32, "patch_size": 8, "width": 32, "depth": 2, "heads": 2, "drop_path": 0.0}
SEGMENTER = {
    "name": "segmenter",
    "params": {"backbone": {"name": "vit", "params": BACKBONE}, "decoder": "linear"},
}
EVALUATIONS = [
    {"name": "clean"},
    {"name": "corruptions", "params": {"corruptions": ["fog"], "severities": [3]}},
    {"name": "segpgd", "params": {"epsilon": "8/255", "steps": 2}},
    {"name": "segmentation_pgd", "params": {"epsilon": "8/255", "steps": 2}},
    {"name": "segmentation_apgd", "params": {"epsilon": "8/255", "steps": 2}},
    {"name": "sea", "params": {"epsilon": "8/255", "steps": 3}},
    # Images of 48 pixels, larger than the program's 32.
    {"name": "sliding_window", "params": {"short_side": 48, "window": 32, "stride": 16}},
    {
        "name": "sliding_window_corruptions",
        "params": {"short_side": 48, "window": 32, "stride": 16, "corruptions": ["fog"], "severities": [3]},
    },
]


def spec_of(model: dict[str, Any], **changes: Any) -> dict[str, Any]:
    execution = {"device": "cpu", "batch_size": 4}
    body = {"kind": "evaluate", "data": {"name": "shapes"}, "evaluations": EVALUATIONS, "limit": 4}
    return validate(load(), {**body, "model": model, "execution": execution, **changes}).spec


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The network of the native job, whose random weights its seed gives, as a program."""
    network = Session().classifier(spec_of(SEGMENTER), device="cpu", weights=None).classifier
    path = tmp_path_factory.mktemp("program") / "segmenter.pt2"
    export_program(network, path, image_size=32, task="segmentation")
    return path


def outcomes(spec: dict[str, Any], weights: str | None) -> dict[str, dict[str, list[Any]]]:
    session = Session()
    request = {"spec": spec, "weights": weights, "shard_seconds": 1e9, "sources": {}}
    made = plan.run(request, session, lambda _: None)["plan"]
    common = {"spec": spec, "plan": made, "weights": weights}
    return {
        EVALUATIONS[shard["evaluation"]]["name"]: evaluate.run(common | shard, session, lambda _: None)[
            "columns"
        ]
        for shard in made["shards"]
    }


@pytest.mark.costly
def test_every_evaluation_of_segmentation_gives_what_the_network_gives(program: Path) -> None:
    mine = {"name": "exported", "weights": {"checkpoint": "mine"}}
    found = outcomes(spec_of(mine), str(program))
    assert list(found) == [item["name"] for item in EVALUATIONS]
    assert found == outcomes(spec_of(SEGMENTER), None)
    rights = {name: sum(map(sum, columns["intersection"])) for name, columns in found.items()}
    assert rights["segpgd"] < rights["clean"]


def test_the_check_says_what_the_program_is_for(program: Path) -> None:
    model = {"name": "exported", "params": {}, "weights": {"checkpoint": "c"}}
    answer = check.run({"weights": str(program), "spec": {"model": model}}, Session(), lambda _: None)
    assert answer["error"] is None
    assert (answer["verdict"]["classes"], answer["verdict"]["channels"]) == (5, 3)
    assert answer["verdict"]["program"] == {
        "image_size": 32,
        "dtypes": ["float32", "float64", "bfloat16"],
        "random": False,
        "gradients": True,
        "task": "segmentation",
        "length": None,
        "vocabulary": None,
        "gradients_compared": True,
        "probabilities": False,
    }


def test_data_for_another_task_is_refused_by_the_worker_too(program: Path) -> None:
    mine = {"name": "exported", "weights": {"checkpoint": "mine"}}
    spec = spec_of(mine, data={"name": "digits"}, evaluations=[{"name": "clean"}])
    with pytest.raises(BadWeights, match="program is for segmentation, the data for classification"):
        Session().classifier(spec, device="cpu", weights=str(program))
