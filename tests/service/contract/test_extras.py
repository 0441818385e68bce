"""A missing extra is one sentence with the command."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from assay.service.contract import extras

# Runs commands where no optional package is installed: None in sys.modules fails the import, and the search.
PROGRAM = """
import contextlib, io, json, sys
from assay.service.contract.extras import EXTRAS
sys.modules.update({module: None for _, modules in EXTRAS.values() for module in modules})
import runpy
from assay.service.cli.main import main as assay

def main(arguments):
    if arguments[0] != "-m":
        return assay(arguments)
    sys.argv = arguments[1:]
    runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)

found = []
for arguments in json.loads(sys.argv[1]):
    with contextlib.redirect_stderr(io.StringIO()) as said, contextlib.redirect_stdout(io.StringIO()):
        try:
            code = main(arguments)
        except SystemExit as end:
            code = end.code
    found.append([code, said.getvalue()])
print(json.dumps(found))
"""
MODULES = {
    "service.server": ("the service", "service"),
    "service.migrate": ("the service", "service"),
    "workers.nodes": ("the worker", "worker"),
    "workers.embedded": ("the service and the worker", "service,worker"),
    "workers.doorbell": ("the worker", "worker"),
    "workers.health": ("the worker", "worker"),
    "workers.doctor": ("the worker", "worker"),
    "workers.catalog": ("the worker", "worker"),
    "workers.weights.export": ("the worker", "worker"),
}
AWAY = ["--url", "http://127.0.0.1:9"]
INSTALL = "pip install 'assay-robustness[{}]'"
NEEDS = [
    (["serve"], "`assay serve` needs the service and the worker", "service,worker"),
    (
        ["evaluate", "timm:x", "--data", "cifar10"],
        "a service on this machine needs the service and the worker",
        "service,worker",
    ),
    (["demo"], "`assay demo` needs the service, the worker and matplotlib", "service,worker,demo"),
    (["doctor"], "`assay doctor` needs the worker", "worker"),
    (["data", "check"], "`assay data check` needs the worker", "worker"),
    (["pull", "timm:x"], "`assay pull` needs the worker", "worker"),
    (["import-pickle", "a.pth", "b"], "`assay import-pickle` needs the worker", "worker"),
    (
        ["keys", "list", "--state", "none"],
        "`assay keys` on a service's own database needs the service",
        "service",
    ),
    (["verify", ".", "--key", "k.pem"], "`assay verify` needs the service", "service"),
    (["sign", "x", *AWAY], "`assay sign` needs the service", "service"),
]
REMOTE = [
    ["jobs"], ["status", "x"], ["watch", "x"], ["results", "x"], ["cancel", "x"], ["compare", "x", "y"],
    ["run", "docs/models.jobs.json"], ["catalog"], ["artifacts", "x"], ["plot", "x"], ["report", "x"],
    ["workers", "list"], ["quota"], ["tenants", "list"], ["checkpoints", "list"], ["keys", "list"],
    ["studies", "list"], ["audit"],
]  # fmt: skip


def run(commands: list[list[str]]) -> list[tuple[int, str]]:
    program = [sys.executable, "-c", PROGRAM, json.dumps(commands)]
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run(program, cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [tuple(one) for one in json.loads(done.stdout)]


def test_subcommands_of_the_service_name_their_extra() -> None:
    found = run([arguments for arguments, _, _ in NEEDS])
    last = [(code, said.splitlines()[-1]) for code, said in found]
    assert last == [(2, f"error: {said}: {INSTALL.format(names)}") for _, said, names in NEEDS]
    assert not any("Traceback" in said or "starting" in said for _, said in found)


def test_modules_that_are_run_name_their_extra() -> None:
    assert run([["-m", f"assay.{module}"] for module in MODULES]) == [
        (2, f"error: `python -m assay.{module}` needs {what}: {INSTALL.format(names)}\n")
        for module, (what, names) in MODULES.items()
    ]


@pytest.mark.costly
def test_subcommands_that_call_a_service_run_with_the_core() -> None:
    for (code, said), arguments in zip(run([[*one, *AWAY] for one in REMOTE]), REMOTE, strict=True):
        assert (code, "no service can be reached" in said) == (3, True), (arguments, said)


def test_pulled_weights_are_listed_and_verified_with_the_core(tmp_path: Path) -> None:
    request = {
        "references": [], "list": True, "verify": False, "json": True, "local": None,
        "weights_root": str(tmp_path),
    }  # fmt: skip
    module = ["-m", "assay.workers.weights.pull"]
    verify = {**request, "list": False, "verify": True}
    assert run([[*module, json.dumps(request)], [*module, json.dumps(verify)]]) == [(0, ""), (0, "")]


def test_help_needs_no_extra() -> None:
    assert run([["--help"], ["serve", "--help"], ["--version"]]) == [(0, "")] * 3


def test_only_missing_extras_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    extras.require("x", "service", "worker", "frame")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(extras.MissingExtra) as caught:
        extras.require("a data frame", "service", "frame")
    assert str(caught.value) == f"a data frame needs pandas: {INSTALL.format('frame')}"
    assert extras.explained("other", caught.value) == str(caught.value)


@pytest.mark.parametrize(
    "error",
    [
        ModuleNotFoundError("No module named 'assay.nothing'", name="assay.nothing"),
        ModuleNotFoundError("No module named 'torch.nothing'", name="torch.nothing"),
        ImportError("cannot import name 'x'"),
    ],
)
def test_a_defect_is_no_missing_extra(error: ImportError) -> None:
    assert extras.explained("`assay jobs`", error) is None
