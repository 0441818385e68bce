"""Lists of jobs in a JSON file, in which a job refers to an earlier job by its name.

    {"defaults": {"train": {"data": {"name": "digits"}, ...}, "evaluate": {...}},
     "jobs": [{"kind": "train", "name": "tiny", "model": {...}},
              {"kind": "evaluate", "name": "tiny, attacked",
               "model": {"name": "vit", "weights": {"job": "@tiny"}}, "evaluations": [...]}]}

A job is a spec as for `POST /jobs` with a name of its own; missing fields come from the defaults of its kind.
A field `job` has an id, or "@" and the name of an earlier job. Every job is validated by a dry run before the
first one is stored. Weights of an earlier job that do not fit are refused later; earlier jobs are canceled.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.service.catalog.parameters import check
from assay.service.cli import commands, markdown, output
from assay.service.cli.job_progress import ended_text
from assay.service.cli.progress_bars import Bars
from assay.service.cli.spec_files import SpecFile, read_spec
from assay.service.cli.spec_kinds import check_kind, kind_of
from assay.service.client import AssayClient
from assay.service.contract.errors import (
    AssayError,
    ErrorDetail,
    InvalidSpec,
    InvalidState,
    MalformedJson,
    NoResults,
)
from assay.service.contract.problems import Loc, Problems, nearest, path_text
from assay.service.contract.results import Job, Results
from assay.service.contract.strict_json import parse_json
from assay.service.fitted_text import say, tell

# The service checks the contents of specs.
SHAPE: Mapping[str, Any] = json.loads(Path(__file__).with_name("job_lists.json").read_text(encoding="utf-8"))
REFERENCE_PREFIX = "@"
# The parameter that is a list of ids of jobs.
JOB_LIST = "others"
MAX_DEPTH = 40

Entry = dict[str, Any]


def read(raw: bytes, file: str = "FILE") -> list[Entry]:
    """A list's specs with defaults filled in, without ids for names yet; MalformedJson, if not strict JSON.

    InvalidSpec names all places: no list, or a name missing, taken, unknown or of a later job.
    """
    jobs, problems = _read(raw, file)
    problems.raise_if_any()
    return jobs


def _read(raw: bytes, file: str) -> tuple[list[Entry], Problems]:
    """As `read`; what is wrong with names is returned, so that it is reported with what the service finds."""
    try:
        body = parse_json(raw, MAX_DEPTH)
    except MalformedJson as error:
        raise MalformedJson(error.message.replace("the body", "the list", 1)) from None
    problems = Problems()
    check_kind(body, "list", file)
    jobs = _jobs(body, problems)
    problems.raise_if_any()
    for index, job in enumerate(jobs):
        _check_name(jobs, index, problems)
        for loc, name in _references(job, ("jobs", index)):
            _check_reference(jobs, index, name, loc, problems)
    return jobs, problems


def resolved(value: Any, ids: Mapping[str, str]) -> Any:
    """The spec with names replaced by ids."""
    if isinstance(value, dict):
        found: dict[str, Any] = {}
        for key, part in value.items():
            if _refers(key, part):
                found[key] = ids[part[len(REFERENCE_PREFIX) :]]
            elif listed := _named(key, part):
                found[key] = [resolved(item, ids)["job"] for item in listed]
            else:
                found[key] = resolved(part, ids)
        return found
    return [resolved(part, ids) for part in value] if isinstance(value, list) else value


def _named(key: str, part: object) -> list[dict[str, Any]]:
    return [{"job": item} for item in part] if key == JOB_LIST and isinstance(part, list) else []


def referred(jobs: list[Entry]) -> frozenset[str]:
    """The names of the jobs that others refer to."""
    return frozenset(name for job in jobs for _, name in _references(job, ()))


def _jobs(body: object, problems: Problems) -> list[Entry]:
    checked = check(SHAPE, body, problems)
    if len(problems):
        return []
    defaults: dict[str, Entry] = checked["defaults"]
    return [{**defaults.get(str(job.get("kind")), {}), **job} for job in checked["jobs"]]


def _check_name(jobs: list[Entry], index: int, problems: Problems) -> None:
    name = jobs[index].get("name")
    loc: Loc = ("jobs", index, "name")
    if not isinstance(name, str) or not name:
        near = nearest("name", jobs[index])
        hint = f"; {near!r} is no field" if near and near != "name" else ""
        message = f"every job of a list needs a name{hint}"
        problems.add(loc, message, given=name, allowed="a text, not empty")
    elif name in (other.get("name") for other in jobs[:index]):
        problems.add(loc, "an earlier job of the list has this name", given=name, allowed="a name of its own")


def _check_reference(jobs: list[Entry], index: int, name: str, loc: Loc, problems: Problems) -> None:
    names = [str(job.get("name")) for job in jobs]
    if name in names[:index]:
        return
    earlier = [REFERENCE_PREFIX + other for other in names[:index]]
    if name in names[index:]:
        message = "a job may refer to earlier jobs of the list only"
    else:
        message = "no job of the list has this name"
    near = nearest(REFERENCE_PREFIX + name, earlier)
    problems.add(
        loc, message, given=REFERENCE_PREFIX + name, allowed=earlier or "an id of a job", nearest=near
    )


def _references(value: object, loc: Loc) -> Iterator[tuple[Loc, str]]:
    if isinstance(value, dict):
        for key, part in value.items():
            if _refers(key, part):
                yield (*loc, key), part[len(REFERENCE_PREFIX) :]
            elif listed := _named(key, part):
                for index, item in enumerate(listed):
                    yield from (((*loc, key, index), name) for _, name in _references(item, ()))
            else:
                yield from _references(part, (*loc, key))
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from _references(part, (*loc, index))


def _refers(key: str, value: object) -> bool:
    return key == "job" and isinstance(value, str) and value.startswith(REFERENCE_PREFIX)


def submit(options: commands.Options) -> int:
    """Posts a job, or the jobs of a list."""
    spec = read_spec(options.file)
    return (_run if kind_of(spec.value) == "list" else commands.submit)(options, spec)


def _run(options: commands.Options, spec: SpecFile) -> int:
    """Posts the jobs of a list; with `--wait` waits for all of them, and prints their results."""
    with spec.pointing():
        listed, named = _read(spec.body, options.file)
    with commands.connected(options) as client:
        with spec.pointing():
            estimates = _check_all(client, listed, named)
            if options.dry_run:
                return _planned(options, listed, estimates)
            jobs = _submitted(client, listed, options.idempotency_key)
        if not options.wait:
            return _posted(options, jobs)
        ended = _followed(client, jobs)
        results = {name: found for name, job in ended.items() if (found := _results(client, job))}
    failed = {name: job for name, job in ended.items() if job.state != "succeeded"}
    if options.json:
        answer = {
            name: {
                "job": job.model_dump(mode="json"),
                "results": results[name].model_dump(mode="json") if name in results else None,
            }
            for name, job in ended.items()
        }
        sys.stdout.write(f"{output.json_text(answer)}\n")
    else:
        between = referred(listed)
        shown = {name: found for name, found in results.items() if name not in between}
        sys.stdout.write(markdown.readable(f"{markdown.markdown(shown, options.metric)}\n") if shown else "")
        _name_unknown(options.metric, shown)
    for name, job in failed.items():
        tell(f"{output.printable(name)}: job {job.id} {ended_text(job)}")
    return commands.JOB_FAILED if failed else commands.OK


def _posted(options: commands.Options, jobs: Mapping[str, Job]) -> int:
    if options.json:
        sys.stdout.write(
            f"{output.json_text({name: job.model_dump(mode='json') for name, job in jobs.items()})}\n"
        )
    else:
        for name, job in jobs.items():
            say(f"{job.id}  {output.printable(name)}")
    return commands.OK


def _name_unknown(asked: Sequence[str], results: Mapping[str, Results]) -> None:
    parts = [part for found in results.values() for part in found.evaluations]
    known = list(dict.fromkeys(name for part in parts for name in part.metrics))
    for name in asked:
        if known and name not in known:
            near = nearest(name, known)
            hint = f"; did you mean {near!r}?" if near else ""
            text = f"no result has the metric {name!r}{hint} (there are {', '.join(known)})"
            tell(output.printable(text))


def _planned(options: commands.Options, listed: list[Entry], estimates: Mapping[str, Entry]) -> int:
    """Prints the estimate of each job and their sum; a job that needs an earlier job has no estimate yet."""
    names = [str(spec["name"]) for spec in listed]
    seconds = {name: estimates.get(name, {}).get("seconds") for name in names}
    known = [each for each in seconds.values() if each is not None]
    later = [name for name in names if name not in estimates]
    if options.json:
        answer = {"jobs": {name: estimates.get(name) for name in names}, "seconds": sum(known)}
        sys.stdout.write(f"{output.json_text(answer)}\n")
        return commands.OK
    rows = [
        (name, str(spec["kind"]), "not yet known" if name in later else _seconds(seconds[name]))
        for name, spec in zip(names, listed, strict=True)
    ]
    sys.stdout.write(output.table(("JOB", "KIND", "ESTIMATE"), rows) + "\n")
    without = len(names) - len(known)
    more = f", without {without} whose time is not known" if without else ""
    say(f"{len(names)} jobs: {sum(known):.3g} s of computing{more}")
    if later:
        text = (
            f"weights and cost not checked, as earlier jobs of the list make the weights: {', '.join(later)}"
        )
        say(output.printable(text))
    return commands.OK


def _seconds(seconds: float | None) -> str:
    return "unknown" if seconds is None else f"{seconds:.3g} s"


def _check_all(client: AssayClient, listed: list[Entry], named: Problems) -> dict[str, Entry]:
    """Name to estimate of the jobs that a dry run validates as a whole; what is wrong in others is raised."""
    refused: list[AssayError] = []
    try:
        named.raise_if_any()
    except InvalidSpec as error:
        refused.append(error)
    estimates: dict[str, Entry] = {}
    for index, spec in enumerate(listed):
        try:
            found = client.dry_run(stand_in(spec, listed[:index]))
            estimates[str(spec.get("name"))] = dict(found["estimate"])
        except InvalidSpec as error:
            places = [(*loc,) for loc, _ in _references(spec, ())]
            # A backbone's parameters come from the job that trains it.
            unknown = "part" in _weights(spec)
            details = [
                detail
                for detail in error.details
                if (*detail.loc,) not in places and not (unknown and detail.loc[:1] == ["model"])
            ]
            if details:
                refused.append(
                    _placed(InvalidSpec(details[0].message, details), index, str(spec.get("name") or ""))
                )
    if refused:
        details = [detail for error in refused for detail in error.details]
        raise InvalidSpec("; ".join(error.message for error in refused), details)
    return estimates


def stand_in(spec: Entry, earlier: list[Entry]) -> Entry:
    """A spec as far as a dry run can check it: a model takes the parameters of the listed job that trains it.

    Its reference stays, and the service reports that there is no such job.
    """
    given = _weights(spec).get("job")
    if not isinstance(given, str) or not _refers("job", given) or "part" in _weights(spec):
        return spec
    trained = next((job for job in earlier if job.get("name") == given[len(REFERENCE_PREFIX) :]), {})
    theirs, own = trained.get("model"), spec["model"]
    if not isinstance(theirs, dict) or theirs.get("name") != own.get("name"):
        return spec
    return {**spec, "model": {**own, "params": {**_dict(theirs.get("params")), **_dict(own.get("params"))}}}


def _weights(spec: Entry) -> Entry:
    return _dict(_dict(spec.get("model")).get("weights"))


def _dict(value: object) -> Entry:
    return value if isinstance(value, dict) else {}


def _submitted(client: AssayClient, listed: list[Entry], key: str | None) -> dict[str, Job]:
    """Name to job. If a job is refused, earlier jobs are canceled: the list runs whole or not at all."""
    jobs: dict[str, Job] = {}
    for index, spec in enumerate(listed):
        ids = {name: job.id for name, job in jobs.items()}
        own = None if key is None else f"{key}-{index}"
        try:
            jobs[spec["name"]] = client.submit(resolved(spec, ids), idempotency_key=own)
        except AssayError as error:
            _cancel(client, jobs)
            raise _placed(error, index, spec["name"]) from None
    return jobs


def _cancel(client: AssayClient, jobs: Mapping[str, Job]) -> None:
    for job in reversed(list(jobs.values())):
        try:
            client.cancel(job.id)
        except InvalidState:
            continue  # it has ended
        except AssayError as error:
            tell(f"cannot cancel job {job.id}: {output.printable(error.message)}")


def _placed(error: AssayError, index: int, name: str) -> AssayError:
    details = [
        ErrorDetail.model_validate(detail.model_dump() | {"loc": ["jobs", index, *detail.loc]})
        for detail in error.details
    ]
    return type(error)(f"{path_text(('jobs', index))} {name!r}: {error.message}", details)


def _followed(client: AssayClient, jobs: Mapping[str, Job]) -> dict[str, Job]:
    """The jobs in their final state. Standard output is for the table alone."""
    now = {output.printable(name): job for name, job in jobs.items()}
    with Bars(list(now), sys.stderr) as bars:

        def draw(job: Job) -> None:
            now.update({label: job for label, one in now.items() if one.id == job.id})
            bars.draw(now)

        return {name: client.wait(job.id, callback=draw) for name, job in jobs.items()}


def _results(client: AssayClient, job: Job) -> Results | None:
    try:
        return client.results(job.id)
    except NoResults:
        return None
