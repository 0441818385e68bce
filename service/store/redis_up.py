"""Whether Redis answers: for those who watch the service. Nothing else depends on the answer."""

from __future__ import annotations

from redis import Redis
from redis.exceptions import RedisError

PATIENCE_SECONDS = 0.5


def redis_answers(url: str) -> bool:
    """Asks once, and waits at most a second."""
    try:
        with Redis.from_url(
            url, socket_connect_timeout=PATIENCE_SECONDS, socket_timeout=PATIENCE_SECONDS
        ) as client:
            return bool(client.ping())
    except (RedisError, OSError, ValueError):
        return False
