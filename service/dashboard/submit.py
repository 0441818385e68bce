"""Page that submits a job: a form made from the catalog, or its JSON, with the checks and the cost beside it.

The form works without JavaScript: each of its buttons sends it whole, and the page comes back with the fields
of the chosen components. The script sends it while a person types, and puts the checks and the equivalent
commands in place. Both take the way of `POST /api/v1/jobs`.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from assay.service.api import jobs as api
from assay.service.api.deps import StrictRoute, Submission, SubmissionDep, find_job, job_finder
from assay.service.catalog.catalog import Catalog
from assay.service.catalog.component import EVALUATIONS, Component
from assay.service.contract.errors import AssayError, ErrorDetail, IdempotencyMismatch, InvalidSpec
from assay.service.contract.problems import Problems, nearest
from assay.service.contract.results import Warning
from assay.service.contract.stored_specs import TrainJobSpec
from assay.service.contract.strict_json import parse_json
from assay.service.dashboard import spec_form
from assay.service.dashboard.example_specs import PRESETS, SpecBody, example_of
from assay.service.dashboard.form_fields import changed_components, errors_by_field
from assay.service.dashboard.forms import FormDep, see
from assay.service.dashboard.frame import render
from assay.service.dashboard.snippets import snippets

router = APIRouter(route_class=StrictRoute, include_in_schema=False)

STARTS = ("from", "weights", "example", "preset")
MAX_SUGGESTIONS = 50
MAX_SHOWN_PROBLEMS = 50
# Fields of the page beside the fields of the spec.
OWN_FIELDS = ("action", "add", "idempotency_key", "shown_kind")
KEY = re.compile(r"[0-9a-f]{32}", re.ASCII)
ROW_ACTION = re.compile(r"(remove|copy)\.(\d{1,3})", re.ASCII)
NEW: Mapping[str, Any] = {"kind": "evaluate", "evaluations": []}
Text = Annotated[str, Query(max_length=300, pattern=r"^[^\x00]*$")]


@dataclass
class PageState:
    """What the page shows."""

    spec: SpecBody
    text: str | None = None
    key: str = field(default_factory=lambda: secrets.token_hex(16))
    notice: str = ""
    error: AssayError | None = None
    checked: api.DryRun | None = None
    status: int = 200


@router.get("/submit")
def new_job(
    request: Request,
    service: SubmissionDep,
    source: Annotated[str, Query(alias="from", max_length=100)] = "",
    weights: Annotated[str, Query(max_length=100)] = "",
    example: Text = "",
    preset: Text = "",
    model: Text = "",
    data: Text = "",
) -> Response:
    """The form, empty or begun: a copy of a job, weights of a training, an example or a preset."""
    given = {"from": source, "weights": weights, "example": example, "preset": preset}
    chosen = [name for name, value in given.items() if value]
    if len(chosen) > 1:
        message = f"give one of {', '.join(STARTS)}"
        raise InvalidSpec(
            message, [ErrorDetail(loc=["query", chosen[1]], message=message, allowed=list(STARTS))]
        )
    if not chosen:
        spec = dict(NEW)
        for kind, name in (("model", model), ("data", data)):
            if name:
                spec[kind] = {"name": service.catalog.find(kind, name).name}
        return _page(request, service, PageState(spec))
    spec = _begun(service, chosen[0], given[chosen[0]])
    state = PageState(spec)
    _check(service, state)
    return _page(request, service, state)


@router.post("/submit")
def send_form(request: Request, form: FormDep, service: SubmissionDep) -> Response:
    """Submits the job, or shows the form again with what its other buttons ask for."""
    action = form.get("action", "submit")
    state = _read(service, form)
    if state.error is not None:
        return _page(request, service, state)
    pending = _act(service, form, action, state)
    if action == "submit" and not pending:
        try:
            _check_names(service, form, state)
            answer = api.submit(state.spec, service, state.key)
        except AssayError as error:
            if error.status >= 500:
                raise
            _refuse(state, error)
            return _page(request, service, state)
        return see(f"/jobs/{json.loads(bytes(answer.body))['id']}")
    silent = action not in ("submit", "check", "form") or bool(pending)
    _check(service, state, silent=silent, decode=action == "check")
    return _page(request, service, state)


def _begun(service: Submission, start: str, value: str) -> SpecBody:
    if start == "from":
        return {key: one for key, one in find_job(service.store, value).spec.items() if key != "priority"}
    if start == "weights":
        trained = find_job(service.store, value).spec
        if trained["kind"] != "train":
            message = "must be the id of a training job"
            raise InvalidSpec(message, [ErrorDetail(loc=["query", "weights"], message=message, given=value)])
        model = {"name": trained["model"]["name"], "weights": {"job": value}}
        return {**NEW, "model": model, "data": trained["data"], "evaluations": [_first(service, trained)]}
    if start == "example":
        kind, _, name = value.partition("/")
        return example_of(service.catalog, service.catalog.find(kind, name))
    names = [one.name for one in PRESETS]
    for one in PRESETS:
        if one.name == value:
            return one.spec
    problems = Problems()
    message = f"there is no preset {value[:50]!r}"
    problems.add(("query", "preset"), message, given=value, allowed=names, nearest=nearest(value, names))
    raise InvalidSpec(message, problems.details)


def _first(service: Submission, trained: TrainJobSpec) -> SpecBody:
    tasks = set(service.catalog.find("data", trained["data"]["name"]).tasks)
    fitting = [one for one in service.catalog.list("evaluation") if tasks & set(one.tasks)]
    plain = [one for one in fitting if not one.needs and not one.rules and one.repeats is None]
    return {"name": (plain or fitting)[0].name}


def _read(service: Submission, form: Mapping[str, str]) -> PageState:
    given = form.get("idempotency_key", "")
    key = given if KEY.fullmatch(given) else secrets.token_hex(16)
    if "json" not in form:
        job, part = form.get("model.weights.job", ""), form.get("model.weights.part", "")
        trained = _trained(service, job, part.strip())
        return PageState(spec_form.read_spec(service.catalog, form, trained), key=key)
    state = PageState(dict(NEW), text=form["json"], key=key)
    try:
        body = parse_json(form["json"].encode("utf-8", "surrogatepass"), service.settings.max_json_depth)
        if not isinstance(body, dict):
            raise InvalidSpec("the job must be a JSON object")
        state.spec = body
    except AssayError as error:
        _refuse(state, error)
    return state


def _act(service: Submission, form: Mapping[str, str], action: str, state: PageState) -> bool:
    """Does what a button asks for; says whether the form waits for a look at what is new in it."""
    if action == "json":
        state.text = json.dumps(state.spec, indent=2, ensure_ascii=False)
    if action == "form" and state.text is not None:
        state.text = None
    if match := ROW_ACTION.fullmatch(action):
        rows, index = state.spec.get("evaluations", []), int(match[2])
        if index < len(rows):
            rows[index : index + 1] = [rows[index]] * 2 if match[1] == "copy" else []
    pending = [] if state.text is not None or action == "form" else changed_components(form)
    added = form.get("add", "") if action not in ("check", "form") else ""
    if added and state.text is None and state.spec["kind"] == "evaluate":
        kind, _, name = added.partition("/")
        service.catalog.find(kind, name)
        state.spec.setdefault("evaluations", []).append({"suite" if kind == "suite" else "name": name})
        pending.append(name)
    if form.get("shown_kind", form.get("kind")) != form.get("kind"):
        pending.append("kind")
    if pending and action == "submit":
        state.notice = "Not submitted yet: look at the fields of what you have chosen, then submit."
    return bool(pending)


def _check_names(service: Submission, form: Mapping[str, str], state: PageState) -> None:
    """Refuses fields that the form does not have: their values would be lost."""
    trained = _trained_of(service, state.spec)
    if state.text is not None or not spec_form.has_form(service.catalog, state.spec, trained):
        return
    known = {*spec_form.form_of(service.catalog, state.spec, trained).texts(), *OWN_FIELDS}
    problems = Problems()
    for name in sorted(set(form) - known):
        problems.add((name,), "unknown field", given=form[name], nearest=nearest(name, known))
    problems.raise_if_any()


def _check(service: Submission, state: PageState, *, silent: bool = False, decode: bool = False) -> None:
    """Validates and estimates; `silent` shows no errors, `decode` what is wrong with the data's files."""
    try:
        answer = api.submit(state.spec, service, dry_run=True, decode=decode)
    except AssayError as error:
        if error.status >= 500:
            raise
        state.error = None if silent else error
        return
    state.checked = api.DryRun.model_validate_json(bytes(answer.body))


