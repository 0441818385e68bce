"""The scripts of `assay completion`: read by the shell, and asked."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from assay.service.cli import main

# Completes a line as bash does when a person presses the tabulator.
ASK = """
source "$1"
COMP_LINE="$2"
read -ra COMP_WORDS <<< "$2"
[[ "$2" == *" " ]] && COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
COMP_POINT=${#COMP_LINE}
$(complete -p assay | sed -n 's/.*-F \\([^ ]*\\).*/\\1/p')
printf '%s\\n' "${COMPREPLY[@]}"
"""
BASH = shutil.which("bash") or ""
needs_bash = pytest.mark.skipif(not BASH, reason="there is no bash")


@pytest.fixture
def script(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Path:
    assert main.main(["completion", "bash"]) == 0
    path = tmp_path / "assay.bash"
    path.write_text(capsys.readouterr().out)
    return path


@needs_bash
def test_bash_reads_it(script: Path) -> None:
    subprocess.run([BASH, "-n", script], check=True)


@needs_bash
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("assay stu", {"studies"}),
        ("assay studies ex", {"extend"}),
        ("assay submit --dry", {"--dry-run"}),
        ("assay jobs --state suc", {"succeeded"}),
        ("assay submit tra", {"train.yaml"}),
        ("assay config set key_", {"key_env", "key_command"}),
    ],
)
def test_bash_completes(script: Path, line: str, expected: set[str], tmp_path: Path) -> None:
    (tmp_path / "train.yaml").write_text("")
    asked = [BASH, "--norc", "-c", ASK, "ask", script, line]
    found = subprocess.run(asked, capture_output=True, text=True, cwd=tmp_path, check=True)
    assert expected <= set(found.stdout.split()), found.stderr


@pytest.mark.parametrize("shell", ["zsh", "fish", "tcsh"])
def test_other_shells_have_one(capsys: pytest.CaptureFixture[str], shell: str) -> None:
    assert main.main(["completion", shell]) == 0
    assert "checkpoints" in capsys.readouterr().out


def test_what_is_missing_is_one_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main.main(["completion", "bahs"]) == 2
    assert "did you mean 'bash'?" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main.main(["completion", "bash"]) == 2
    message = "error: `assay completion` needs the package shtab: pip install 'assay-robustness[cli]'\n"
    assert capsys.readouterr().err == message
