"""Twenty tasks of an agent, each as the calls of tools that it takes, against a real service."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest
from mcp import Client, StdioServerParameters

from assay.service.mcp.server import make_server
from tests.e2e.running import RunningService

Ask = Callable[..., str]
Result = TypeVar("Result")
SHAPE = {"image_size": 16, "patch_size": 4, "depth": 1, "width": 24, "heads": 2}
EPSILON = {"epsilon": "8/255"}


def completed(called: Coroutine[Any, Any, Result]) -> Result:
    """What it returns, in a thread of its own: while a browser is open, this thread has Playwright's loop."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, called).result()


@pytest.fixture(scope="module")
def ask(shared: RunningService) -> Ask:
    """Calls a tool as an agent does, over the protocol; a refusal begins with `refused: `."""
    server = make_server(shared.client)

    async def call(tool: str, given: dict[str, Any]) -> str:
        async with Client(server) as client:
            found = await client.call_tool(tool, given)
        text = "\n".join(part.text for part in found.content)  # type: ignore[union-attr]
        return f"refused: {text}" if found.is_error else text

    return lambda tool, **given: completed(call(tool, given))


def spec(*evaluations: dict[str, Any], **more: Any) -> dict[str, Any]:
    model = {"name": "symvit", "params": SHAPE}
    listed = list(evaluations) or [{"name": "clean"}, {"name": "fgsm", "params": EPSILON}]
    job = {"kind": "evaluate", "model": model, "data": {"name": "digits"}, "limit": 20, "evaluations": listed}
    return job | more


@pytest.fixture(scope="module")
def measured(ask: Ask) -> list[str]:
    """Two evaluations that have ended."""
    ids = []
    for seed in (0, 1):
        job = re.findall(r"^job (\w+): ", ask("submit_job", spec=spec(seed=seed, tags=["agent"])))[0]
        while "wait again" in (said := ask("wait_for_job", job=job, seconds=100)):
            pass
        assert "succeeded" in said
        ids.append(job)
    return ids


def test_which_attacks_are_there(ask: Ask) -> None:
    listed = ask("find_components", kind="attack")
    assert all(name in listed for name in ("autoattack", "pgd", "square"))


def test_which_attacks_fit_a_language_model(ask: Ask) -> None:
    listed = ask("find_components", kind="evaluation", task="language")
    assert "perplexity" in listed
    assert "sliding_window" not in listed


def test_which_model_is_of_a_paper(ask: Ask) -> None:
    assert "rpc_symvit" in ask("find_components", kind="model", words="rpc")


def test_a_kind_that_is_not_there_is_refused_with_what_is(ask: Ask) -> None:
    assert ask("find_components", kind="atack").startswith("refused: ")


def test_what_the_parameters_of_an_attack_are(ask: Ask) -> None:
    said = ask("explain", name="pgd")
    assert "epsilon" in said
    assert "steps" in said


def test_what_a_warning_means(ask: Ask) -> None:
    assert "More steps" in ask("explain", name="unconverged")


def test_a_mistyped_name_gets_the_nearest(ask: Ask) -> None:
    assert "did you mean 'autoattack'?" in ask("explain", name="autoatack")


def test_what_a_job_costs(ask: Ask) -> None:
    assert "passes" in ask("check_job", spec=spec())


def test_all_faults_of_a_job_come_at_once(ask: Ask) -> None:
    wrong = spec(
        {"name": "pdg", "params": {"epsilon": "8/255"}}, {"name": "fgsm", "params": {"eps": "8/255"}}, limit=0
    )
    said = ask("check_job", spec=wrong)
    assert said.startswith("refused: ")
    assert "pgd" in said
    assert "epsilon" in said
    assert "limit" in said


def test_a_refused_job_is_not_stored(ask: Ask) -> None:
    before = ask("list_jobs")
    assert ask("submit_job", spec=spec({"name": "pdg"})).startswith("refused: ")
    assert ask("list_jobs") == before


def test_a_job_is_posted_once_for_a_key(ask: Ask) -> None:
    first, again = (ask("submit_job", spec=spec(name="once"), idempotency_key="agent-1") for _ in range(2))
    assert re.findall(r"job (\w+)", first) == re.findall(r"job (\w+)", again)
    assert "/jobs/" in first


def test_a_wait_ends_before_the_job(ask: Ask) -> None:
    waiting = spec(model={"name": "symvit", "params": SHAPE, "weights": {"job": "0" * 26}})
    assert ask("submit_job", spec=waiting).startswith("refused: ")
    slow = spec({"name": "square", "params": {"queries": 5000, **EPSILON}}, limit=None, tags=["slow"])
    job = re.findall(r"job (\w+)", ask("submit_job", spec=slow))[0]
    assert "it has not ended: wait again" in ask("wait_for_job", job=job, seconds=0)
    assert "cancel" in ask("cancel_job", job=job)


@pytest.mark.costly
def test_the_result_of_a_job_in_a_sentence_and_a_table(ask: Ask, measured: list[str]) -> None:
    said = ask("read_results", job=measured[0])
    first, header = said.splitlines()[:2]
    assert first.endswith(".")
    assert "95 % INTERVAL" in header
    assert "fgsm" in said


@pytest.mark.costly
def test_every_warning_of_a_result_is_explained(ask: Ask, measured: list[str]) -> None:
    said = ask("read_results", job=measured[0])
    codes = set(re.findall(r"^(?:note|warning|caution|invalid) (\w+)", said, re.MULTILINE))
    assert codes <= set(re.findall(r"^how to read (\w+) \(\w+\): .+ Remedy: ", said, re.MULTILINE))


def test_all_metrics_on_demand(ask: Ask, measured: list[str]) -> None:
    few, every = (ask("read_results", job=measured[0], every=choice) for choice in (False, True))
    assert every.count("\n") > few.count("\n")


def test_results_before_there_are_any_are_refused_in_words(ask: Ask) -> None:
    assert ask("read_results", job="0" * 26).startswith("refused: ")


def test_two_jobs_are_compared(ask: Ask, measured: list[str]) -> None:
    said = ask("compare_jobs", jobs=measured)
    assert "fgsm" in said
    assert ask("compare_jobs", jobs=measured[:1]).startswith("refused: ")


def test_jobs_are_listed_by_tag_newest_first(ask: Ask, measured: list[str]) -> None:
    said = ask("list_jobs", tag="agent")
    assert said.index(measured[1]) < said.index(measured[0])
    assert len(ask("list_jobs", tag="agent", limit=1).splitlines()) == 2


def test_a_report_is_read(ask: Ask, measured: list[str]) -> None:
    assert "|" in ask("read_report", job=measured[0])


@pytest.mark.costly
def test_the_command_serves_an_agent_over_its_standard_streams(shared: RunningService) -> None:
    command = ["-P", "-m", "assay.service.cli.main", "mcp", "--url", shared.client.url]
    started = StdioServerParameters(command=sys.executable, args=command, env={"ASSAY_KEY": shared.key})

    async def session() -> tuple[list[str], str, str]:
        async with Client(started) as client:
            tools = [tool.name for tool in (await client.list_tools()).tools]
            found = await client.call_tool("explain", {"name": "square"})
            return tools, found.content[0].text, client.instructions or ""  # type: ignore[union-attr]

    tools, said, instructions = completed(session())
    assert {"check_job", "submit_job", "wait_for_job", "read_results", "explain"} <= set(tools)
    assert "queries" in said
    assert "how to read" in instructions.lower()
