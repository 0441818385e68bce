"""The doorbell of the distributed mode, as both sides know it: one broadcast exchange per device class.

Broadcast, and not a queue: every idle worker hears a ring at once, a busy or absent worker misses only a
hint, and nothing piles up in Redis without listeners. The database decides which worker gets which shard.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit, urlunsplit

RING = "assay.ring"  # Task and routing key: over Redis the channel has the key, both must say it.
DEVICE_CLASSES = ("cpu", "cuda")
SERIALIZER = "json"
# Longest wait for Redis: the job is stored, and workers poll.
TRANSPORT = {"socket_timeout": 2.0, "socket_connect_timeout": 1.0, "health_check_interval": 10}


def broker(redis_url: str) -> str:
    """Redis's address for Celery, which verifies the server's certificate only where the address says so."""
    parts = urlsplit(redis_url)
    if parts.scheme != "rediss" or "ssl_cert_reqs=" in parts.query:
        return redis_url
    return urlunsplit(parts._replace(query=f"{parts.query}&ssl_cert_reqs=required".lstrip("&")))


def exchange(device_class: str) -> dict[str, Any]:
    """Kombu's description of the exchange that workers of a device class listen to."""
    assert device_class in DEVICE_CLASSES, device_class
    return {"name": f"assay.{device_class}", "type": "fanout", "durable": False, "delivery_mode": 1}


def listeners(device: str) -> tuple[str, ...]:
    """The device classes that a job for this device concerns; `auto` runs anywhere."""
    return DEVICE_CLASSES if device == "auto" else (device,)


def sending(device_class: str, job_id: str) -> dict[str, Any]:
    """Options of `Celery.send_task` to ring the workers of a device class, without waiting or retries."""
    from kombu.entity import Exchange  # imported late: most callers only need the names

    target = Exchange(**exchange(device_class))
    return {
        "name": RING,
        "args": (job_id,),
        "exchange": target,
        "exchange_type": target.type,
        "routing_key": RING,
        "declare": [target],
        "retry": False,
    }
