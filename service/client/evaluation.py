"""An evaluation in one call: its service, and its spec from a few words."""

from __future__ import annotations

import importlib.metadata
import json
import math
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from assay.service.catalog.catalog import load
from assay.service.catalog.component import EVALUATIONS
from assay.service.client.class_check import check_classes, checked_data, classes_of
from assay.service.client.data_place import Component, DataPlace, by_labels, check_root, data_spec, wrong
from assay.service.client.first_look import check_files, check_function, check_images
from assay.service.client.jobs import AssayClient
from assay.service.client.local import local_service
from assay.service.client.notebook_tables import JobView
from assay.service.client.one_line import (
    ONNX,
    Subject,
    check_form,
    is_made,
    made_program,
    model_spec,
    trained_elsewhere,
)
from assay.service.contract.errors import AssayError, InvalidSpec
from assay.service.contract.extras import has_module
from assay.service.contract.problems import Problems, renamed
from assay.service.contract.results import Job
from assay.service.contract.states import JobState
from assay.service.contract.stored_specs import EvaluateJobSpec
from assay.service.files.state_lock import DEFAULT_STATE
from assay.service.reports.client import report_format
from assay.service.submission.validate import validate

DEFAULT_SUITE = "quick"
EXAMPLE = "such as 'pgd epsilon=4/255 steps=20'"
FIRST = 9  # before jobs that an earlier call left in the state folder
PROBED = 32  # Examples that measure a model's speed before a cost is said
OF_DATA = ("data", "class_names", "labels", "crop_fraction")  # places in errors
PACKAGES = "assay.components"  # entry points of packages with components


@dataclass(frozen=True)
class Request:
    """What is to be measured."""

    subject: Subject  # the model
    place: DataPlace  # the data
    suites: Sequence[str] = ()  # names of suites
    # as `evaluation_of` reads them; before the suites. Without a suite, clean accuracy (for regression the
    # error) comes first where missing
    evaluations: Sequence[str] = ()
    limit: int | None = None  # None: all
    # of the spec: seed, protocol, execution, name, tags
    options: Mapping[str, Any] = field(default_factory=dict)


def evaluation_of(text: object) -> dict[str, Any]:
    """An item of `evaluations`: "pgd epsilon=8/255 steps=20"; values that are no JSON are texts."""
    if not isinstance(text, str):
        raise wrong(("attacks",), "each is a text: NAME PARAMETER=VALUE ...", given=text, allowed=EXAMPLE)
    try:
        name, *parts = shlex.split(text)
    except ValueError:
        name, parts = "", []
    if re.fullmatch(r"\w[\w.-]*", name) is None:
        near = " ".join(re.findall(r"[^\s,;:()]+", text))
        known = near != text and re.fullmatch(r"\w[\w.-]*( \w+=\S+)*", near) is not None
        message = "has the form NAME PARAMETER=VALUE ..."
        raise wrong(("attack",), message, given=text, allowed=EXAMPLE, nearest=near if known else None)
    params: dict[str, Any] = {}
    for one in parts:
        key, equals, value = one.partition("=")
        if not equals or not key:
            raise wrong(
                (f"attack {text!r}",), "a parameter has the form NAME=VALUE", given=one, allowed=EXAMPLE
            )
        if key in params:
            raise wrong((f"attack {text!r}",), f"{key} is given twice", given=one)
        params[key] = _value(value)
    return {"name": name, "params": params}


def _value(text: str) -> Any:
    try:
        return json.loads(text, parse_float=_finite, parse_constant=str)
    except ValueError:
        # Words without quotes, taken by the shell or `shlex`.
        words = text[1:-1].split(",") if text.startswith("[") and text.endswith("]") else []
        plain = words and all(re.fullmatch(r"\s*[\w./+-]+\s*", word) for word in words)
        return [_value(word.strip()) for word in words] if plain else text


def check_request(request: Request, *, own: bool, found: Problems | None = None) -> None:
    """Refuse what is wrong in names, parameters, code and files, all at once, before a service is asked.

    InvalidSpec. For the `own` service of this machine nothing is left for later that needs no model.
    `found`: faults of the same call, told with the others; a place with a fault names its data set alone.
    """
    problems = Problems() if found is None else found
    references: dict[str, dict[str, Any]] = {}
    for text in request.evaluations:
        with problems.gathered():
            references[text] = evaluation_of(text)
    catalog, more = load(), bool(importlib.metadata.entry_points(group=PACKAGES))
    places = [one.loc for one in problems.details]
    data, doubted, seen = None, ["model"] in places, False
    with problems.gathered():
        if own and not more and not doubted:
            check_form(request.subject, [one.model_dump(by_alias=True) for one in catalog.list("model")])
        if is_made(request.subject) and not request.subject.model.endswith(ONNX) and not doubted:
            check_function(request.subject.model, request.subject.folder)
    if not own and not problems.details:
        return  # the service says what is wrong: it may have other components
    with problems.gathered() if own else suppress(InvalidSpec):
        if (known := known_data(request.place)) is not None:
            data = data_spec(request.place, known, whole=trained_elsewhere(request.subject))
            if own and not any(place[0] in OF_DATA for place in places):
                check_root(request.place, known)
                seen = True
                check_classes(request.subject, request.place)
    with problems.gathered():
        if seen:
            check_images(checked_data(request.place), request.place, request.subject.tell)
    _check_evaluations(request, references, data, problems, own=own)
    problems.raise_if_any()
    if data is not None:
        complete = {**data, "params": checked_data(request.place).params}
        spec: dict[str, Any] = {"kind": "evaluate", "data": complete, "evaluations": []}
        spec["limit"] = request.limit
        check_files(cast("EvaluateJobSpec", spec), request.place, request.subject.tell)


