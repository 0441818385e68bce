"""`assay config`: the file, and what goes before what."""

from __future__ import annotations

import io
import json
import stat
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from assay.service.cli import commands, evaluate, main, profiles
from assay.service.cli.profiles import UsageError, chosen, key_of
from assay.service.client import DEFAULT_URL, AssayClient

Assay = Callable[..., tuple[int, str, str]]
LAB, HOME = "https://lab.example", "http://home.example:8000"
DEAD = "http://127.0.0.1:9"
KEY = "assay_secret_0123456789"


@pytest.fixture
def assay(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Assay:
    for name in ("ASSAY_URL", "ASSAY_KEY"):
        monkeypatch.delenv(name, raising=False)

    def assay(*arguments: str) -> tuple[int, str, str]:
        code = main.main(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return assay


@pytest.fixture
def lab(assay: Assay) -> None:
    """Two profiles; `lab` is in use."""
    assay("config", "set", "url", HOME)
    assay("config", "set", "url", LAB, "--profile", "lab")
    assay("config", "set", "key", KEY, "--profile", "lab")
    assay("config", "use", "lab")


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


def test_an_unreachable_service_says_what_starts_one_or_whose_address_it_is(
    assay: Assay, config_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiles, "DEFAULT_URL", DEAD)
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

    monkeypatch.setattr(evaluate, "service_for", service)
    line = ("evaluate", "job:x", "--data", "digits")
    assay(*line)
    code, _, err = assay(*line, "--state", str(tmp_path / "state"))
    assert asked == [LAB, None]
    assert code == 3
    assert "lab" not in err


def test_what_shows_results_again_is_asked_of_the_service_that_has_them(
    assay: Assay, config_folder: Path
) -> None:
    state = Path("assay-state")
    served = "; after `assay serve --state assay-state`"
    assert evaluate.again_text("j", state) == f"`assay results j` shows its results again{served}"
    assert evaluate.again_text("j", None) == "`assay results j` shows its results again"
    assay("config", "set", "url", LAB)
    at = f"--url {DEFAULT_URL}"
    assert evaluate.again_text("j", state) == f"`assay results j {at}` shows its results again{served}"
