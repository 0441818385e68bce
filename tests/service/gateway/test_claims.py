"""Tokens: what they hold comes back, and only to their pool; the secret is drawn once."""

from __future__ import annotations

import pytest

from assay.service.contract.errors import InvalidState
from assay.service.gateway.claims import SIGNED, ClaimTokens
from assay.service.store.store import Store
from tests.support.jobs import claim, planned


def test_a_token_holds_its_claim_for_its_pool_alone(either_store: Store) -> None:
    store = either_store
    planned(store, 1)
    tokens, others = store.part(ClaimTokens), store.part(ClaimTokens)
    held = tokens.signed(claim(store, "pool:w"))
    read = others.claim(held.token, "pool")
    assert [getattr(read, name) for name in SIGNED] == [getattr(held, name) for name in SIGNED]
    assert others.spec(read) == held.spec
    for pool in ("poo", "pool:w", "", "another"):
        with pytest.raises(InvalidState):
            others.claim(held.token, pool)


def test_a_claim_stands_until_another_claim_or_its_end(store: Store) -> None:
    planned(store, 1)
    tokens, old = store.part(ClaimTokens), claim(store, "pool:w")
    assert tokens.stands(old)
    store.shards.expire(dead_owners=["pool:w"], leases=False)
    assert tokens.stands(old), "its outcome is still taken"
    new = claim(store, "pool:w")
    assert (tokens.stands(old), tokens.stands(new)) == (False, True)
    with pytest.raises(InvalidState):
        tokens.spec(old)
