"""1,000 submissions with repeated idempotency keys from 16 clients, against real servers: no job twice."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from assay.service.app import create_app
from assay.service.settings import Settings
from assay.service.store.rows import JobRow
from assay.service.store.store import Store, open_store
from tests.support.databases import *  # noqa: F403 (fixtures)
from tests.support.serving import LiveServer

SUBMISSIONS, KEYS, CLIENTS, SERVERS = 1000, 200, 16, 2
# For every tenth key, one submission in five has another body.
ODD_KEY, ODD_BODY = 10, 5
SPEC: dict[str, Any] = {
    "kind": "evaluate",
    "model": {"name": "symvit", "params": {}},
    "data": {"name": "digits"},
    "evaluations": [{"name": "clean"}],
}
Answer = tuple[int, int, httpx.Response]


def submissions() -> list[tuple[int, int]]:
    """Key and seed of each submission. Those of one key come close together, so that they race."""
    draw = random.Random("submissions")
    found = []
    for number in range(SUBMISSIONS):
        key = number * KEYS // SUBMISSIONS
        odd = key % ODD_KEY == 0 and number % ODD_BODY == 0
        found.append((key, 1 if odd else 0))
    return sorted(found, key=lambda item: item[0] + draw.uniform(0, 3))


@contextmanager
def servers(url: str, state: Path) -> Iterator[list[str]]:
    """The addresses of two services on one database, each with connections of its own."""
    with ExitStack() as stack:
        addresses = []
        for number in range(SERVERS):
            store = stack.enter_context(open_store(url, migrate=False))
            settings = Settings(state=state / str(number), database_url=url)
            server = LiveServer(create_app(settings, store=store))
            stack.callback(server.stop)
            addresses.append(server.url)
        yield addresses


def post_all(addresses: list[str]) -> list[Answer]:
    """All submissions from 16 clients at once, half of the clients at each server."""

    def post(client: httpx.Client, share: list[tuple[int, int]]) -> list[Answer]:
        answers = []
        for key, seed in share:
            headers = {"Idempotency-Key": f"key-{key}"}
            answers.append(
                (key, seed, client.post("/api/v1/jobs", json=SPEC | {"seed": seed}, headers=headers))
            )
        return answers

    todo = submissions()
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(CLIENTS))
        calls = []
        for number in range(CLIENTS):
            address = addresses[number % len(addresses)]
            client = stack.enter_context(httpx.Client(base_url=address, timeout=60))
            calls.append(pool.submit(post, client, todo[number::CLIENTS]))
        return [answer for call in calls for answer in call.result()]


def all_jobs(store: Store) -> list[JobRow]:
    found, cursor = [], None
    while True:
        rows, cursor = store.jobs.page(limit=200, cursor=cursor)
        found += rows
        if cursor is None:
            return found


@pytest.mark.slow
def test_repeated_keys_make_no_job_twice(database_url: str, tmp_path: Path) -> None:
    with servers(database_url, tmp_path) as addresses:
        answers = post_all(addresses)
    with open_store(database_url, migrate=False) as store:
        jobs = {job.id: job for job in all_jobs(store)}
        shards = {job_id: len(store.shards.of(job_id)) for job_id in jobs}
        told = [event.type for job_id in jobs for event in store.events.of(job_id)]
    assert len(answers) == SUBMISSIONS
    assert len(jobs) == KEYS
    assert set(shards.values()) == {1}
    assert told == ["state"] * KEYS
    assert_answers(answers, jobs)


def assert_answers(answers: list[Answer], jobs: dict[str, JobRow]) -> None:
    """One 201 for each key, 200 with its job for the same body, 422 for the other."""
    of_key: dict[int, list[Answer]] = defaultdict(list)
    for answer in answers:
        of_key[answer[0]].append(answer)
    assert len(of_key) == KEYS
    made = set()
    for calls in of_key.values():
        statuses = Counter(response.status_code for _, _, response in calls)
        assert statuses[201] == 1, statuses
        assert set(statuses) <= {200, 201, 422}, statuses
        winner, job_id = next((seed, r.json()["id"]) for _, seed, r in calls if r.status_code == 201)
        made.add(job_id)
        assert jobs[job_id].spec["seed"] == winner
        for _, seed, response in calls:
            if seed == winner:
                assert response.json()["id"] == job_id
            else:
                assert response.status_code == 422
                assert response.json()["error"]["type"] == "idempotency_mismatch"
    assert made == set(jobs)
    assert sum(r.status_code == 422 for _, _, r in answers) > 0
