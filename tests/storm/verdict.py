"""Check that every result exists once and equals the undisturbed run, in plain SQL."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import dict_row

from assay.service.store.columns import unpack
from assay.service.store.transactions.progress import UNCOUNTED
from assay.service.store.transactions.submit import FENCES
from tests.storm.disguise import LIE
from tests.storm.jobs import Wish
from tests.storm.site import Site

Row = dict[str, Any]
# Time-dependent values and job ids; everything else must be equal.
OF_THE_RUN = ("times", "spec", "repeated")
# Lines of the workers' logs that are counted.
COUNTED = {
    "losses": re.compile(r"(\d+) leases expired or belonged to a dead process"),
    "failures": re.compile(r"\.shard_end: shard \S+: (?:evaluator_died|worker_raised|no_progress): "),
    "shards given back": re.compile(r"\.shard_end: shard \S+: given back, "),
    "merges refused": re.compile(r"ERROR \S+completion: job \S+: .* was measured by other code"),
    "not saved": re.compile(r"the results could not be saved"),
    "outcomes not kept on disk": re.compile(r"outcome not kept on disk"),
    "clock jumps seen": re.compile(r"the database's clock jumped by"),
    "doorbells dropped": re.compile(r"tests\.storm\.api: doorbell dropped"),
    "doorbells passed on": re.compile(r"tests\.storm\.api: doorbell passed on"),
    "doorbells repeated": re.compile(r"tests\.storm\.api: doorbell repeated"),
    "outcomes refused": re.compile(r"outcome refused"),
    "outcomes from disk": re.compile(r"outcome from disk recorded"),
    "outcomes from disk refused": re.compile(r"outcome from disk refused"),
    "merged again": re.compile(r"merging again"),
    "database away": re.compile(r"the (?:database|gateway) is away"),
}
# Errors of our own. Celery's, about a Redis that is away, are its manner.
ERRORS = re.compile(r" (ERROR|CRITICAL) (assay|tests|__main__)\b|Exception in thread|Exception ignored")
# Those that a fault explains: a liar is refused, and a full disk keeps no table.
EXPLAINED = re.compile(
    r"given back, (other_data|other_identity|device_fault|unfit): "
    r"|self-test: cpu is not served"
    r"|was measured by other code than was planned"
    r"|the results could not be saved"
    # The API process's word for a database that is down, answered by 503.
    r"|the database is away"
)
JSON = {"spec", "plan", "replans", "repeated", "provenance", "error", "data", "result"}
QUERIES = {
    "jobs": "SELECT id, kind, state, attempt, message, error, progress_done, progress_total, started_at,"
    " finished_at, last_event, spec, plan, replans, repeated, provenance FROM jobs ORDER BY id",
    "shards": "SELECT * FROM shards ORDER BY id",
    "outcomes": "SELECT shard_id, job_id, fence, n, seconds, created_at FROM outcomes ORDER BY shard_id",
    "events": "SELECT * FROM events ORDER BY job_id, seq",
    "results": "SELECT * FROM results ORDER BY job_id, evaluation",
    "artifacts": "SELECT * FROM artifacts ORDER BY job_id, name",
    "workers": "SELECT * FROM workers ORDER BY worker",
    "duties": "SELECT * FROM duties",
}


def rows(url: str, query: str, *values: object) -> list[Row]:
    """Rows of a query; JSON is text in the database."""
    with psycopg.connect(url, row_factory=dict_row) as connection:
        found = connection.execute(query, values).fetchall()
    for row in found:
        row |= {name: json.loads(row[name]) for name in JSON & row.keys() if row[name] is not None}
    return found


def problems(site: Site, wishes: list[Wish], ids: Mapping[str, str]) -> list[str]:
    """Problems after a storm in which every job has succeeded."""
    found = [f"{wish.key} was never submitted" for wish in wishes if wish.key not in ids]
    jobs = {row["id"]: row for row in rows(site.url, QUERIES["jobs"])}
    if len(jobs) != len(ids):
        found.append(f"{len(jobs)} jobs are in the database, {len(ids)} were submitted")
    shards, outcomes, events = _of_jobs(site, "shards"), _of_jobs(site, "outcomes"), _ends(site)
    for wish in wishes:
        job_id = ids.get(wish.key, "")
        if job_id not in jobs:
            found.append(f"{wish.key}: no such job")
            continue
        own = [*_job(jobs[job_id], events.get(job_id, [])), *_shards(wish, shards.get(job_id, []))]
        own += _outcomes(shards.get(job_id, []), outcomes.get(job_id, []))
        found += [f"{wish.key} ({job_id}): {problem}" for problem in own]
    return found + list(_left_over(site))


def results(site: Site, ids: Mapping[str, str]) -> dict[str, Any]:
    """Measurements of each job, by key: results, tables of outcomes and hashes, without times and job ids."""
    found: dict[str, Any] = {}
    merged, files = _of_jobs(site, "results"), _of_jobs(site, "artifacts")
    known = {row["id"]: row["provenance"] for row in rows(site.url, QUERIES["jobs"])}
    for key, job_id in ids.items():
        found[key] = {
            "results": [timeless(row["result"]) for row in merged.get(job_id, [])],
            "tables": {
                row["name"]: row["sha256"] for row in files.get(job_id, []) if row["name"].endswith(".csv")
            },
            "provenance": _of_any_version(known[job_id] or {}),
        }
    return found


def timeless(value: Any) -> Any:
    """A result without seconds."""
    if isinstance(value, dict):
        return {key: timeless(item) for key, item in value.items() if key != "seconds"}
    return [timeless(item) for item in value] if isinstance(value, list) else value


def differences(calm: Mapping[str, Any], storm: Mapping[str, Any]) -> list[str]:
    """Differences of two runs of the same wishes."""
    found = [f"{key} is in one run only" for key in sorted(calm.keys() ^ storm.keys())]
    for key in sorted(calm.keys() & storm.keys()):
        for part, expected in calm[key].items():
            if storm[key][part] != expected:
                text = f"{json.dumps(expected)[:600]} became {json.dumps(storm[key][part])[:600]}"
                found.append(f"{key}: {part} differ: {text}")
    return found


def versions(site: Site, sources: Mapping[str, str], replanned: Collection[str]) -> list[str]:
    """Problems with who measured.

    Args:
        site: the run.
        sources: the hash of the source of each honest version, by its digest.
        replanned: ids of the jobs that users had planned again.
    """
    found = []
    for job in rows(site.url, QUERIES["jobs"]):
        provenance = job["provenance"] or {}
        source = provenance.get("code", {}).get("source_sha256")
        if job["kind"] == "evaluate" and source != sources.get((job["plan"] or {})["identity"]["digest"]):
            found.append(
                f"{job['id']}: measured by the source {source}, planned by {job['plan']['identity']}"
            )
        told = provenance.get("times", {}).get("replans", [])
        if bool(told) != (job["id"] in replanned) or told != (job["replans"] or []):
            found.append(f"{job['id']}: its provenance says that it was planned again: {told}")
    outcomes = rows(site.url, "SELECT shard_id, payload FROM outcomes")
    lies = [row["shard_id"] for row in outcomes if LIE in unpack(row["payload"])[0]["loss"]]
    return found + [f"{shard}: the outcome is a liar's" for shard in lies]


def counts(site: Site) -> Counter[str]:
    """Counts of the storm from the logs and the database."""
    found: Counter[str] = Counter(dict.fromkeys(COUNTED, 0))
    for line in _log_lines(site.logs):
        for name, pattern in COUNTED.items():
            if match := pattern.search(line):
                found[name] += int(match[1]) if match.groups() else 1
    asked = f"SELECT coalesce(sum(mod(fence, {FENCES})), 0) AS claims, count(*) AS shards FROM shards"
    told = rows(site.url, asked)[0]
    found["claims"], found["shards"] = int(told["claims"]), int(told["shards"])
    repeated = [row["repeated"] for row in rows(site.url, QUERIES["jobs"]) if row["repeated"] is not None]
    found["repetitions with equal bits"] = sum(one["equal"] for one in repeated)
    found["outcomes"] = rows(site.url, "SELECT count(*) AS n FROM outcomes")[0]["n"]
    distinct = "SELECT count(*) - count(DISTINCT shard_id) AS n FROM outcomes"
    found["duplicates"] = rows(site.url, distinct)[0]["n"]
    return found


def defects(logs: Path) -> list[str]:
    """Lines of the workers' logs that no fault explains."""
    return [line for line in _log_lines(logs) if ERRORS.search(line) and not EXPLAINED.search(line)]


