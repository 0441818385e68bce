"""The key files: made once, closed to others, refused when they are not; earlier keys only verify."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from pydantic import ValidationError

from assay.service.settings import Settings
from assay.service.signing import keys
from assay.service.signing.keys import BadKey, Keyring, key_id, keyring, public_keys, read_private

MAKER = """
import sys
from pathlib import Path
from assay.service.signing.keys import Keyring, key_id
print(key_id(Keyring(Path(sys.argv[1])).private().public_key()))
"""


def openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


def test_a_key_is_made_once_and_only_we_can_read_it(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        ring = Keyring(tmp_path / "state" / "signing")
        first = ring.public()
    finally:
        os.umask(before)
    file = tmp_path / "state" / "signing" / "key.pem"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert ring.public() == Keyring(file.parent).public() == first
    assert sorted(path.name for path in file.parent.iterdir()) == ["key.pem", "retired"]
    assert [(entry.kid, entry.status) for entry in first.keys] == [
        (key_id(ring.private().public_key()), "signing")
    ]


@pytest.mark.costly
def test_of_several_makers_the_first_one_wins(tmp_path: Path) -> None:
    """Processes, as several API processes that start together, and threads of one."""
    command = [sys.executable, "-P", "-c", MAKER, str(tmp_path / "processes")]
    made = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert len({process.communicate()[0] for process in made}) == 1
    assert all(process.returncode == 0 for process in made)
    with ThreadPoolExecutor(16) as pool:
        rings = [Keyring(tmp_path / "threads") for _ in range(64)]
        found = set(pool.map(lambda ring: key_id(ring.private().public_key()), rings))
    assert len(found) == 1


def test_a_maker_that_comes_second_takes_the_key_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The moment between looking and making, which threads meet only sometimes."""
    first = key_id(Keyring(tmp_path).private().public_key())
    monkeypatch.setattr(Path, "exists", lambda self: False)
    assert key_id(Keyring(tmp_path).private().public_key()) == first


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660])
def test_a_key_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    openssl("genpkey", "-algorithm", "ed25519", "-out", str(tmp_path / "key.pem"))
    (tmp_path / "key.pem").chmod(mode)
    with pytest.raises(BadKey, match=f"has mode {mode:04o}, so others can use it; allowed: 0600 or 0400"):
        read_private(tmp_path / "key.pem")
    with pytest.raises(BadKey):
        Keyring(tmp_path).private()
    with pytest.raises(ValidationError, match="has mode"):
        Settings(signing_key=tmp_path / "key.pem")
    (tmp_path / "key.pem").chmod(0o400)
    assert keyring(Settings(signing_key=tmp_path / "key.pem")).public().keys[0].status == "signing"


def test_secrets_of_containers_have_modes_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    openssl("genpkey", "-algorithm", "ed25519", "-out", str(tmp_path / "key.pem"))
    (tmp_path / "key.pem").chmod(0o444)
    monkeypatch.setattr(keys, "SECRETS", tmp_path)
    read_private(tmp_path / "key.pem")


def test_a_key_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Keyring(tmp_path).private()
    os.chown(tmp_path / "key.pem", 12345, 12345)
    with pytest.raises(BadKey, match="belongs to user 12345"):
        read_private(tmp_path / "key.pem")


def test_what_is_no_ed25519_key_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "key.pem"
    elliptic = generate_private_key(SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    locked = serialization.BestAvailableEncryption(b"secret")
    encrypted = keys.Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked
    )
    for content, message in (
        (b"", "no private key in PEM"),
        (b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "no private key in PEM"),
        (encrypted, "without a password"),
        (elliptic, "another kind; allowed: Ed25519"),
    ):
        file.write_bytes(content)
        file.chmod(0o600)
        with pytest.raises(BadKey, match=message):
            read_private(file)
    with pytest.raises(BadKey, match="cannot be read: No such file"):
        read_private(tmp_path / "none.pem")
    with pytest.raises(BadKey, match="cannot be read"):
        read_private(tmp_path)
    with pytest.raises(BadKey, match="is no regular file"):
        read_private(Path("/dev/null"))


def test_rotation_as_the_page_says(tmp_path: Path) -> None:
    """docs/signed-results.md: the public key goes to `retired`, the private one away."""
    ring = Keyring(tmp_path)
    old = ring.public().keys[0]
    openssl("pkey", "-in", f"{tmp_path}/key.pem", "-pubout", "-out", f"{tmp_path}/retired/2026.pem")
    assert [entry.kid for entry in ring.public().keys] == [old.kid], "not twice while it still signs"
    (tmp_path / "key.pem").unlink()
    new, retired = ring.public().keys
    assert (new.status, retired.status) == ("signing", "verify_only")
    assert (retired.kid, retired.x) == (old.kid, old.x) != (new.kid, new.x)
    assert set(public_keys(ring.public())) == {old.kid, new.kid}
    (tmp_path / "retired" / "2026.pem").write_text("nonsense")
    with pytest.raises(BadKey, match=r"2026\.pem: this is no public key in PEM"):
        ring.public()


def test_a_folder_in_which_no_key_can_be_made_is_found_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Keyring(tmp_path / "later" / "signing").check()
    assert not (tmp_path / "later").exists(), "nothing is made"
    (tmp_path / "file").write_text("x")
    for folder in (tmp_path / "file", tmp_path / "file" / "signing"):
        with pytest.raises(BadKey, match="file is no folder"):
            Keyring(folder).check()
    good = Keyring(tmp_path / "good")
    good.public()
    good.check()
    retired = tmp_path / "good" / "retired" / "old.pem"
    retired.write_text("no key")
    with pytest.raises(BadKey, match=r"old\.pem: this is no public key"):
        good.check()
    retired.unlink()
    (tmp_path / "good" / "key.pem").chmod(0o644)
    with pytest.raises(BadKey, match="mode 0644"):
        good.check()
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(BadKey, match="may not be written"):
        Keyring(tmp_path / "locked").check()
