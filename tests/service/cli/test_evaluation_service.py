"""Which service an evaluation uses, and what is said of it at the end."""

from __future__ import annotations

import fcntl
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from assay.service.cli import profiles
from assay.service.cli.evaluation_service import again_text, interrupted_text
from assay.service.client import DEFAULT_URL
from assay.service.client.local import local_service
from assay.service.client.transport import Unreachable
from assay.service.files.state_lock import LOCK
from tests.support.profiles import LAB, Assay

DEAD = "http://127.0.0.1:9"
LINE = ("evaluate", "job:x", "--data", "digits")
Hold = Callable[[str], AbstractContextManager[None]]


@pytest.fixture
def hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hold:
    """A service, in name, that has the default state folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "assay-state").mkdir()

    @contextmanager
    def hold(written: str) -> Iterator[None]:
        with (tmp_path / "assay-state" / LOCK).open("w") as file:
            file.write(written)
            file.flush()
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    return hold


def test_the_service_that_has_the_state_folder_is_used(assay: Assay, hold: Hold) -> None:
    for more in ((), ("--state", "assay-state")):
        with hold(f"71 {DEAD}"):
            code, _, err = assay(*LINE, *more)
        assert code == 3
        assert f"using the service at {DEAD} (it has the folder assay-state)" in err
        assert "starting a service" not in err


def test_a_service_that_ends_with_its_call_is_not_used(assay: Assay, hold: Hold) -> None:
    with hold("71 "):
        code, _, err = assay(*LINE)
    assert code == 3
    assert err == (
        "error: another Assay service (process 71) uses the state folder assay-state; wait until it ends,"
        " or give this call its own folder: --state DIR\n"
    )


def test_without_a_service_the_state_folder_here_is_named(
    assay: Assay, hold: Hold, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiles, "DEFAULT_URL", "http://127.0.0.1:9")
    said = "; `assay serve --state assay-state` starts a service with the results in that folder\n"
    assert assay("results", "j")[2].endswith(said)
    with hold("71 "):
        assert assay("results", "j")[2].endswith(said)
    with hold("71 http://127.0.0.1:8741"):
        code, _, err = assay("results", "j")
    assert code == 3
    assert err.endswith("; a service runs with the folder assay-state here: --url http://127.0.0.1:8741\n")


def test_a_service_of_ones_own_is_not_started_in_a_folder_in_use(hold: Hold) -> None:
    said = rf"\(process 71, at {DEAD}\).*; use it: --url {DEAD}, or give this call its own folder"
    with hold(f"71 {DEAD}"), pytest.raises(Unreachable, match=said), local_service(Path("assay-state")):
        pass


def test_a_path_means_nothing_to_the_service_that_has_the_folder(
    assay: Assay, hold: Hold, tmp_path: Path
) -> None:
    for name in ("cats", "dogs"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        (tmp_path / "photos" / name / "a.png").touch()
    with hold(f"71 {DEAD}"):
        code, _, err = assay("evaluate", "job:x", "--data", "./photos")
    assert code in (2, 3)
    assert f"using the service at {DEAD}" in err


def test_what_shows_results_again_is_asked_of_the_service_that_has_them(
    assay: Assay, config_folder: Path
) -> None:
    state, there = Path("assay-state"), "`assay serve --state assay-state`, and in another terminal"
    assert again_text("j", state) == f"to see its results again: {there} `assay results j`"
    assert again_text("j", None) == "`assay results j` shows its results again"
    assert again_text("j", None, LAB) == f"`assay results j --url {LAB}` shows its results again"
    assert f"`assay cancel j --url {LAB}`" in interrupted_text("j", None, LAB)
    assay("config", "set", "url", LAB)
    assert again_text("j", state).endswith(f"`assay results j --url {DEFAULT_URL}`")
    assert again_text("j", None, LAB) == "`assay results j` shows its results again"


def test_printed_commands_can_be_pasted() -> None:
    folder = Path("st x; echo 'y'")
    told = again_text("01", folder)
    assert shlex.split(told.split("`")[1]) == ["assay", "serve", "--state", str(folder)]
    assert shlex.split(again_text("01", None, "http://h/a b").split("`")[1])[-2:] == ["--url", "http://h/a b"]


PRINTED = re.compile(r"--(state|url|data|data-root|weights|out|output|profile) '?\{(?!shlex\.)[^}]*\}")


def test_every_command_that_is_printed_quotes_its_values() -> None:
    """Words after an option in a text are quoted; constants and the pages' templates apart."""
    found = [
        f"{path}: {one[0]}"
        for package in ("service", "workers")
        for path in sorted(Path(package).rglob("*.py"))
        for one in PRINTED.finditer(path.read_text())
    ]
    assert found == [
        "service/cli/profiles.py: --state {DEFAULT_STATE}",
        "service/contract/extras.py: --profile {extra}",  # a name of ours
        "service/plots/cli.py: --output {file}",  # the place of an error
    ]