def dump(site: Site, folder: Path) -> None:
    """Write what the database holds into a folder, one file of JSON lines for each table."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, query in QUERIES.items():
        lines = (json.dumps(row, default=str) for row in rows(site.url, query))
        (folder / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines))


def _job(job: Row, ends: list[Row]) -> Iterator[str]:
    if job["state"] != "succeeded":
        yield f"is {job['state']}: {job['error'] or job['message']}"
    if job["progress_done"] != job["progress_total"]:
        yield f"progress is {job['progress_done']} of {job['progress_total']}"
    if len(ends) != job["attempt"]:
        yield f"ended {len(ends)} times in {job['attempt']} attempts: {[row['data'] for row in ends]}"
    if sum(row["data"]["state"] == "succeeded" for row in ends) != 1:
        yield "did not succeed exactly once"
    told = job["repeated"] or {"shards": 0, "equal": 0, "not_compared": {}}
    if told["equal"] + sum(told["not_compared"].values()) != told["shards"]:
        yield f"not every repetition has an end: {told}"
    if job["kind"] == "evaluate" and (job["provenance"] or {}).get("repeated") != job["repeated"]:
        yield "its provenance says something else of its repetitions"


def _shards(wish: Wish, shards: list[Row]) -> Iterator[str]:
    open_ones = [row["id"] for row in shards if row["state"] != "done" or row["owner"] is not None]
    if open_ones:
        yield f"shards are not done, or still owned: {open_ones}"
    measuring = [row for row in shards if row["kind"] not in UNCOUNTED]
    if wish.shards is not None and len(measuring) != wish.shards:
        yield f"has {len(measuring)} shards, {wish.shards} were expected"


def _outcomes(shards: list[Row], outcomes: list[Row]) -> Iterator[str]:
    measuring = {row["id"]: row for row in shards if row["kind"] not in UNCOUNTED}
    if sorted(measuring) != sorted(row["shard_id"] for row in outcomes):
        yield f"{len(measuring)} shards have {len(outcomes)} outcomes"
    seen: Counter[tuple[int, str]] = Counter()
    for row in outcomes:
        shard = measuring.get(row["shard_id"])
        if shard is None:
            continue
        columns, _ = unpack(row["payload"])
        seen.update((shard["evaluation"], example) for example in columns["id"])
        if row["fence"] != shard["fence"]:
            yield f"{row['shard_id']}: outcome of claim {row['fence']}, the last claim was {shard['fence']}"
        if shard["kind"] == "evaluate" and row["n"] != shard["stop"] - shard["start"]:
            yield f"{row['shard_id']}: {row['n']} examples of {shard['stop'] - shard['start']}"
    twice = [example for example, times in seen.items() if times > 1]
    if twice:
        yield f"examples were measured twice: {twice[:5]}"


def _left_over(site: Site) -> Iterator[str]:
    if left := site.evaluators():
        yield f"evaluators were left over: {left}"
    if left := sorted(path.name for spool in site.spools() for path in spool.glob("*")):
        yield f"outcomes were left on disk: {left[:5]}"
    if left := sorted(path.name for path in (site.state / "artifacts").rglob("*.part")):
        yield f"half-written files were left: {left[:5]}"


def _of_jobs(site: Site, table: str) -> dict[str, list[Row]]:
    query = "SELECT * FROM outcomes ORDER BY shard_id" if table == "outcomes" else QUERIES[table]
    found: dict[str, list[Row]] = {}
    for row in rows(site.url, query):
        found.setdefault(row["job_id"], []).append(row)
    return found


def _ends(site: Site) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows(site.url, "SELECT * FROM events WHERE type = 'end' ORDER BY job_id, seq"):
        found.setdefault(row["job_id"], []).append(row)
    return found


def _of_any_version(provenance: Row) -> Row:
    """What is the same for all versions: without the hash of the source, which `versions` checks."""
    kept = {name: value for name, value in provenance.items() if name not in OF_THE_RUN}
    code = {name: value for name, value in kept.get("code", {}).items() if name != "source_sha256"}
    return {**kept, "code": code}


def _log_lines(logs: Path) -> Iterator[str]:
    for path in sorted(logs.glob("*.log")):
        with path.open(errors="replace") as lines:
            yield from (f"{path.name}: {line.rstrip()}" for line in lines)
