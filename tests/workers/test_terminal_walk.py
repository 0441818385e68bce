"""Commands that other processes take over, on terminals of 80 and 120 columns."""

from __future__ import annotations

import contextlib
import os
import runpy
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from PIL import Image

from assay.service.cli import commands, main
from tests.service.cli.test_terminal_walk import PROCESSES
from tests.support.pulled import pull_tensors
from tests.support.servers import free_port
from tests.support.terminals import Terminal, too_wide
from tests.support.workers import FAKE

REFERENCE = "timm:vit_base_patch16_clip_224.laion400m_e32_ft_in1k"
LINES = f"""
data check --data-root data --no-hash
data publish birds-of-the-northern-woods --data-root data --store store
data publish none --data-root data --store store
data stage birds-of-the-northern-woods --data-root node --store store
data list --data-root node --store store
data list --data-root node
data stage birds
data unpublish birds-of-the-northern-woods --store store
data unpublish none --store store
pull --list --weights-root weights
pull --verify --weights-root weights
pull {REFERENCE} --verify --weights-root weights
pull --weights-root weights
import-pickle legacy.pth converted.safetensors
import-pickle legacy.pth converted.safetensors
doctor --no-data
"""


def test_each_of_these_commands_is_run() -> None:
    run = {name for name in PROCESSES.split(", ") for line in LINES.splitlines() if line.startswith(name)}
    assert run == {*PROCESSES.split(", ")}


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    found = Terminal()
    yield found
    found.close()


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A data root with pictures that cannot be read, weights that are pulled and damaged, a legacy pickle."""
    monkeypatch.chdir(tmp_path)
    for name in ("crow", "wren"):
        for number in range(4):
            path = Path("data", "birds-of-the-northern-woods", name, f"a-picture-of-last-summer-{number}.png")
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (8, 8)).save(path)
    path.write_bytes(b"no picture")
    Path("data", "birds-of-the-northern-woods", "jay").mkdir()
    Path("data", "notes").mkdir()
    pull_tensors(Path("weights"), REFERENCE, {"a": torch.arange(4.0)})
    damaged = pull_tensors(Path("weights"), "timm:resnet50.a1_in1k", {"a": torch.arange(4.0)})
    (damaged.folder / "model.safetensors").write_bytes(b"damaged")
    tensors = {f"blocks.{number}.attention.projection.weight": torch.ones(2) for number in range(3)}
    torch.save({"model": tensors, "optimizer": {"lr": 1}, "epoch": 3}, "legacy.pth")


@pytest.mark.costly
@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("columns", [60, 80, 120])
def test_no_process_breaks_a_word(terminal: Terminal, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    def become(program: str, command: list[str], environment: dict[str, str]) -> None:
        assert command[1:3] == ["-P", "-m"]
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "argv", command[3:])
        monkeypatch.delitem(sys.modules, command[3], raising=False)  # another test may have imported it
        runpy.run_module(command[3], run_name="__main__")

    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("ASSAY_EVALUATOR_COMMAND", f"{sys.executable} -S {FAKE}")
    monkeypatch.setenv("ASSAY_PORT", str(free_port()))
    monkeypatch.setenv("ASSAY_STATE", "state")
    monkeypatch.setattr(commands.os, "execve", become)
    monkeypatch.setattr(sys, "stderr", terminal.file)
    faults = []
    for line in LINES.strip().splitlines():
        before = dict(os.environ)
        with terminal, contextlib.suppress(SystemExit):
            main.main(shlex.split(line))
        for name in os.environ.keys() - before.keys():
            monkeypatch.delenv(name)
        text = terminal.text()
        assert text, line
        faults += too_wide(line, text, columns)
    assert faults == []
