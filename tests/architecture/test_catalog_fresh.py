"""`catalog.json` matches the components. `make catalog` fixes failures here."""

from __future__ import annotations

import json

from assay.service.catalog.catalog import CATALOG_FILE, EVALUATIONS, load
from assay.workers.catalog import stale_entries
from assay.workers.discovery.walk import to_json, walk


def test_catalog_is_fresh_and_walking_is_repeatable() -> None:
    text, written = to_json(walk()), CATALOG_FILE.read_text(encoding="utf-8")
    # Short: pytest would take minutes to show how two long texts differ.
    fresh = text == written
    assert fresh, f"run `make catalog`: {stale_entries(text, written)}"
    repeatable = text == to_json(walk())
    assert repeatable


def test_entries_are_sorted_and_unique() -> None:
    keys = [(entry["kind"], entry["name"]) for entry in json.loads(CATALOG_FILE.read_text(encoding="utf-8"))]
    assert keys == sorted(set(keys))


def test_no_name_is_an_evaluation_and_an_attack() -> None:
    names = [component.name for kind in EVALUATIONS for component in load().list(kind)]
    assert len(names) == len(set(names))


def test_everything_that_is_evaluated_declares_its_passes() -> None:
    # The plan shard sizes its shards by them, and submissions are estimated from them.
    # How many a document or an episode takes is decided by its length, which a submission does not know.
    unknown = (["language"], ["control"])
    parts = [part for kind in EVALUATIONS for part in load().list(kind) if part.tasks not in unknown]
    assert not [part.name for part in parts if part.passes is None]
