"""Checks a study and makes its jobs: a training and an evaluation of each arm, with each seed.

An arm is checked once, as the two jobs that it becomes, by `validate`: a study accepts what jobs accept, in
the same words; errors are told at the study's own fields. Seeds change nothing in that.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Unpack, cast

from assay.service.catalog.catalog import Catalog
from assay.service.catalog.parameters import check
from assay.service.catalog.schema_text import Schema
from assay.service.contract.errors import ErrorDetail, InvalidSpec, WeightsUnavailable
from assay.service.contract.problems import Loc, Problems, nearest, path_text
from assay.service.contract.states import JobState
from assay.service.contract.stored_specs import EvaluateJobSpec, Spec, TrainJobSpec, UserSpec
from assay.service.metrics.registry import TABLES
from assay.service.metrics.table import Units
from assay.service.studies.primary import check_metric, check_primary, check_until, evaluations_of
from assay.service.studies.runs import job_count
from assay.service.studies.wire import MAX_JOBS, OWN_TRAINING, ArmTemplate, MoreSeeds, StudySpec
from assay.service.submission.shape import FOR_TRAINING, OPTIONS_OF
from assay.service.submission.validate import Environment, ValidSpec, validate
from assay.service.submission.weights import JobLike

OF_JOBS = ("tags", "priority", "timeout_seconds")  # Fields that a job of the study has from the study.
OF_EVALUATIONS = ("protocol", "limit", "evaluations")
# Checked in the jobs of the arms, with their messages.
LEFT_TO_JOBS = ("data", "recipe", "evaluations", "execution", "protocol", "limit")

# (valid spec of a job) to its estimated work; raises InvalidSpec for one that is over a limit.
FindWork = Callable[[ValidSpec], dict[str, Any]]


@dataclass(frozen=True)
class ValidArm:
    """A valid arm: its jobs, and their estimated work and warnings."""

    template: ArmTemplate
    train_work: dict[str, Any] | None
    evaluate_work: dict[str, Any]
    warnings: list[dict[str, Any]]


@dataclass(frozen=True)
class ValidStudy:
    """A valid study: its spec with every default filled in, and its arms."""

    spec: dict[str, Any]
    arms: list[ValidArm]

    @property
    def templates(self) -> list[ArmTemplate]:
        """The jobs of each arm."""
        return [arm.template for arm in self.arms]


def check_study(
    catalog: Catalog, body: object, *, work: FindWork, **environment: Unpack[Environment]
) -> ValidStudy:
    """Check a study and fill in every default; InvalidSpec has a detail per wrong field of the study."""
    problems = Problems()
    if not isinstance(body, dict):
        problems.add((), "must be a JSON object", given=body, allowed="an object")
        problems.raise_if_any()
    given = cast(dict[str, Any], body)
    shape = check(_schema(), given, problems)
    seeds = _seeds(shape.get("seeds"), problems)
    _check_names(shape, problems)
    if not _check_size(shape, seeds, problems) or problems.full:
        problems.raise_if_any()  # Arms are looked at if they are arms of few enough jobs.
    made = (_Arm(catalog, given, shape, index, environment, problems) for index in range(len(shape["arms"])))
    checked = [arm.valid(work) for arm in made]
    arms = [arm for arm in checked if arm is not None]
    if len(arms) < len(checked):
        problems.raise_if_any()
    wrong = {name for one in problems.details if one.loc for name in (one.loc[0], one.nearest)}
    if "metrics" not in wrong:
        _check_metrics(catalog, shape["metrics"] or [], arms, problems)
    written = _from_arms(given, shape, arms)
    primary = None
    if not wrong & {"primary", "baseline"} and all(_names(shape)):
        primary = _check_primary(
            catalog, shape["primary"], shape.get("until"), written["baseline"], arms, problems
        )
        trained = {arm.template["name"]: arm.template["train"] is not None for arm in arms}
        asked = None if shape["primary"] is None else {**shape["primary"], **(primary or {})}
        if seeds and "until" not in wrong:
            check_until(shape["until"], asked, seeds, trained, written["baseline"], problems)
    problems.raise_if_any()
    spec = {**shape, **written, "seeds": seeds, "primary": primary}
    return ValidStudy(StudySpec.model_validate(spec).model_dump(mode="json"), arms)


def check_seeds(body: object) -> list[int]:
    """The seeds in a body of `POST /studies/{id}/seeds`, each once; InvalidSpec for wrong fields."""
    problems = Problems()
    shape = check(MoreSeeds.model_json_schema(), body, problems)
    problems.raise_if_any()
    return list(dict.fromkeys(shape["seeds"]))


@cache
def _schema() -> Schema:
    schema = copy.deepcopy(StudySpec.model_json_schema())
    for name in LEFT_TO_JOBS:
        schema["properties"][name] = {}
    arm = schema["$defs"]["ArmSpec"]
    for name in ("model", "data", "recipe", "weights"):
        arm["properties"][name] = {}
    schema["required"], arm["required"] = ["kind", "arms", "seeds"], ["name"]
    return schema


def _seeds(given: object, problems: Problems) -> list[int]:
    listed: list[Any] = given if isinstance(given, list) else []
    for place, seed in enumerate(listed):
        if isinstance(seed, int) and seed in listed[:place]:
            problems.add(("seeds", place), "is given twice", given=seed, allowed="each seed once")
    known = dict.fromkeys(seed for seed in listed if isinstance(seed, int))
    return [*(range(given) if isinstance(given, int) else known)]


def _names(shape: Mapping[str, Any]) -> list[str]:
    arms = shape.get("arms")
    listed = arms if isinstance(arms, list) else []
    return [str(arm.get("name", "")) if isinstance(arm, dict) else "" for arm in listed]


def _check_names(shape: Mapping[str, Any], problems: Problems) -> None:
    names = _names(shape)
    alike = [" ".join(name.casefold().split()) for name in names]
    for index, name in enumerate(names):
        loc: Loc = ("arms", index, "name")
        earlier = alike.index(alike[index])
        if name and not name.isprintable():
            problems.add(loc, "must be printable text", given=name)
        elif name and name in names[:index]:
            message = f"arm {names.index(name)} has this name: each needs its own"
            problems.add(loc, message, given=name, allowed="a name of its own")
        elif name and earlier < index:
            other = f"{names[earlier]!r}, the name of arm {earlier},"
            message = f"{name!r} and {other} differ in case or blank space only"
            problems.add(loc, message, given=name, allowed="a name that tells the arms apart")
    baseline = shape.get("baseline")
    if baseline is not None and baseline not in names and names and all(names):
        message = "no arm has this name"
        problems.add(("baseline",), message, given=baseline, allowed=names, nearest=nearest(baseline, names))


def _check_size(shape: Mapping[str, Any], seeds: Sequence[int], problems: Problems) -> bool:
    """Whether the arms can be looked at: their list is well-formed, and the jobs are few enough."""
    arms = len(_names(shape))
    count = job_count([True] * arms, len(seeds))
    if count > MAX_JOBS:
        message = f"{len(seeds)} seeds of {arms} arms are up to {count} jobs; at most {MAX_JOBS} are allowed"
        problems.add(("seeds",), message, given=len(seeds), allowed=f"at most {MAX_JOBS // (2 * arms)} seeds")
    return count <= MAX_JOBS and bool(arms) and all(isinstance(arm, dict) for arm in shape["arms"])


def _check_metrics(
    catalog: Catalog, metrics: Sequence[str], arms: Sequence[ValidArm], problems: Problems
) -> None:
    units: set[str] = set()
    for arm in arms if metrics else ():
        for place in range(len(arm.template["evaluate"]["evaluations"])):
            known = _metrics_of(catalog, arm, place)
            if known is None:
                return
            units.update(known)
    for index, name in enumerate(metrics):
        if name not in units:
            message = "no evaluation of the study has this metric"
            near = nearest(name, units)
            problems.add(("metrics", index), message, given=name, allowed=sorted(units), nearest=near)


def _metrics_of(catalog: Catalog, arm: ValidArm, place: int) -> Units | None:
    """The units of an evaluation's metrics; None where its table is not known before it is measured."""
    spec = arm.template["evaluate"]
    item = spec["evaluations"][place]
    tasks = catalog.find("data", (item["data"] or spec["data"])["name"]).tasks
    table = TABLES.get(catalog.find_evaluation(item["name"]).table_for(tasks) or "")
    return None if table is None else table.units


