"""docs/signed-results.md: its commands and program verify what was signed, and notice what was changed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from assay.service.files.canonical_json import canonical
from tests.support.signed import KEY, RESULTS, save

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "signed-results.md").read_text()
# jq may be missing on the machine that runs the tests; this does what the page asks of it.
JQ = """#!{python}
import json, sys
flag, query, file = sys.argv[1:4]
content = json.load(open(file))
if query == ".payload":
    sys.stdout.write(content["payload"])
elif query == ".signatures[0].sig":
    sys.stdout.write(content["signatures"][0]["sig"])
elif query.startswith(".subject[]"):
    for subject in content["subject"]:
        print(subject["digest"]["sha256"] + "  " + subject["name"])
else:
    sys.exit("jq: " + query)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save(tmp_path, canonical(RESULTS))
    public = KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "assay.pub").write_bytes(public)
    if shutil.which("jq") is None:
        (tmp_path / "jq").write_text(JQ.format(python=sys.executable))
        (tmp_path / "jq").chmod(0o755)
    return tmp_path


def commands(folder: Path) -> int:
    (block,) = [text for text in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) if "pkeyutl" in text]
    script = f"set -e; PATH=.:$PATH\n{block}"
    return subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True).returncode


def program(folder: Path) -> int:
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    run = subprocess.run([sys.executable, "-c", block], cwd=folder, capture_output=True, text=True)
    assert run.returncode or run.stdout.strip() == RESULTS["job"]
    return run.returncode


@pytest.mark.parametrize("way", [commands, program])
def test_it_verifies_without_assay(folder: Path, way: object) -> None:
    assert callable(way)
    assert way(folder) == 0
    for name, old, new in (
        ("results.json", b"0.8138888888888889", b"0.8138888888888888"),
        ("outcomes-000-pgd.csv", b"x0,1", b"x0,0"),
    ):
        content = (folder / name).read_bytes()
        assert old in content
        (folder / name).write_bytes(content.replace(old, new))
        assert way(folder) != 0
        (folder / name).write_bytes(content)
    envelope = json.loads((folder / "signature.json").read_text())
    envelope["payload"] = "AA" + envelope["payload"][2:]
    (folder / "signature.json").write_text(json.dumps(envelope))
    assert way(folder) != 0
