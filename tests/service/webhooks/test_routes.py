"""The routes of webhooks, and messages on their way to a real receiver."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from assay.service.cli import commands, main
from assay.service.client import AssayClient
from assay.service.settings import Settings
from assay.service.store.store import Store
from assay.service.store.tenants import View
from assay.service.webhooks.address import Reach
from assay.service.webhooks.delivery import WebhookPoster, attempt
from assay.service.webhooks.outbox import Outbox
from assay.service.webhooks.store import Webhooks
from assay.service.webhooks.wire import WebhookRequest
from tests.support.workers import wait_for

Make = Callable[..., dict[str, Any]]
HOOKS = "/api/v1/webhooks"
PAGE = Path(__file__).resolve().parents[3] / "docs" / "integrations.md"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"webhook_allow": ["127.0.0.1"], "max_webhooks": 3})


class Receiver(ThreadingHTTPServer):
    """Answers with the next of its statuses, the last one for ever, and keeps what came."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.statuses = [200]
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.url = f"http://127.0.0.1:{self.server_port}/hook"


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append(({name.lower(): value for name, value in self.headers.items()}, body))
        statuses = self.server.statuses
        self.send_response(statuses.pop(0) if len(statuses) > 1 else statuses[0])
        self.end_headers()
        self.wfile.write(b"a secret of the receiver")

    def log_message(self, *given: Any) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def delivering(app_store: Store, settings: Settings) -> Iterator[None]:
    delivery = WebhookPoster(lambda: app_store, Reach(settings.webhook_allow), 1000, seconds=0.02)
    yield
    delivery.close()


def verified(secret: str, headers: dict[str, str], body: bytes) -> dict[str, Any]:
    """The snippet of the documentation, as it is printed there."""
    snippet = re.search(r"```python\n(import base64.*?)```", PAGE.read_text(), re.DOTALL)
    assert snippet is not None
    names: dict[str, Any] = {}
    exec(snippet[1], names)
    message: dict[str, Any] = names["verified"](secret, headers, body)
    return message


def test_of_too_many_messages_the_newest_are_posted_and_the_rest_counted(
    api: httpx.Client,
    receiver: Receiver,
    app_store: Store,
    settings: Settings,
    caplog: pytest.LogCaptureFixture,
) -> None:
    hook = api.post(HOOKS, json={"url": receiver.url}).json()["id"]
    last = [api.post(f"{HOOKS}/{hook}/test").json()["id"] for _ in range(4)][-1]
    with closing(WebhookPoster(lambda: app_store, Reach(settings.webhook_allow), 1, seconds=0.02)):
        wait_for(lambda: api.get(f"{HOOKS}/{hook}").json()["pending"] == 0)
    assert [headers["webhook-id"] for headers, _ in receiver.got] == [last]
    assert api.get(f"{HOOKS}/{hook}").json()["dropped"] == 3
    assert f"webhook {hook}: 3 messages given up, the oldest of more than 1" in caplog.text


@pytest.mark.usefixtures("delivering")
def test_the_end_of_a_job_arrives_signed(
    api: httpx.Client, receiver: Receiver, worker: Any, evaluate_body: Make, app_store: Store
) -> None:
    made = api.post(HOOKS, json={"url": receiver.url, "events": ["job.succeeded", "evaluation.finished"]})
    assert (made.status_code, made.headers["cache-control"]) == (201, "no-store")
    secret, hook = made.json()["secret"], made.json()["id"]
    assert "secret" not in api.get(HOOKS).json()["items"][0]
    job = api.post("/api/v1/jobs", json=evaluate_body()).json()["id"]
    worker.run(job, [1, 1, 1, 1], [1, 1, 1, 0])
    wait_for(lambda: len(receiver.got) == 3)
    messages = [verified(secret, *got) for got in receiver.got]
    messages.sort(key=lambda one: one["type"])
    assert [one["type"] for one in messages] == ["evaluation.finished"] * 2 + ["job.succeeded"]
    first, last = messages[0]["data"], messages[-1]["data"]
    assert (first["name"], first["job_name"]) in {("clean", "an evaluation"), ("pgd", "an evaluation")}
    assert (last["job"], last["state"]) == (job, "succeeded")
    assert [one["metrics"]["top1"]["value"] for one in last["metrics"]] == [1.0, 0.75]
    wait_for(lambda: api.get(f"{HOOKS}/{hook}").json()["pending"] == 0)
    listed = api.get(f"{HOOKS}/{hook}/deliveries").json()["items"]
    assert {(one["state"], one["status"], one["attempts"]) for one in listed} == {("delivered", 200, 1)}
    assert {one["id"] for one in listed} == {headers["webhook-id"] for headers, _ in receiver.got}
    counters = app_store.overview().counters
    assert counters[("assay_webhook_deliveries_total", (("outcome", "delivered"),))] == 3


