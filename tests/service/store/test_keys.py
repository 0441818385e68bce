"""Keys: only hashes are stored, and what has ended opens nothing."""

from __future__ import annotations

import pytest

from assay.service.contract.errors import NotFound
from assay.service.contract.keys import grants
from assay.service.store import keys
from assay.service.store.keys import SHAPE
from assay.service.store.store import Store
from assay.service.store.tenant_tables import api_keys
from tests.support.stored_rows import change, everything


def test_a_key_is_recognised_and_only_its_hash_is_stored(store: Store) -> None:
    made, text = store.keys.create("team", ["submit"])
    assert SHAPE.fullmatch(text)
    assert text.startswith(f"{made.prefix}_")
    found = store.keys.authenticate(text)
    assert found is not None
    assert (found.id, found.name, found.scopes, found.tenant) == (made.id, "team", ["submit"], made.id)
    secret = text.removeprefix(f"{made.prefix}_")
    # 32 letters of 5 bits.
    assert len(secret) == 32
    assert secret not in everything(store)
    assert text not in repr(made)
    assert "sha256" not in repr(made)


def test_keys_differ(store: Store) -> None:
    texts = {store.keys.create("n", ["read"])[1] for _ in range(20)}
    assert len({text[-32:] for text in texts}) == len({text[6:14] for text in texts}) == 20


def test_other_texts_are_refused(store: Store) -> None:
    _, text = store.keys.create("n", ["admin"])
    other = store.keys.create("n", ["read"])[1]
    swapped = text[:15] + other[15:]
    last = text[:-1] + ("0" if text[-1] != "0" else "1")
    for wrong in ("", "assay_", text[:-1], text + "0", f" {text}", f"{text}\n", text.upper(), swapped, last):
        assert store.keys.authenticate(wrong) is None, wrong
    assert store.keys.authenticate(text) is not None


def test_a_revoked_key_and_an_expired_one_are_refused(store: Store) -> None:
    revoked, revoked_text = store.keys.create("n", ["admin"])
    _, expiring_text = store.keys.create("n", ["admin"], expires_seconds=3600)
    _, expired_text = store.keys.create("n", ["admin"], expires_seconds=-1)
    first = store.keys.revoke(revoked.id)
    assert first.revoked_at is not None
    assert store.keys.revoke(revoked.id) == first
    assert store.keys.authenticate(revoked_text) is None
    assert store.keys.authenticate(expired_text) is None
    assert store.keys.authenticate(expiring_text) is not None
    assert len(store.keys.list()) == 3


@pytest.mark.parametrize("key_id", ["", "00000000", "x", "' OR 1=1", "\0", "é" * 8])
def test_an_unknown_key_cannot_be_revoked(store: Store, key_id: str) -> None:
    with pytest.raises(NotFound):
        store.keys.revoke(key_id)


def test_use_is_noted_once_a_minute(store: Store) -> None:
    _, text = store.keys.create("n", ["read"])

    def used() -> float | None:
        store.keys.authenticate(text)
        return store.keys.list()[0].last_used_at

    assert store.keys.list()[0].last_used_at is None
    first = used()
    assert first is not None
    assert used() == first
    change(store, api_keys, last_used_at=first - 61)
    again = used()
    assert again is not None
    assert again >= first


@pytest.mark.parametrize(
    ("scopes", "granted"),
    [
        ([], []),
        (["read"], ["read"]),
        (["submit"], ["read", "submit"]),
        (["admin"], ["read", "submit", "admin"]),
        (["read", "submit"], ["read", "submit"]),
        (["root"], []),
    ],
)
def test_scopes(scopes: list[str], granted: list[str]) -> None:
    assert [wanted for wanted in ("read", "submit", "admin") if grants(scopes, wanted)] == granted  # type: ignore[arg-type]


def test_a_key_is_remembered_for_a_moment_and_forgotten_when_it_is_revoked(store: Store) -> None:
    made, text = store.keys.create("n", ["read"])
    assert store.keys.remembered(text, 1000) is None, "making it is no proof of having it"
    found = store.keys.authenticate(text)
    assert found is not None
    assert store.keys.remembered(text, 1000) == found
    assert store.keys.remembered(text, 0) is None
    assert store.keys.remembered(text[:-1], 1000) is None
    store.keys.revoke(made.id)
    assert store.keys.remembered(text, 1000) is None


def test_no_more_than_a_thousand_keys_are_remembered(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "MAX_REMEMBERED", 2)
    for _ in range(5):
        store.keys.authenticate(store.keys.create("n", ["read"])[1])
    assert len(store.keys._remembered) <= 2
