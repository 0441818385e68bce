"""A real service in separate processes, used over HTTP and killed on demand.

`FORMS` are the ways to run it. `RunningService` is embedded; `RunningBox` is the distributed form, an API
process and a box of Celery nodes over PostgreSQL and a Redis of its own; `RunningGateway` an embedded service
without workers, and nodes that have its address and a key; `RunningObjectStore` the same with the files of
jobs in an object store. Tests of any form get it from `conftest.py`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from assay.service.client import AssayClient
from assay.service.files.file_store import FileStore, FolderFiles
from assay.service.settings import Settings
from assay.service.store.store import open_store
from tests.support.databases import fresh_database
from tests.support.object_stores import new_bucket, settings_of
from tests.support.servers import PrivateRedis, free_port

ROOT = Path(__file__).resolve().parents[2]
FAST = {
    "ASSAY_POLL_SECONDS": "0.1",
    "ASSAY_CONTROL_SECONDS": "0.5",
    "ASSAY_CANCEL_GRACE_SECONDS": "2",
}
# Several shards in every evaluation of more than a batch.
SHARDED = {"ASSAY_SHARD_SECONDS": "0.02"}
EVALUATOR = "evaluator"


class RunningService:
    """One service on one state folder; it can be killed and started again."""

    modules: tuple[str, ...] = ("assay.workers.embedded",)
    # A module that runs these, if any.
    runner: tuple[str, ...] = ()
    # On loopback the embedded service asks for none.
    key = ""
    # Kept between two starts, if given.
    port = 0
    # The fixture with the address of a server that it is made with, if any.
    needs = ""

    def __init__(self, state: Path, **environment: str) -> None:
        self.state = state
        self._environment = environment
        # Environment of the service alone, not of nodes that a form starts beside it.
        self._own: dict[str, str] = {}
        self._processes: list[subprocess.Popen[bytes]] = []
        self.database = environment.get("ASSAY_DATABASE_URL", f"sqlite:///{state / 'assay.sqlite'}")
        self.client: AssayClient

    def start(self) -> RunningService:
        """Start and wait until it answers."""
        port = self.port or free_port()
        own = {"ASSAY_STATE": str(self.state), "ASSAY_PORT": str(port)}
        own |= FAST | self._environment | self._own
        kept = {k: v for k, v in os.environ.items() if not k.startswith("ASSAY_")}
        self.log = self.state.with_suffix(".log").open("ab")
        for module in self.modules:
            self._processes.append(
                subprocess.Popen(
                    [sys.executable, "-m", *self.runner, module],
                    cwd=ROOT,
                    env=kept | own,
                    stdout=self.log,
                    stderr=subprocess.STDOUT,
                )
            )
        self.client = AssayClient(f"http://127.0.0.1:{port}", self.key)
        wait_for(lambda: self.client.ready() or self._ended(), 180)
        if self._ended():
            self.stop()
            raise AssertionError(self.state.with_suffix(".log").read_text()[-3000:])
        return self

    @property
    def up(self) -> bool:
        """Whether it was started, and not stopped or killed since."""
        return bool(self._processes)

    @property
    def pid(self) -> int:
        """The process that serves."""
        return self._processes[0].pid

    def _ended(self) -> bool:
        return any(process.poll() is not None for process in self._processes)

    @property
    def files(self) -> FileStore:
        """The files of its jobs."""
        return FolderFiles(self.state / "artifacts")

    @property
    def worker_states(self) -> list[Path]:
        """The state folders that evaluators write to."""
        return [self.state]

    def evaluators(self) -> list[int]:
        """Process ids of the evaluators that belong to this service."""
        return [pid for pid in self._descendants() if EVALUATOR in command_line(pid)]

    def _descendants(self) -> list[int]:
        """Everything that was started by this service, directly or not; parents first."""
        everything = processes()
        found = [process.pid for process in self._started]
        for pid in found:
            found += [child for child, parent in everything.items() if parent == pid]
        return found

    @property
    def _started(self) -> list[subprocess.Popen[bytes]]:
        return self._processes

    def kill(self) -> None:
        """SIGKILL to all but the evaluators, as a crash or the out-of-memory killer does it."""
        self.client.close()
        for pid in self._descendants():
            if EVALUATOR not in command_line(pid):
                with contextlib.suppress(ProcessLookupError):
                    kill(pid)
        for process in self._started:
            process.wait()
        self._processes.clear()
        self.log.close()

    def stop(self) -> None:
        """SIGTERM, as an operator does it."""
        self.client.close()
        for process in self._processes:
            if process.poll() is None:
                process.terminate()
        for process in self._processes:
            process.wait(timeout=60)
        self._processes.clear()
        self.log.close()

    def close(self) -> None:
        """Stop it, and what it ran on."""
        self.stop()


class RunningBox(RunningService):
    """The distributed service: as many nodes as an embedded one would have workers.

    Args:
        state: the state folder.
        server: a PostgreSQL server's URL, as the fixture `postgresql_server` gives it.
    """

    modules = ("assay.service.server", "assay.workers.nodes")
    needs = "postgresql_server"

    def __init__(self, state: Path, server: str, **environment: str) -> None:
        self._stack = contextlib.ExitStack()
        database = self._stack.enter_context(fresh_database(server))
        self.redis = self._stack.enter_context(PrivateRedis())
        with open_store(database) as store:
            self.key = store.keys.create("tests", ["submit"])[1]
        own = {
            "ASSAY_MODE": "distributed",
            "ASSAY_DATABASE_URL": database,
            "ASSAY_REDIS_URL": self.redis.url,
            "ASSAY_NODES": environment.get("ASSAY_WORKERS", "1"),
            "ASSAY_SWEEP_SECONDS": "1",
            "ASSAY_REPEAT": "0",  # by chance: tests count shards
            "CUDA_VISIBLE_DEVICES": "",
        }
        super().__init__(state, **own, **environment)

    def close(self) -> None:
        """Stop it, and drop its database and its Redis."""
        self.stop()
        self._stack.close()


class RunningGateway(RunningService):
    """An embedded service without workers, and as many nodes with state folders of their own.

    `service` and `node` are environments of either alone.
    """

    program = "assay.workers.worker"  # of a node

    def __init__(
        self,
        state: Path,
        *,
        service: Mapping[str, str] | None = None,
        node: Mapping[str, str] | None = None,
        **environment: str,
    ) -> None:
        self._count = int(environment.pop("ASSAY_WORKERS", "1"))
        with open_store(f"sqlite:///{state / 'assay.sqlite'}") as store:
            self.key = store.keys.create("tests", ["submit"])[1]
            self.worker_key = store.keys.create("nodes", ["worker"], tenant="nodes")[1]
        self.nodes: list[subprocess.Popen[bytes]] = []
        super().__init__(state, **environment)
        self._own = {"ASSAY_WORKERS": "0", "ASSAY_REQUIRE_KEYS": "yes", "ASSAY_SWEEP_SECONDS": "0.5"}
        self._own |= service or {}
        self._node = node or {}

    def start(self) -> RunningGateway:
        """Start the service, and what nodes do not run yet."""
        self.port = self.port or free_port()
        super().start()
        for number in range(len(self.nodes), self._count):
            self.start_node(number)
        return self

    def start_node(self, number: int) -> None:
        """Start a node, without a database, Redis or the service's folder."""
        own = {
            **FAST,
            **self._environment,
            **self._node,
            "ASSAY_STATE": str(self.worker_states[number]),
            "ASSAY_GATEWAY": f"http://127.0.0.1:{self.port}",
            "ASSAY_WORKER_KEY": self.worker_key,
            "ASSAY_NODE": f"node{number}",
        }
        kept = {k: v for k, v in os.environ.items() if not k.startswith("ASSAY_")}
        command = [sys.executable, "-m", *self.runner, self.program]
        node = subprocess.Popen(command, cwd=ROOT, env=kept | own, stdout=self.log, stderr=subprocess.STDOUT)
        self.nodes.append(node)

    def kill_node(self) -> None:
        """SIGKILL to the last node."""
        node = self.nodes.pop()
        node.kill()
        node.wait()

    @property
    def worker_states(self) -> list[Path]:
        """The state folders of the nodes."""
        return [self.state.with_name(f"{self.state.name}-node{number}") for number in range(self._count)]

    @property
    def _started(self) -> list[subprocess.Popen[bytes]]:
        return [*self._processes, *self.nodes]

    def kill(self) -> None:
        """SIGKILL to service and nodes, but not to the evaluators."""
        super().kill()
        self.nodes.clear()

    def stop(self) -> None:
        """Stop the nodes, then the service."""
        for node in self.nodes:
            node.terminate()
        for node in self.nodes:
            node.wait(timeout=60)
        self.nodes.clear()
        if self.up:
            self.stop_service()

    def stop_service(self) -> None:
        """SIGTERM to the service alone; the nodes go on."""
        super().stop()


