"""Ready studies are found by name, run as any file, and are valid where the service is real."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.service.app import create_app
from assay.service.catalog.catalog import load
from assay.service.cli import commands, main
from assay.service.cli.profiles import UsageError
from assay.service.client import AssayClient
from assay.service.settings import Settings
from assay.service.store.store import Store
from assay.service.studies.ready import gpu_hours
from assay.service.studies.ready.ready_studies import read_study, ready_studies
from tests.service.conftest import Bell, running
from tests.support.study_specs import check

NAMES = {"primal_lra_image", "primal_lra_image_r", "rpc_cifar10_small", "rpc_table1", "rpc_table2"}


@pytest.fixture
def assay(
    settings: Settings, app_store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Any]:
    """Runs the command line on an application with the real catalog: exit code, standard output and error."""

    def assay(*arguments: str) -> tuple[int, str, str]:
        code = main.main(list(arguments))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    with running(create_app(settings, store=app_store, dispatcher=Bell(), catalog=load())) as transport:
        monkeypatch.setattr(commands, "AssayClient", lambda url: AssayClient(url, transport=transport))
        yield assay


def test_they_are_listed_with_what_they_ask(assay: Any) -> None:
    code, out, _ = assay("studies", "ready")
    assert code == 0
    lines = {line.split()[0]: line for line in out.splitlines()[1:]}
    assert lines.keys() == NAMES
    assert "RPC-Attention, table 2: attacks on ImageNet" in lines["rpc_table2"]
    assert json.loads(assay("studies", "ready", "--json")[1]) == ready_studies()


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_name_is_planned_registered_and_run(assay: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def one_gigaflop(arms: list[Any]) -> list[dict[str, Any]]:
        return [{"forward": 1e9, "gradient": 1e9} for _ in arms]

    monkeypatch.setattr(gpu_hours, "counted", one_gigaflop)
    code, out, err = assay("studies", "run", name, "--dry-run", "--json")
    assert (code, err) == (0, "")
    planned = json.loads(out)
    assert planned["gpu_hours"]["trainings"] > 0
    assert planned["gpu_hours"]["evaluations"] > 0
    assert planned["gpu_hours"]["unknown"] == {}
    assert all(arm["trained"] and not arm["shared"] for arm in planned["arms"])
    code, digest, _ = assay("studies", "register", name)
    assert code == 0
    for given in (name, digest.strip()):
        assert assay("studies", "run", given, "--no-wait")[0] == 0


def test_the_questions_of_the_studies_on_long_range_arena() -> None:
    asked = {name: check(ready_studies()[name]).spec for name in NAMES if name.startswith("primal_lra_image")}
    found = {name: (spec["primary"]["arm"], spec["baseline"]) for name, spec in asked.items()}
    assert found == {
        "primal_lra_image": ("Primal.+", "softmax"),
        "primal_lra_image_r": ("Primal.", "Primal. without r"),
    }
    assert {len(spec["seeds"]) for spec in asked.values()} == {4}


def test_the_tables_have_the_published_arms_in_their_protocol() -> None:
    tables = [check(ready_studies()[name]) for name in ("rpc_table1", "rpc_table2")]
    for table in tables:
        published = [dict(arm["model"]["params"]) for arm in table.spec["arms"][1:]]
        assert [(one["iterations"], one["rpc_layers"]) for one in published] == [
            (4, "first"), (5, "first"), (6, "first"), (2, "all"),
        ]  # fmt: skip
        assert {arm["recipe"]["name"] for arm in table.spec["arms"]} == {"deit"}
    assert [table.spec["protocol"] for table in tables] == ["pixel", "paper"]


def test_a_budget_measures_the_first_evaluation_of_a_suite(assay: Any, app_store: Store) -> None:
    client = commands.AssayClient("http://127.0.0.1:8000")
    client.measure_study(ready_studies()["rpc_table2"], timeout_seconds=0)
    assert not app_store.jobs.page()[0], "without the data their number is unknown, and no budget can be kept"
    counted = {**ready_studies()["rpc_table2"], "data": {"name": "digits"}}
    with pytest.raises(TimeoutError):
        client.measure_study(counted, timeout_seconds=0)
    asked = [job.spec["evaluations"] for job in app_store.jobs.page()[0]]
    assert [[one["name"] for one in listed] for listed in asked] == 5 * [["clean"]]


def test_a_file_wins_over_a_ready_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert read_study("rpc_table2").value["tags"] == ["rpc_table2"]
    Path("rpc_table2").write_text('{"kind": "study"}')
    assert read_study("rpc_table2").value == {"kind": "study"}


def test_a_wrong_name_is_answered_with_the_nearest_and_the_list() -> None:
    with pytest.raises(UsageError) as caught:
        read_study("rpc_tabel2")
    text = str(caught.value)
    assert "no ready study 'rpc_tabel2'; did you mean rpc_table2?" in text
    assert all(name in text for name in NAMES)
    with pytest.raises(UsageError, match=r"cannot read there/is\.none: No such file"):
        read_study("there/is.none")
