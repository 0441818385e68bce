"""Which command takes a spec or an id: one job, a list of jobs, or a study."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from assay.service.client import AssayClient
from assay.service.contract.errors import NotFound
from assay.service.contract.problems import Problems

# What a file holds, in words, and the command that takes it.
COMMANDS: Mapping[str, tuple[str, str]] = {
    "job": ("one job", "submit"),
    "list": ("a list of jobs", "submit"),
    "study": ("a study", "studies run"),
}
FORMS: Mapping[str, str] = {
    "job": 'a job is {"kind": "train" or "evaluate", ...}',
    "list": 'a list is {"jobs": [...]}',
    "study": 'a study is {"kind": "study", "arms": [...], ...}',
}


def kind_of(value: object) -> str | None:
    """A key of `COMMANDS` by `jobs` (a list), `kind` or a field that only one kind has; None if undecided."""
    if not isinstance(value, dict):
        return None
    said = {"train": "job", "evaluate": "job", "study": "study"}.get(str(value.get("kind")))
    own = {"arms": "study", "model": "job"}
    return "list" if "jobs" in value else said or next((own[name] for name in own if name in value), None)


def check_kind(value: object, wanted: str, file: str) -> None:
    """Refuses a spec that another command takes."""
    found = kind_of(value)
    if found is None or found == wanted:
        return
    what, command = COMMANDS[found]
    problems = Problems()
    allowed = f"`assay {command} {file}` takes it; {FORMS[wanted]}"
    problems.add((), f"is {what}, not {COMMANDS[wanted][0]}", allowed=allowed)
    problems.raise_if_any()


@contextmanager
def naming_studies(client: AssayClient) -> Iterator[None]:
    """Errors about an unknown job that is a study name the commands for it."""
    try:
        yield
    except NotFound as error:
        found = re.search(r"there is no job (\w+)", error.message)
        if found is None or next(client.jobs(study=found[1], page_size=1), None) is None:
            raise
        shows = f"`assay studies show {found[1]}` shows it, `assay studies --help` lists what else there is"
        raise NotFound(f"{found[1]} is a study, not a job: {shows}") from None