def _refuse(state: PageState, error: AssayError) -> None:
    state.error, state.status = error, error.status
    if isinstance(error, IdempotencyMismatch):
        state.key = secrets.token_hex(16)
        state.error, state.status = None, 409
        state.notice = "This form was submitted before, as another job. Submit it again for a second job."


def _trained(service: Submission, job_id: str, part: str = "") -> dict[str, Any] | None:
    row = job_finder(service.store)(job_id.strip()) if job_id and not part else None
    if row is None or row.spec["kind"] != "train":
        return None
    if row.spec["model"]["name"] not in service.catalog.names("model"):
        return None
    return spec_form.defaults_of_training(service.catalog, row.spec["model"])


def _trained_of(service: Submission, spec: Mapping[str, Any]) -> dict[str, Any] | None:
    model = spec.get("model")
    weights = model.get("weights") if isinstance(model, Mapping) else None
    if not isinstance(weights, Mapping):
        return None
    return _trained(service, str(weights.get("job") or ""), str(weights.get("part") or ""))


def _page(request: Request, service: Submission, state: PageState) -> Response:
    catalog, spec = service.catalog, state.spec
    form = None
    trained = _trained_of(service, spec)
    try:
        spec = spec_form.reduced(catalog, spec, trained)
    except (ValueError, TypeError, AttributeError):
        pass  # of another shape: edited as JSON
    else:
        if state.text is None and spec_form.has_form(catalog, spec, trained):
            form = spec_form.form_of(catalog, spec, trained)
    if form is None and state.text is None:
        state.text = json.dumps(spec, indent=2, ensure_ascii=False)
        state.notice = (
            state.notice or "This job is edited as JSON: it is larger than a form, or of another shape."
        )
    details = state.error.details[:MAX_SHOWN_PROBLEMS] if state.error is not None else []
    errors = errors_by_field(details, form.texts() if form is not None else ())
    values = {
        "title": "Submit a job",
        "section": "/submit",
        "state": state,
        "form": form,
        "spec": spec,
        "errors": errors,
        "details": [(detail, _field_of(detail, errors)) for detail in details],
        "presets": PRESETS,
        "address": str(request.base_url).rstrip("/"),
        "size_limit": service.settings.max_checkpoint_bytes,
        "groups": _addable(catalog, spec),
        "snippets": snippets(spec, str(request.base_url), with_key=service.settings.keys_required),
        "trainings": service.store.jobs.page(kind="train", limit=MAX_SUGGESTIONS)[0] if form else [],
        "checkpoints": service.store.checkpoints.page(limit=MAX_SUGGESTIONS)[0] if form else [],
        "trained": trained,
        "warnings": [Warning.model_validate(one) for one in state.checked.warnings] if state.checked else [],
    }
    return render(request, "submit.html", values, status=state.status)


def _field_of(detail: ErrorDetail, errors: Mapping[str, Sequence[ErrorDetail]]) -> str:
    return next((name for name, listed in errors.items() if any(one is detail for one in listed)), "")


def _addable(catalog: Catalog, spec: Mapping[str, Any]) -> list[tuple[str, list[Component]]]:
    data = spec.get("data")
    name = data.get("name") if isinstance(data, Mapping) else None
    known = isinstance(name, str) and name in catalog.names("data")
    tasks = set(catalog.find("data", str(name)).tasks) if known else None
    groups: list[tuple[str, list[Component]]] = []
    others: list[Component] = []
    for title, kinds in (
        ("Suites", ("suite",)),
        *((f"{kind.capitalize()}s", (kind,)) for kind in EVALUATIONS),
    ):
        entries = [entry for kind in kinds for entry in catalog.list(kind)]
        fitting = [one for one in entries if tasks is None or not one.tasks or tasks & set(one.tasks)]
        others += [one for one in entries if one not in fitting]
        groups.append((title, fitting))
    return [(title, entries) for title, entries in (*groups, ("For other data", others)) if entries]
