"""The subcommands of `assay`; each takes the parsed options and returns an exit code."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from assay.service import features
from assay.service.cli import output
from assay.service.cli.job_progress import JOB_FAILED as JOB_FAILED
from assay.service.cli.job_progress import OK as OK
from assay.service.cli.job_progress import follow_to_end
from assay.service.cli.markdown import comparison_markdown
from assay.service.cli.profiles import UsageError as UsageError
from assay.service.cli.profiles import chosen, key_of, saying_whose
from assay.service.cli.progress_bars import Spinner
from assay.service.cli.spec_files import SpecFile
from assay.service.cli.spec_kinds import check_kind, naming_studies
from assay.service.client import AssayClient
from assay.service.contract.errors import AssayError, NoResults
from assay.service.contract.extras import require, require_module
from assay.service.contract.problems import Problems, nearest
from assay.service.contract.results import Job
from assay.service.contract.verbs import Verb
from assay.service.contract.warning_codes import warning_meanings
from assay.service.contract.weights.pulled import PullRequest
from assay.service.fitted_text import say, tell

INVALID = 2
UNREACHABLE = 3
PREFIX, ROOT = "ASSAY_", "ASSAY_DATA_ROOT"
WORKER_STATE = "assay-worker"
WORKER_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")

Options = argparse.Namespace


def serve(options: Options) -> int:
    """Replaces this process by the embedded service; the options travel as ASSAY_ variables."""
    require("`assay serve`", "service", "worker")
    from pydantic_settings import SettingsError

    from assay.service.settings import Settings
    from assay.service.store.connections import wrong_settings

    names = ("host", "port", "state", "workers", "data_root")
    given = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    faults = missing_root(named) if (named := options.data_root) else missing_root(os.environ.get(ROOT), ROOT)
    try:
        Settings(**given)
    except (ValidationError, SettingsError) as error:
        faults += wrong_settings(error)
    if lines := "; ".join(faults):
        for name in given:
            lines = lines.replace(f"{PREFIX}{name.upper()}: ", f"--{name.replace('_', '-')}: ")
        raise UsageError(lines) from None
    environment = {f"{PREFIX}{name.upper()}": str(value) for name, value in given.items()}
    return run_module("assay.workers.embedded", [], environment)


def missing_root(root: str | Path | None, option: str = "--data-root") -> list[str]:
    """What is wrong with a folder of data sets; the option names it."""
    if not root or Path(os.path.expanduser(root)).is_dir():
        return []
    return [f"{option}: there is no such folder (given {str(root)!r}); make it, or name another"]


def worker(options: Options) -> int:
    """Replaces this process by a worker beside an embedded service, or at a gateway."""
    require("`assay worker`", "worker")
    if missing := missing_root(options.data_root):
        raise UsageError(*missing)
    given = worker_settings(options)
    environment = {
        f"{PREFIX}{name.upper()}": str(value) for name, value in given.items() if value is not None
    }
    gateway = environment.get(f"{PREFIX}GATEWAY") or os.environ.get(f"{PREFIX}GATEWAY")
    return run_module(f"assay.workers.{'nodes' if gateway else 'worker'}", [], environment)


def worker_settings(options: Options) -> dict[str, object]:
    """The settings that the options of `assay worker` state, None where they state nothing."""
    if options.name is not None and not WORKER_NAME.fullmatch(options.name):
        allowed = "at most 100 letters, digits, '.', '_' and '-'"
        raise UsageError(f"--name: {options.name!r} given; allowed: {allowed}")
    state = options.state
    if options.gateway is not None and state is None and f"{PREFIX}STATE" not in os.environ:
        state = WORKER_STATE
    return {
        "state": state,
        "data_root": options.data_root,
        "node": options.name,
        "gateway": options.gateway,
        "worker_idle_seconds": options.until,
        "worker_max_seconds": options.max_seconds,
        "shard_seconds": options.shard_seconds,
        "devices": options.devices,
        "stage": options.stage or None,
    }


def data_check(options: Options) -> int:
    """Replaces this process by the check of the data sets."""
    require("`assay data check`", "worker")
    root = {} if options.data_root is None else {ROOT: str(options.data_root)}
    flags = [flag for flag, given in (("--no-hash", options.no_hash), ("--json", options.json)) if given]
    if options.seconds is not None:
        flags += ["--seconds", str(options.seconds)]
    flags += [part for text in options.data or () for part in ("--data", text)]
    return run_module("assay.workers.data.formats.check", flags, root)


def data_store(options: Options) -> int:
    """Replaces this process by an action on published or staged data sets."""
    require_module(f"`assay data {options.action}`", "sqlalchemy")  # of service and worker: either will do
    settings = {"data_root": options.data_root, "data_store": options.store, "gateway": options.gateway}
    settings["weights_root"] = options.weights_root
    asked = {
        "action": options.action,
        "names": options.names,
        "tenants": options.tenant,
        "limit": options.limit,
        "json": options.json,
        "settings": {name: None if value is None else str(value) for name, value in settings.items()},
    }
    return run_module("assay.workers.staging.command", [json.dumps(asked)], {})


def doctor(options: Options) -> int:
    """Replaces this process by the look at this box."""
    require("`assay doctor`", "worker")
    names = ("host", "port", "state", "data_root")
    given = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    environment = {f"{PREFIX}{name.upper()}": str(value) for name, value in given.items()}
    flags = [flag for flag, said in (("--json", options.json), ("--no-data", options.no_data)) if said]
    return run_module("assay.workers.doctor", flags, environment)


def demo(options: Options) -> int:
    """Replaces this process by the demo."""
    require("`assay demo`", "service", "worker", "demo")
    given = {"--output": options.output, "--epochs": options.epochs}
    words = [text for name, value in given.items() if value is not None for text in (name, str(value))]
    return run_module(features.names("demo")[0], words, {})


def pull(options: Options) -> int:
    """Replaces this process by the download; listing and verifying need no extra."""
    if not options.list and not options.verify:
        require("`assay pull`", "worker")
    return run_module("assay.workers.weights.pull", [json.dumps(request_of(options))], {})


def request_of(options: Options) -> PullRequest:
    """What the process of the workers' environment is asked to do."""
    return {
        "references": options.reference,
        "list": options.list,
        "verify": options.verify,
        "json": options.json,
        "local": options.local,
        "weights_root": options.weights_root,
    }