def test_a_changed_message_is_not_verified(receiver: Receiver) -> None:
    secret = "whsec_" + base64.b64encode(b"k" * 32).decode()
    body = b'{"type":"webhook.test"}'
    headers = {"webhook-id": "x", "webhook-timestamp": "1", "webhook-signature": "v1,AAAA"}
    with pytest.raises(ValueError, match="timestamp"):
        verified(secret, headers, body)
    import time

    headers["webhook-timestamp"] = str(int(time.time()))
    with pytest.raises(ValueError, match="signature"):
        verified(secret, headers, body)
    signed = f"x.{headers['webhook-timestamp']}.".encode() + body
    digest = base64.b64encode(hmac.new(b"k" * 32, signed, hashlib.sha256).digest()).decode()
    assert verified(secret, {**headers, "webhook-signature": f"v1,AAAA v1,{digest}"}, body)


@pytest.mark.usefixtures("delivering")
def test_failures_show_a_status_and_nothing_else(
    api: httpx.Client, receiver: Receiver, app_store: Store
) -> None:
    receiver.statuses = [503, 302, 200]
    hook = api.post(HOOKS, json={"url": receiver.url}).json()["id"]
    made = api.post(f"{HOOKS}/{hook}/test")
    assert (made.status_code, made.json()["state"]) == (202, "pending")
    path = f"{HOOKS}/{hook}/deliveries"
    for status in (503, 302, 200):
        wait_for(lambda status=status: api.get(path).json()["items"][0]["status"] == status)
        with app_store._database.writing() as connection:
            connection.exec_driver_sql("UPDATE webhook_deliveries SET next_at = 0 WHERE state = 'pending'")
    (one,) = api.get(path).json()["items"]
    assert (one["state"], one["attempts"], one["error"]) == ("delivered", 3, None)
    assert "secret of the receiver" not in api.get(path).text
    assert len({headers["webhook-id"] for headers, _ in receiver.got}) == 1
    again = api.post(f"{path}/{one['id']}/redeliver")
    assert again.status_code == 202
    wait_for(lambda: len(receiver.got) == 4)


@pytest.mark.usefixtures("delivering")
def test_the_end_of_a_study_is_told_once(api: httpx.Client, receiver: Receiver, evaluate_body: Make) -> None:
    hook = api.post(HOOKS, json={"url": receiver.url, "events": ["study.ended"]}).json()
    arms = [{"name": name, "model": {"name": name}} for name in ("tiny_vit", "other_vit")]
    spec = {"kind": "study", "name": "models", "seeds": 2, "arms": arms, "recipe": {"name": "short"}}
    spec |= {"data": {"name": "digits"}, "evaluations": evaluate_body()["evaluations"]}
    study = api.post("/api/v1/studies", json=spec).json()["id"]
    assert api.post(f"/api/v1/studies/{study}/cancel").status_code == 202
    wait_for(lambda: api.get(f"{HOOKS}/{hook['id']}").json()["pending"] == 0)
    (got,) = receiver.got
    message = verified(hook["secret"], *got)
    assert (message["type"], message["data"]["study"]) == ("study.ended", study)
    assert message["data"]["jobs"] == {"canceled": 8}


