"""`assay config`: the file, and what goes before what."""

from __future__ import annotations

import io
import json
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from assay.service.cli import evaluation_service, profiles
from assay.service.cli.profiles import chosen, key_of
from assay.service.client import AssayClient
from tests.support.profiles import HOME, KEY, LAB, Assay

DEAD = "http://127.0.0.1:9"


def test_list_says_where_each_comes_from_and_hides_the_key(
    lab: None, assay: Assay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASSAY_URL", LAB)
    code, out, _ = assay("config")
    assert code == 0
    assert "secret" not in out
    rows = [line.split() for line in out.splitlines()[1:4]]
    assert rows == [
        ["profile", "lab", "file"],
        ["url", LAB, "ASSAY_URL"],
        ["key", "...6789", "profile", "lab"],
    ]
    answer = json.loads(assay("config", "list", "--json", "--profile", "default")[1])
    assert answer["used"]["url"] == {"value": HOME, "from": "profile default"}
    assert "secret" not in json.dumps(answer)


def test_get_and_unset(lab: None, assay: Assay, config_folder: Path) -> None:
    assert assay("config", "get", "url")[1] == f"{LAB}\n"
    assay("config", "unset", "key")
    code, _, err = assay("config", "get", "key")
    assert (code, err) == (2, "error: key: the profile 'lab' does not set it\n")
    assert "'lab', which was in use, had no other setting and is gone" in assay("config", "unset", "url")[2]
    assert tomllib.loads((config_folder / "config.toml").read_text()) == {
        "profiles": {"default": {"url": HOME}}
    }
    assert chosen().url == HOME


def test_a_key_is_read_from_standard_input(assay: Assay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{KEY}\n"))
    assert assay("config", "set", "key", "-")[0] == 0
    assert key_of(chosen()) == KEY


@pytest.mark.costly
@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            ("config", "use", "lba"),
            "error: there is no profile 'lba'; did you mean 'lab'? (there are default, lab)",
        ),
        (("jobs", "--profile", "x"), "--profile: there is no profile 'x'"),
        (("config", "set", "url", "lab.example"), "url: 'lab.example' given; allowed: http:// or https://"),
        (
            ("config", "set", "url", "http://h", "--profile", "a b"),
            "--profile: 'a b' given; allowed: up to 40",
        ),
        (("config", "set", "key_env", "$KEY"), "key_env: '$KEY' given; allowed: the name of a variable"),
    ],
)
def test_what_is_refused(lab: None, assay: Assay, line: tuple[str, ...], message: str) -> None:
    code, _, err = assay(*line)
    assert code == 2
    assert message in err


def test_an_unreachable_service_says_what_starts_one_or_whose_address_it_is(
    assay: Assay, config_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiles, "DEFAULT_URL", DEAD)
    monkeypatch.chdir(config_folder.parent.parent)
    code, _, err = assay("jobs")
    assert code == 3
    assert err.endswith("; `assay serve` starts one on this machine, and `assay evaluate` needs none\n")
    assay("config", "set", "url", DEAD, "--profile", "lab")
    assert assay("jobs", "--profile", "lab")[2].endswith(
        "; the address comes from profile lab, which --profile names\n"
    )
    assay("config", "use", "lab")
    file = config_folder / "config.toml"
    for command in (["jobs"], ["evaluate", "job:x", "--data", "digits"]):
        code, _, err = assay(*command)
        assert code == 3
        assert err.endswith(f"; the address comes from profile lab, which {file} has in use\n")
    monkeypatch.setenv("ASSAY_URL", DEAD)
    assert assay("jobs")[2].endswith("; the address comes from ASSAY_URL\n")


def test_a_call_with_a_state_folder_asks_no_profile(
    lab: None, assay: Assay, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[str | None] = []

    @contextmanager
    def service(place: Any, *, url: str | None, **more: Any) -> Iterator[AssayClient]:
        asked.append(url)
        with AssayClient(DEAD) as client:
            yield client

    monkeypatch.setattr(evaluation_service, "service_for", service)
    line = ("evaluate", "job:x", "--data", "digits")
    assay(*line)
    code, _, err = assay(*line, "--state", str(tmp_path / "state"))
    assert asked == [LAB, None]
    assert code == 3
    assert "lab" not in err
