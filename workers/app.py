"""The Celery application of a node: its queues, and the start and end of its processes.

    python -P -m assay.workers.doorbell worker --pool prefork --concurrency 1

The one pool process of a node is its supervisor (`node.py`).
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
from typing import Any

from celery import Celery, signals
from kombu.entity import Exchange, Queue

from assay.service.contract import logs
from assay.service.contract.fleet.doorbell import (
    DEVICE_CLASSES,
    RING,
    SERIALIZER,
    TRANSPORT,
    broker,
    exchange,
    sending,
)
from assay.workers import node
from assay.workers.devices import device_classes
from assay.workers.settings import WorkerSettings

PARENT = "ASSAY_NODES_PID"  # process id, set by `workers.nodes`
PR_SET_PDEATHSIG = 1

settings = WorkerSettings()
if settings.mode != "distributed":
    raise SystemExit(
        "ASSAY_MODE: Celery nodes are for the distributed mode; `assay serve` brings its own workers"
    )

app = Celery("assay", broker=broker(settings.redis))
app.conf.update(
    task_queues=[
        Queue(f"assay.{device}", Exchange(**exchange(device)), routing_key=RING, durable=False)
        for device in device_classes()
    ],
    task_serializer=SERIALIZER,
    accept_content=[SERIALIZER],
    task_ignore_result=True,
    result_backend=None,
    broker_transport_options=TRANSPORT,
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    worker_prefetch_multiplier=1,
    worker_hijack_root_logger=False,
    worker_enable_remote_control=False,
    worker_cancel_long_running_tasks_on_connection_loss=True,
)


def _set_up_logging(**_: Any) -> None:
    logs.set_up(settings.log_level, settings.log_format)
    # Two lines per ring would bury all else.
    for name in ("celery.worker.strategy", "celery.app.trace"):
        logging.getLogger(name).setLevel(logging.WARNING)


signals.setup_logging.connect(_set_up_logging)


def _end_with_parent(**_: Any) -> None:
    if PARENT in os.environ:
        # Celery's `set_pdeathsig` knows SIGKILL only, which leaves the shard to its lease.
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != int(os.environ[PARENT]):
            raise SystemExit("the process that started this node is gone")


signals.worker_init.connect(_end_with_parent)


def _start(**_: Any) -> None:
    node.start(settings, ring_others=_ring_others)


signals.worker_process_init.connect(_start)


def _stop(**_: Any) -> None:
    node.stop()


signals.worker_process_shutdown.connect(_stop)


def _ring_others(job_id: str) -> None:
    for device in DEVICE_CLASSES:
        app.send_task(**sending(device, job_id))
