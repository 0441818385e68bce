"""Checks a whole job spec against its shape (`specs`) and the catalog, and fills in every default.

The catalog has names, parameters, rules across them, tasks, weights and suites. Well-formed parts are checked
beside wrong ones, so that one answer names every wrong field.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict, Unpack

from assay.service.catalog.catalog import Catalog, Checked
from assay.service.catalog.component import EVALUATIONS
from assay.service.catalog.rules import Namespaces
from assay.service.contract.problems import Loc, Problems
from assay.service.contract.specs import JOB_SPEC
from assay.service.contract.stored_specs import UserSpec
from assay.service.submission import packages
from assay.service.submission.backbone import check_backbone, with_backbone
from assay.service.submission.class_folders import check_labelled, count_classes
from assay.service.submission.compatibility import (
    BACKBONE_FACTS,
    COMPARED_FACTS,
    MadeFor,
    check_capabilities,
    check_data_tasks,
    check_fit,
    check_gradients,
    check_protocol,
    check_tasks,
    data_text,
    facts_of,
    known_of_model,
    known_of_parts,
    misfits,
    with_facts_of_data,
)
from assay.service.submission.data_folders import check_folders
from assay.service.submission.estimate import estimate
from assay.service.submission.imagenet_c_layout import check_stored
from assay.service.submission.pulled_weights import check_pulled_only, pin
from assay.service.submission.shape import check_execution, check_shape
from assay.service.submission.suites import expand, expand_fitting
from assay.service.submission.warnings import check_arithmetic, submission_warnings
from assay.service.submission.weights import (
    FindCheckpoint,
    FindJob,
    WeightsSource,
    check_exported,
    check_other_checkpoint,
    check_same_model,
    check_source,
    checkpoint_named,
    find_source,
)

FOLDERS_OF_EVALUATIONS = "; docs/text-caches.md says how to fill it"
MAX_EVALUATIONS = 500  # as the shape of a job has it


@dataclass(frozen=True)
class ValidSpec:
    """A valid spec."""

    spec: UserSpec  # Plain JSON with every default filled in and suites expanded
    estimate: dict[str, int | None]  # As `estimate` finds it; None where the data's size is unknown
    warnings: list[dict[str, Any]]  # Warnings before the job runs: {"code", "message", "evidence"}


class Environment(TypedDict, total=False):
    """What a submission is checked against beside the catalog; all may be missing.

    `find_job` (id) returns None for an unknown one, `find_checkpoint` (name) or raises NotFound; without
    them, such weights are accepted unchecked. `has_package` is None where the workers run elsewhere; workers
    beside the service have its data root, too.
    """

    data_root: Path | None  # None where it is not visible from here
    find_job: FindJob | None
    find_checkpoint: FindCheckpoint | None
    max_evaluations: int  # suites expanded
    has_package: packages.HasPackage | None
    list_pulled: packages.ListPulled | None  # weights pulled where jobs run; without it, any are accepted


def validate(catalog: Catalog, body: object, **environment: Unpack[Environment]) -> ValidSpec:
    """Check a body of `POST /jobs` and fill in every default; InvalidSpec has a detail per wrong field."""
    problems = Problems()
    shape = check_shape(body, problems)
    validation = _Validation(catalog, problems, environment)
    completed = validation.complete(shape)
    problems.raise_if_any()
    spec: UserSpec = JOB_SPEC.dump_python(JOB_SPEC.validate_python(completed))
    return ValidSpec(
        spec=spec,
        estimate=estimate(catalog, spec, validation.data_root),
        warnings=[
            *submission_warnings(catalog, spec, validation.source, validation.data_root),
            *([] if validation.has_package is not None else packages.package_warnings(catalog, spec)),
        ],
    )


class _Validation:
    """One pass over a spec, in which `model` and `data` become known for rules, tasks and compatibility."""

    def __init__(self, catalog: Catalog, problems: Problems, environment: Environment) -> None:
        self.catalog, self.problems = catalog, problems
        self.data_root = environment.get("data_root")
        self.find_job, self.find_checkpoint = environment.get("find_job"), environment.get("find_checkpoint")
        self.max_evaluations = environment.get("max_evaluations", MAX_EVALUATIONS)
        self.has_package, self.list_pulled = environment.get("has_package"), environment.get("list_pulled")
        self.model: Checked | None = None
        self.data: Checked | None = None
        self.source: WeightsSource | None = None
        self.protocol: str | None = None
        self.dtype = "float32"
        self.left_out: list[dict[str, str]] = []
        self.counted: dict[tuple[str, object], int | None] = {}
        self.compared_facts: tuple[str, ...] = COMPARED_FACTS

    def complete(self, shape: dict[str, Any]) -> dict[str, Any]:
        """The shape with the parameters of every component completed; reports errors."""
        spec = dict(shape)
        if shape.get("kind") == "evaluate":
            self.protocol = str(shape.get("protocol", "pixel"))
        check_execution(shape.get("execution"), self.protocol, self.problems)
        if isinstance(shape.get("execution"), dict):
            self.dtype = str(shape["execution"].get("dtype", self.dtype))
        if "model" in shape:
            spec["model"] = self._check_model(shape["model"])
            check_exported(shape, self.catalog.program_model, self.source, self.problems)
            check_pulled_only(shape, self.model, self.problems)
        if "data" in shape:
            self.data = self._check_data(shape["data"], self.problems, ("data",))
            spec["data"] = _completed(self.data)
            check_fit(self.data, self._made_for(), self.problems, ("data",), self.data_root)
            check_protocol(self.catalog, self.protocol, self.data, self.problems)
            if "recipe" in shape and self.data is not None:
                self._check_trainable(self.data)
        if self.model is not None:
            self._check_rules(self.model, self.data, self.problems, ("model", "params"))
        if "recipe" in shape:
            recipe = self.catalog.check_reference(("recipe",), shape["recipe"], self.problems, ("recipe",))
            recipe = with_facts_of_data(recipe, self.data, self.problems, ("recipe",))
            self._check_component(recipe, self.data, self.problems, ("recipe",))
            spec["recipe"] = _completed(recipe)
            if recipe is not None and self.dtype == "recipe":
                stated = (recipe.component.facts or {}).get("arithmetic", "float32")
                spec["execution"] = {**shape["execution"], "dtype": stated}
        if isinstance(shape.get("evaluations"), list):
            spec["evaluations"] = self._check_evaluations(shape["evaluations"])
            spec["left_out"] = [*shape.get("left_out", []), *self.left_out]
            names = [item["name"] for item in spec["evaluations"] if item is not None]
            check_arithmetic(self.catalog, names, shape.get("execution"), self.problems)
        return spec

    def _check_model(self, model: Mapping[str, Any]) -> dict[str, Any] | None:
        self.source = find_source(model, self.problems, self.find_job, self.find_checkpoint)
        trained = self.source.model if self.source is not None else None
        part = (model.get("weights") or {}).get("part") is not None
        if trained is not None and part:
            model = with_backbone(self.catalog, model, trained)
        same_name = trained is not None and trained["name"] == model.get("name")
        if trained is not None and same_name and not part and "params" in model:
            model = {**model, "params": {**trained["params"], **model["params"]}}
        self.model = self.catalog.check_reference(("model",), model, self.problems, ("model",))
        if part:
            self.compared_facts = BACKBONE_FACTS
            check_backbone(self.catalog, self.model, trained, self.problems, training=self.protocol is None)
        elif trained is not None and self.model is not None:
            check_same_model(self.model, trained, self.problems)
        if self.model is not None and self.source is not None and self.source.task is not None:
            # An uploaded program does one of the tasks that programs may have.
            narrowed = self.model.component.model_copy(update={"tasks": [self.source.task]})
            self.model = replace(self.model, component=narrowed)
        completed = _completed(self.model)
        weights = model.get("weights")
        pulled = pin(self.catalog, self.model, weights, self.problems, self.list_pulled)
        if completed is not None and pulled is not None:
            self.source = pulled.source
            return {**completed, "params": pulled.params, "weights": pulled.weights}
        if self.source is not None and self.source.stated:
            weights = {**(weights or {}), **self.source.stated}
        return None if completed is None else {**completed, "weights": weights}

    def _check_data(self, data: Mapping[str, Any], problems: Problems, loc: Loc) -> Checked | None:
        checked = self.catalog.check_reference(("data",), data, problems, loc)
        if checked is None:
            return None
        check_folders(self.catalog, checked, self.data_root, problems, loc, local=bool(self.has_package))
        check_labelled(checked, self.data_root, problems, loc)
        packages.check_package(checked.component, self.has_package, problems, loc)
        self._check_rules(checked, checked, problems, (*loc, "params"))
        if self.model is not None:
            check_data_tasks(self.catalog, checked.component, self.model.component, problems, loc)
        return checked

    def _check_trainable(self, data: Checked) -> None:
        if (data.component.facts or {}).get("test_only"):
            message = f"{data.component.name!r} is a test set: it has no training images"
            self.problems.add(("data", "name"), message, given=data.component.name)

    def _check_evaluations(self, items: Sequence[Any]) -> list[dict[str, Any] | None]:
        completed: list[dict[str, Any] | None] = []
        count = sum(map(self._count, items))  # Not expanded: 500 suites must not cost 500 expansions.
        if count > self.max_evaluations:
            message = f"suites expand to {count} evaluations, at most {self.max_evaluations} are allowed"
            if count == len(items):
                message = f"has {count} evaluations, at most {self.max_evaluations} are allowed"
            allowed = f"at most {self.max_evaluations} evaluations"
            self.problems.add(("evaluations",), message, given=count, allowed=allowed)
            return completed
        for index, item in enumerate(items):
            loc: Loc = ("evaluations", index)
            if self.problems.full or not isinstance(item, dict):
                continue
            if "suite" in item:
                completed += self._expand(item["suite"], loc)
            else:
                completed.append(self._check_evaluation(item, self.problems, loc))
        return completed

    def _count(self, item: object) -> int:
        """How many evaluations an item stands for; an unknown suite is one, and is reported later."""
        name = item.get("suite") if isinstance(item, dict) else None
        suite = name if isinstance(name, str) and name in self.catalog.names("suite") else None
        return 1 if suite is None else len(self.catalog.find("suite", suite).evaluations or [])

    def _expand(self, name: str, place: Loc) -> list[dict[str, Any] | None]:
        loc = (*place, "suite")
        suite = self.catalog.look_up(("suite",), name, self.problems, loc)
        if suite is None:
            return []
        before = len(self.problems)
        check_tasks(self.catalog, suite, self.model, self.data, self.problems, place, "suite")
        if len(self.problems) == before:
            self.catalog.check_rules(suite, {}, self._namespaces(self.data), self.problems, loc)
        if len(self.problems) > before:
            return []
        expanded = expand_fitting if suite.leaves_out else expand
        kept, left_out = expanded(
            suite, self._check_evaluation, self.problems, loc, data=self.data, data_root=self.data_root
        )
        self.left_out += left_out
        return [*kept]

    def _check_evaluation(
        self, item: Mapping[str, Any], problems: Problems, loc: Loc
    ) -> dict[str, Any] | None:
        before, data, own = len(problems), self.data, item.get("data")
        checked = self.catalog.check_reference(EVALUATIONS, item, problems, loc)
        if own is not None:
            data = self._check_data(own, problems, (*loc, "data"))
            check_fit(data, self._made_for(), problems, (*loc, "data"), self.data_root)
        self._check_component(checked, data, problems, loc)
        if checked is not None:
            hint, local = FOLDERS_OF_EVALUATIONS, self.has_package is not None
            check_folders(self.catalog, checked, self.data_root, problems, loc, hint, local=local)
            packages.check_libraries(self.catalog, checked, self.data_root, self.has_package, problems, loc)
            self._check_other_models(checked, data, problems, loc)
            if self.model is not None and self.model.certain:
                check_capabilities(self.catalog, checked.component, self.model, problems, loc)
            if self.source is not None and not self.source.gradients and len(problems) == before:
                check_gradients(self.catalog, checked.component, problems, loc)
        if checked is not None and data is not None and len(problems) == before:
            check_stored(
                checked, data, self.data_root, problems, (*loc, "data") if own is not None else ("data",)
            )
        completed = _completed(checked)
        if completed is None:
            return None
        return {**completed, "data": _completed(data) if own is not None else None}

    def _check_other_models(
        self, checked: Checked, data: Checked | None, problems: Problems, loc: Loc
    ) -> None:
        """Checks other models in an evaluation: they must exist or be expected, and fit; pins uploads."""
        for name, given in checked.component.jobs(checked.params):
            where: Loc = (*loc, "params", name)
            if checkpoint_named(given) is not None:
                self._check_upload(checked, name, given, data, problems, where)
                continue
            source = (
                check_source(given, problems, where, self.find_job) if self.find_job is not None else None
            )
            if source is None:
                continue
            facts = facts_of(self.catalog, source["data"])
            for problem, allowed in misfits(source["model"], facts, data, self._made_for()):
                problems.add(where, problem, given=given, allowed=f"a training job of a model for {allowed}")

    def _check_upload(
        self, checked: Checked, name: str, given: str, data: Checked | None, problems: Problems, loc: Loc
    ) -> None:
        """Checks an upload that an evaluation names as another model, and writes its hash behind its name."""
        if self.find_checkpoint is None:
            return
        tasks = checked.component.tasks
        found = check_other_checkpoint(given, self.dtype, tasks, problems, loc, self.find_checkpoint)
        if found is None:
            return
        pinned, checkpoint = found
        for problem, allowed in misfits(
            checkpoint.model, checkpoint.facts, data, self._made_for(), "checkpoint"
        ):
            problems.add(loc, problem, given=given, allowed=f"a model for {allowed}")
        value = checked.params[name]
        others = [pinned if one == given else one for one in value] if isinstance(value, list) else pinned
        checked.params[name] = others

    def _made_for(self) -> MadeFor:
        weights = self.source.facts if self.source is not None else {}
        data = self.source.data if self.source is not None else None
        if data is None and self.data is not None:
            data = {"name": self.data.component.name, "params": self.data.params}
        size = weights.get("image_size")
        if size is None and self.model is not None:
            size = self.model.params.get("image_size")
        if data is None:
            return MadeFor(None, {}, weights, size, self.compared_facts)
        known = data["name"] in self.catalog.names("data")
        text = (
            data_text(self.catalog.find("data", data["name"]), data["params"])
            if known
            else repr(data["name"])
        )
        return MadeFor(text, facts_of(self.catalog, data), weights, size, self.compared_facts)

    def _check_component(
        self, checked: Checked | None, data: Checked | None, problems: Problems, loc: Loc
    ) -> None:
        if checked is None:
            return
        check_tasks(self.catalog, checked.component, self.model, data, problems, loc)
        self._check_rules(checked, data, problems, (*loc, "params"))

    def _check_rules(self, checked: Checked, data: Checked | None, problems: Problems, loc: Loc) -> None:
        certain = {name: value for name, value in checked.params.items() if name not in checked.doubted}
        self.catalog.check_rules(checked.component, certain, self._namespaces(data), problems, loc)

    def _namespaces(self, data: Checked | None) -> Namespaces:
        """Values for rules: only certain ones."""
        known: dict[str, Mapping[str, object]] = {}
        if self.protocol is not None:
            known["job"] = {"protocol": self.protocol}
        if self.model is not None and self.model.certain:
            of_file = {} if self.source is None else self.source.facts
            known["model"] = known_of_model(self.catalog, self.model.component, self.model.params)
            for size in ("image_size", "length"):
                if size in of_file and known["model"].get(size) is None:
                    known["model"] = {**known["model"], size: of_file[size]}
            known["part"] = known_of_parts(self.catalog, self.model.component, self.model.params)
        if data is not None:
            known["data"] = self._known_of_data(data)
        elif self.model is not None and len(self.model.component.tasks) == 1:
            known["data"] = {"tasks": self.model.component.tasks}
        return known

    def _known_of_data(self, data: Checked) -> Mapping[str, object]:
        """Facts of data, with the number of classes where they are folders that can be seen from here."""
        known = data.component.known(data.params if data.certain else {})
        if "classes" in known or not data.certain:
            return known
        key = (data.component.name, data.params.get("folder"))
        if key not in self.counted:
            self.counted[key] = count_classes(data, self.data_root)
        return known if self.counted[key] is None else {**known, "classes": self.counted[key]}


def _completed(checked: Checked | None) -> dict[str, Any] | None:
    return None if checked is None else {"name": checked.component.name, "params": checked.params}