def _check_evaluations(
    request: Request,
    references: Mapping[str, dict[str, Any]],
    data: dict[str, Any] | None,
    problems: Problems,
    *,
    own: bool,
) -> None:
    """Report what a service would refuse of a spec without its model, in the call's words."""
    catalog, more = load(), bool(importlib.metadata.entry_points(group=PACKAGES))
    known = {*catalog.names(*EVALUATIONS), *catalog.names("suite")}
    asked: dict[str, dict[str, Any]] = {f"attack {text!r}": one for text, one in references.items()}
    asked.update({f"suite {name!r}": {"suite": name} for name in request.suites})
    for text, one in [*asked.items()]:
        if more and (one.get("name") or one["suite"]) not in known:
            del asked[text]  # a package may bring it
    if not asked:
        return
    spec = {"kind": "evaluate", "evaluations": [*asked.values()], "limit": request.limit, **request.options}
    here = has_module if own else None
    try:
        validate(
            catalog,
            spec if data is None else {**spec, "data": data},
            data_root=request.place.root(),
            has_package=here,
        )
    except InvalidSpec as error:
        found = by_labels(error, request.place)
        doubted = data is None or any(one.loc[0] in OF_DATA for one in problems.details)
        skipped = ["model", *(OF_DATA if doubted else [])]
        names = [*asked]
        problems.details += [
            one.model_copy(update={"loc": [names[int(one.loc[1])], *_within(one.loc)]})
            if one.loc[0] == "evaluations" and len(one.loc) > 1
            else one
            for one in found.details
            if one.loc[0] not in skipped
        ]


def _finite(text: str) -> float | str:
    return float(text) if math.isfinite(float(text)) else text


@contextmanager
def program_first(request: Request, *, own: bool) -> Iterator[Request]:
    """The request with a program made of its function or ONNX model; InvalidSpec: no size or no export."""
    known = known_data(request.place) if own else None
    if known is None or not is_made(request.subject):
        yield request
        return
    data = data_spec(request.place, known, whole=True)
    facts = next(one for one in known if one["name"] == data["name"]).get("facts") or {}
    subject = with_classes(request)
    with made_program(subject, data, facts) as program:
        yield replace(request, subject=replace(subject, program=program))


def known_data(place: DataPlace) -> list[Component] | None:
    """The catalog's data sets; None where a package may bring the wanted set."""
    catalog = load()
    more = importlib.metadata.entry_points(group=PACKAGES)
    if more and place.name not in {None, *catalog.names("data")}:
        return None
    return [one.model_dump(by_alias=True) for one in catalog.list("data")]


def with_classes(request: Request) -> Subject:
    """The subject with the data's classes, which its logits are compared with."""
    return replace(request.subject, data_classes=classes_of(request.place))


@contextmanager
def service_for(
    place: DataPlace,
    *,
    url: str | None = None,
    key: str | None = None,
    state: Path = DEFAULT_STATE,
    workers: int | None = None,
    prefetch: bool = True,
) -> Iterator[AssayClient]:
    """A client of the service at an address, or of a service started for the block.

    InvalidSpec: data at a path, which the service at the address does not see.
    """
    if url is not None:
        with AssayClient(url, key) as client:
            if place.path is not None:
                message = f"{url} reads its own data root: a path on this machine means nothing to it"
                there = json.dumps(data_spec(place, client.catalog("data"), whole=True))
                allowed = (
                    f"a data set by name; --data {shlex.quote(there)} for a folder below that root;"
                    " --state FOLDER for a service of your own"
                )
                raise wrong(("data",), message, given=str(place.path), allowed=allowed)
            yield client
        return
    root = place.root()
    own = {} if root is None else {"ASSAY_DATA_ROOT": str(root)}
    own["ASSAY_PREFETCH"] = str(prefetch).lower()
    with local_service(state, workers=workers, environment=own) as client:
        yield client


def complete_spec(client: AssayClient, request: Request) -> tuple[dict[str, Any], dict[str, Any]]:
    """The spec with defaults, {"estimate", "warnings"}; uploads the model's files, stores no job."""
    whole = trained_elsewhere(request.subject)
    data = data_spec(request.place, client.catalog("data"), whole=whole)
    evaluations = _evaluations(client, request, str(data["name"]))
    spec = {
        "kind": "evaluate",
        "name": (request.subject.label or request.subject.model)[:200],
        "priority": FIRST,
        "model": model_spec(client, with_classes(request), data),
        "data": data,
        "limit": request.limit,
        "evaluations": evaluations,
        **request.options,
    }
    try:
        found = client.dry_run(spec)
    except InvalidSpec as error:
        found_in = by_labels(error, request.place)
        raise renamed(found_in, partial(_as_asked, request, len(evaluations))) from None
    return found["spec"], {"estimate": found["estimate"], "warnings": found["warnings"]}


