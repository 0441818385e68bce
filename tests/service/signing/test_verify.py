"""A changed digit fails: of any number, in any place, in the signature or in saved results."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay.service.contract.problems import path_text
from assay.service.contract.results import Results
from assay.service.files.canonical_json import canonical
from assay.service.signing.keys import key_id
from assay.service.signing.statement import content_of, statement
from assay.service.signing.verify import BadSignature, file_problem, opened, parsed, result_problems
from tests.support.signed import (
    CSV,
    KEY,
    KEYS,
    RESULTS,
    SIGNED_AT,
    file,
    leaves,
    signature,
    signed_anew,
    with_leaf,
)

LEAVES = list(leaves(RESULTS))
NAMES = [path_text(path) for path, _ in LEAVES]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=20,
)


def other(value: Any) -> Any:
    """The least change: the next float, the next integer, a character more."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, float):
        return math.nextafter(value, math.inf)
    if isinstance(value, int):
        return value + 1 if value < 2**53 - 1 else value - 1
    if isinstance(value, str):
        return value + " "
    return {None: 0, (): None}.get(value if value is None else (), "x")


def rewritten(raw: bytes, change: Callable[[dict[str, Any]], object]) -> bytes:
    envelope = json.loads(raw)
    change(envelope)
    return json.dumps(envelope).encode()


def test_what_was_signed_is_read_back() -> None:
    signed = opened(signature(), KEYS)
    assert (signed.job, signed.signed_at, signed.key_id) == (RESULTS["job"], SIGNED_AT, next(iter(KEYS)))
    assert signed.files == {"outcomes-000-pgd.csv": file()}
    for text in (json.dumps(RESULTS), json.dumps(RESULTS, indent=2, ensure_ascii=False)):
        assert result_problems(signed, text.encode()) == []
    assert result_problems(signed, canonical(RESULTS)) == []
    assert result_problems(signed, json.dumps(RESULTS | {"signature": "/x"}).encode()) == []


@pytest.mark.parametrize(("path", "value"), LEAVES, ids=NAMES)
def test_a_changed_value_of_saved_results_is_named(path: tuple[str | int, ...], value: Any) -> None:
    signed = opened(signature(), KEYS)
    changed = with_leaf(RESULTS, path, other)
    assert changed != RESULTS
    for raw in (json.dumps(changed).encode(), canonical(changed)):
        (problem,) = result_problems(signed, raw)
        assert problem.startswith(path_text(path))


@pytest.mark.parametrize(("path", "value"), LEAVES, ids=NAMES)
def test_a_missing_value_of_saved_results_is_named(path: tuple[str | int, ...], value: Any) -> None:
    parent: Any = json.loads(json.dumps(RESULTS))
    whole = parent
    for name in path[:-1]:
        parent = parent[name]
    if isinstance(parent, dict):
        del parent[path[-1]]
        problems = result_problems(opened(signature(), KEYS), json.dumps(whole).encode())
        assert len(problems) == 1
        assert problems[0].startswith(f"{path_text(path)} is missing, signed ")


def test_every_changed_character_of_the_signature_is_noticed() -> None:
    """Of payload, key id and signature: the texts are long, every seventh place is enough."""
    raw = signature()
    envelope = json.loads(raw)
    texts = {
        ("payload",): envelope["payload"],
        ("signatures", 0, "sig"): envelope["signatures"][0]["sig"],
        ("signatures", 0, "keyid"): envelope["signatures"][0]["keyid"],
        ("payloadType",): envelope["payloadType"],
    }
    tried = 0
    for path, text in texts.items():
        for index in {*range(0, len(text), 7), len(text) - 1, len(text) - 2, len(text) - 3}:
            for new in {"A", "B", "9"} - {text[index]}:
                changed = text[:index] + new + text[index + 1 :]
                with pytest.raises(BadSignature):
                    opened(json.dumps(with_leaf(envelope, path, lambda _, c=changed: c)).encode(), KEYS)
                tried += 1
    assert tried > 500


def test_bits_that_base64_ignores_are_not_ignored() -> None:
    """The last character before the padding has four bits that no byte gets."""
    envelope = json.loads(signature())
    sig = envelope["signatures"][0]["sig"]
    assert sig.endswith("==")
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    changed = sig[:-3] + alphabet[alphabet.index(sig[-3]) + 1] + "=="
    assert base64.b64decode(changed) == base64.b64decode(sig), "a lenient reader takes them for the same"
    envelope["signatures"][0]["sig"] = changed
    with pytest.raises(BadSignature, match="not base64 in its one form"):
        opened(json.dumps(envelope).encode(), KEYS)


