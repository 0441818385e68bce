"""Redis in front of the database, for frequent reads: progress of running shards, hints to cancel.

The database is the truth. Values written here are copies or hints, expire by themselves, and may be lost with
the whole server at any moment; no decision rests on them. No method raises because of Redis: without an
answer it returns what an empty Redis would, and leaves the server alone for a few seconds, so that a broken
one slows neither requests nor shards.

    assay:cancel:<job id>:<attempt>      the job is `canceling` in the database: ask it now
    assay:progress:<shard id>:<fence>    how much of a claimed shard is done
    assay:failures:<number>              failed logins of a minute (`service.api.refusals`), 65,536 at most
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from assay.service.store.rows import Claim, JobRow, RunningShard

if TYPE_CHECKING:  # A service without Redis starts without its package.
    import redis

log = logging.getLogger(__name__)

TIMEOUT_SECONDS = 0.2
AWAY_SECONDS = 5.0
HINT_SECONDS = 60  # Longer than a running shard takes to learn of a cancel from the database.
PROGRESS_SECONDS = 60  # By then the database has the report.

PING_TIMEOUT_SECONDS = 0.5


class Live:
    """Redis, connected at the first call that needs it; safe to use from several threads.

    `url`: empty for no server: every method returns at once. `away_seconds`: pause before a server that did
    not answer is asked again.
    """

    def __init__(self, url: str, *, away_seconds: float = AWAY_SECONDS) -> None:
        self._client = _client(url) if url else None
        self._away_seconds = away_seconds
        self._away_until: float | None = None
        self._lock = threading.Lock()

    @property
    def used(self) -> bool:
        """Whether a server is configured."""
        return self._client is not None

    def cancel(self, job: JobRow) -> None:
        """Hints to a job's workers that it is `canceling` in the database."""
        self._ask(lambda client: client.set(f"assay:cancel:{job.id}:{job.attempt}", 1, ex=HINT_SECONDS))

    def canceled(self, claim: Claim) -> bool:
        """Whether there is such a hint; if so, ask the database."""
        return bool(self._ask(lambda client: client.exists(f"assay:cancel:{claim.job_id}:{claim.attempt}")))

    def report(self, claim: Claim, done: int) -> bool:
        """Reports how much of a claimed shard is done; False: not stored."""
        key = _progress(claim.shard_id, claim.fence)
        return bool(self._ask(lambda client: client.set(key, done, ex=PROGRESS_SECONDS)))

    def done(self, shards: Sequence[RunningShard]) -> list[int | None]:
        """How much of these shards their present claims have done; None where unknown."""
        keys = [_progress(shard.id, shard.fence) for shard in shards]
        values = self._ask(lambda client: client.mget(keys)) if keys else None
        return [_number(value) for value in values] if values else [None] * len(keys)

    def count_failure(self, number: int, seconds: int) -> tuple[int, float] | None:
        """Counts a failed login; the new count and seconds until it begins again, or None: no answer."""
        key = f"assay:failures:{number}"

        def ask(client: redis.Redis) -> list[Any]:
            with client.pipeline(transaction=True) as asked:
                asked.set(key, 0, ex=seconds, nx=True)
                asked.incr(key)
                asked.pttl(key)
                answer: list[Any] = asked.execute()
                return answer

        found = self._ask(ask)
        return None if found is None else (int(found[1]), max(0.0, found[2] / 1000))

    def close(self) -> None:
        """Closes the connections; a later call opens new ones."""
        if self._client is not None:
            self._client.close()

    def _ask(self, question: Callable[[redis.Redis], Any]) -> Any:
        if self._client is None or not self._may_ask():
            return None
        import redis

        try:
            answer = question(self._client)
        except (redis.RedisError, OSError) as error:
            self._away(error)
            return None
        self._back()
        return answer

    def _may_ask(self) -> bool:
        """Whether to ask the server; while it is away, one call at a time does."""
        with self._lock:
            if self._away_until is None:
                return True
            if time.monotonic() < self._away_until:
                return False
            self._away_until = time.monotonic() + self._away_seconds
            return True

    def _away(self, error: Exception) -> None:
        with self._lock:
            first = self._away_until is None
            self._away_until = time.monotonic() + self._away_seconds
        if first:
            log.warning("Redis is away, the database answers instead: %s", error)

    def _back(self) -> None:
        if self._away_until is not None:  # Without the lock: this runs at every call, and almost never acts.
            with self._lock:
                self._away_until = None
            log.info("Redis is back")


def _client(url: str) -> redis.Redis:
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    return redis.Redis.from_url(  # The client's own retries would multiply the timeouts.
        url,
        socket_connect_timeout=TIMEOUT_SECONDS,
        socket_timeout=TIMEOUT_SECONDS,
        retry=Retry(NoBackoff(), 0),
        client_name="assay",
    )


def _progress(shard_id: str, fence: int) -> str:
    return f"assay:progress:{shard_id}:{fence}"


def _number(value: bytes | None) -> int | None:
    return int(value) if value is not None and value.isdigit() else None


def redis_answers(url: str) -> bool:
    """Asks once, and waits at most a second."""
    import redis

    try:
        with redis.Redis.from_url(
            url, socket_connect_timeout=PING_TIMEOUT_SECONDS, socket_timeout=PING_TIMEOUT_SECONDS
        ) as client:
            return bool(client.ping())
    except (redis.RedisError, OSError, ValueError):
        return False