def check_device(spec: Mapping[str, Any], warnings: Sequence[Mapping[str, Any]]) -> None:
    """Refuse a device that an embedded service lacks: its job would never start."""
    for warning in warnings:
        if warning["code"] == "no_worker_with_devices":
            message = "this machine has no such device, or it failed its test (`assay doctor` tests it)"
            given = spec["execution"]["device"]
            raise wrong(("device",), message, given=given, allowed=["auto", "cpu"])


def _as_asked(request: Request, count: int, loc: list[str | int]) -> list[str | int]:
    texts = [f"attack {text!r}" for text in request.evaluations]
    texts += [f"suite {name!r}" for name in request.suites]
    if loc[:1] != ["evaluations"] or len(loc) < 2 or not isinstance(loc[1], int):
        return loc
    place = loc[1] - (count - len(texts))
    return [texts[place], *_within(loc)] if 0 <= place < len(texts) else loc


def _within(loc: Sequence[str | int]) -> Sequence[str | int]:
    """The place in an attack's text, which names parameters alone."""
    return loc[3:] if loc[2:3] == ["params"] else loc[2:]


def _evaluations(client: AssayClient, request: Request, data: str) -> list[dict[str, Any]]:
    found = list(map(evaluation_of, request.evaluations))
    plain = None if request.suites else _one_pass(client, data)
    if plain is not None and plain["name"] not in (one["name"] for one in found):
        found.insert(0, plain)
    return [*found, *({"suite": name} for name in request.suites)]


def write_report(client: AssayClient, job: str, target: Path) -> None:
    """Write the report on a job in the format of the file's ending."""
    text = client.report(job, format=report_format(target, "report"))
    target.write_text(text, encoding="utf-8", newline="")


class EvaluationFailed(AssayError):
    """The job ended without success; what it measured before is kept."""

    type = "evaluation_failed"


def ended(
    client: AssayClient, request: Request, *, own: bool, callback: Callable[[JobView], None] | None = None
) -> JobView:
    """Submit a request and wait for its job; InvalidSpec: wrong fields, EvaluationFailed: a bad end."""
    left = unfinished(client) if own else []
    spec, found = complete_spec(client, request)
    if own:
        check_device(spec, found["warnings"])
    begun = same_job(client, left, spec)
    told = request.place.with_paths if own else str
    return _succeeded(client.wait((begun or client.submit(spec)).id, callback=callback), told)


def _succeeded(job: JobView, told: Callable[[str], str] = str) -> JobView:
    if job.state != JobState.SUCCEEDED:
        raise EvaluationFailed(told(f"job {job.id} {outcome_text(job)}"))
    return job


def outcome_text(job: Job) -> str:
    """Why a job did not succeed: `failed: out_of_memory: 8 GB were not enough`."""
    state = job.state.value
    reason = job.error.message if job.error is not None else job.message
    if job.error is not None and job.error.type != state:
        reason = f"{job.error.type}: {reason}"
    return f"{state}: {reason}" if reason else state


def measured_cost(client: AssayClient, spec: Mapping[str, Any]) -> dict[str, Any]:
    """The estimate of a complete spec; a new model first sees a few examples."""
    estimate: dict[str, Any] = client.dry_run(spec)["estimate"]
    plain = _one_pass(client, str(spec["data"]["name"]))
    if estimate["seconds"] is None or estimate.get("seconds_measured") or plain is None:
        return estimate
    shared = {name: spec[name] for name in ("kind", "seed", "model", "data", "execution", "priority")}
    limit = min(spec["limit"] or PROBED, PROBED)
    probe = {**shared, "name": f"speed of {spec['name']}"[:200], "limit": limit, "evaluations": [plain]}
    _succeeded(client.wait(client.submit(probe).id))
    found: dict[str, Any] = client.dry_run(spec)["estimate"]
    return found


def _one_pass(client: AssayClient, data: str) -> dict[str, Any] | None:
    tasks = set(client.component("data", data)["tasks"])
    for one in client.catalog("evaluation"):
        passes = one["passes"] or {}
        if (passes.get("forward"), passes.get("backward")) == ("1", "0") and tasks & set(one["tasks"]):
            return {"name": one["name"]}
    return None


def unfinished(client: AssayClient) -> list[JobView]:
    """Evaluations that earlier calls left unfinished; ask first: a service resumes them."""
    return [job for job in client.jobs(kind="evaluate") if not job.state.terminal]


def same_job(client: AssayClient, jobs: Sequence[Job], spec: Mapping[str, Any]) -> JobView | None:
    """The job with the same complete spec, as it is now."""
    for job in jobs:
        if job.spec == spec:
            now = client.job(job.id)
            return now if not now.state.terminal or now.state == JobState.SUCCEEDED else None
    return None