def run_module(module: str, arguments: list[str], environment: dict[str, str]) -> int:
    """Becomes `python -P -m module`, unimported here; `-P` looks for no modules in the user's folder."""
    sys.stdout.flush()
    command = [sys.executable, "-P", "-m", module, *arguments]
    os.execve(sys.executable, command, os.environ | environment)  # noqa: S606 (our own interpreter and module)


def submit(options: Options, spec: SpecFile) -> int:
    """Posts a job; the id is alone on standard output."""
    with spec.pointing():
        check_kind(spec.value, "job", options.file)
    with connected(options) as client:
        with spec.pointing():
            if options.dry_run:
                found = client.dry_run(spec.body, decode=True)
                _say(output.json_text(found))
                tell(output.estimate_text(found["estimate"]))
                return say_data(found["data"])
            job = client.submit(spec.body, idempotency_key=options.idempotency_key)
        _show(options, job.model_dump(mode="json"), job.id)
        if not options.wait:
            tell(f"{job.state.value}; follow it with: assay status {job.id} --wait")
            return OK
        return _ended(client, job, options)


def say_data(looks: Sequence[Mapping[str, Any]]) -> int:
    """Says what a dry run found in the data; the code is 1 where the job would fail."""
    for look in looks:
        for line in output.data_lines(look):
            tell(line)
    fails = any(look["looked"] and (look["problem"] or look["unreadable_count"]) for look in looks)
    return JOB_FAILED if fails else OK


def jobs(options: Options) -> int:
    """Lists jobs, newest first."""
    with connected(options) as client:
        size = max(1, min(options.limit, 200))
        found = client.jobs(
            state=options.state,
            kind=options.kind,
            model=options.model,
            tag=options.tag,
            search=options.search,
            study=options.study,
            sort=options.sort,
            page_size=size,
        )
        listed = list(itertools.islice(found, options.limit))
    _show(options, [job.model_dump(mode="json") for job in listed], output.jobs_table(listed))
    return OK


def show(options: Options) -> int:
    """Shows a job."""
    with connected(options) as client:
        job = client.job(options.job)
    _show(options, job.model_dump(mode="json"), output.job_text(job))
    return OK


def watch(options: Options) -> int:
    """Follows a job to its end; with `--json` standard output has the job alone."""
    with connected(options) as client:
        return _ended(client, client.job(options.job), options)


