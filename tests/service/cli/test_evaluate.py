"""What `assay evaluate` and `assay.evaluate` refuse before a service is started, and in which words."""

from __future__ import annotations

import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import assay
from assay.service.cli import evaluate as cli_evaluate
from assay.service.cli.main import main
from assay.service.client import evaluation, program_export
from assay.service.client.evaluation import write_report
from assay.service.contract.errors import InvalidSpec
from assay.service.contract.extras import MissingExtra
from assay.service.contract.problems import Problems


@pytest.mark.parametrize("name", ["r.doc", "report", "absent/r.md"])
def test_a_report_that_cannot_be_written_is_refused_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    target = str(tmp_path / name)
    assert main(["evaluate", "checkpoint:x", "--data", "digits", "--report", target, "--dry-run"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: --report: ")
    assert target in said
    with pytest.raises(InvalidSpec, match="report: "):
        assay.evaluate("checkpoint:x", "digits", report=target)


def test_the_ending_of_a_report_is_its_format(tmp_path: Path) -> None:
    class Client:
        def report(self, job: str, **more: Any) -> str:
            return f"{job} {more['format']}\r\n"

    for ending in ("html", "md", "tex", "csv"):
        target = tmp_path / f"r.{ending}"
        write_report(Client(), "x", target)  # type: ignore[arg-type]
        assert target.read_bytes() == f"x {ending}\r\n".encode()


def test_a_wrong_crop_fraction_is_named_as_the_option(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["evaluate", "checkpoint:x", "--data", "digits", "--crop-fraction", "2", "--dry-run"]
    assert main(given) == 2
    assert capsys.readouterr().err.startswith("error: --crop-fraction: must be above 0 and at most 1")
    with pytest.raises(InvalidSpec, match="crop_fraction: must be above 0"):
        assay.evaluate("checkpoint:x", "digits", crop_fraction=0)


def test_an_attack_with_a_fault_is_named_as_it_was_typed(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["evaluate", "checkpoint:x", "--data", "digits", "--attack", "gaussian_noise epsilon=4/255"]
    assert main([*given, "--dry-run"]) == 2
    assert capsys.readouterr().err.startswith("error: --attack 'gaussian_noise epsilon=4/255'.epsilon: ")


def test_options_of_the_arithmetic_are_of_the_jobs_execution(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[dict[str, Any]] = []

    def stop(*given: Any) -> None:
        seen.append(given[-1]["execution"])
        raise InvalidSpec("stop", [])

    monkeypatch.setattr(cli_evaluate, "Request", stop)
    given = ["evaluate", "checkpoint:x", "--data", "digits"]
    assert main([*given, "--dtype", "bfloat16", "--compile", "auto", "--channels-last"]) == 2
    assert main(given) == 2
    assert seen == [
        {"device": "auto", "dtype": "bfloat16", "compile": "auto", "channels_last": True},
        {"device": "auto"},
    ]
    capsys.readouterr()
    monkeypatch.undo()
    assert main([*given, "--dtype", "float16"]) == 2
    assert "--dtype: invalid choice: 'float16' (choose from 'float32'" in capsys.readouterr().err


def test_attacks_are_texts() -> None:
    for attacks in ([("pgd", {"epsilon": "4/255"})], [{"name": "pgd"}], {"pgd": {}}, "pgd,epsilon=4/255"):
        with pytest.raises(InvalidSpec, match=r"NAME PARAMETER=VALUE") as caught:
            assay.evaluate("checkpoint:x", "digits", attacks=attacks)  # type: ignore[arg-type]
        assert "pgd epsilon=4/255" in str(caught.value.details[0].allowed)
    assert caught.value.details[0].nearest == "pgd epsilon=4/255"


def test_one_text_is_one_attack(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(client: object, request: Any, **more: object) -> None:
        raise KeyboardInterrupt(*request.evaluations)

    monkeypatch.setattr(evaluation, "ended", stop)
    monkeypatch.setattr(evaluation, "service_for", lambda *_, **more: nullcontext())
    with pytest.raises(KeyboardInterrupt) as caught:
        assay.evaluate("checkpoint:x", "digits", attacks="pgd epsilon=4/255", progress=False)
    assert caught.value.args == ("pgd epsilon=4/255",)


def test_a_model_that_is_no_module_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidSpec, match=r"model: is no nn.Module"):
        assay.evaluate(None, "digits")  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtra, match=r"needs the worker: pip install"):
        assay.evaluate(None, "digits")  # type: ignore[arg-type]


def test_a_function_without_the_worker_is_refused_in_the_words_of_the_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with (
        pytest.raises(MissingExtra, match=r"^the model mymod:build needs the worker: pip install"),
        program_export.written_program(program_export.EXPORT, ["mymod:build"], ("model",), "mymod.build"),
    ):
        pass


def test_errors_name_the_options_of_the_call(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", "checkpoint:x", "--data", "digits", "--attack", "pgd eps"]) == 2
    assert "--attack 'pgd eps': a parameter has the form NAME=VALUE" in capsys.readouterr().err


def test_the_text_of_an_error_has_the_nearest_name() -> None:
    problems = Problems()
    problems.add(("a",), "unknown parameter", nearest="epsilon")
    problems.add(("b",), "unknown parameter")
    with pytest.raises(InvalidSpec) as caught:
        problems.raise_if_any()
    assert str(caught.value) == "a: unknown parameter; did you mean 'epsilon'? (and 1 more)"
    assert caught.value.envelope().error.message == "a: unknown parameter (and 1 more)"


def test_the_suite_that_was_not_chosen_says_how_to_choose(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **more: Any) -> Any:
        problems = Problems()
        problems.add(("suite 'quick'",), "has nothing for texts", allowed=["rpc_nlu"])
        problems.raise_if_any()

    monkeypatch.setattr(cli_evaluate, "check_request", refuse)
    assert main(["evaluate", "checkpoint:x", "--data", "digits"]) == 2
    said = capsys.readouterr().err
    assert (
        said.count("--suite 'quick': has nothing for texts; it is measured without --suite and --attack") == 1
    )
    assert len(said.splitlines()) == 1
    assert main(["evaluate", "checkpoint:x", "--data", "digits", "--suite", "quick"]) == 2
    assert "without --suite" not in capsys.readouterr().err


LIGHT = """
import sys
class First:
    def write(self, text):
        heavy = {"pydantic", "httpx", "rich", "torch", "numpy", "sqlalchemy"}
        print(text, sorted(heavy & {*sys.modules}))
        raise SystemExit
sys.stderr, sys.argv = First(), ["assay", *sys.argv[2:], "x:y", "--data", "digits"]
import assay
exec(CALL)
"""


@pytest.mark.parametrize(
    ("call", "verb"),
    [("assay.command()", "evaluate"), ("assay.command()", "attack"), ("assay.evaluate('x:y', 'digits')", "")],
)
def test_the_first_line_comes_before_slow_imports(call: str, verb: str) -> None:
    code = LIGHT.replace("CALL", repr(call))
    done = subprocess.run([sys.executable, "-P", "-c", code, "", verb], capture_output=True, text=True)
    assert done.stdout == "starting: loading Assay\n []\n", done.stderr


@pytest.mark.parametrize("arguments", [["evaluate", "--help"], ["jobs", "--help"]])
def test_what_is_quick_says_no_such_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["assay", *arguments])
        with pytest.raises(SystemExit):
            assay.command()
    assert capsys.readouterr().err == ""
