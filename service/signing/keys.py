"""The installation's keys: one that signs, and earlier ones that only verify.

    FOLDER/key.pem          the private key, PKCS #8, mode 0600; made at the first use
    FOLDER/retired/*.pem    public keys of earlier ones

The files are read at every use: a key that was replaced signs nothing more, in any process of the service.
"""

from __future__ import annotations

import base64
import hashlib
import os
import secrets
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from assay.service.signing.wire import KeySet, PublicKey

if TYPE_CHECKING:
    from assay.service.settings import Settings

KEY_FILE = "key.pem"
RETIRED = "retired"
MAX_RETIRED = 100
MAX_FILE_BYTES = 16 * 1024
SECRETS = Path("/run/secrets")  # Docker and Kubernetes mount secrets here, with their own modes.

_RAW = (serialization.Encoding.Raw, serialization.PublicFormat.Raw)


class BadKey(ValueError):
    """A key file cannot be used; the message names the file and what is wrong with it."""


def keyring(settings: Settings) -> Keyring:
    """The keys that sign results."""
    return Keyring(settings.signing_folder or settings.state / "signing", settings.signing_key)


class Keyring:
    """The keys of an installation: in a folder, or the operator's own in place of a generated one."""

    def __init__(self, folder: Path, key: Path | None = None) -> None:
        self._folder = folder
        self._key = key

    def check(self) -> None:
        """Whether it can sign, looking only; BadKey for a key file or no new one, OSError for the folder."""
        own = self._folder / KEY_FILE if self._key is None else self._key
        if self._key is not None or own.exists():
            read_private(own)
        else:
            there = next(path for path in (self._folder, *self._folder.parents) if path.exists())
            if not there.is_dir():
                raise BadKey(f"no key can be made in {self._folder}: {there} is no folder")
            if not os.access(there, os.W_OK | os.X_OK):
                raise BadKey(f"no key can be made in {self._folder}: {there} may not be written")
        self._retired()

    def private(self) -> Ed25519PrivateKey:
        """The key that signs; BadKey if its file cannot be used, OSError if it cannot be made."""
        if self._key is not None:
            return read_private(self._key)
        path = self._folder / KEY_FILE
        if not path.exists():
            _generate(path)
        return read_private(path)

    def public(self) -> KeySet:
        """All keys with signatures that count, the signing key first; BadKey and OSError as of `private`."""
        current = self.private().public_key()
        keys = {key_id(current): _described(current, "signing")}
        for key in self._retired():
            keys.setdefault(key_id(key), _described(key, "verify_only"))
        return KeySet(keys=list(keys.values()))

    def _retired(self) -> list[Ed25519PublicKey]:
        paths = sorted((self._folder / RETIRED).glob("*.pem"))
        if len(paths) > MAX_RETIRED:
            raise BadKey(f"{self._folder / RETIRED} has {len(paths)} keys; allowed: {MAX_RETIRED}")
        return [read_public(path) for path in paths]


def read_private(path: Path) -> Ed25519PrivateKey:
    """A private key in PEM; BadKey if it is none, or other users of this machine can read it."""
    try:
        with path.open("rb") as file:
            facts, data = os.fstat(file.fileno()), file.read(MAX_FILE_BYTES)
    except OSError as error:
        raise BadKey(f"the signing key {path} cannot be read: {error.strerror}") from None
    if not stat.S_ISREG(facts.st_mode):
        raise BadKey(f"the signing key {path} is no regular file")
    if facts.st_uid not in (os.geteuid(), 0):
        raise BadKey(
            f"the signing key {path} belongs to user {facts.st_uid}; allowed: this process's user, root"
        )
    if facts.st_mode & 0o077 and not path.is_relative_to(SECRETS):
        mode = stat.S_IMODE(facts.st_mode)
        raise BadKey(
            f"the signing key {path} has mode {mode:04o}, so others can use it; allowed: 0600 or 0400"
        )
    try:
        key = serialization.load_pem_private_key(data, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        # TypeError: it is encrypted. The parser's message is left out: it may quote the file.
        raise BadKey(f"the signing key {path} is no private key in PEM without a password") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise BadKey(f"the signing key {path} is of another kind; allowed: Ed25519")
    return key


def read_public(path: Path) -> Ed25519PublicKey:
    """A public key in PEM; BadKey for a file without one."""
    try:
        with path.open("rb") as file:
            return public_from_pem(file.read(MAX_FILE_BYTES))
    except OSError as error:
        raise BadKey(f"{path} cannot be read: {error.strerror}") from None
    except BadKey as error:
        raise BadKey(f"{path}: {error}") from None


def public_from_pem(data: bytes) -> Ed25519PublicKey:
    """The public key in a PEM text; raises BadKey for anything else, a private key too."""
    try:
        key = serialization.load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm):
        raise BadKey("this is no public key in PEM") from None
    if not isinstance(key, Ed25519PublicKey):
        raise BadKey("this key is of another kind; allowed: Ed25519")
    return key


def public_keys(published: KeySet) -> dict[str, Ed25519PublicKey]:
    """Keys by their ids, which are computed and not taken from the set; BadKey if one is none."""
    found = {}
    for entry in published.keys:
        try:
            key = Ed25519PublicKey.from_public_bytes(
                base64.urlsafe_b64decode(entry.x + "=" * (-len(entry.x) % 4))
            )
        except ValueError:
            raise BadKey(f"key {entry.kid[:60]!r} of the set is no Ed25519 key") from None
        found[key_id(key)] = key
    return found


def key_id(key: Ed25519PublicKey) -> str:
    """The key's thumbprint by RFC 7638: 43 characters of base64url."""
    text = f'{{"crv":"Ed25519","kty":"OKP","x":"{_x(key)}"}}'
    return _unpadded(hashlib.sha256(text.encode()).digest())


def _described(key: Ed25519PublicKey, status: Literal["signing", "verify_only"]) -> PublicKey:
    return PublicKey(x=_x(key), kid=key_id(key), status=status)


def _x(key: Ed25519PublicKey) -> str:
    return _unpadded(key.public_bytes(*_RAW))


def _unpadded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _generate(path: Path) -> None:
    """Makes a key, complete and closed to others from the first moment; the first of several makers wins."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    (path.parent / RETIRED).mkdir(mode=0o700, exist_ok=True)
    text = Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    temporary = path.with_name(f".{secrets.token_hex(8)}.new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary, path)  # Unlike a rename, a link never replaces the key of another process
        except FileExistsError:
            return
    finally:
        temporary.unlink(missing_ok=True)