@given(st.data())
def test_a_changed_digit_of_the_signed_statement_fails(data: st.DataObject) -> None:
    envelope = json.loads(signature())
    payload = base64.b64decode(envelope["payload"])
    places = [match.start() for match in re.finditer(rb"[0-9]", payload)]
    place = data.draw(st.sampled_from(places))
    digit = data.draw(st.sampled_from([c for c in b"0123456789" if c != payload[place]]))
    changed = payload[:place] + bytes([digit]) + payload[place + 1 :]
    envelope["payload"] = base64.b64encode(changed).decode()
    with pytest.raises(BadSignature, match="one of the two was changed"):
        opened(json.dumps(envelope).encode(), KEYS)


@given(st.data())
def test_a_changed_digit_of_saved_results_fails(data: st.DataObject) -> None:
    """Also one behind the last digit that a float has."""
    signed = opened(signature(), KEYS)
    text = json.dumps(RESULTS)
    places = [match.start() for match in re.finditer(r"[0-9]", text)]
    place = data.draw(st.sampled_from(places))
    digit = data.draw(st.sampled_from([c for c in "0123456789" if c != text[place]]))
    changed = data.draw(
        st.sampled_from([text[:place] + digit + text[place + 1 :], text[:place] + digit + text[place:]])
    )
    try:
        same = parsed(changed.encode()) == RESULTS and json.loads(changed) == RESULTS
    except BadSignature:
        same = False
    # A zero in front of an exponent, as in 1e+020, changes no number.
    assert (result_problems(signed, changed.encode()) == []) is same


def test_digits_beyond_a_float_are_refused() -> None:
    text = json.dumps(RESULTS)
    assert "0.8138888888888889" in text
    longer = text.replace("0.8138888888888889", "0.81388888888888891")
    assert json.loads(longer) == RESULTS, "a lenient reader takes them for the same number"
    (problem,) = result_problems(opened(signature(), KEYS), longer.encode())
    assert "0.81388888888888891 has digits that no result has" in problem


@pytest.mark.costly
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(JSON)
def test_any_results_survive_signing_and_saving(value: Any) -> None:
    results = {"job": "j", "evaluations": value}
    signed = opened(signature(results), KEYS)
    assert result_problems(signed, json.dumps(results).encode()) == []
    assert result_problems(signed, canonical(results)) == []


@pytest.mark.costly
@given(st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()))
def test_anything_else_is_refused_and_nothing_breaks(raw: bytes) -> None:
    with pytest.raises(BadSignature):
        opened(raw, KEYS)
    assert result_problems(opened(signature(), KEYS), raw) != []


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a": ' * 400 + b"1" + b"}" * 400, "envelope"),
        (b'"\\ud800"', "not JSON"),
        (b'{"payload": NaN}', "NaN is not JSON"),
        (b'{"payload": 1' + b"0" * 5000 + b"}", "digits"),
        (b'{"payload": 1e999}', "digits that no result has"),
        (rewritten(signature(), lambda e: e.pop("signatures")), "signatures"),
        (rewritten(signature(), lambda e: e["signatures"].clear()), "0 signatures"),
        (rewritten(signature(), lambda e: e["signatures"].append(e["signatures"][0])), "2 signatures"),
        (rewritten(signature(), lambda e: e["signatures"][0].pop("keyid")), "keyid"),
        (rewritten(signature(), lambda e: e["signatures"][0].update(sig="")), "one of the two was changed"),
        (rewritten(signature(), lambda e: e.update(payload="")), "one of the two was changed"),
        (rewritten(signature(), lambda e: e.update(more=1)), "more"),
        (rewritten(signature(), lambda e: e.update(payloadType="text/plain")), "payloadType"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_broken_envelope_says_what_is_wrong(raw: bytes, message: str) -> None:
    with pytest.raises(BadSignature, match=re.escape(message)):
        opened(raw, KEYS)


def test_a_key_given_twice_is_refused() -> None:
    raw = signature().replace(b'"payload":', b'"payload": "", "payload":')
    with pytest.raises(BadSignature, match="given twice"):
        opened(raw, KEYS)


def test_another_key_is_not_trusted_even_under_the_name_of_ours() -> None:
    stranger = Ed25519PrivateKey.generate()
    raw = signature(key=stranger)
    with pytest.raises(BadSignature, match="not trusted here"):
        opened(raw, KEYS)
    renamed = rewritten(raw, lambda e: e["signatures"][0].update(keyid=next(iter(KEYS))))
    with pytest.raises(BadSignature, match="one of the two was changed"):
        opened(renamed, KEYS)


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s.update(_type="https://in-toto.io/Statement/v0.1"),
        lambda s: s.update(predicateType="https://slsa.dev/provenance/v1"),
        lambda s: s["subject"][0]["digest"].update(sha256="0" * 64),
        lambda s: s["subject"].pop(),
        lambda s: s["predicate"].update(key_id="x"),
        lambda s: s["predicate"].update(job="another"),
        lambda s: s["predicate"]["artifacts"].clear(),
        lambda s: s.pop("predicate"),
        lambda s: s.update(more=1),
    ],
)
def test_a_signed_statement_of_another_kind_or_against_itself_is_refused(change: Any) -> None:
    """Our key signs nothing of that sort; should it ever, such a statement still proves no results."""
    content = statement(RESULTS, [file()], signed_at=SIGNED_AT, key=next(iter(KEYS)))
    assert opened(signed_anew(canonical(content)), KEYS).job == RESULTS["job"]
    content = json.loads(canonical(content))
    change(content)
    with pytest.raises(BadSignature):
        opened(signed_anew(canonical(content)), KEYS)


