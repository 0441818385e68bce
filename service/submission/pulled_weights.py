"""Pulled weights at submission: they must be there, their tag, commit and hash are filled in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from assay.service.catalog.catalog import Catalog, Checked
from assay.service.contract.problems import Problems
from assay.service.contract.stored_specs import Params
from assay.service.contract.weights.pulled import (
    PULLED,
    PulledFacts,
    PulledReference,
    find_record,
    is_pulled,
    not_pulled,
    parse_reference,
    reference_to,
    spelling_of,
)
from assay.service.submission.packages import ListPulled
from assay.service.submission.weights import LOC, WeightsSource


@dataclass(frozen=True)
class Pinned:
    """Pulled weights of a model, pinned as far as the service knows what is pulled."""

    weights: dict[str, Any]  # For the spec
    params: dict[str, Any]  # The model's, with the tag or the commit
    source: WeightsSource  # Facts of the weights


def pin(
    catalog: Catalog,
    model: Checked | None,
    weights: Mapping[str, Any] | None,
    problems: Problems,
    list_pulled: ListPulled | None,
) -> Pinned | None:
    """The pulled weights that a model asks for; None for others, and where something is wrong."""
    spelling = spelling_of(weights)  # Wrong parameters are reported as such, and name no weights.
    if model is None or not model.certain or weights is None or spelling is None:
        return None
    component = model.component
    if component.pulled is None:
        able = [name for name in catalog.names("model") if catalog.find("model", name).pulled is not None]
        message = f"the model {component.name!r} has no pulled weights"
        allowed = f'{{"job": id}}, {{"checkpoint": name}}, no weights; or one of the models {", ".join(able)}'
        problems.add((*LOC, spelling), message, given=True, allowed=allowed)
        return None
    if spelling not in (PULLED, component.pulled):
        message = f"these weights are not {spelling}'s"
        problems.add((*LOC, spelling), message, given=True, allowed='{"pulled": true}')
        return None
    try:
        reference = reference_to(component.pulled, model.params)
    except ValueError as error:
        problems.add(("model", "params"), str(error), given=model.params)
        return None
    return _pin(model, reference, weights.get("sha256"), problems, list_pulled)


def check_pulled_only(job: Mapping[str, Any], model: Checked | None, problems: Problems) -> None:
    """Report a job that a model defined by its pulled files cannot serve: training, or use without them."""
    if model is None or not (model.component.facts or {}).get("pulled_only"):
        return
    name, weights = model.component.name, job["model"].get("weights")
    if job.get("kind") == "train":
        message = f"the model {name!r} is defined by its pulled files: it is evaluated, and not trained here"
        problems.add(("model", "name"), message, given=name)
    elif not is_pulled(weights):
        message = f"the model {name!r} is defined by its pulled files, and has no other weights"
        problems.add(LOC, message, given=weights, allowed='{"pulled": true}')


def _pin(
    model: Checked,
    reference: PulledReference,
    wanted: str | None,
    problems: Problems,
    list_pulled: ListPulled | None,
) -> Pinned | None:
    records = list_pulled() if list_pulled is not None else None
    stated = {"pulled": True, "sha256": wanted}
    component = model.component
    if records is None:
        return Pinned(stated, model.params, _source(component.name, model.params, {}))
    found = find_record(records, str(reference))
    if found is None:
        problems.add_not_pulled(
            LOC, not_pulled(reference), given=stated if wanted else {"pulled": True}, allowed=_others(records)
        )
        return None
    name, record = found
    if wanted not in (None, record["sha256"]):
        message = f"the pulled weights {name} have another content"
        problems.add((*LOC, "sha256"), message, given=wanted, allowed=[record["sha256"]])
        return None
    params = {**model.params, **parse_reference(name).params}
    facts = record["facts"]
    if (size := params.get("image_size")) is not None:
        facts = {**facts, "image_size": size}
    source = _source(component.name, params, facts)
    return Pinned({**stated, "sha256": record["sha256"]}, params, source)


def _source(name: str, params: Params, facts: PulledFacts) -> WeightsSource:
    return WeightsSource({"name": name, "params": params}, None, cast(dict[str, int], dict(facts)))


def _others(records: Mapping[str, Any]) -> str:
    listed = ", ".join(sorted(records)[:20]) or "nothing yet"
    return f"weights that are pulled: {listed}"
