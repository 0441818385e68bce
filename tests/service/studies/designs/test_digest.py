"""The digest of a design: equal for all forms of a file that say the same study."""

from __future__ import annotations

import copy
import hashlib
import json
from typing import Any

import pytest

from assay.service.contract.errors import InvalidSpec
from assay.service.files.canonical_json import canonical
from assay.service.studies.designs.digest import check_same, design_of, digest_of
from tests.support.study_specs import check, example


def design(**changes: Any) -> dict[str, Any]:
    valid = check(example() | changes)
    return design_of(valid.spec, valid.templates)


def test_labels_forms_and_defaults_do_not_matter() -> None:
    known = design()
    seeds = known["seeds"]
    for changes in (
        {"name": "other", "tags": ["t"], "priority": 9, "timeout_seconds": 60},
        {"seeds": len(seeds)},
        {"evaluations": known["evaluations"]},
        {"adjust": "holm", "primary": None},
    ):
        assert digest_of(design(**changes)) == digest_of(known), changes
    assert all(one["params"]["epsilon"] for one in known["evaluations"] if one["name"] == "pgd")
    assert "steps" in next(one["params"] for one in known["evaluations"] if one["name"] == "pgd")


def test_a_design_is_a_study_of_the_same_design() -> None:
    again = check(design())
    assert design_of(again.spec, again.templates) == design()


def test_what_is_computed_and_asked_matters() -> None:
    primary = {"evaluation": "clean"}
    changes: list[dict[str, Any]] = [
        {"seeds": [0, 1]},
        {"adjust": "benjamini_hochberg"},
        {"primary": primary},
        {"primary": primary | {"claim": "not_worse", "margin": 0.01}},
        {"limit": 100},
        {"evaluations": [{"name": "clean"}]},
    ]
    digests = {digest_of(design(**one)) for one in changes}
    assert len(digests - {digest_of(design())}) == len(changes)


def test_a_reader_finds_the_digest_without_this_code() -> None:
    text = json.dumps(design(), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert canonical(json.loads(text)) == canonical(design())
    assert digest_of(design()) == hashlib.sha256(canonical(json.loads(text))).hexdigest()


def test_differences_are_told_at_their_fields() -> None:
    known, other = design(), copy.deepcopy(design())
    check_same(known, other)
    other["arms"][0]["recipe"]["params"]["epochs"] = 3
    other["arms"][1]["extra"] = 1
    del other["limit"]
    other["seeds"].append(77)
    with pytest.raises(
        InvalidSpec, match=f"is not the design sha256:{digest_of(known)}: .* and 1 more"
    ) as caught:
        check_same(known, other)
    told = {".".join(map(str, one.loc)): (one.given, one.allowed) for one in caught.value.details}
    assert told["arms.0.recipe.params.epochs"] == (3, known["arms"][0]["recipe"]["params"]["epochs"])
    assert told["arms.1.extra"] == (1, "no such field")
    assert told["limit"][0] is None
    assert told["seeds"][0] == other["seeds"]
