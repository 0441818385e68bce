"""`assay gate`: exit codes, verdicts as lines, JSON and JUnit, and the workflow of the documentation."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema_rs
import pytest
import yaml
from sqlalchemy import update

from assay.service.cli import commands, main
from assay.service.client import AssayClient
from assay.service.contract.states import JobState
from assay.service.reports import gate_cli as gate
from assay.service.store.store import Store
from assay.service.store.tables import jobs

Make = Callable[..., dict[str, Any]]
ROOT = Path(__file__).resolve().parents[3]
WORKFLOW = ROOT / "docs" / "integrations.workflow.yml"
# Of 4 examples, 3 right: Wilson's interval is [30.1 %, 95.4 %].
HOLDS, FAILS = "pgd 2/255 top1 >= 30 %", "pgd top1 >= 0.31"


@pytest.fixture
def run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, transport: Any, tmp_path: Path
) -> Callable[..., tuple[int, str, str]]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(commands, "AssayClient", lambda url: AssayClient(url, transport=transport))

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main.main(["gate", *arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def job(api: Any, worker: Any, evaluate_body: Make) -> str:
    job_id: str = api.post("/api/v1/jobs", json=evaluate_body()).json()["id"]
    worker.run(job_id, [1, 1, 1, 1], [1, 1, 1, 0])
    return job_id


def test_it_exits_0_when_all_hold(run: Any, job: str) -> None:
    code, out, _ = run(job, "--require", HOLDS, "--require", "clean top1 > 0.5", "--wait")
    assert code == 0
    lines = out.splitlines()
    assert len(lines) == 3
    assert lines[1].split() == ["pass", *HOLDS.split(), *["75.0", "%", "[30.1", "%,", "95.4", "%]", "4"]]


def test_it_exits_1_when_one_does_not(run: Any, job: str, tmp_path: Path) -> None:
    (tmp_path / "robustness.txt").write_text(f"# ours\n\n{HOLDS}  # as published\n{FAILS}\n")
    code, out, _ = run(job, "--require-file", "robustness.txt")
    assert code == 1
    assert out.splitlines()[1].startswith(f"pass     {HOLDS}")
    assert out.splitlines()[2].startswith(f"FAIL     {FAILS}")
    assert "the interval's lower end is 30.1 %" in out


def test_json_and_junit(run: Any, job: str, tmp_path: Path) -> None:
    code, out, _ = run(job, "--require", HOLDS, "--require", FAILS, "--json", "--junit", "new/junit.xml")
    found = json.loads(out)
    assert (code, found["job"], found["state"], found["passed"]) == (1, job, "succeeded", False)
    assert [one["passed"] for one in found["requirements"]] == [True, False]
    assert found["requirements"][1]["ci_low"] == pytest.approx(0.300642, abs=1e-6)
    suite = ElementTree.parse(tmp_path / "new" / "junit.xml").getroot()[0]
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    cases = suite.findall("testcase")
    assert [case.get("name") for case in cases] == [HOLDS, FAILS]
    assert [case.find("failure") is not None for case in cases] == [False, True]


@pytest.mark.parametrize("given", [[HOLDS, HOLDS, FAILS], [HOLDS], [FAILS], [FAILS, HOLDS, FAILS, FAILS]])
def test_junit_counts_the_cases_that_have_a_failure(
    run: Any, job: str, tmp_path: Path, given: list[str]
) -> None:
    run(job, *(word for text in given for word in ("--require", text)), "--junit", "junit.xml")
    suites = ElementTree.parse(tmp_path / "junit.xml").getroot()
    for counted in (suites, suites[0]):
        assert counted.get("tests") == str(len(given))
        assert counted.get("failures") == str(given.count(FAILS))
    assert len(suites[0].findall("testcase/failure")) == given.count(FAILS)


def test_junit_has_no_character_that_xml_cannot_have(
    run: Any, job: str, app_store: Store, tmp_path: Path
) -> None:
    """What a library said in its colours is the reason of every verdict: readers refuse the whole file."""
    error = {"type": "crash", "message": "\x1b[31mno \x00 memory\x1b[0m"}
    with app_store.jobs._database.writing() as connection:
        connection.execute(update(jobs).where(jobs.c.id == job).values(state="failed", error=error))
    assert run(job, "--require", HOLDS, "--junit", "junit.xml")[0] == 1
    failure = ElementTree.parse(tmp_path / "junit.xml").getroot().find("testsuite/testcase/failure")
    assert failure is not None
    assert "memory" in failure.attrib["message"]


def test_a_job_that_is_waited_for_is_judged_as_it_has_ended(
    run: Any, api: Any, worker: Any, evaluate_body: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = api.post("/api/v1/jobs", json=evaluate_body()).json()["id"]
    assert run(job, "--require", HOLDS)[0] == 1

    def follow(*_: object) -> int:
        worker.run(job, [1, 1, 1, 1], [1, 1, 1, 0])
        return commands.OK

    monkeypatch.setattr(gate, "follow_to_end", follow)
    code, out, _ = run(job, "--require", HOLDS, "--wait", "--json")
    assert (code, json.loads(out)["state"]) == (0, "succeeded")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "no requirement given"),
        (["--require", "pgd top1"], "has no comparison"),
        (["--require", HOLDS, "--require", "pdg top1 >= 0.5"], "did you mean 'pgd'?"),
        (["--require-file", "missing.txt"], "cannot read missing.txt"),
    ],
)
def test_it_exits_2_when_a_requirement_cannot_be_read(
    run: Any, job: str, arguments: list[str], said: str
) -> None:
    code, out, error = run(job, *arguments)
    assert (code, out) == (2, "")
    assert said in error


def test_it_exits_2_for_an_unknown_job_and_3_without_a_service(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("01jd3q0x5v8f7m2n9k4t6w1z0y", "--require", HOLDS)[0] == 2
    monkeypatch.setattr(commands, "AssayClient", lambda url: AssayClient("http://127.0.0.1:9"))
    assert run("01jd3q0x5v8f7m2n9k4t6w1z0y", "--require", HOLDS)[0] == 3


def test_a_job_that_has_not_succeeded_does_not_pass(
    run: Any, api: Any, worker: Any, evaluate_body: Make
) -> None:
    job = api.post("/api/v1/jobs", json=evaluate_body()).json()["id"]
    code, out, _ = run(job, "--require", HOLDS)
    assert (code, "the job is queued" in out) == (1, True)
    worker.plan(job)
    worker.evaluate(job, [1, 1, 1, 1])
    code, out, _ = run(job, "--require", "clean top1 >= 0.1", "--require", HOLDS)
    assert code == 1
    assert "the job is running" in out
    assert "not measured yet: no evaluation 'pgd'" in out
    worker.fail(job)
    code, out, _ = run(job, "--require", "clean top1 >= 0.1", "--wait")
    assert (code, "the job is failed: 8 GB were not enough" in out) == (1, True)


def test_requirements_of_options_and_of_every_file_count(run: Any, job: str, tmp_path: Path) -> None:
    (tmp_path / "holds.txt").write_text(f"{HOLDS}\n")
    (tmp_path / "fails.txt").write_text(f"{FAILS}\n")

    def verdicts(*arguments: str) -> tuple[int, list[str]]:
        code, out, _ = run(job, *arguments)
        return code, [line.split()[0] for line in out.splitlines()[1:]]

    assert verdicts("--require", HOLDS, "--require-file", "fails.txt") == (1, ["pass", "FAIL"])
    assert verdicts("--require", FAILS, "--require-file", "holds.txt") == (1, ["FAIL", "pass"])
    files = ("--require-file", "holds.txt", "--require-file", "fails.txt")
    assert verdicts(*files) == (1, ["pass", "FAIL"])
    assert verdicts("--require", HOLDS, "--require-file", "holds.txt") == (0, ["pass", "pass"])


@pytest.mark.costly
@pytest.mark.parametrize("state", sorted(set(JobState) - {JobState.SUCCEEDED}))
def test_a_job_in_another_state_does_not_pass_with_whole_rows(
    run: Any, job: str, app_store: Store, state: JobState
) -> None:
    """All its evaluations are measured and hold the bound: only its state says that it is none to rely on."""
    with app_store.jobs._database.writing() as connection:
        connection.execute(update(jobs).where(jobs.c.id == job).values(state=str(state)))
    code, out, _ = run(job, "--require", HOLDS, "--json")
    (verdict,) = json.loads(out)["requirements"]
    assert (code, verdict["passed"], verdict["value"]) == (1, False, 0.75)
    assert verdict["reason"].startswith(f"the job is {state.value}")


def test_the_workflow_of_the_documentation_is_valid() -> None:
    schemas = resources.files("check_jsonschema") / "builtin_schemas" / "vendor"
    schema = json.loads((schemas / "github-workflows.json").read_text())
    workflow = yaml.safe_load(WORKFLOW.read_text())
    workflow["on"] = workflow.pop(True)  # what YAML 1.1 reads the word as
    jsonschema_rs.validator_for(schema).validate(workflow)
    with pytest.raises(jsonschema_rs.ValidationError):
        jsonschema_rs.validator_for(schema).validate({"on": "push", "jobs": {"x": {"stepz": []}}})


def test_the_commands_of_the_workflow_are_those_of_the_command_line() -> None:
    steps = yaml.safe_load(WORKFLOW.read_text())["jobs"]["robustness"]["steps"]
    script = "\n".join(step["run"] for step in steps if "run" in step).replace("\\\n", " ")
    parser = main.build_parser()
    written = re.findall(r"\bassay ((?:[a-z]+ )[^\n>)]*)", script)
    parsed = [parser.parse_args(shlex.split(arguments)) for arguments in written]
    assert [options.run.__name__ for options in parsed] == ["submit", "gate", "report"]
