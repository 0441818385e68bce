"""Assay measures how robust transformer models are: `assay.service`, `.workers`, `.models`, `.attacks`.

import assay

results = assay.evaluate(module, "cifar10", suite="standard")
results["pgd", "8/255"].top1
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

    from assay.service.client import AssayClient
    from assay.service.client.data_place import Component, DataPlace
    from assay.service.client.one_line import Subject
    from assay.service.client.result_views import ResultsView
    from assay.service.contract.problems import Problems

__all__ = ["evaluate"]

STARTING = "starting: loading Assay"  # said before imports, which take seconds the first time


def evaluate(
    model: str | Path | nn.Module,
    data: str | Path,
    suite: str | None = None,
    *,
    attacks: str | Sequence[str] = (),
    weights: str | None = None,
    image_size: int | None = None,
    crop_fraction: float | None = None,
    class_names: Sequence[str] | None = None,
    labels: str | Path | None = None,
    normalization: str | None = None,
    limit: int | None = None,
    seed: int = 0,
    device: str = "auto",
    url: str | None = None,
    state: str | Path = "assay-state",
    workers: int | None = None,
    report: str | Path | None = None,
    progress: bool = True,
) -> ResultsView:
    """Measure one model on one data set, as `assay evaluate` does.

    Without an address a service is started for the call; its state folder keeps results and examples.

    Args:
        model: an `nn.Module`, which is exported (`torch.export`, any batch size) in evaluation mode and takes
            pixels in [0, 1], float32 (B, C, H, W), to logits (B, classes); or a text as for `assay evaluate`:
            "timm:resnet50", "model.pt2", "my_package.models:build".
        data: a data set of the catalog, "NAME:PATH", or the path of a folder FOLDER/CLASS/IMAGE.
        suite: a suite of the catalog; None: "quick", or no suite where there are attacks.
        attacks: an attack or evaluation with its parameters, "pgd epsilon=8/255 steps=20", or a list of such
            texts. Without a suite, clean accuracy is measured first.
        weights: a safetensors file, "job:ID" or "checkpoint:NAME", for a function or a model of the catalog.
        image_size: height and width in pixels that a module or function takes; None: that of the data.
        crop_fraction: of image files: side of the centre crop / short side after resizing; None: the data
            set's, mostly 0.875. 1 for images that have the model's size already.
        class_names: of a folder or table, in the order of the model's logits; None: numbers by value, else as
            text, or as the data state it.
        labels: a file with these names: one a line, or JSON (a list, or id2label).
        normalization: of pixels in [0, 1] where the module takes normalised images, or of weights from
            elsewhere: "imagenet", "inception" or '{"mean": [...], "std": [...]}'; None: none, or the file's.
        limit: examples; None for all.
        seed: of the job.
        device: "auto", "cpu" or "cuda".
        url: address of a running service; None: ASSAY_URL, else one is started.
        state: folder of the service that is started.
        workers: its evaluators; None: one per core, at most four.
        report: write a report to this file; its ending is the format: .html, .md, .tex or .csv.
        progress: say on standard error what is done, and draw a progress bar there.

    Returns:
        The results: `results["pgd", "8/255"].top1` is a metric with its interval.

    Raises:
        InvalidSpec: with a detail per wrong field; a module that cannot be exported is one of these.
        MissingExtra: a module needs the worker here, and so does a service of one's own; an ImportError.
        EvaluationFailed: the job did not succeed; what was measured before stays in the state folder.
    """
    tell = _say if progress else _say_nothing
    tell(STARTING)

    from assay.service.cli.progress_bars import Bars
    from assay.service.client.evaluation import (
        DEFAULT_SUITE,
        Request,
        check_request,
        ended,
        known_data,
        program_first,
        service_for,
        write_report,
    )
    from assay.service.client.first_look import look_at_place
    from assay.service.contract.problems import Problems

    attacks = [attacks] if isinstance(attacks, str) or not isinstance(attacks, Sequence) else attacks
    own, address = (
        f"is kept in {state}, and the same call goes on",
        url or os.environ.get("ASSAY_URL") or None,
    )
    suites = [suite] if suite is not None else [] if attacks else [DEFAULT_SUITE]
    options: dict[str, Any] = {"seed": seed, "execution": {"device": device}}
    if not isinstance(model, str | Path):
        options["name"] = type(model).__name__
    problems = Problems()
    subject = _subject(model, weights, normalization, image_size, tell, problems)
    files = {"report": Path(report) if report else None, "state": Path(state) if address is None else None}
    place = look_at_place(problems, str(data), crop_fraction, class_names, labels, **files)
    request = Request(subject, place, suites, attacks, limit, options)
    check_request(request, own=address is None, found=problems)
    with contextlib.ExitStack() as stack:

        def started() -> AssayClient:
            if address is None:
                tell(f"starting a service, its state in {state}")
            return stack.enter_context(service_for(place, url=address, state=Path(state), workers=workers))

        known = known_data(place) if address is None else None
        client = started() if known is None else None
        if not isinstance(model, str | Path):
            tell(f"exporting {subject.label}")
            sets = client.catalog("data") if client is not None else known or []
            path = stack.enter_context(_exported(sets, model, place, image_size, normalization))
            request = replace(request, subject=replace(subject, model=path))
        request = stack.enter_context(program_first(request, own=client is None))
        client = client or started()
        label = subject.label or subject.model
        bars = stack.enter_context(Bars([label], sys.stderr if progress else io.StringIO()))
        try:
            job = ended(client, request, own=address is None, callback=lambda now: bars.draw({label: now}))
        except KeyboardInterrupt:
            tell(f"interrupted: what was measured {own if address is None else 'stays at the service'}")
            raise
        if report is not None:
            write_report(client, job.id, Path(report))
        return client.results(job.id)


def command() -> int:
    """Run the `assay` command, which says first that it starts where that is waited for."""
    if {"evaluate", "attack"}.intersection(sys.argv[1:2]) and not {"-h", "--help"}.intersection(sys.argv):
        _say(STARTING)

    from assay.service.cli.main import main

    return main()


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def _say_nothing(text: str) -> None:
    pass


def _subject(
    model: str | Path | nn.Module,
    weights: str | None,
    normalization: str | None,
    image_size: int | None,
    tell: Callable[[str], None],
    problems: Problems,
) -> Subject:
    """The model of a call; of a module the file that its export will write, which knows the options."""
    from assay.service.client.one_line import Subject, check_subject, mean_and_std

    if isinstance(model, str | Path):
        subject = Subject(str(model), weights, normalization, image_size, tell=tell)
        with problems.gathered():
            check_subject(subject)
        return subject
    with problems.gathered():
        _check_module(model)
    with problems.gathered():
        mean_and_std(normalization)
    name = type(model).__name__
    if weights is not None:
        problems.add(("weights",), "has no effect on a module, which has its own", given=weights)
    return Subject(f"{name}.pt2", label=name, tell=tell)


def _check_module(model: object) -> None:
    from assay.service.client.data_place import wrong
    from assay.service.client.one_line import FORMS
    from assay.service.contract.extras import require

    require("`assay.evaluate` of a module", "worker")
    from torch import nn

    if not isinstance(model, nn.Module):
        raise wrong(("model",), "is no nn.Module and no text", given=model, allowed=f"a module, or {FORMS}")


@contextlib.contextmanager
def _exported(
    known: Sequence[Component],
    module: nn.Module,
    place: DataPlace,
    image_size: int | None,
    normalization: str | None,
) -> Iterator[str]:
    """The path of the program of a module, for images as the data have them."""
    from assay.service.client.class_check import classes_of
    from assay.service.client.data_place import data_spec, wrong
    from assay.service.client.one_line import mean_and_std
    from assay.workers.weights.export import export_program
    from assay.workers.weights.export_inputs import CannotExport

    data = data_spec(place, known)
    facts = next(one for one in known if one["name"] == data["name"]).get("facts") or {}
    mean, std = mean_and_std(normalization)
    with tempfile.TemporaryDirectory(prefix="assay-") as folder:
        path = Path(folder) / f"{type(module).__name__}.pt2"
        size = image_size or facts.get("size")
        try:
            export_program(
                module,
                path,
                image_size=size,
                channels=data["params"].get("channels", facts.get("channels", 3)),
                mean=mean,
                std=std,
                data_classes=classes_of(place),
            )
        except CannotExport as error:
            raise wrong(("model",), str(error), given=type(module).__name__) from error
        yield str(path)
