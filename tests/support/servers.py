"""Servers of the test's own, PostgreSQL and Redis, which may be stopped, killed and started again.

Both listen on a free port of 127.0.0.1, keep what they write in a folder of their own, and end with the
`with` block.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg
import redis


class PrivatePostgresql:
    """A PostgreSQL server with one superuser.

    Args:
        user: name of the superuser and of its database.
        password: empty trusts everybody on this machine.
    """

    def __init__(self, user: str = "postgres", password: str = "") -> None:
        self.user = user
        self.password = password
        self.port = free_port()
        self._programs = _programs()
        # The server refuses to run as root; any other user will do.
        self._runs_as = _other_user() if os.geteuid() == 0 else None
        self._folder = Path(tempfile.mkdtemp(prefix="assay-postgresql-"))
        if self._runs_as is not None:
            shutil.chown(self._folder, self._runs_as)
        self._data = self._folder / "data"
        self._initialise()

    @property
    def url(self) -> str:
        """The URL of the maintenance database, as psycopg wants it."""
        secret = f":{self.password}" if self.password else ""
        return f"postgresql://{self.user}{secret}@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        """Start it and wait until it answers; also after a kill."""
        options = (
            f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={self._folder}"
            " -c fsync=off"
        )
        self._run("pg_ctl", "-D", self._data, "-w", "-l", self._folder / "log", "-o", options, "start")

    def stop(self, mode: str = "fast") -> None:
        """Stop it: `fast` ends all connections, `immediate` also leaves the recovery to the next start."""
        if (self._data / "postmaster.pid").exists():
            self._run("pg_ctl", "-D", self._data, "-w", "-m", mode, "stop")

    def restart(self, mode: str = "fast") -> None:
        """Stop and start it."""
        self.stop(mode)
        self.start()

    def cut_connections(self) -> None:
        """End every client's connection, and leave the server up."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
            )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop("immediate")
        shutil.rmtree(self._folder, ignore_errors=True)

    def _initialise(self) -> None:
        chosen = ["--auth=trust"]
        if self.password:
            file = self._folder / "password"
            file.write_text(self.password)
            if self._runs_as is not None:
                shutil.chown(file, self._runs_as)
            chosen = ["--auth=scram-sha-256", f"--pwfile={file}"]
        self._run("initdb", "-D", self._data, "-U", self.user, *chosen, "-E", "UTF8", "--no-sync")

    def _run(self, program: str, *arguments: str | Path) -> None:
        subprocess.run(
            [self._programs / program, *arguments],
            check=True,
            cwd=self._folder,
            user=self._runs_as,
            stdout=subprocess.DEVNULL,
        )


class PrivateRedis:
    """A Redis server; it forgets everything when it is stopped."""

    def __init__(self, password: str = "") -> None:
        self.password = password
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Its URL, with the password."""
        secret = f":{self.password}@" if self.password else ""
        return f"redis://{secret}127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start it, empty, and wait until it answers."""
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        if self.password:
            options += ["--requirepass", self.password]
        self._process = subprocess.Popen(["redis-server", *options], stdout=subprocess.DEVNULL)
        with redis.Redis.from_url(self.url, socket_timeout=1) as client:
            for _ in range(1200):
                try:
                    client.ping()
                except redis.RedisError:
                    time.sleep(0.05)
                else:
                    return
        raise AssertionError("redis-server does not answer")

    def kill(self) -> None:
        """SIGKILL, which loses everything in it."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM, which loses everything in it too."""
        self._end(signal.SIGTERM)

    def freeze(self) -> None:
        """SIGSTOP: it still accepts connections, and answers nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """It goes on where it was frozen."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(timeout=30)
            self._process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


def free_port() -> int:
    """A port of 127.0.0.1 that nothing listens on, and that no connection is given until it is used."""
    while True:
        port = 10_000 + secrets.randbelow(_first_of_connections() - 10_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def _first_of_connections() -> int:
    """The first port that the kernel gives to connections and to listeners that ask for any."""
    file = Path("/proc/sys/net/ipv4/ip_local_port_range")
    return max(20_000, int(file.read_text().split()[0])) if file.exists() else 32_768


def _programs() -> Path:
    versions = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    for initdb in sorted(versions, key=lambda path: int(path.parts[-3]), reverse=True):
        return initdb.parent
    found = shutil.which("initdb")
    assert found, (
        "no PostgreSQL: install the package `postgresql` or set ASSAY_TEST_POSTGRESQL to a server's URL"
    )
    return Path(found).resolve().parent


def _other_user() -> str:
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"
