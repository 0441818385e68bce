"""A server with a certificate of its own for `localhost`, which remembers what clients say in TLS."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

SSL_REQUEST_BYTES = 8


class TlsListener:
    """Listens on a free port of 127.0.0.1.

    Args:
        folder: where `certificate`, the only authority for itself, is written.
        postgresql: TLS begins when the client has asked for it.
    """

    def __init__(self, folder: Path, *, postgresql: bool = False) -> None:
        self.certificate, self.postgresql = folder / "localhost.pem", postgresql
        self.said: list[bytes] = []
        self.refusals = 0
        self.certificate.write_bytes(_self_signed())
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(self.certificate)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                connection.settimeout(30)
                try:
                    if self.postgresql:
                        connection.recv(SSL_REQUEST_BYTES)
                        connection.sendall(b"S")
                    with self._context.wrap_socket(connection, server_side=True) as secure:
                        if first := secure.recv(4096):
                            self.said.append(first)
                        else:
                            self.refusals += 1
                except OSError:
                    self.refusals += 1
                finally:
                    connection.close()


def _self_signed() -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    begin = datetime.now(UTC) - timedelta(days=1)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, begin, begin + timedelta(days=9))
    alternative = x509.SubjectAlternativeName([x509.DNSName("localhost")])
    certificate = builder.add_extension(alternative, critical=False).sign(key, hashes.SHA256())
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return certificate.public_bytes(serialization.Encoding.PEM) + secret