def _check_primary(
    catalog: Catalog,
    given: Mapping[str, Any] | None,
    until: Mapping[str, Any] | None,
    baseline: str,
    arms: Sequence[ValidArm],
    problems: Problems,
) -> dict[str, Any] | None:
    """The primary question with its arm and all parameters filled in."""
    names = [arm.template["name"] for arm in arms]
    evaluations = evaluations_of(arms[0].template["evaluate"])
    found = check_primary(given, evaluations, names, baseline, problems)
    if given is None or found is None:
        return None
    check_metric(given, until, _metrics_of(catalog, arms[0], found.position) or {}, problems)
    return {**given, "arm": found.arm, "params": evaluations[found.position]["params"]}


def _from_arms(
    given: Mapping[str, Any], shape: Mapping[str, Any], arms: Sequence[ValidArm]
) -> dict[str, Any]:
    first = arms[0].template["evaluate"]
    written = []
    for arm in arms:
        train, evaluate = arm.template["train"], arm.template["evaluate"]
        written.append(
            {
                "name": arm.template["name"],
                "model": (train or evaluate)["model"],
                "data": evaluate["data"],
                "recipe": None if train is None else train["recipe"],
            }
        )
    return {
        "arms": written,
        "data": None,
        "recipe": None,
        "protocol": first["protocol"],
        "limit": first["limit"],
        "evaluations": given["evaluations"],
        "execution": given.get("execution") or {},
        "baseline": shape.get("baseline") or arms[0].template["name"],
    }


