"""A verb is added to a copy of the service, in three files, and every door has it.

Two more files come with a verb: its test, and its line of `docs/python.md`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# By file: a text that it has once, and the text in its place.
EDITS = {
    "service/contract/verbs.py": {
        '"job.delete"]': '"job.delete", "job.rush"]',
        "VERBS = (\n": """VERBS = (
    Verb(
        "rush",
        summary="Rush a job",
        description="Gives the job the highest priority.",
        help="give a job the highest priority",
        button=Button(lambda job: job.state not in TERMINAL, "Rush"),
        said="{job.state.value}, rushed",
    ),
""",
    },
    "service/store/jobs.py": {
        "    def queue_positions(": '''    def rush(self, job_id: str, *, by: Actor | None = None) -> JobRow:
        """Gives a job the highest priority."""
        with self._database.writing() as connection:
            connection.execute(jobs.update().where(jobs.c.id == job_id).values(priority=10))
            row = read_job(connection, job_id)
            record(connection, by, "job.rush", job_id, detail=owner_of(row.tenant, by))
            return row

    def queue_positions(''',
    },
    "service/client/jobs.py": {
        "    def catalog(": '''    def rush(self, job_id: str) -> JobView:
        """Gives the job the highest priority."""
        return self._job("POST", f"/jobs/{part(job_id)}/rush")

    def catalog(''',
    },
}
SPEC = {
    "kind": "train",
    "model": {"name": "symvit"},
    "data": {"name": "digits"},
    "recipe": {"name": "small_vit"},
}
RUSHED = f"""
import asyncio, contextlib, io, sys
from pathlib import Path
import httpx
from assay.service import app, settings
from assay.service.cli import main
from assay.service.client import AssayClient, AsyncAssayClient
from assay.service.store.store import open_store
from tests.support.serving import LiveServer

def printed(*arguments):
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
        main.main(arguments)
    return out.getvalue()

async def rushed(url, job):
    async with AsyncAssayClient(url) as client:
        return await client.rush(job)

given = settings.Settings(state=Path(sys.argv[1]))
given.state.mkdir()
with open_store(given.database, migrate=True) as store:
    server = LiveServer(app.create_app(given, store=store))
    try:
        with AssayClient(server.url) as client, httpx.Client(base_url=server.url, timeout=60) as http:
            job = client.submit({SPEC!r}).id
            path = f"/jobs/{{job}}/rush"
            document = http.get("/openapi.json").json()
            print(document["paths"]["/api/v1/jobs/{{job_id}}/rush"]["post"]["operationId"])
            print(http.post(f"/api/v1{{path}}").status_code)
            print(client.rush(job).id == job, asyncio.run(rushed(server.url, job)).id == job)
            print(printed("rush", job, "--url", server.url).strip())
            print("give a job the highest priority" in printed("help", "more"))
            html = {{"Accept": "text/html"}}
            print(f'action="{{path}}"' in http.get(f"/jobs/{{job}}", headers=html).text)
            print(http.post(path, data={{"sure": "1"}}, headers=html).status_code)
            print([entry.action for entry in client.audit()].count("job.rush"))
            print(store.jobs.get(job).priority)
    finally:
        server.stop()
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_verb_is_added_in_three_files(tmp_path: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "service", tmp_path / "service", ignore=ignored)
    shutil.copytree(ROOT / "src", tmp_path / "src", symlinks=True)
    for name, changes in EDITS.items():
        text = (tmp_path / name).read_text()
        for before, after in changes.items():
            assert text.count(before) == 1, (name, before)
            text = text.replace(before, after)
        (tmp_path / name).write_text(text)
    paths = [str(tmp_path / "src"), str(ROOT)]
    process = subprocess.run(
        [sys.executable, "-c", RUSHED, str(tmp_path / "state")],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    told = ["rush_job", "202", "True True", "queued, rushed", "True", "True", "303", "5", "10"]
    assert process.stdout.splitlines() == told
