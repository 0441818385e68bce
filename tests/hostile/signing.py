"""False numbers under a true signature: every attempt to pass something off as signed results."""

from __future__ import annotations

import base64
import json
import os
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from assay.service.client import AssayClient
from assay.service.contract.errors import AssayError, NotFound
from assay.service.files.canonical_json import canonical
from assay.service.signing.keys import public_keys
from assay.service.signing.statement import sign
from assay.service.signing.verify import BadSignature, Signed, file_problem, opened, result_problems
from tests.hostile.attempt import Attempt, Target

SPEC = {
    "kind": "evaluate",
    "model": {
        "name": "vit",
        "params": {"image_size": 32, "patch_size": 8, "depth": 1, "width": 16, "heads": 1},
    },
    "data": {"name": "digits", "params": {}},
    "evaluations": [{"name": "clean"}],
    "limit": 16,
}
WAIT_SECONDS = 120.0


@cache
def finished(url: str, key: str, seed: int) -> str:
    """The id of a finished job of a tenant; made once, because an evaluator takes seconds to start."""
    with AssayClient(url, key) as client:
        job = client.wait(client.submit(SPEC | {"seed": seed}).id, timeout_seconds=WAIT_SECONDS)
    assert job.state == "succeeded", job.error
    return job.id


class Case:
    """A signature of alice's, with all that a receiver has."""

    def __init__(self, target: Target, seed: int = 1) -> None:
        self.job = finished(target.url, target.alice, seed)
        with AssayClient(target.url, target.alice) as client:
            self.raw = client.signature(self.job)
            self.results = client.results(self.job).model_dump(mode="json")
            self.keys = public_keys(client.signing_keys())
        self.signed: Signed = opened(self.raw, self.keys)
        assert result_problems(self.signed, json.dumps(self.results).encode()) == [], "unchanged, it verifies"


def refused(raw: bytes, keys: Any) -> str:
    try:
        opened(raw, keys)
    except BadSignature as error:
        return str(error)[:90]
    raise AssertionError("it was taken for a signature")


def changed_digit(target: Target) -> str:
    case = Case(target)
    metric = case.results["evaluations"][0]["metrics"]["top1"]
    text = json.dumps(case.results)
    digits = repr(metric["value"])
    last = digits[:-1] + ("1" if digits[-1] != "1" else "2")
    problems = result_problems(case.signed, text.replace(f'"value": {digits}', f'"value": {last}').encode())
    assert problems, "the changed number passed"
    longer = result_problems(
        case.signed, text.replace(f'"value": {digits}', f'"value": {digits}{"0" * 20}1').encode()
    )
    assert longer, "a digit that a float does not hold passed"
    return problems[0]


def changed_statement(target: Target) -> str:
    case = Case(target)
    envelope = json.loads(case.raw)
    payload = base64.b64decode(envelope["payload"])
    place = payload.index(b'"n":16') + 5
    envelope["payload"] = base64.b64encode(payload[:place] + b"7" + payload[place + 1 :]).decode()
    return refused(json.dumps(envelope).encode(), case.keys)


def swapped_file(target: Target) -> str:
    case = Case(target)
    name = next(name for name in case.signed.files if name.startswith("outcomes"))
    with tempfile.TemporaryDirectory() as folder, AssayClient(target.url, target.alice) as client:
        path = client.download(case.job, name, Path(folder) / name)
        assert file_problem(case.signed, path) is None, "unchanged, it verifies"
        content = path.read_bytes()
        path.write_bytes(content[:-2] + bytes([content[-2] ^ 1]) + content[-1:])
        problem = file_problem(case.signed, path)
    assert problem is not None, "the changed file passed"
    return problem[:60]


def another_key(target: Target) -> str:
    case = Case(target)
    stranger = Ed25519PrivateKey.generate()
    forged = json.loads(sign(stranger, case.signed.results, [], case.signed.signed_at).model_dump_json())
    first = refused(json.dumps(forged).encode(), case.keys)
    forged["signatures"][0]["keyid"] = case.signed.key_id
    refused(json.dumps(forged).encode(), case.keys)
    return first


def replayed(target: Target) -> str:
    case, other = Case(target), Case(target, seed=2)
    problems = result_problems(other.signed, json.dumps(case.results).encode())
    assert any(problem.startswith("job is ") for problem in problems), "the other job's signature passed"
    return problems[0]


def stripped(target: Target) -> str:
    case, said = Case(target), ""
    for name in ("payload", "payloadType", "signatures"):
        envelope = json.loads(case.raw)
        del envelope[name]
        said = refused(json.dumps(envelope).encode(), case.keys)
    for name in ("keyid", "sig"):
        envelope = json.loads(case.raw)
        del envelope["signatures"][0][name]
        refused(json.dumps(envelope).encode(), case.keys)
    return said


def planted(target: Target) -> str:
    """As a program that got out of its evaluator would do."""
    case, other = Case(target, seed=3), Case(target, seed=2)
    path = target.state / "artifacts" / case.job / "signature.json"
    false = canonical(case.signed.results | {"evaluations": []})
    for content in (b"{}", other.raw, false):
        path.unlink(missing_ok=True)
        path.write_bytes(content)
        with AssayClient(target.url, target.alice) as client:
            assert opened(client.signature(case.job), case.keys).job == case.job, (
                "the planted file was given out"
            )
    return "the service signs anew"


def foreign(target: Target) -> str:
    case = Case(target)
    with AssayClient(target.url, target.bob) as client:
        try:
            client.signature(case.job)
        except NotFound as error:
            return f"404 {error.message[:40]}"
    raise AssertionError("bob got alice's signature")


def the_key(target: Target) -> str:
    Case(target)
    tried = [
        "signing/key.pem",
        "../signing/key.pem",
        "../../signing/key.pem",
        "/.well-known/assay-keys/../key.pem",
    ]
    with AssayClient(target.url, target.admin) as client:
        for name in tried:
            try:
                client.download(finished(target.url, target.alice, 1), name, Path(os.devnull).parent / "none")
            except (AssayError, OSError):
                continue
            raise AssertionError(f"{name} was given out")
        shown = client.signing_keys().model_dump_json()
    key = target.state / "signing" / "key.pem"
    secret = key.read_text().splitlines()[1]
    assert secret not in shown
    assert key.stat().st_mode & 0o077 == 0, "others can read the key"
    return "404, and mode 0600"


ATTEMPTS = (
    Attempt("one digit of saved results changed", changed_digit),
    Attempt("one digit of the signed statement changed", changed_statement),
    Attempt("a file of the job changed", swapped_file),
    Attempt("signed with another key, under its own and under our key's id", another_key),
    Attempt("the signature of another job", replayed),
    Attempt("a field of the signature stripped", stripped),
    Attempt("a false signature.json planted in the job's folder", planted),
    Attempt("another tenant's signature", foreign),
    Attempt("the private key by way of artifact names", the_key),
)
