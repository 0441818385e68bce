# ruff: noqa: F401, F811 (a fixture)
"""`assay sign` and `assay verify` on files as users have them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from assay.service.settings import Settings
from assay.service.signing.keys import keyring
from assay.service.signing.wire import KeySet
from assay.service.store.store import Store
from tests.service.cli.test_commands import Run, run
from tests.service.signing.test_routes import finished
from tests.support.signed import KEY, RESULTS, save
from tests.support.signed import signature as signature_of


@pytest.fixture
def pinned(tmp_path: Path) -> str:
    """The public key in a file, as openssl writes it."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    file = tmp_path / "assay.pub"
    file.write_bytes(KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return str(file)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "saved"
    folder.mkdir()
    save(folder, json.dumps(RESULTS, indent=2).encode())
    return folder


def test_sign_saves_what_verify_checks(
    run: Run,
    api: httpx.Client,
    worker: Any,
    settings: Settings,
    app_store: Store,
    evaluate_body: Any,
) -> None:
    job_id = finished(api, worker, settings, app_store, evaluate_body)
    code, out, err = run("sign", job_id, "--output", "table-2", "--files")
    assert (code, out) == (0, "table-2/signature.json\n")
    assert "signed 20" in err
    assert sorted(path.name for path in Path("table-2").iterdir()) == [
        "outcomes-000-clean.csv",
        "results.json",
        "signature.json",
    ]
    assert json.loads(Path("table-2/results.json").read_text())["job"] == job_id
    code, out, _ = run("verify", "table-2", "--url", "http://127.0.0.1:8000", "--job", job_id)
    assert code == 0, out
    assert out.count("as signed") == 2
    # What `assay results` prints verifies too.
    code, printed, _ = run("results", job_id, "--format", "json")
    Path("saved.json").write_text(printed)
    command = ("verify", "saved.json", "--signature", "table-2/signature.json")
    assert run(*command, "--url", "http://127.0.0.1:8000")[:2][0] == 0
    Path("saved.json").write_text(printed.replace('"value": 0.25', '"value": 0.26'))
    code, out, _ = run(*command, "--url", "http://127.0.0.1:8000")
    assert code == 1
    assert "saved.json: evaluations[1].metrics.top1.value is 0.26, signed 0.25" in out


def test_verify_needs_no_service(run: Run, folder: Path, pinned: str) -> None:
    for given in (
        folder,
        folder / "signature.json",
        folder / "results.json",
        folder / "outcomes-000-pgd.csv",
    ):
        code, out, err = run("verify", str(given), "--key", pinned)
        assert (code, err) == (0, ""), out
        assert "as signed" in out


def test_a_key_set_pins_too(run: Run, folder: Path, tmp_path: Path, settings: Settings) -> None:
    keys = keyring(settings).public()
    (tmp_path / "keys.json").write_text(keys.model_dump_json())
    code, out, _ = run("verify", str(folder), "--key", str(tmp_path / "keys.json"))
    assert code == 1
    assert "which is not trusted here" in out
    (folder / "signature.json").write_bytes(signature_of(key=keyring(settings).private()))
    assert run("verify", str(folder), "--key", str(tmp_path / "keys.json"))[0] == 0
    assert KeySet.model_validate_json((tmp_path / "keys.json").read_bytes()) == keys


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("results.json", '"steps": 20', '"steps": 21', "evaluations[0].params.steps is 21, signed 20"),
        (
            "results.json",
            '"seed": 9223372036854775807',
            '"seed": 9223372036854775806',
            "provenance.seed is 9223",
        ),
        ("results.json", "2/255", "8/255", 'evaluations[0].params.epsilon is "8/255", signed "2/255"'),
        ("outcomes-000-pgd.csv", "x0,1", "x0,0", "outcomes-000-pgd.csv: has sha256"),
        ("outcomes-000-pgd.csv", "x0,1\n", "", "outcomes-000-pgd.csv: has 11 bytes, signed 16"),
        ("signature.json", '"payload": "eyJ', '"payload": "fyJ', "one of the two was changed"),
    ],
)
def test_verify_names_what_was_changed(
    run: Run,
    folder: Path,
    pinned: str,
    name: str,
    old: str,
    new: str,
    said: str,
) -> None:
    text = (folder / name).read_text()
    assert old in text
    (folder / name).write_text(text.replace(old, new))
    code, out, _ = run("verify", str(folder), "--key", pinned)
    assert code == 1
    assert said in out


def test_what_is_not_there_is_said(run: Run, folder: Path, pinned: str) -> None:
    (folder / "results.json").unlink()
    (folder / "outcomes-000-pgd.csv").unlink()
    code, out, _ = run("verify", str(folder), "--key", pinned)
    assert code == 0
    assert "not here, and not checked: results.json, outcomes-000-pgd.csv" in out


def test_what_is_there_without_a_signature_is_said(run: Run, folder: Path, pinned: str) -> None:
    (folder / "results.csv").write_text("top1,0.99")
    code, out, _ = run("verify", str(folder), "--key", pinned)
    assert code == 0
    assert "here, but not signed: " in out
    assert "results.csv" in out.partition("here, but not signed: ")[2]


@pytest.mark.parametrize("make", [lambda path: path.mkdir(), lambda path: path.symlink_to("nowhere")])
def test_what_is_no_file_does_not_pass(run: Run, folder: Path, pinned: str, make: Any) -> None:
    (folder / "results.json").unlink()
    make(folder / "results.json")
    code, out, _ = run("verify", str(folder), "--key", pinned)
    assert code == 1
    assert "results.json: is no regular file" in out


def test_the_signature_of_another_job_does_not_pass(run: Run, folder: Path, pinned: str) -> None:
    (folder / "signature.json").write_bytes(signature_of(RESULTS | {"job": "another"}))
    code, out, _ = run("verify", str(folder), "--key", pinned)
    assert code == 1
    assert f'job is "{RESULTS["job"]}", signed "another"' in out
    code, out, _ = run(
        "verify", str(folder / "signature.json"), "--key", pinned, "--job", str(RESULTS["job"])
    )
    assert code == 1
    assert f"wanted is job {RESULTS['job']}" in out


def test_a_file_that_was_not_signed_does_not_pass(run: Run, folder: Path, pinned: str) -> None:
    (folder / "outcomes-001-fgsm.csv").write_text("x")
    code, out, _ = run("verify", str(folder / "outcomes-001-fgsm.csv"), "--key", pinned)
    assert code == 1
    assert "not among the signed files" in out


def test_verify_asks_whom_to_trust(run: Run, folder: Path, tmp_path: Path) -> None:
    code, _, err = run("verify", str(folder))
    assert code == 2
    assert "whose key is trusted? Give --key FILE, or --url" in err
    for content in ("nonsense", "{}", '{"keys": [{"kty": "RSA"}]}'):
        (tmp_path / "bad").write_text(content)
        code, _, err = run("verify", str(folder), "--key", str(tmp_path / "bad"))
        assert code == 2
        assert "bad: this is no" in err
    code, _, err = run("verify", str(tmp_path / "none"), "--key", str(tmp_path / "bad"))
    assert code == 2


def test_a_private_key_is_not_taken_for_a_public_one(run: Run, folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "private.pem"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", file], check=True)
    code, _, err = run("verify", str(folder), "--key", str(file))
    assert code == 2
    assert "this is no public key in PEM" in err