def _ended(client: AssayClient, job: Job, options: Options) -> int:
    """Follows a job to its end, and shows its results; with `--json` the job, and nothing else."""
    code = follow_to_end(client, job, sys.stderr if options.json else None)
    if options.json:
        _say(output.json_text(client.job(job.id).model_dump(mode="json")))
        return code
    with suppress(NoResults):
        if (found := client.results(job.id)).evaluations:
            _say(output.results_text(found, full=options.full))
    return code


def results(options: Options) -> int:
    """Shows the results so far."""
    with connected(options) as client:
        if options.format in ("csv", "md", "tex", "html"):
            csv = options.format == "csv"
            text = (
                client.results_csv(options.job) if csv else client.report(options.job, format=options.format)
            )
            sys.stdout.write(text)
            return OK
        found = client.results(options.job)
    if options.format == "json":
        _say(output.json_text(found.model_dump(mode="json")))
    else:
        _say(output.results_text(found, full=options.full))
    return OK


def act(verb: Verb, options: Options) -> int:
    """Does what a verb says to a job."""
    with connected(options) as client:
        job = getattr(client, verb.name)(options.job)
    if verb.said:
        say(verb.said.format(job=job))
    return OK


def tag(options: Options) -> int:
    """Changes the tags of jobs; of a job that is refused says why, and goes on."""
    if not options.add and not options.remove:
        raise UsageError("give --add TAG, --remove TAG, or both")
    code = OK
    with connected(options) as client:
        for job_id in options.jobs:
            try:
                job = client.tag(job_id, add=options.add, remove=options.remove)
            except AssayError as error:
                if error.status >= 500 or len(options.jobs) == 1:
                    raise
                tell(output.error_text(error))
                code = INVALID
            else:
                say(output.printable(f"{job_id}: {', '.join(job.tags) or 'no tags'}"))
    return code


def artifacts(options: Options) -> int:
    """Lists the files of a job."""
    with connected(options) as client:
        found = client.artifacts(options.job)
    _show(options, [item.model_dump(mode="json") for item in found], output.artifacts_table(found))
    return OK


def download(options: Options) -> int:
    """Downloads a file of a job, its hash checked."""
    target = Path(options.output)
    with connected(options) as client:
        if options.output.endswith("/"):
            target.mkdir(parents=True, exist_ok=True)
        _say(str(client.download(options.job, options.name, target)))
    return OK


def catalog(options: Options) -> int:
    """Lists the catalog, or shows a component."""
    with connected(options) as client:
        if options.name is not None:
            component = client.component(options.kind, options.name)
            _show(options, component, output.component_text(component))
        else:
            components = client.catalog(options.kind)
            _show(options, components, output.catalog_table(components))
    return OK


def warnings(options: Options) -> int:
    """Lists the codes of warnings, or explains a code."""
    known = {str(one.code): one for one in warning_meanings()}
    if options.code is None:
        _show(options, [one.model_dump() for one in known.values()], output.warnings_table(known.values()))
    elif options.code in known:
        found = known[options.code]
        _show(options, found.model_dump(), output.warning_text(found))
    else:
        problems = Problems()
        near = nearest(options.code, known)
        problems.add(("CODE",), "is no warning", given=options.code, allowed=list(known), nearest=near)
        problems.raise_if_any()
    return OK


def compare(options: Options) -> int:
    """Shows the metrics of several jobs side by side."""
    with connected(options) as client:
        options.json = options.format == "json"
        if options.format == "csv":
            sys.stdout.write(client.compare_csv(options.jobs, options.adjust))
            return OK
        with Spinner(lines=False) as waiting:
            waiting.tell("the service compares the jobs")
            comparison = client.compare(options.jobs, options.adjust)
    written = options.format == "md"
    table = output.comparison_table(comparison, full=options.full)
    _show(options, comparison, comparison_markdown(comparison) if written else table)
    return OK


@contextmanager
def connected(options: Options) -> Iterator[AssayClient]:
    """A client of the service named by the options, the environment or the profile."""
    found = chosen(options.url, getattr(options, "profile", None))
    key = key_of(found)
    given: dict[str, Any] = {} if key is None else {"key": key}
    with saying_whose(found), AssayClient(found.url, **given) as client, naming_studies(client):
        yield client


def _show(options: Options, value: object, text: str) -> None:
    output.show(value, text, as_json=options.json)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
