"""The tools of an agent, by the Model Context Protocol (https://modelcontextprotocol.io).

Answers are the texts of the command line, and say what each warning means. `instructions.md` tells the agent
when to use what, and how to read a number. A refusal names field, given, allowed and the nearest name.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations
from pydantic import Field, ValidationError

from assay.service.cli import output
from assay.service.client import AssayClient
from assay.service.contract.errors import AssayError, InvalidSpec, NotFound
from assay.service.contract.problems import Problems, message_of, nearest
from assay.service.contract.results import Results
from assay.service.contract.states import JobState
from assay.service.contract.warning_codes import WarningMeaning
from assay.service.reports.headline import headline

Tool = Callable[..., str]
MAX_WAIT, MAX_JOBS = 600.0, 100
INSTRUCTIONS = Path(__file__).with_name("instructions.md")
JobId = Annotated[str, Field(description="id of a job")]
JobSpec = Annotated[
    dict[str, Any],
    Field(
        description='{"kind": "evaluate", "model": {"name", "params", "weights": {"job" or "checkpoint"}},'
        ' "data": {"name"}, "evaluations": [{"name", "params"}, {"suite"}], "limit"}, or {"kind": "train",'
        ' "model", "data", "recipe": {"name", "params"}}'
    ),
]


class _Server(MCPServer[Any]):
    async def call_tool(self, *given: Any, **named: Any) -> Any:
        """Runs a tool; wrong arguments are refused in the words of the command line."""
        try:
            return await super().call_tool(*given, **named)
        except ToolError as error:
            if not isinstance(wrong := error.__cause__, ValidationError):
                raise
            problems = Problems()
            for one in wrong.errors():
                problems.add(one["loc"], message_of(one), given=one["input"])
            raise ToolError(output.error_text(InvalidSpec("", problems.details))) from None


def make_server(client: AssayClient) -> MCPServer[Any]:
    """A server whose tools ask the client's service."""
    server = _Server("assay", instructions=INSTRUCTIONS.read_text(encoding="utf-8"))
    tools = _Tools(client)
    reading = (
        tools.find_components, tools.explain, tools.check_job, tools.list_jobs, tools.wait_for_job,
        tools.read_results, tools.compare_jobs, tools.read_report,
    )  # fmt: skip
    for tool in reading:
        server.tool(annotations=ToolAnnotations(read_only_hint=True))(_told(tool))
    for tool, destructive in ((tools.submit_job, False), (tools.cancel_job, True)):
        server.tool(annotations=ToolAnnotations(destructive_hint=destructive))(_told(tool))
    return server


def _told(tool: Tool) -> Tool:
    """The tool with refusals in the words of the command line."""

    @functools.wraps(tool)
    def told(*given: Any, **named: Any) -> str:
        try:
            return tool(*given, **named)
        except AssayError as error:
            raise ToolError(output.error_text(error)) from error

    return told


