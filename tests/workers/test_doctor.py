"""`assay doctor`: good boxes and bad ones. What only a GPU box has is planted."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from assay.service.store.store import open_store
from assay.workers import doctor
from assay.workers.diagnosis import devices
from assay.workers.diagnosis.finding import Finding
from tests.support.databases import *  # noqa: F403 (fixtures)
from tests.support.servers import free_port
from tests.support.workers import FAKE

Examine = Callable[..., tuple[int, dict[str, Any]]]
FAKE_COMMAND = f"{sys.executable} -S {FAKE}"


@pytest.fixture
def examine(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Examine:
    def examine(*arguments: str, **environment: str) -> tuple[int, dict[str, Any]]:
        given = {"STATE": str(tmp_path / "state"), "EVALUATOR_COMMAND": FAKE_COMMAND}
        given["PORT"] = str(free_port())
        for name, value in (given | environment).items():
            monkeypatch.setenv(f"ASSAY_{name}", value)
        code = doctor.main(["--json", *(arguments or ["--no-data"])])
        return code, json.loads(capsys.readouterr().out)

    return examine


def named(report: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = [one for one in report["findings"] if one["name"] == name]
    assert set(found) == {"name", "status", "text", "remedy", "facts"}
    assert (found["remedy"] is None) == (found["status"] == "ok")
    return dict(found)


@pytest.mark.costly
def test_a_good_box_is_ok_and_nothing_is_made(examine: Examine, tmp_path: Path) -> None:
    code, report = examine()
    assert (code, report["ok"]) == (0, True), report
    names = [one["name"] for one in report["findings"]]
    assert names == [
        "driver", "CUDA", "NCCL", "memory", "deterministic mode", "device self-test cpu",
        "disk of the state", "disk of temporary files", "clock", "data", "pulled weights", "versions", "port",
        "database", "Redis", "sandbox",
    ]  # fmt: skip
    assert {one["status"] for one in report["findings"]} <= {"ok", "warn"}
    assert named(report, "versions")["facts"]["source_sha256"] == "s"
    assert not (tmp_path / "state").exists()


@pytest.mark.costly
def test_lines_are_for_people(
    examine: Examine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = Finding("driver", "fail", "nvidia-smi fails", "restart the box")
    assert doctor.line_of(found).splitlines() == [
        "FAIL  driver                    nvidia-smi fails",
        "                                -> restart the box",
    ]
    examine()
    assert doctor.main(["--no-data"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("checks: 0 failed, 0 with a warning")


@pytest.mark.costly
def test_a_broken_device_is_named_with_a_remedy(examine: Examine) -> None:
    code, report = examine(EVALUATOR_COMMAND=f"env FAKE_EVALUATOR=broken=cpu {FAKE_COMMAND}")
    assert (code, report["ok"]) == (1, False)
    found = named(report, "device self-test cpu")
    assert (found["status"], found["text"]) == ("fail", "a matmul of fixed integers gives the checksum 0")
    assert "taken out of the box" in found["remedy"]


def test_an_evaluator_that_dies_is_said_with_its_last_words(examine: Examine) -> None:
    code, report = examine(EVALUATOR_COMMAND=f"env FAKE_EVALUATOR=dead {FAKE_COMMAND}")
    assert code == 1
    assert "exit code 4. no driver" in named(report, "device self-test")["text"]
    assert named(report, "CUDA")["status"] == "warn"


def test_without_torch_the_packages_are_the_remedy(examine: Examine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "find_spec", lambda name: None)
    code, report = examine(EVALUATOR_COMMAND="")
    assert code == 1
    found = named(report, "device self-test")
    assert (found["text"], "assay-robustness[worker]" in found["remedy"]) == ("torch is not installed", True)


def test_wrong_settings_are_findings(examine: Examine) -> None:
    code, report = examine(LEASE_SECONDS="-1", SANDBOX="maybe")
    assert code == 1
    said = [one["text"] for one in report["findings"] if one["name"] == "settings"]
    assert len(said) == 2
    assert said[0].startswith("ASSAY_LEASE_SECONDS: ")
    assert [one["name"] for one in report["findings"]][2:] == ["driver", "versions", "port"]


@pytest.mark.costly
def test_a_folder_that_cannot_be_written_to_fails(examine: Examine, tmp_path: Path) -> None:
    # /proc takes no files from any user, and tests may run as root.
    code, report = examine(STATE="/proc/assay")
    assert code == 1
    found = named(report, "disk of the state")
    assert found["status"] == "fail"
    assert "--state" in found["remedy"]
    (tmp_path / "file").write_text("")
    found = named(examine(STATE=str(tmp_path / "file" / "state"))[1], "disk of the state")
    assert (found["status"], found["text"].endswith(f"{tmp_path}/file is a file")) == ("fail", True)


class OurService(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"status":"ok"}')

    def log_message(self, *_: Any) -> None:
        pass


@pytest.mark.costly
def test_the_port_is_free_or_ours_or_anothers(examine: Examine) -> None:
    with HTTPServer(("127.0.0.1", 0), OurService) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        found = named(examine(PORT=str(server.server_port))[1], "port")
        server.shutdown()
    assert (found["status"], "an Assay service answers" in found["text"]) == ("ok", True)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        code, report = examine(PORT=str(other.getsockname()[1]))
    assert (code, named(report, "port")["text"].endswith("is used by another program")) == (1, True)
    assert named(examine(PORT="http")[1], "port")["text"] == "--port or ASSAY_PORT is 'http'"


@pytest.mark.costly
def test_the_database_is_looked_at_and_not_changed(examine: Examine, database_url: str) -> None:
    code, report = examine(DATABASE_URL=database_url)
    assert code == 0
    found = named(report, "database")
    assert found["facts"]["revision"] == found["facts"]["head"]
    assert "against the database's" in named(report, "clock")["text"]
    assert abs(named(report, "clock")["facts"]["ahead_seconds"]) < 60
    assert named(report, "data of the workers")["status"] == "ok"
    with open_store(database_url) as store:
        for name in ("a", "b"):
            gauges: Any = {"data": {"cifar10": name * 64}}
            store.workers.beat(name, "box", ["cpu"], 1, gauges, 1, f"box:{name}")
    found = named(examine(DATABASE_URL=database_url)[1], "data of the workers")
    said = f"several contents of cifar10: {'a' * 12} on box:a; {'b' * 12} on box:b"
    assert (found["status"], found["text"]) == ("warn", said)


@pytest.mark.costly
def test_a_database_that_does_not_answer_or_is_of_another_version(examine: Examine, tmp_path: Path) -> None:
    code, report = examine(DATABASE_URL=f"postgresql+psycopg://me@127.0.0.1:{free_port()}/assay")
    assert (code, named(report, "database")["status"]) == (1, "fail")
    file = tmp_path / "other.sqlite"
    store = open_store(f"sqlite:///{file}")
    for revision, status in (("0013", "warn"), ("9999", "fail")):
        with store._database.writing() as connection:
            connection.exec_driver_sql(f"UPDATE alembic_version SET version_num = '{revision}'")
        found = named(examine(DATABASE_URL=f"sqlite:///{file}")[1], "database")
        assert (found["status"], found["facts"]["revision"]) == (status, revision)
    store.close()
    assert named(examine(DATABASE_URL="mysql://me@db/assay")[1], "database")["status"] == "fail"


def test_a_data_root_that_is_no_folder_fails_also_where_none_is_read(
    examine: Examine, tmp_path: Path
) -> None:
    found = named(examine("--no-data", DATA_ROOT=str(tmp_path / "nope"))[1], "data")
    assert (found["status"], found["text"]) == ("fail", f"the data root {tmp_path / 'nope'} is no folder")
