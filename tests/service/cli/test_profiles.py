"""Profiles: their file, their order of precedence, and where a key is sent."""

from __future__ import annotations

import stat
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from assay.service.cli import commands
from assay.service.cli.profiles import UsageError, chosen, key_of
from assay.service.client import DEFAULT_URL, AssayClient
from tests.support.profiles import HOME, KEY, LAB, Assay


def test_the_file_is_flat_toml_that_its_owner_alone_reads(lab: None, config_folder: Path) -> None:
    file = config_folder / "config.toml"
    assert tomllib.loads(file.read_text()) == {
        "profile": "lab",
        "profiles": {"default": {"url": HOME}, "lab": {"url": LAB, "key": KEY}},
    }
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_options_go_before_the_environment_before_the_profile_before_the_default(
    assay: Assay, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (chosen().url, chosen().url_from) == (DEFAULT_URL, "default")
    assay("config", "set", "url", HOME)
    assert (chosen().url, chosen().url_from) == (HOME, "profile default")
    assay("config", "set", "url", LAB, "--profile", "lab")
    assert chosen().url == HOME
    monkeypatch.setenv("ASSAY_PROFILE", "lab")
    assert (chosen().url, chosen().profile_from) == (LAB, "ASSAY_PROFILE")
    monkeypatch.setenv("ASSAY_URL", "http://variable")
    assert (chosen().url, chosen().url_from) == ("http://variable", "ASSAY_URL")
    assert chosen(None, "default").url == HOME, "an option goes before the environment"
    assert (chosen("http://option", "lab").url, chosen("http://option").url_from) == (
        "http://option",
        "--url",
    )


def test_a_key_is_sent_to_the_address_of_its_profile_alone(
    lab: None, assay: Assay, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, dict[str, Any]]] = []

    def client(url: str, **given: Any) -> AssayClient:
        seen.append((url, given))
        raise OSError("no network here")

    monkeypatch.setattr(commands, "AssayClient", client)
    assay("jobs")
    assay("jobs", "--url", "https://other.example")
    monkeypatch.setenv("ASSAY_URL", "https://other.example")
    assay("jobs")
    assay("jobs", "--profile", "lab")
    monkeypatch.setenv("ASSAY_KEY", "assay_other")
    monkeypatch.setenv("ASSAY_URL", LAB + "/")
    assay("jobs")
    assert seen == [
        (LAB, {"key": KEY}),
        ("https://other.example", {}),
        ("https://other.example", {}),
        (LAB, {"key": KEY}),
        (LAB + "/", {}),
    ]


def test_a_key_may_be_kept_in_a_variable_or_printed_by_a_command(
    lab: None, assay: Assay, config_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assay("config", "set", "key_env", "LAB_KEY")
    assert KEY not in (config_folder / "config.toml").read_text(), "one way to give a key replaces another"
    with pytest.raises(UsageError, match="profile lab: key_env: the variable LAB_KEY is not set"):
        key_of(chosen())
    monkeypatch.setenv("LAB_KEY", KEY)
    assert key_of(chosen()) == KEY
    assay("config", "set", "key_command", f"{sys.executable} -c 'print(\"{KEY}\")'")
    assert key_of(chosen()) == KEY
    assay("config", "set", "key_command", "no-such-program-here")
    assert assay("jobs")[::2] == (
        2,
        "error: profile lab: key_command: [Errno 2] No such file or directory: 'no-such-program-here'\n",
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("profile = ", "cannot be read"),
        ("[profiles.lab]\nulr = 'x'", "'ulr' is no setting; did you mean 'url'?"),
        ("profil = 'x'", "'profil' is no setting; did you mean 'profile'?"),
        ("[profiles.lab]\nurl = 3", "profiles.lab.url: must be a text"),
        ("profiles = 3", "profile must be text, and profiles tables"),
    ],
)
def test_a_wrong_file_is_named(assay: Assay, config_folder: Path, text: str, message: str) -> None:
    config_folder.mkdir(parents=True)
    (config_folder / "config.toml").write_text(text)
    code, _, err = assay("jobs")
    assert code == 2
    assert f"{config_folder / 'config.toml'}: " in err
    assert message in err


def test_a_key_that_others_may_read_is_told(lab: None, assay: Assay, config_folder: Path) -> None:
    (config_folder / "config.toml").chmod(0o644)
    assert "chmod 600" in assay("config")[2]
