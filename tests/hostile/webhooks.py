"""Webhooks as a way into the private network, or into another tenant's messages."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from assay.service.client import AssayClient
from assay.service.contract.errors import Forbidden, InvalidSpec, InvalidState, NotFound, Unauthorized
from assay.service.store.store import Store, open_store
from assay.service.store.tenants import View
from assay.service.webhooks.store import Webhooks
from assay.service.webhooks.wire import WebhookRequest
from tests.hostile.attempt import Attempt, Target

WAIT_SECONDS = 30.0
# This machine, by an address that the operator allows.
RECEIVER, METADATA = "127.0.0.9", "http://169.254.169.254/latest/meta-data/"
ENVIRONMENT = {"ASSAY_WEBHOOK_ALLOW": f'["{RECEIVER}"]'}
ADDRESSES = (
    *("127.0.0.1", "localhost", "0.0.0.0", "127.1", "2130706433", "0x7f.1", "[::1]", "[::]"),
    *("[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[::127.0.0.1]"),
    *("169.254.169.254", "[fd00:ec2::254]", "10.0.0.1", "172.17.0.1", "192.168.0.1", "100.64.0.1"),
    *("[fe80::1]", "224.0.0.1", "255.255.255.255", "192.88.99.1", "192.31.196.1", "192.175.48.1"),
    *("192.0.0.8", "192.52.193.1", "198.18.0.1", "203.0.113.1", "240.0.0.1", "[100::1]", "[2001:db8::1]"),
)


def _webhooks(store: Store, tenant: str) -> Webhooks:
    return Webhooks(store, View(tenant, everything=tenant is None))


@contextmanager
def listening() -> Iterator[tuple[int, Callable[[], bool]]]:
    """A port of this machine, and whether anything has connected to it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)

        def touched() -> bool:
            try:
                listener.accept()[0].close()
            except BlockingIOError:
                return False
            return True

        yield listener.getsockname()[1], touched


def private_addresses(target: Target) -> str:
    """Every way to write an address that is not public."""
    with listening() as (port, touched), AssayClient(target.url, target.alice) as client:
        tried = [
            f"{scheme}://{host}{end}/"
            for host in ADDRESSES
            for scheme in ("http", "https")
            for end in ("", f":{port}")
        ]
        for url in tried:
            try:
                client.add_webhook(url)
            except InvalidSpec:
                continue
            raise AssertionError(f"{url} was registered")
        assert not touched()
        assert client.webhooks() == []
    return f"422 for {len(tried)} URLs, and no connection"


def moved_name(target: Target) -> str:
    """A webhook that was public when it was registered, and now is this machine."""
    with listening() as (port, touched), AssayClient(target.url, target.alice) as client:
        with open_store(target.database, migrate=False) as store:
            request = WebhookRequest(url=f"https://127.0.0.1:{port}/")
            hook, _ = _webhooks(store, "alice").add(request, most=9)
        client.test_webhook(hook.id)
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            (one,) = client.webhook_deliveries(hook.id)
            if one.attempts and one.error:
                break
            assert time.monotonic() < deadline, one
            time.sleep(0.2)
        client.remove_webhook(hook.id)
        assert one.error.startswith("the address is not allowed"), one
        assert not touched(), "the service connected"
    return "checked again before the connection"


def redirected(target: Target) -> str:
    """A receiver that may be reached, and answers with the way to an address that may not."""
    asked: list[bytes] = []
    with listening() as (port, touched), socket.create_server((RECEIVER, 0)) as receiver:
        places = [f"http://127.0.0.1:{port}/", f"//localhost:{port}/", f"https://[::1]:{port}/", METADATA]
        answers = [*zip((301, 302, 307, 308), places, strict=True)]
        receiver.settimeout(WAIT_SECONDS)
        url = f"http://{RECEIVER}:{receiver.getsockname()[1]}/"
        with AssayClient(target.url, target.alice) as client:
            for status, place in answers:
                hook = client.add_webhook(url)
                client.test_webhook(hook.id)
                with receiver.accept()[0] as connection:
                    asked.append(connection.recv(65536))
                    connection.sendall(
                        f"HTTP/1.1 {status} Moved\r\nLocation: {place}\r\nContent-Length: 0\r\n\r\n".encode()
                    )
                deadline = time.monotonic() + WAIT_SECONDS
                while (one := next(iter(client.webhook_deliveries(hook.id)))).status is None:
                    assert time.monotonic() < deadline, one
                    time.sleep(0.1)
                assert (one.status, one.state) == (status, "pending"), one
                client.remove_webhook(hook.id)
            receiver.settimeout(1)
            try:
                raise AssertionError(f"the receiver was asked again: {receiver.accept()}")
            except TimeoutError:
                pass
        assert not touched(), "the service connected"
    assert all(one.startswith(b"POST / HTTP/1.1") for one in asked)
    return f"{len(asked)} redirects were recorded as answers, none was followed"


def foreign(target: Target) -> str:
    """Another tenant's webhook: its secret, its log, its removal."""
    with open_store(target.database, migrate=False) as store:
        hook, _ = _webhooks(store, "alice").add(WebhookRequest(url="https://127.0.0.1/"), most=9)
    for key in (target.bob, target.admin):
        with AssayClient(target.url, key) as client:
            calls = (
                client.webhook,
                client.rotate_webhook,
                client.test_webhook,
                client.enable_webhook,
                client.remove_webhook,
            )
            for call in (*calls, lambda one: list(client.webhook_deliveries(one))):
                try:
                    call(hook.id)
                except NotFound:
                    continue
                raise AssertionError(f"{call} answered")
    with AssayClient(target.url, target.alice) as client:
        client.remove_webhook(hook.id)
    return "404, for administrators too"


def too_many(target: Target) -> str:
    """More webhooks than a tenant may have."""
    with open_store(target.database, migrate=False) as store:
        hooks = []
        while True:
            try:
                hooks.append(_webhooks(store, "bob").add(WebhookRequest(url="https://x/"), most=20)[0].id)
            except InvalidState:
                break
        assert len(hooks) == 20
        for one in hooks:
            _webhooks(store, "bob").delete(one)
    return "409 at the twenty-first"


def without_scope(target: Target) -> str:
    """A webhook by a key that may only read, and by none."""
    with AssayClient(target.url, target.admin) as admin:
        reader = admin.create_key("reader", ["read"], tenant="alice").key
    for key in (reader, ""):
        with AssayClient(target.url, key) as client:
            try:
                client.add_webhook("https://example.com/")
            except (Forbidden, Unauthorized):
                continue
            raise AssertionError("it was registered")
    return "403 and 401"


ATTEMPTS = (
    Attempt("private addresses, however they are written", private_addresses),
    Attempt("a name that resolves to this machine after its registration", moved_name),
    Attempt("redirects of a receiver into the private network", redirected),
    Attempt("another tenant's webhook", foreign),
    Attempt("more webhooks than a tenant may have", too_many),
    Attempt("a webhook by a key that may only read", without_scope),
)