class _Tools:
    def __init__(self, client: AssayClient) -> None:
        self._client = client

    def find_components(
        self,
        kind: Annotated[str, Field(description="such as attack, data, model, suite")],
        task: Annotated[
            str | None, Field(description="such as classification, segmentation, language")
        ] = None,
        words: Annotated[str | None, Field(description="all of them are in name, summary or paper")] = None,
    ) -> str:
        """Lists what a job may name, a line each; `explain` has the parameters."""
        wanted = (words or "").casefold().split()
        found = [
            one
            for one in self._client.catalog(kind)
            if (task is None or not one["tasks"] or task in one["tasks"])  # attention fits any
            and all(word in f"{one['name']} {one['summary']} {one['paper']}".casefold() for word in wanted)
        ]
        return (
            output.catalog_table(found) if found else f"no {kind} fits; without task and words all are listed"
        )

    def explain(
        self, name: Annotated[str, Field(description="a component such as pgd, or a code of a warning")]
    ) -> str:
        """What a component does, with its parameters; or what a warning means, and its remedy."""
        meanings = {str(one.code): one for one in self._client.warnings()}
        if name in meanings:
            return output.warning_text(meanings[name])
        known = self._client.catalog()
        parts = [
            output.component_text(self._client.component(one["kind"], name))
            for one in known
            if one["name"] == name
        ]
        if not parts:
            near = nearest(name, [*(one["name"] for one in known), *meanings])
            raise NotFound(
                f"no component or warning has the name {name!r}" + f"; did you mean {near!r}?" * bool(near)
            )
        return "\n\n".join(parts)

    def check_job(self, spec: JobSpec) -> str:
        """Checks a job and stores nothing: every fault at once, or what it costs and its warnings."""
        found = self._client.dry_run(spec)
        warned = [f"warning {one['code']}: {one['message']}" for one in found["warnings"]]
        return "\n".join([output.estimate_text(found["estimate"]), *warned])

    def submit_job(
        self,
        spec: JobSpec,
        idempotency_key: Annotated[
            str | None, Field(description="a second call with the same key gives the same job")
        ] = None,
    ) -> str:
        """Posts a job, which costs computing time; gives its id and page."""
        job = self._client.submit(spec, idempotency_key=idempotency_key)
        return f"job {job.id}: {job.state.value}; {self._client.url}/jobs/{job.id}"

    def wait_for_job(
        self, job: JobId, seconds: Annotated[float, Field(ge=0, le=MAX_WAIT, description="at most")] = 60.0
    ) -> str:
        """Waits until a job has ended, or for so many seconds; gives its state and progress."""
        try:
            found = self._client.wait(job, timeout_seconds=seconds)
        except TimeoutError:
            found = self._client.job(job)
        then = "`read_results` has its numbers" if found.state.terminal else "it has not ended: wait again"
        return f"{output.job_text(found)}\n{then}"

    def read_results(
        self,
        job: JobId,
        every: Annotated[
            bool, Field(description="all metrics, not only the main metric of each row")
        ] = False,
    ) -> str:
        """The numbers of a job so far: a sentence, a table with n and intervals, what warnings mean."""
        found = self._client.results(job)
        meanings = {str(one.code): one for one in self._client.warnings()}
        parts = [headline(found), output.results_table(found, every=every), *_remedies(found, meanings)]
        return "\n".join(filter(None, parts))

    def compare_jobs(
        self,
        jobs: Annotated[
            list[str], Field(min_length=2, max_length=10, description="ids; the first is the baseline")
        ],
    ) -> str:
        """Differences of jobs to the first of them, paired by example, with intervals and adjusted p."""
        return output.comparison_table(self._client.compare(jobs))

    def list_jobs(
        self,
        state: JobState | None = None,
        tag: str | None = None,
        limit: Annotated[int, Field(ge=1, le=MAX_JOBS)] = 20,
    ) -> str:
        """Lists jobs, newest first."""
        asked = self._client.jobs(state=None if state is None else state.value, tag=tag, page_size=limit)
        return output.jobs_table([job for job, _ in zip(asked, range(limit), strict=False)])

    def read_report(self, job: JobId) -> str:
        """A report on a job in Markdown: sentence, tables, conditions and provenance of every number."""
        return self._client.report(job, format="md")

    def cancel_job(self, job: JobId) -> str:
        """Cancels a job; what it has measured is kept."""
        return output.job_text(self._client.cancel(job))


def _remedies(results: Results, meanings: dict[str, WarningMeaning]) -> list[str]:
    """What each warning of the results asks for, once."""
    found = [*results.warnings, *(one for row in results.evaluations for one in row.warnings)]
    known = [meanings[code] for code in dict.fromkeys(str(one.code) for one in found) if code in meanings]
    return [f"how to read {one.code} ({one.severity}): {one.cause} Remedy: {one.remedy}" for one in known]