@pytest.mark.usefixtures("delivering")
def test_the_end_of_an_extended_study_is_told_when_no_seed_is_to_be_added(
    api: httpx.Client, receiver: Receiver, evaluate_body: Make, worker: Any, app_store: Store
) -> None:
    hook = api.post(HOOKS, json={"url": receiver.url, "events": ["study.ended"]}).json()
    arms = [{"name": name, "model": {"name": name}} for name in ("tiny_vit", "other_vit")]
    spec = {"kind": "study", "name": "models", "seeds": 2, "arms": arms, "recipe": {"name": "short"}}
    spec |= {"data": {"name": "digits"}, "evaluations": [evaluate_body()["evaluations"][0]]}
    spec |= {"primary": {"evaluation": spec["evaluations"][0]["name"]}, "until": {"width": 0.1}}
    study = api.post("/api/v1/studies", json=spec).json()
    for run in (run for arm in study["runs"] for run in arm["runs"]):
        worker.train(run["train"])
        worker.run(run["evaluate"], [1, 0, 1, 1])
    log = f"{HOOKS}/{hook['id']}/deliveries"
    # Put off in the transaction of its claim: no process holds it while the test makes it due.
    put_off = "SELECT sum(next_at > created_at + 1), count(*) FROM webhook_deliveries WHERE state = 'pending'"

    def pending() -> tuple[int, int]:
        with app_store._database.reading() as connection:
            return tuple(connection.exec_driver_sql(put_off).one())

    wait_for(lambda: pending() == (1, 1))
    assert receiver.got == []
    assert api.post(f"/api/v1/studies/{study['id']}/cancel").status_code == 202
    with app_store._database.writing() as connection:
        connection.exec_driver_sql("UPDATE webhook_deliveries SET next_at = 0 WHERE state = 'pending'")
    wait_for(lambda: len(receiver.got) == 1)
    assert verified(hook["secret"], *receiver.got[0])["data"]["jobs"] == {"succeeded": 8}
    assert [one["attempts"] for one in api.get(log).json()["items"]] == [1]


@pytest.mark.parametrize(
    ("body", "loc"),
    [
        ({"url": "http://93.184.216.34/"}, "url"),
        ({"url": "https://127.0.0.2/"}, "url"),
        ({"url": "https://[::ffff:10.0.0.1]/"}, "url"),
        ({"url": ""}, "url"),
        ({"url": 7}, "url"),
        ({}, "url"),
        ({"url": "http://127.0.0.1/", "events": []}, "events"),
        ({"url": "http://127.0.0.1/", "events": ["job.done"]}, "events"),
        ({"url": "http://127.0.0.1/", "tags": [""]}, "tags"),
        ({"url": "http://127.0.0.1/", "kinds": ["check"]}, "kinds"),
        ({"url": "http://127.0.0.1/", "description": "a\nb"}, "description"),
        ({"url": "http://127.0.0.1/", "secret": "mine"}, "secret"),
    ],
)
def test_bad_webhooks_are_422(api: httpx.Client, body: dict[str, Any], loc: str) -> None:
    answer = api.post(HOOKS, json=body)
    assert answer.status_code == 422
    assert loc in [part for detail in answer.json()["error"]["details"] for part in detail["loc"]]
    assert api.get(HOOKS).json()["items"] == []


def test_the_number_is_limited_and_actions_are_audited(api: httpx.Client) -> None:
    made = [api.post(HOOKS, json={"url": f"http://127.0.0.1/{n}"}).json()["id"] for n in range(3)]
    answer = api.post(HOOKS, json={"url": "http://127.0.0.1/3"})
    assert (answer.status_code, "at most 3" in answer.text) == (409, True)
    assert api.post(f"{HOOKS}/{made[0]}/rotate").json()["secret"].startswith("whsec_")
    assert api.delete(f"{HOOKS}/{made[0]}").status_code == 204
    for call in (api.get, api.delete):
        assert call(f"{HOOKS}/{made[0]}").status_code == 404
    entries = api.get("/api/v1/audit").json()["items"]
    assert [entry["action"] for entry in reversed(entries)] == [
        *["webhook.create"] * 3,
        "webhook.rotate",
        "webhook.delete",
    ]
    assert "whsec_" not in json.dumps(entries)