class RunningObjectStore(RunningGateway):
    """A service at a gateway whose jobs keep their files in an object store; nodes have no key of the store.

    Args:
        state: the state folder.
        server: address of an S3 server, as the fixture `s3_server` gives it.
    """

    needs = "s3_server"

    def __init__(self, state: Path, server: str, **environment: str) -> None:
        super().__init__(state, **environment)
        self._place = settings_of(new_bucket(server))
        self._own |= {f"ASSAY_{name.upper()}": value for name, value in self._place.items()}

    @property
    def files(self) -> FileStore:
        """The files of its jobs."""
        return Settings(state=self.state, **self._place).file_store


FORMS: dict[str, type[RunningService]] = {
    "embedded": RunningService,
    "distributed": RunningBox,
    "gateway": RunningGateway,
    "gateway-s3": RunningObjectStore,
}


def processes() -> dict[int, int]:
    """Process id -> parent id of everything that runs."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            state, parent = stat.rpartition(")")[2].split()[:2]
            if state != "Z":
                found[int(entry.name)] = int(parent)
    return found


def command_line(pid: int) -> str:
    """Command line of a process; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def wait_for(condition: Callable[[], Any], seconds: float) -> Any:
    """Poll until the condition holds; the tests' only clock."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError(f"not within {seconds} s")


def kill(pid: int) -> None:
    """SIGKILL to one process."""
    os.kill(pid, signal.SIGKILL)
