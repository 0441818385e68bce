"""The evaluate shard: one evaluation over one range of the evaluation order."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from attacks.kernel import Attack
from attacks.randomness import Randomness
from service.contract.catalog import load as load_catalog
from workers import catalog, provenance
from workers.data.dataset import DataSet
from workers.data.sampling import evaluation_order
from workers.evaluation.engine import attack_paper, attack_pixel
from workers.evaluation.outcomes import Outcomes
from workers.jobs.session import Loaded, Session

Report = Callable[[Mapping[str, Any]], None]


def run(request: Mapping[str, Any], session: Session, report: Report) -> dict[str, Any]:
    """Answer an evaluate request.

    Raises:
        MissingData: the data set is not there any more.
        ValueError: the weights, or the number of examples, changed since the job was planned.
    """
    spec, plan = request["spec"], request["plan"]
    item = spec["evaluations"][request["evaluation"]]
    data = session.data(item["data"] or spec["data"], "test")
    loaded = session.classifier(spec, device=plan["device"], weights=request["weights"])
    if loaded.weights_sha256 != plan["weights_sha256"]:
        raise ValueError("the weights changed since the job was planned")
    available = plan["evaluations"][request["evaluation"]]["available"]
    if len(data.ids) != available:
        raise ValueError(
            f"{data.name!r} has {len(data.ids)} examples, it had {available} when the job was planned"
        )
    order = evaluation_order(data.name, data.ids, spec["limit"])[request["start"] : request["stop"]]
    shard = Shard(data, order, loaded, plan["batch_size"], spec, report)
    attack = load_catalog().find_evaluation(item["name"]).kind == "attack"
    begun = time.monotonic()
    outcomes = shard.attack(item) if attack else shard.evaluate(item)
    return answer(outcomes, time.monotonic() - begun) | {
        "extra": {
            "attack": attack,
            "evidence": outcomes.evidence(),
            "provenance": provenance.collect(loaded.device, loaded.dtype),
        },
    }


def answer(outcomes: Outcomes, seconds: float) -> dict[str, Any]:
    """The outcome report of a shard, without what is extra."""
    return {
        "type": "outcome",
        "n": len(outcomes.ids),
        "columns": outcomes.columns(),
        "seconds": seconds,
        "forward_passes": int(outcomes.forward.sum()),
        "backward_passes": int(outcomes.backward.sum()),
    }


class Shard:
    """A range of examples and the classifier to run over them."""

    def __init__(
        self,
        data: DataSet,
        order: Sequence[int],
        loaded: Loaded,
        batch_size: int,
        spec: Mapping[str, Any],
        report: Report,
    ) -> None:
        self._data = data
        self._order = order
        self._loaded = loaded
        self._spec = spec
        self._report = report
        self._common: dict[str, Any] = {
            "batch_size": batch_size,
            "device": loaded.device,
            "dtype": spec["execution"]["dtype"],
            "progress": self._progress,
        }
        self._ids = [data.ids[index] for index in order]
        self._labels = data.labels[list(order)]
        self._message = ""

    def evaluate(self, item: Mapping[str, Any]) -> Outcomes:
        """Run an evaluation that is not an attack."""
        self._message = str(item["name"])
        component = catalog.build("evaluation", item["name"], item["params"])()
        outcomes: Outcomes = component(
            self._loaded.classifier, self._images, self._labels, self._ids, **self._common
        )
        return outcomes

    def attack(self, item: Mapping[str, Any]) -> Outcomes:
        """Run an attack under the job's protocol."""
        self._message = f"{item['name']} {item['params'].get('epsilon', '')}".rstrip()
        attack: Attack = catalog.build("attack", item["name"], item["params"])()
        run_protocol = attack_paper if self._spec["protocol"] == "paper" else attack_pixel
        return run_protocol(
            attack,
            self._loaded.classifier,
            self._images,
            self._labels,
            self._ids,
            randomness=Randomness(self._spec["seed"], attack.name),
            **self._common,
        )

    def _images(self, rows: Sequence[int]) -> Tensor:
        return self._data.images([self._order[row] for row in rows], self._loaded.image_size)

    def _progress(self, done: int) -> None:
        self._report({"type": "progress", "done": done, "total": len(self._ids), "message": self._message})