class _Arm:
    def __init__(
        self,
        catalog: Catalog,
        given: Mapping[str, Any],
        shape: Mapping[str, Any],
        index: int,
        environment: Environment,
        problems: Problems,
    ) -> None:
        self.catalog, self.given, self.shape = catalog, given, shape
        self.found: JobLike | None = None  # The arm's training, once it is valid.
        self.find_stored = environment.get("find_job")
        self.environment: Environment = {**environment, "find_job": self._find_job}
        self.arm: dict[str, Any] = shape["arms"][index]
        self.index, self.problems = index, problems

    def valid(self, work: FindWork) -> ValidArm | None:
        """The arm as jobs; None after reporting what is wrong with it."""
        before, trains = len(self.problems), self._trains()
        train = self._checked(self._training(), work) if trains else None
        evaluation = self._evaluation()
        if train is not None:
            self.found = _OwnTraining(train[0].spec)
            # The model has the training's parameters by default.
            evaluation["model"] = {**train[0].spec["model"], "weights": {"job": OWN_TRAINING}}
        elif trains:
            evaluation["model"] = self._model(weights=False)
        evaluate = self._checked(evaluation, work)
        if len(self.problems) > before or evaluate is None:
            return None
        template: ArmTemplate = {
            "name": self.arm.get("name", ""),  # Missing: reported with the shape.
            "train": None if train is None else cast(TrainJobSpec, train[0].spec),
            "evaluate": cast(EvaluateJobSpec, evaluate[0].spec),
        }
        warnings = [*(train[0].warnings if train else []), *evaluate[0].warnings]
        return ValidArm(template, train[1] if train else None, evaluate[1], warnings)

    def _trains(self) -> bool:
        """Whether the arm is trained; reports one that can be neither trained nor taken as it is."""
        model = self.arm.get("model")
        inner = model.get("weights") if isinstance(model, dict) else None
        outer = self.arm.get("weights")
        if inner is not None and outer is not None:
            loc: Loc = ("arms", self.index, "weights")
            self.problems.add(loc, "the weights are given here and in the model", given=outer)
        if self.arm.get("recipe") is not None:
            return True
        if inner is not None or outer is not None:
            return False
        if self.given.get("recipe") is None:
            loc = ("arms", self.index, "recipe")
            message = "is required: neither the arm nor the study has one, and the arm has no weights"
            self.problems.add(loc, message, allowed="a recipe, or weights")
        return True

    def _model(self, *, weights: bool = True) -> Any:
        model = self.arm.get("model")
        if not isinstance(model, dict):
            return model
        plain = {name: value for name, value in model.items() if name != "weights"}
        given = self.arm.get("weights") or model.get("weights")
        return {**plain, "weights": given} if weights and given is not None else plain

    def _training(self) -> dict[str, Any]:
        execution = self._execution(OPTIONS_OF["evaluate"])
        body = {"kind": "train", **self._common(), "execution": execution}
        recipe = self.arm.get("recipe") or self.given.get("recipe")
        return body if recipe is None else {**body, "recipe": recipe}

    def _evaluation(self) -> dict[str, Any]:
        execution = self._execution(OPTIONS_OF["train"])
        if isinstance(execution, dict) and execution.get("dtype") in FOR_TRAINING:
            execution = {**execution, "dtype": "float32"}
        own = {name: self.given[name] for name in OF_EVALUATIONS if name in self.given}
        return {"kind": "evaluate", **self._common(), **own, "execution": execution}

    def _common(self) -> dict[str, Any]:
        body = {name: self.shape[name] for name in OF_JOBS if name in self.shape}
        data = self.arm.get("data") or self.given.get("data")
        model = self._model()
        parts = {"data": data, "model": model}
        return {**body, **{name: part for name, part in parts.items() if part is not None}}

    def _execution(self, without: Sequence[str]) -> Any:
        execution = self.given.get("execution", {})
        if not isinstance(execution, dict):
            return execution
        return {name: value for name, value in execution.items() if name not in without}

    def _checked(self, body: dict[str, Any], work: FindWork) -> tuple[ValidSpec, dict[str, Any]] | None:
        try:
            valid = validate(self.catalog, body, **self.environment)
            return valid, work(valid)
        except InvalidSpec as error:
            before = len(self.problems)
            for detail in error.details:
                self._report(detail)
            if isinstance(error, WeightsUnavailable):
                self.problems.not_pulled += len(self.problems) - before
            return None

    def _find_job(self, job_id: str) -> JobLike | None:
        if job_id == OWN_TRAINING and self.found is not None:
            return self.found
        return None if self.find_stored is None else self.find_stored(job_id)

    def _report(self, detail: ErrorDetail) -> None:
        """Adds an error of a job at the study's own field, once for all arms and jobs that have it."""
        if detail.loc == ["recipe"] and detail.given is None:
            return  # reported by `_trains`
        placed = detail.model_copy(update={"loc": [*self._place(tuple(detail.loc))]})
        known = [one for one in self.problems.details if path_text(one.loc) == path_text(placed.loc)]
        # Trainings and evaluations say the same of an option in other words.
        if any(one.message == placed.message or detail.loc[:1] == ["execution"] for one in known):
            return
        if self.problems.full:
            self.problems.unlisted += 1
        else:
            self.problems.details.append(placed)

    def _place(self, loc: Loc) -> Loc:
        own: Loc = ("arms", self.index)
        match loc:
            case ("model", "weights", *rest) if self.arm.get("weights") is not None:
                return (*own, "weights", *rest)
            case ("model", *_):
                return (*own, *loc)
            case (("data" | "recipe") as part, *_) if self.arm.get(part) is not None:
                return (*own, *loc)
            case _:
                return loc


@dataclass(frozen=True)
class _OwnTraining:
    """The training of an arm as a source of weights, before it is stored."""

    spec: UserSpec | Spec
    kind: str = "train"
    state: str = str(JobState.QUEUED)
    expired: bool = False
