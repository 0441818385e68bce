"""Posts what is in the outbox of webhooks, from threads of the service's process.

Any number of processes may do it on one database: a delivery is claimed by one. A process that dies leaves
its deliveries to be claimed again after a minute, so a message may come twice, with the same `webhook-id`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import httpcore
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from assay.service.settings import Settings
from assay.service.store.store import Store
from assay.service.webhooks.address import BadAddress, Reach, post
from assay.service.webhooks.outbox import DueDelivery, Outbox
from assay.service.webhooks.wire import SECRET_PREFIX

log = logging.getLogger(__name__)
POLL_SECONDS = 2.0
FORGET_SECONDS = 3600.0
TRIM_SECONDS = 10.0
AT_A_TIME = 8
COUNTER = "assay_webhook_deliveries"
COUNTED = {COUNTER: "Attempts to post a message to a webhook, by outcome."}
TOTAL = f"{COUNTER}_total"
AGENT = "Assay-Webhook/1"


def start(opener: Callable[[], Store], settings: Settings) -> WebhookPoster:
    """Begins to post; the caller closes what is returned."""
    return WebhookPoster(opener, Reach(settings.webhook_allow), settings.max_webhook_pending)


class WebhookPoster(threading.Thread):
    """Looks into the outbox every few `seconds`, while nothing is due, and posts what is due.

    `opener` gives the open store, and raises the database's error while it is away; `reach`: the addresses
    that may be posted to; `max_pending`: deliveries that wait for one webhook, the oldest above it are given
    up.
    """

    def __init__(
        self, opener: Callable[[], Store], reach: Reach, max_pending: int, seconds: float = POLL_SECONDS
    ) -> None:
        super().__init__(name="webhooks", daemon=True)
        self._opener = opener
        self._reach = reach
        self._seconds = seconds
        self._stopping = threading.Event()
        self._max_pending = max_pending
        self._trimmed = -TRIM_SECONDS
        self._forgotten = time.monotonic()
        self._room = threading.Semaphore(AT_A_TIME)
        self._posting = ThreadPoolExecutor(AT_A_TIME, thread_name_prefix="webhook")
        self.start()

    def close(self) -> None:
        """Ends after the present posts, which take ten seconds at most."""
        self._stopping.set()
        self.join()
        self._posting.shutdown(wait=True)

    def run(self) -> None:
        """Posts until closed; waits while the database is away, and survives every error."""
        while not self._stopping.is_set():
            pause = self._seconds
            try:
                pause = 0.0 if self.look() else self._seconds
            except (DBAPIError, PoolTimeout):
                log.debug("the database is away")  # the service's answers report it
            except Exception:
                log.exception("webhooks: unexpected error, going on")
            self._stopping.wait(pause)

    def look(self) -> int:
        """Claims what is due, as far as there is room, and begins to post it; returns how much it was."""
        store = self._opener()
        if time.monotonic() - self._forgotten > FORGET_SECONDS:
            self._forgotten = time.monotonic()
            store.part(Outbox).forget()
        if time.monotonic() - self._trimmed > TRIM_SECONDS:
            self._trimmed = time.monotonic()
            self._trim(store)
        room = 0
        while room < AT_A_TIME and self._room.acquire(blocking=room == 0):
            room += 1
        claimed: list[DueDelivery] = []
        try:
            claimed = list(store.part(Outbox).claim(room))
        finally:
            for _ in range(room - len(claimed)):
                self._room.release()
        for due in claimed:
            self._posting.submit(self._deliver, store, due)
        return len(claimed)

    def _trim(self, store: Store) -> None:
        for webhook_id, count in store.part(Outbox).trim(self._max_pending).items():
            log.warning(
                "webhook %s: %d messages given up, the oldest of more than %d that were waiting",
                webhook_id,
                count,
                self._max_pending,
            )
            store.counters.add({(TOTAL, (("outcome", "dropped"),)): count})

    def _deliver(self, store: Store, due: DueDelivery) -> None:
        try:
            status, error = attempt(self._reach, due)
            outcome = store.part(Outbox).settle(due, status=status, error=error)
            if outcome is not None:
                store.counters.add({(TOTAL, (("outcome", outcome),)): 1})
        except (DBAPIError, PoolTimeout):
            log.debug("the database is away; delivery %s is due again later", due.id)
        except Exception:
            log.exception("webhooks: unexpected error at delivery %s, going on", due.id)
        finally:
            self._room.release()


def attempt(reach: Reach, due: DueDelivery) -> tuple[int | None, str | None]:
    """Posts a message once; the status of the answer, or why there was none."""
    # The reason has no text of the other side: a tenant must not read answers through it.
    body = json.dumps(due.body, separators=(",", ":"), ensure_ascii=False).encode()
    timestamp = int(time.time())
    headers = [
        ("Content-Type", "application/json"),
        ("User-Agent", AGENT),
        ("webhook-id", due.id),
        ("webhook-timestamp", str(timestamp)),
        ("webhook-signature", webhook_signature(due.secrets, due.id, timestamp, body)),
    ]
    try:
        return post(reach, due.url, body, headers), None
    except BadAddress as error:
        return None, f"the address is not allowed: {error}"
    except ssl.SSLError:
        return None, "TLS failed"
    except httpcore.TimeoutException:
        return None, "no answer in time"
    except httpcore.ConnectError as error:
        # httpcore hides the cause when it raises the error again, but keeps the context.
        tls = isinstance(error.__cause__ or error.__context__, ssl.SSLError)
        return None, "TLS failed" if tls else "no connection"
    except (httpcore.NetworkError, httpcore.ProtocolError, OSError):
        return None, "the connection broke before an answer"


def webhook_signature(secrets: Sequence[str], message_id: str, timestamp: int, body: bytes) -> str:
    """The header `webhook-signature`: one signature for each secret, over the body as it is sent."""
    # The secrets are the present secret, and after a rotation the secret before; the time is in unix seconds.
    signed = f"{message_id}.{timestamp}.".encode() + body
    keys = [base64.b64decode(secret.removeprefix(SECRET_PREFIX)) for secret in secrets]
    digests = [hmac.new(key, signed, hashlib.sha256).digest() for key in keys]
    return " ".join(f"v1,{base64.b64encode(digest).decode()}" for digest in digests)
