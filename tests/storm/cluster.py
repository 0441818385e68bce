"""Cluster under the storm: its worker boxes, its API processes and the disk of its state."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from assay.service.client import AssayClient
from assay.service.store.fleet import lease_owner
from assay.service.store.store import Store
from tests.e2e.running import processes
from tests.storm import revision
from tests.storm.disguise import VARIABLE, Disguise, Lie, version_of
from tests.storm.disk import Disk
from tests.storm.site import SETTINGS, Servers, Site, sqlalchemy_url
from tests.support.servers import free_port

ROOT = Path(__file__).resolve().parents[2]
STOP_SECONDS = 60
# Nodes of a box.
NODES = 2
APIS = 2
NEXT = "the next version"


@dataclass
class Program:
    """A process of the storm: a box, or an API process."""

    name: str
    module: str
    disguise: Disguise
    own: Mapping[str, str]
    process: subprocess.Popen[bytes] | None = None

    @property
    def up(self) -> bool:
        """Whether it runs."""
        return self.process is not None and self.process.poll() is None


class Cluster(Site):
    """Boxes of Celery nodes, and API processes; what is killed is started again.

    Args:
        servers: that run.
        name: of the run.
        folder: for its state and its logs.
        workers: how many nodes.
        words: what the fake evaluator is told for every job.
        stall_seconds: after which a shard without progress is ended.
        seed: of the doorbells.
        apis: how many API processes.

    Attributes:
        nodes_of_box: how many nodes a box has.
        box_module: what runs as a box.
        api_module: what runs as an API process.
        version: of boxes and API processes that are started from now on; empty: this one.
        key: an API key with all rights.
        disk: that of the state folder.
        stall_seconds: as given.
    """

    nodes_of_box = NODES
    box_module, api_module = "tests.storm.box", "tests.storm.api"

    def __init__(
        self,
        servers: Servers,
        name: str,
        folder: Path,
        workers: int,
        words: str,
        *,
        stall_seconds: float = 300.0,
        seed: int = 0,
        apis: int = APIS,
    ) -> None:
        super().__init__(servers, name, folder)
        self.disk = Disk(self.state)
        self.version = ""
        self.revisions = folder / "revisions"
        self.stall_seconds = stall_seconds
        self._words, self._seed = words, seed
        self._environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("ASSAY_")},
            **SETTINGS,
            "ASSAY_EVALUATOR_COMMAND": self.evaluator,
            "ASSAY_STALL_SECONDS": f"{stall_seconds:g}",
            "PYTHONPATH": str(ROOT),
        }
        # Of processes that see the database.
        self._direct = {
            "ASSAY_DATABASE_URL": sqlalchemy_url(self.url),
            "ASSAY_REDIS_URL": servers.redis.url,
            "ASSAY_STATE": str(self.state),
            "ASSAY_SIGNING_FOLDER": str(folder / "signing"),
        }
        revision.write(self.revisions)
        with self.store() as store:
            self._make_keys(store)
        self._ports = [free_port() for _ in range(apis)]
        most = self.nodes_of_box
        sizes = [most] * (workers // most) + [workers % most] * (workers % most > 0)
        self._honest = [self._box(f"box-{number}", size) for number, size in enumerate(sizes)]
        self._liars: list[Program] = []
        self._lied = 0
        self.apis = [self._api(number, port) for number, port in enumerate(self._ports)]
        for program in (*self._honest, *self.apis):
            self.start(program)

    def clients(self) -> list[AssayClient]:
        """A client of each API process."""
        return [AssayClient(f"http://127.0.0.1:{port}", self.key, timeout=15.0) for port in self._ports]

    def boxes(self) -> list[int]:
        """The first process of each honest box, which starts the nodes."""
        return [box.process.pid for box in self._honest if box.process is not None and box.up]

    def nodes(self) -> list[int]:
        """The first process of each honest node, which listens to the doorbell."""
        return _children(self.boxes())

    def supervisors(self) -> list[int]:
        """The process of each honest node that claims shards and drives the evaluator."""
        return _children(self.nodes())

    def kill_box(self, box: int) -> None:
        """kill -9 of all processes of a box but its evaluators, as when its container is killed."""
        evaluators = set(self.evaluators())
        for pid in [box, *(nodes := _children([box])), *_children(nodes)]:
            if pid not in evaluators:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def revive(self) -> None:
        """Start those boxes and API processes again that are dead."""
        for program in (*self._honest, *self.apis):
            if not program.up:
                self.start(program)

    def start(self, program: Program) -> None:
        """Start a box or an API process."""
        own = {VARIABLE: program.disguise.text, "FAKE_EVALUATOR": self._told(program.disguise), **program.own}
        with (self.logs / f"{program.name}.log").open("ab") as log:
            program.process = subprocess.Popen(
                [sys.executable, "-m", program.module],
                cwd=ROOT,
                env=self._environment | own,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def stop_boxes(self) -> list[int]:
        """SIGTERM to every honest box; returns the exit codes."""
        for pid in [*self.supervisors(), *self.nodes(), *self.boxes()]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        return self._end(self._honest)

    def stop(self) -> list[int]:
        """SIGTERM to everything; returns the exit codes of boxes and API processes that ended by it."""
        return [*self.stop_boxes(), *self._end([*self._liars, *self.apis])]

    def close(self) -> None:
        """Give the disk back; the cluster is stopped."""
        self.disk.close()

    def add_liar(self, lie: Lie) -> Program:
        """Start a box of one node that lies."""
        self._lied += 1
        name = f"liar-{self._lied}-{lie}"
        mine, other = version_of(self.version), version_of("a liar's")
        node = other if lie == "code" else mine
        evaluator = other if lie in ("code", "exchanged", "mixed") else mine
        mark = str(self.logs.parent / f"{name}.mark")
        box = self._box(name, 1, Disguise(node, evaluator, lie, mark))
        self._liars.append(box)
        self.start(box)
        return box

    def remove(self, box: Program) -> None:
        """End the box of a liar."""
        self._end([box])
        self._liars.remove(box)

    def upgrade(self, box: int) -> None:
        """Restart an honest box as one of the next version."""
        old = self._honest[box]
        self._end([old])
        self._honest[box] = self._box(old.name, int(old.own["ASSAY_NODES"]))
        self.start(self._honest[box])

    def upgrade_api(self, number: int) -> None:
        """Restart an API process as one of the next version."""
        self._end([self.apis[number]])
        self.apis[number] = self._api(number, self._ports[number])
        self.start(self.apis[number])

    def migrate(self) -> int:
        """Migrate the database to the next version's revision, as its `migrate` does; the exit code."""
        with (self.logs / "migrate.log").open("ab") as log:
            command = [sys.executable, "-m", "tests.storm.revision", str(self.revisions)]
            return subprocess.run(
                command, cwd=ROOT, env=self._environment | self._direct, stdout=log, stderr=log, check=False
            ).returncode

    def forget_dead(self) -> None:
        """Take killed workers from the list of those online, as a minute does."""
        with self.store() as store:
            for worker in store.online_workers():
                if lease_owner.is_dead(self._owner(worker.worker)):
                    store.workers.gone(worker.worker)

    @property
    def size(self) -> int:
        """The number of honest boxes."""
        return len(self._honest)

    def _make_keys(self, store: Store) -> None:
        self.key = store.keys.create("storm", ["admin", "submit", "read"])[1]

    def _owner(self, worker: str) -> str:
        """The worker's id as its own machine knows it."""
        return worker

    def _end(self, programs: list[Program]) -> list[int]:
        running = [one.process for one in programs if one.process is not None and one.up]
        for process in running:
            process.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        for process in running:
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.kill_box(process.pid)
                process.wait()
        return [process.returncode for process in running]

    def _box(self, name: str, nodes: int, disguise: Disguise | None = None) -> Program:
        mine = version_of(self.version)
        return Program(
            name,
            self.box_module,
            self._on_disk(disguise or Disguise(mine, mine)),
            {**self._own_of_box(name, disguise), "ASSAY_NODES": str(nodes)},
        )

    def _own_of_box(self, name: str, disguise: Disguise | None) -> Mapping[str, str]:
        """Variables of a box; `disguise`: a liar's, None for an honest one."""
        return self._direct

    def _api(self, number: int, port: int) -> Program:
        mine = version_of(self.version)
        disguise = Disguise(
            mine, mine, seed=self._seed + number, revisions=str(self.revisions) if self.version else ""
        )
        # Boxes of both versions work, and liars too: what they do is found in what they measure.
        allowed = [version_of(name)["digest"] for name in ("", NEXT, "a liar's")]
        told = {"ASSAY_PORT": str(port), "ASSAY_ALLOWED_IDENTITIES": json.dumps(allowed)}
        return Program(f"api-{number}", self.api_module, self._on_disk(disguise), {**self._direct, **told})

    def _on_disk(self, disguise: Disguise) -> Disguise:
        return replace(disguise, full=str(self.disk.flag or ""), state=str(self.state))

    def _told(self, disguise: Disguise) -> str:
        return f"{self._words} broken=cpu" if disguise.lie == "idle" else self._words


def _children(parents: list[int]) -> list[int]:
    return [pid for pid, parent in processes().items() if parent in parents]
