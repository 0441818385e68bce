"""Every command that prints a table, found in the tree of commands, on terminals of 80 and 120 columns."""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from assay.service.cli import commands, main, output
from assay.service.cli import terminal as drawing
from assay.service.client import AssayClient
from assay.service.store.store import Store
from tests.support.tensors import tensor_file
from tests.support.terminals import ESCAPES, Make, Terminal

# Commands that are not run here: another process takes their place, they wait, write files for programs, or
# need a network, a browser, keys or what has ended. Their tables are drawn by the same function.
ELSEWHERE = """
evaluate, attack, serve, worker, doctor, data check, data publish, data stage, data list,
demo, open, mcp, evalhub, pull, mirror, import-pickle, import-onnx, keys create, keys list, keys revoke, sign,
verify, download, checkpoints upload, webhooks add, webhooks deliveries, webhooks rotate, webhooks
enable, webhooks remove, webhooks test, webhooks redeliver, replan, tenants list, tenants set, studies
results, studies run, studies watch, plot, gate, completion, workers allow,
workers withdraw, fleet slurm
"""
# The others, with their arguments, in an order in which each has what it needs.
LINES = """
submit spec.json
jobs
status {a}
results {a}
results {a} --full
compare {a} {b}
artifacts {a}
catalog
catalog attack
catalog attack pgd
warnings
warnings subset
config set url http://127.0.0.1:8000 --profile work
config use work
config get url
config list
config unset url
checkpoints list
checkpoints show mine
studies list
studies show {study}
studies extend {study} 7
webhooks list
quota
workers list
workers identities
workers cordon one
workers uncordon one
workers drain one
fleet list
tag {a} --add seen
usage
usage --by tag
audit
help
help more
cancel {c}
retry {c}
studies cancel {study}
studies retry {study}
report {a} -o report.md
studies cancel {other}
studies delete {other}
checkpoints delete mine
delete {b}
"""


PRINTING = 20  # of these lines print a table


def leaves(parser: argparse.ArgumentParser, path: tuple[str, ...] = ()) -> Iterator[str]:
    actions = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not actions:
        yield " ".join(path)
    for action in actions:
        for name, below in action.choices.items():
            yield from leaves(below, (*path, name))


def test_each_command_is_run_here_or_named() -> None:
    known = set(leaves(main.build_parser()))
    run = {name for name in known for line in LINES.strip().splitlines() if f"{line} ".startswith(f"{name} ")}
    assert known - run == set(" ".join(ELSEWHERE.split()).split(", "))


@pytest.fixture
def world(
    monkeypatch: pytest.MonkeyPatch, transport: Any, evaluate_body: Make, worker: Any, tmp_path: Path
) -> dict[str, str]:
    """Ids for the arguments: measured jobs, a queued job, a study, weights; files in the present folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ASSAY_URL", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", "config")
    monkeypatch.setattr(commands, "AssayClient", lambda url: AssayClient(url, transport=transport))
    client = AssayClient("http://127.0.0.1", transport=transport)
    name = "a name of many words, as people give them to the runs of a long evening of experiments"
    ids = {
        letter: client.submit(evaluate_body(name=name, seed=place)).id for place, letter in enumerate("abc")
    }
    for letter in "ab":
        worker.run(ids[letter], [1, 1, 1, 0], [1, 0, 0, 0])
    Path("spec.json").write_text(json.dumps(evaluate_body(name=name)))
    Path("weights.safetensors").write_bytes(tensor_file())
    client.upload_checkpoint("mine", Path("weights.safetensors"), model="tiny_vit")
    study = {
        "kind": "study",
        "name": name,
        "arms": [{"name": arm, "model": {"name": "tiny_vit"}} for arm in ("narrow", "wide")],
        "data": {"name": "digits"},
        "recipe": {"name": "short"},
        "seeds": [0, 1],
        "evaluations": [{"name": "clean"}],
    }
    return {**ids, "study": client.submit_study(study).id, "other": client.submit_study(study).id}


@pytest.mark.parametrize("columns", [80, 120])
def test_no_command_breaks_a_word(
    terminal: Terminal,
    monkeypatch: pytest.MonkeyPatch,
    world: dict[str, str],
    app_store: Store,
    columns: int,
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys, "stderr", terminal.file)
    app_store.workers.beat("one", "a-box-with-a-rather-long-name", ["cpu"], 1)
    tables: list[tuple[str, ...]] = []
    draw = drawing.terminal_table

    def spy(console: Any, header: Sequence[str], *more: Any) -> str:
        tables.append(tuple(header))
        return draw(console, header, *more)

    monkeypatch.setattr(output, "terminal_table", spy)
    faults, printing = [], set()
    for line in LINES.strip().splitlines():
        count = len(tables)
        with terminal, contextlib.suppress(SystemExit):
            main.main(line.format(**world).split())
        text = ESCAPES.sub("", terminal.text())
        if len(tables) > count:
            printing.add(line)
        # A single word may be longer: it is not broken.
        faults += [
            f"{line}: {part}"
            for part in re.split(r"[\r\n]+", text)
            if len(part.rstrip()) > columns and " " in part.strip()
        ]
        assert "error:" not in text, line
    assert faults == []
    assert len(printing) == PRINTING, sorted(printing)