def test_another_tenant_sees_nothing(settings: Settings, app_store: Store, serve: Any) -> None:
    keys = {
        name: {"Authorization": f"Bearer {app_store.keys.create(name, [scope], tenant=name)[1]}"}
        for name, scope in (("alice", "submit"), ("bob", "submit"), ("root", "admin"))
    }
    reader = {"Authorization": f"Bearer {app_store.keys.create('r', ['read'], tenant='alice')[1]}"}
    body = {"url": "http://127.0.0.1/"}
    with serve(settings.model_copy(update={"require_keys": True}), app_store) as api:
        assert api.get(HOOKS).status_code == api.post(HOOKS, json=body).status_code == 401
        assert api.post(HOOKS, json=body, headers=reader).status_code == 403
        hook = api.post(HOOKS, json=body, headers=keys["alice"]).json()["id"]
        assert [one["id"] for one in api.get(HOOKS, headers=reader).json()["items"]] == [hook]
        for other in ("bob", "root"):
            assert api.get(HOOKS, headers=keys[other]).json()["items"] == []
            for path in (hook, f"{hook}/deliveries"):
                assert api.get(f"{HOOKS}/{path}", headers=keys[other]).status_code == 404
            for path in ("rotate", "enable", "test"):
                assert api.post(f"{HOOKS}/{hook}/{path}", headers=keys[other]).status_code == 404
            assert api.delete(f"{HOOKS}/{hook}", headers=keys[other]).status_code == 404
        assert api.delete(f"{HOOKS}/{hook}", headers=keys["alice"]).status_code == 204


def test_an_unsigned_certificate_is_not_accepted(
    app_store: Store, receiver: Receiver, tmp_path: Path
) -> None:
    from datetime import UTC, datetime, timedelta

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    begin = datetime.now(UTC) - timedelta(days=1)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, begin, begin + timedelta(days=9))
    alternative = x509.SubjectAlternativeName([x509.DNSName("localhost")])
    certificate = builder.add_extension(alternative, critical=False).sign(key, hashes.SHA256())
    pem = certificate.public_bytes(serialization.Encoding.PEM) + key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    (tmp_path / "server.pem").write_bytes(pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem")
    receiver.socket = context.wrap_socket(receiver.socket, server_side=True)
    request = {"url": f"https://localhost:{receiver.server_port}/", "events": ["job.failed"]}
    webhooks = Webhooks(app_store, View(None, everything=True))
    hook, _ = webhooks.add(WebhookRequest.model_validate(request), most=9)
    webhooks.test(hook.id)
    (due,) = app_store.part(Outbox).claim(1)
    assert attempt(Reach(["localhost"]), due) == (None, "TLS failed")
    assert (
        attempt(Reach(), due)[1]
        == f"the address is not allowed: port {receiver.server_port} is not allowed; allowed: 443, 8443"
    )
    assert receiver.got == []


def test_the_command_line(
    receiver: Receiver,
    transport: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(commands, "AssayClient", lambda url: AssayClient(url, transport=transport))

    def run(*arguments: str) -> str:
        assert main.main(["webhooks", *arguments]) == 0
        return capsys.readouterr().out

    hook, secret = run("add", receiver.url, "--event", "job.failed", "--tag", "paper").split()
    assert secret.startswith("whsec_")
    assert hook in run("list")
    assert json.loads(run("list", "--json"))[0]["tags"] == ["paper"]
    delivery = run("test", hook).strip()
    assert delivery in run("deliveries", hook)
    assert run("rotate", hook).startswith("whsec_")
    assert run("enable", hook) == "enabled\n"
    assert main.main(["webhooks", "redeliver", hook, delivery]) == 2
    assert "is pending" in capsys.readouterr().err
    assert run("remove", hook) == ""
    assert main.main(["webhooks", "add", "http://93.184.216.34/"]) == 2
