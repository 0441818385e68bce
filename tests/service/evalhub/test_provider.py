from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from evalhub.models.api import Benchmark

from assay.service.catalog.catalog import load
from assay.service.cli.main import main
from assay.service.evalhub.provider import provider


@pytest.fixture
def benchmarks() -> dict[str, dict[str, Any]]:
    return {one["id"]: one for one in provider(load(), None)["benchmarks"]}


def test_every_suite_is_a_benchmark(benchmarks: dict[str, dict[str, Any]]) -> None:
    assert tuple(benchmarks) == load().names("suite")
    for one in benchmarks.values():
        Benchmark.model_validate(one)
        assert 1 <= len(one["description"]) <= 1024  # EvalHub's bounds


def test_a_threshold_is_held_against_the_lower_end_of_an_accuracy(
    benchmarks: dict[str, dict[str, Any]],
) -> None:
    for name in ("quick", "standard", "full", "rpc_ade20k", "rpc_nlu"):
        primary = benchmarks[name]["primary_score"]
        assert primary == {"metric": "worst_case_accuracy_ci_low", "lower_is_better": False}
        assert primary["metric"] in benchmarks[name]["metrics"]


@pytest.mark.parametrize("name", ["rpc_wikitext", "bn_ucr", "skyformer_error", "primal_rl"])
def test_a_suite_without_an_accuracy_has_no_primary_score(
    benchmarks: dict[str, dict[str, Any]], name: str
) -> None:
    assert "primary_score" not in benchmarks[name]


def test_the_file_names_the_service_and_no_key(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASSAY_KEY", "assay_secret")
    assert main(["evalhub", "--url", "https://assay.example"]) == 0
    text = capsys.readouterr().out
    found = yaml.safe_load(text)
    assert found == json.loads(json.dumps(provider(load(), "https://assay.example")))
    assert found["runtime"]["local"]["env"] == [{"name": "ASSAY_URL", "value": "https://assay.example"}]
    assert "assay_secret" not in text


def test_the_command_stays_one_word_in_a_folder_with_spaces(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    folder = tmp_path / "my env"
    folder.mkdir()
    (folder / "assay-evalhub").touch()
    monkeypatch.setattr("sys.executable", str(folder / "python"))
    command = provider(load(), None)["runtime"]["local"]["command"]
    assert command == f"exec '{folder}/assay-evalhub'"
