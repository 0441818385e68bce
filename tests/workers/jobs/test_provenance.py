"""Provenance of a number."""

from __future__ import annotations

import hashlib

import pytest
import torch

from assay.attacks.randomness import VERSION
from assay.workers.identity import identity
from assay.workers.jobs.failures import OtherIdentity
from assay.workers.jobs.provenance import check_identity, collect


def test_packages_and_device_of_this_process() -> None:
    part = {"name": "digits", "params": {}}
    spec = {"kind": "evaluate", "model": {"name": "symvit", "params": {}}, "data": part, "evaluations": []}
    spec["execution"] = {"device": "cpu", "dtype": "float64", "batch_size": 1}
    found = collect(torch.device("cpu"), torch.float64, spec)
    assert found["packages"]["torch"] == torch.__version__
    assert {"python", "numpy", "timm"} <= found["packages"].keys()
    assert found["device"]["type"] == "cpu"
    assert found["device"]["dtype"] == "float64"
    assert found["device"]["threads"] == torch.get_num_threads()
    assert found["device"]["instruction_set"]
    assert found["device"]["name"]
    assert found["draws"] == VERSION
    assert len(found["code"]["source_sha256"]) == len(hashlib.sha256().hexdigest())


def test_a_plan_of_another_identity_is_refused() -> None:
    other = {**identity(), "digest": "0123456789abcdef"}
    check_identity({"identity": identity()})
    check_identity({})  # of an earlier version
    with pytest.raises(OtherIdentity, match=f"0123456789abcdef .*{identity()['digest']}"):
        check_identity({"identity": other})
