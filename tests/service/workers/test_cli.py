"""`assay workers`, against the application."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from assay.service.cli import commands, main
from assay.service.client import AssayClient
from assay.service.store.store import Store

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, transport: Any, app_store: Store
) -> Run:
    def run(*arguments: str) -> tuple[int, str, str]:
        code = main.main(["workers", *arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    monkeypatch.setattr(commands, "AssayClient", lambda url: AssayClient(url, transport=transport))
    tested: Any = {
        "self_test": {
            "torch": "2.15",
            "cuda": None,
            "nccl": None,
            "deterministic": True,
            "source_sha256": "s",
            "devices": [
                {
                    "device": "cuda:0",
                    "name": "H200",
                    "fault": None,
                    "total": 141 * 1024**3,
                    "free": 140 * 1024**3,
                    "capability": "9.0",
                }
            ],
        }
    }
    app_store.workers.beat("w0", "box", ["cuda", "cpu"], 7, tested, 1, name="box:gpu0")
    app_store.workers.beat("w1", "box", ["cpu"], 8, {"unfit": {"cuda": "cuda:0: lost"}}, 1, name="box:gpu1")
    return run


def test_the_list_is_a_table_with_reasons(run: Run) -> None:
    code, out, _ = run("list")
    assert code == 0
    header, first, second, note = out.splitlines()
    assert header.split()[:4] == ["NAME", "HOST", "PID", "STATE"]
    assert first.split()[:5] == ["box:gpu0", "box", "7", "online", "cuda,cpu"]
    assert "H200" in first
    assert "140 of 141 GiB" in first
    assert second.split()[:5] == ["box:gpu1", "box", "8", "online", "cpu"]
    assert note == "box:gpu1: cuda is not served: cuda:0: lost"
    assert [one["name"] for one in json.loads(run("list", "--json")[1])] == ["box:gpu0", "box:gpu1"]


def test_a_worker_is_taken_out_of_service_and_put_back(run: Run, app_store: Store) -> None:
    assert run("cordon", "box:gpu0")[:2] == (
        0,
        "box:gpu0 is cordoned: cordoned by an operator\nit runs no shard now, and takes none\n",
    )
    assert "box:gpu0: cordoned by an operator" in run("list")[1]
    assert json.loads(run("drain", "box:gpu0", "--json")[1])["cordon"]["drain"] is True
    assert run("uncordon", "box:gpu0")[:2] == (0, "box:gpu0 is online\n")
    assert app_store.cordons.of("box:gpu0") is None


def test_a_wrong_name_is_told_with_the_nearest(run: Run) -> None:
    code, out, err = run("drain", "box:gpu00")
    assert (code, out) == (2, "")
    assert "there is no worker 'box:gpu00'; did you mean box:gpu0?" in err


def test_code_that_is_not_the_services_is_allowed_and_withdrawn(run: Run, app_store: Store) -> None:
    other = "b2" * 8
    assert run("identities")[1] == "none is declared: any worker takes work\n"
    app_store.identities.declare({"version": "1.0", "source_sha256": "ab" * 32})
    code: Any = {"code": {"version": "1.0", "commit": "f00d", "source_sha256": "cd" * 32}}
    app_store.workers.beat("w2", "box", ["cpu"], 9, code, 1, "box:gpu2", other)
    listed = run("list")[1]
    assert [line.split()[3] for line in listed.splitlines()[1:4]] == ["unknown"] * 3
    assert f"box:gpu2: its identity {other} (version 1.0, commit f00d) is not the service's" in listed
    assert run("allow", other)[:2] == (
        0,
        f"identity {other} is allowed: its workers may take work; 1 workers online have it\n",
    )
    assert app_store.identities.admits(other)
    assert listed.splitlines()[3].split()[-2] == other
    header, own, theirs = run("identities")[1].splitlines()
    assert header.split() == ["IDENTITY", "VERDICT", "WORKERS", "SINCE", "BY"]
    assert re.split(r"\s{2,}", own)[:3] == ["(no worker yet)", "declared", "0"]
    assert theirs.split()[:3] == [other, "allowed", "1"]
    assert json.loads(run("withdraw", other, "--json")[1])["verdict"] == "withdrawn"
    assert not app_store.identities.admits(other)
    assert "no worker online has it" in run("withdraw", "0" * 16)[1]


def test_a_release_is_listed_by_the_digests_that_are_allowed_and_withdrawn(
    run: Run, app_store: Store
) -> None:
    app_store.identities.declare({"version": "1.0", "source_sha256": "ab" * 32})
    code: Any = {"code": {"version": "1.0", "commit": None, "source_sha256": "ab" * 32}}
    for number, digest in enumerate(("c3" * 8, "c3" * 8, "d4" * 8)):
        app_store.workers.beat(f"n{number}", "box", ["cpu"], 9, code, 1, f"box:n{number}", digest)
    rows = [line.split()[:3] for line in run("identities")[1].splitlines()[1:]]
    assert rows == [["c3" * 8, "declared", "2"], ["d4" * 8, "declared", "1"]]
    for digest, _, _ in rows:
        assert digest in run("list")[1]
    assert run("withdraw", rows[0][0])[0] == 0
    rows = [line.split()[:3] for line in run("identities")[1].splitlines()[1:]]
    assert sorted(rows) == [["c3" * 8, "withdrawn", "2"], ["d4" * 8, "declared", "1"]]


def test_what_is_no_digest_is_told(run: Run) -> None:
    code, out, err = run("allow", "b2")
    assert (code, out) == (2, "")
    assert "digest" in err


def test_staged_data_are_listed(run: Run, app_store: Store) -> None:
    staged: Any = {"staged": {"birds": "ab" * 32}}
    app_store.workers.beat("w", "box", ["cpu"], 7, staged, 1, name="box:gpu0")
    assert run("list")[1].splitlines()[-1] == "box:gpu0: staged data: birds"
    assert json.loads(run("list", "--json")[1])[0]["staged"] == staged["staged"]


def test_data_on_which_workers_disagree_are_named(run: Run, app_store: Store) -> None:
    for number, sha256 in enumerate(("ab" * 32, "cd" * 32)):
        data: Any = {"data": {"cifar10": sha256}}
        app_store.workers.beat(f"w{number}", "box", ["cpu"], 7, data, 1, name=f"box:gpu{number}")
    said = "several contents of cifar10: abababababab on box:gpu0; cdcdcdcdcdcd on box:gpu1"
    assert run("list")[1].splitlines()[-1] == said
    app_store.cordons.set("box:gpu1", drain=False, by_whom="ops")
    assert "several contents" not in run("list")[1]
