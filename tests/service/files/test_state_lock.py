"""A state folder names the service that has it, as long as the service runs."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from assay.service.files.state_lock import LOCK, holder_of


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("71 http://127.0.0.1:8000", "(process 71, at http://127.0.0.1:8000)"),
        ("71 ", "(process 71)"),
        ("71", "(process 71)"),  # of a service before addresses were written
        ("", "(process unknown)"),  # just after its start
    ],
)
def test_the_holder_is_known_while_it_has_the_folder(tmp_path: Path, written: str, said: str) -> None:
    with (tmp_path / LOCK).open("w") as file:
        file.write(written)
        file.flush()
        assert holder_of(tmp_path) is None, "the service has ended"
        fcntl.flock(file, fcntl.LOCK_EX)
        held = holder_of(tmp_path)
    assert held is not None
    assert held.address == written.partition(" ")[2]
    assert str(held) == f"another Assay service {said} uses the state folder {tmp_path}"
    assert holder_of(tmp_path) is None


def test_a_folder_that_is_not_there_has_no_holder(tmp_path: Path) -> None:
    assert holder_of(tmp_path / "none") is None


def test_an_address_that_another_user_may_have_written_is_none(tmp_path: Path) -> None:
    """A client would send its key there."""
    with (tmp_path / LOCK).open("w") as file:
        file.write("71 http://127.0.0.1:8000")
        file.flush()
        fcntl.flock(file, fcntl.LOCK_EX)
        (tmp_path / LOCK).chmod(0o666)
        held = holder_of(tmp_path)
    assert held is not None
    assert (held.process, held.address) == ("71", "")
