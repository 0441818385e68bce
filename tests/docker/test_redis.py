"""The Redis container's command, with a real server: the password is asked for and cannot be seen."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.e2e.running import wait_for
from tests.support.compose import load
from tests.support.servers import free_port

ONCE = Retry(NoBackoff(), 0)
PASSWORD = 'quo"te back\\slash $x `y` and more'


def container(folder: Path) -> dict[str, Any]:
    """The service with its paths moved into a folder."""
    content: dict[str, Any] = load("docker-compose.yml", environment={})["services"]["redis"]
    moved = [text.replace("/run/secrets", str(folder)) for text in content["command"]]
    moved[moved.index("--dir") + 1] = str(folder)
    test = content["healthcheck"]["test"][1].replace("/run/secrets", str(folder))
    return content | {"command": moved, "test": test}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "assay_redis_password").write_text(PASSWORD + "\n")
    return tmp_path


@pytest.fixture
def server(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], redis.Redis]]:
    port = free_port()
    command = [*container(folder)["command"], "--port", str(port), "--bind", "127.0.0.1"]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
    with redis.Redis(port=port, password=PASSWORD, retry=ONCE) as client:
        wait_for(lambda: answers(client), 20)
        yield process, client
    process.terminate()
    assert process.wait(30) == 0


def answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False


def test_it_asks_for_the_password_and_keeps_what_it_is_told(
    server: tuple[subprocess.Popen[bytes], redis.Redis], folder: Path
) -> None:
    process, client = server
    port = client.connection_pool.connection_kwargs["port"]
    with redis.Redis(port=port, retry=ONCE) as stranger, pytest.raises(redis.AuthenticationError):
        stranger.ping()
    assert client.config_get("appendonly")["appendonly"] == "yes"
    assert client.config_get("maxmemory-policy")["maxmemory-policy"] == "noeviction"
    assert client.config_get("maxmemory")["maxmemory"] == str(512 * 1024 * 1024)
    assert list((folder / "appendonlydir").glob("*.aof"))
    command_line = Path(f"/proc/{process.pid}/cmdline").read_bytes()
    assert command_line.startswith(b"redis-server"), "the shell has made way, so that signals arrive"
    assert b"back" not in command_line


def test_its_health_check(server: tuple[subprocess.Popen[bytes], redis.Redis], folder: Path) -> None:
    port = server[1].connection_pool.connection_kwargs["port"]
    test = container(folder)["test"].replace("redis-cli", f"redis-cli -p {port}")
    assert subprocess.run(["sh", "-c", test], capture_output=True).returncode == 0
    elsewhere = container(folder)["test"].replace("redis-cli", f"redis-cli -p {free_port()}")
    assert subprocess.run(["sh", "-c", elsewhere], capture_output=True).returncode != 0


@pytest.mark.parametrize("content", ["", "\n"], ids=["empty", "newline"])
def test_without_a_password_it_does_not_start(folder: Path, content: str) -> None:
    (folder / "assay_redis_password").write_text(content)
    command = [*container(folder)["command"], "--port", str(free_port())]
    assert subprocess.run(command, cwd=folder, capture_output=True, timeout=30).returncode != 0