def test_a_changed_file_is_named(tmp_path: Path) -> None:
    signed = opened(signature(), KEYS)
    path = tmp_path / "outcomes-000-pgd.csv"
    path.write_bytes(CSV)
    assert file_problem(signed, path) is None
    path.write_bytes(CSV.replace(b"x0,1", b"x0,0"))
    assert "has sha256" in str(file_problem(signed, path))
    path.write_bytes(CSV + b"\n")
    assert file_problem(signed, path) == f"has {len(CSV) + 1} bytes, signed {len(CSV)}"
    assert file_problem(signed, tmp_path / "other.csv") == "not among the signed files"


@pytest.mark.parametrize("place", [0, 7, 8, 31, 32, 63])
def test_every_digit_of_a_files_hash_counts(tmp_path: Path, place: int) -> None:
    path = tmp_path / "outcomes-000-pgd.csv"
    path.write_bytes(CSV)
    digest = file().sha256
    changed = digest[:place] + ("0" if digest[place] != "0" else "1") + digest[place + 1 :]
    signed = opened(signature(files=(replace(file(), sha256=changed),)), KEYS)
    assert file_problem(signed, path) == f"has sha256 {digest}, signed {changed}"


def test_results_with_a_bracket_verify_and_its_numbers_count() -> None:
    ends = {"n": 60, "ci_low": 0.1, "ci_high": 0.4, "ci_method": "wilson", "higher_is_better": True}
    point = {
        "data": "digits",
        "norm": "Linf",
        "epsilon": 0.125,
        "n": 60,
        "verified": {"value": 0.25, **ends},
        "attacked": {"value": 0.375, **ends},
        "verified_by": ["verified"],
        "attacked_by": ["pgd"],
    }
    known = {"job": "j", "complete": True, "evaluations": [], "provenance": None, "signature": "/x"}
    results = Results.model_validate(known | {"bracket": [point]})
    signed = opened(signature(content_of(results)), KEYS)
    saved = results.model_dump(mode="json")
    assert result_problems(signed, json.dumps(saved).encode()) == []
    paths = [path for path, _ in leaves(saved) if path[0] == "bracket"]
    assert len(paths) > 10
    for path in paths:
        (problem,) = result_problems(signed, json.dumps(with_leaf(saved, path, other)).encode())
        assert problem.startswith(path_text(path))
    (problem,) = result_problems(signed, json.dumps(saved | {"bracket": []}).encode())
    assert problem.startswith("bracket is missing, signed")
    # Results of earlier versions were signed without a bracket.
    old = Results.model_validate(known)
    assert result_problems(opened(signature(content_of(old)), KEYS), old.model_dump_json().encode()) == []


def test_the_sentence_about_results_is_not_signed() -> None:
    known = {"job": "j", "complete": True, "evaluations": [], "provenance": None, "signature": "/x"}
    signed = opened(signature(content_of(Results.model_validate(known))), KEYS)
    for words in ("60 of 100 images hold.", ""):
        saved = Results.model_validate(known | {"headline": words})
        assert result_problems(signed, saved.model_dump_json().encode()) == []


def test_files_cannot_take_the_names_of_results_and_signature() -> None:
    signed = opened(signature(files=(file(), file("results.json"), file("signature.json"))), KEYS)
    assert list(signed.files) == ["outcomes-000-pgd.csv"]


def test_the_differences_are_not_endless() -> None:
    many = {"job": "j", "evaluations": list(range(1000))}
    problems = result_problems(opened(signature(many), KEYS), b'{"job": "j", "evaluations": []}')
    assert len(problems) == 21
    assert problems[0] == "evaluations[0] is missing, signed 0"


def test_the_key_id_is_the_thumbprint_of_the_standard() -> None:
    """RFC 8037, appendix A.3."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    x = base64.urlsafe_b64decode("11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo=")
    assert key_id(Ed25519PublicKey.from_public_bytes(x)) == "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"
    assert key_id(KEY.public_key()) in KEYS
