"""Services of a compose file as local processes, for tests without a Docker engine.

Command lines, environments, order and health checks are those of the file. What a container has to itself
is put where a process can have it: host names and ports become this machine's, mounted folders lie under
one folder, and the files of /run/secrets become the variables that the settings read as well.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psycopg

from assay.service.client import AssayClient
from tests.support.compose import ROOT, load
from tests.support.servers import PrivatePostgresql, free_port

FILES = ("docker-compose.yml", "docker-compose.cpu.yml")
DURATION = {"s": 1, "m": 60}


class Containers:
    """One `docker compose up`.

    Args:
        folder: what the containers would have as volumes, mounts and /tmp lies here.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        secrets = folder / "secrets"
        subprocess.run(["sh", ROOT / "docker" / "secrets.sh", secrets], check=True, stdout=subprocess.DEVNULL)
        self.passwords = {path.name: path.read_text() for path in secrets.iterdir()}
        found = load(*FILES, environment={"ASSAY_SECRETS": str(secrets)})["services"]
        # Those with a profile start only when it is asked for.
        self.services: dict[str, Any] = {name: one for name, one in found.items() if "profiles" not in one}
        self.postgresql = PrivatePostgresql("assay", self.passwords["assay_database_password"])
        self.ports = {"postgres": self.postgresql.port, "redis": free_port(), "service": free_port()}
        self.url = f"http://127.0.0.1:{self.ports['service']}"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        for name in ("state", "data", "redis", "tmp", "cwd"):
            (folder / name).mkdir()
        self._here = {
            "postgres:5432": f"127.0.0.1:{self.ports['postgres']}",
            "redis:6379": f"127.0.0.1:{self.ports['redis']}",
            "redis-cli": f"redis-cli -p {self.ports['redis']}",
            "8000": str(self.ports["service"]),
            "/run/secrets": str(secrets),
            "/var/lib/assay": str(folder / "state"),
            "/data": str(folder / "data"),
        }

    def order(self) -> Iterator[str]:
        """The services, each after those that it depends on."""
        done: list[str] = []
        while len(done) < len(self.services):
            ready = [
                name
                for name, content in self.services.items()
                if name not in done and set(content.get("depends_on", {})) <= set(done)
            ]
            assert ready, "they wait for each other"
            yield ready[0]
            done.append(ready[0])

    def up(self) -> None:
        """Start all services, each after its dependencies are healthy or have ended well."""
        for name in self.order():
            for needed, how in self.services[name].get("depends_on", {}).items():
                if how["condition"] == "service_healthy":
                    self.wait_until_healthy(needed)
                else:
                    assert how["condition"] == "service_completed_successfully"
                    code = self.processes[needed].wait(120)
                    assert code == 0, self.log(needed)
            self.start(name)

    def start(self, name: str) -> None:
        """Start one service."""
        if name == "postgres":
            self.postgresql.start()
            with psycopg.connect(self.postgresql.url, autocommit=True) as connection:
                database = self.services[name]["environment"]["POSTGRES_DB"]
                connection.execute(f"CREATE DATABASE {database}")
            return
        command = [self._moved(word) for word in self.services[name]["command"]]
        if name == "redis":
            command[command.index("--dir") + 1] = str(self.folder / "redis")
            command += ["--port", str(self.ports[name]), "--bind", "127.0.0.1"]
        with self._log(name).open("ab") as log:
            self.processes[name] = subprocess.Popen(
                command, cwd=self.folder / "cwd", env=self.environment(name), stdout=log, stderr=log
            )

    def run(self, name: str, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """`docker compose exec`: run a command as the service would."""
        environment = self.environment(name) | variables
        return subprocess.run(
            command, cwd=self.folder / "cwd", env=environment, capture_output=True, text=True, timeout=120
        )

    def environment(self, name: str) -> dict[str, str]:
        """Environment of the service's processes; from this process only PATH."""
        given = self.services[name].get("environment", {})
        ours = {key: self._moved(value) for key, value in given.items() if value is not None}
        if "assay_redis_password" in self.services[name].get("secrets", ()):
            ours |= {key.upper(): value for key, value in self.passwords.items()}
        if name == "postgres":
            ours["PGPORT"] = str(self.ports[name])
        return {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(self.folder / "tmp"),
            "TMPDIR": str(self.folder / "tmp"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
            **ours,
        }

    def healthy(self, name: str) -> bool:
        """Result of the file's health check."""
        kind, *test = self.services[name]["healthcheck"]["test"]
        moved = [self._moved(word) for word in test]
        return self.run(name, *(["sh", "-c", *moved] if kind == "CMD-SHELL" else moved)).returncode == 0

    def wait_until_healthy(self, name: str) -> None:
        """Ask as Docker does in the start period, only more often, and fail when the service has ended."""
        deadline = time.monotonic() + 2 * seconds(self.services[name]["healthcheck"]["start_period"])
        while not self.healthy(name):
            process = self.processes.get(name)
            assert process is None or process.poll() is None, self.log(name)
            assert time.monotonic() < deadline, self.log(name)
            time.sleep(0.3)

    def down(self) -> dict[str, int]:
        """SIGTERM to each, the dependent ones first, and its grace period; service -> exit code."""
        codes: dict[str, int] = {}
        for name in reversed(list(self.order())):
            if name == "postgres":
                self.postgresql.stop()
                codes[name] = 0
            elif name in self.processes:
                self.processes[name].terminate()
                codes[name] = self.processes[name].wait(seconds(self.services[name]["stop_grace_period"]))
        return codes

    def kill(self) -> None:
        """Kill remaining processes and remove their files."""
        for process in self.processes.values():
            process.kill()
            process.wait()
        self.postgresql.__exit__(None, None, None)  # its folder is there even when it was never started
        shutil.rmtree(self.folder)

    def client(self, key: str | None) -> AssayClient:
        """A client of the service."""
        return AssayClient(self.url, key=key)

    def log(self, name: str) -> str:
        """Log of a service."""
        return self._log(name).read_text()

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _moved(self, text: str) -> str:
        return re.sub("|".join(map(re.escape, self._here)), lambda match: self._here[match[0]], text)


def seconds(duration: str) -> float:
    """A duration of a compose file."""
    return float(duration[:-1]) * DURATION[duration[-1]]


def lines_with(secrets: Mapping[str, str], text: str) -> list[str]:
    """The lines that show one of the secrets."""
    return [line for line in text.splitlines() if any(secret in line for secret in secrets.values())]
