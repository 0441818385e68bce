"""Identity of a worker: the code, packages and catalog that its numbers depend on. Never imports torch.

Only workers with the identity of the worker that planned a job measure its shards.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import subprocess
from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from assay.service.catalog.catalog import load
from assay.service.contract.extras import DISTRIBUTION, version_of
from assay.service.contract.fleet.release import source_sha256
from assay.service.contract.fleet.worker_records import CodeProvenance, WorkerIdentity

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("torchvision", "timm", "numpy", "scikit-learn", "safetensors")
# Requirements of shards that name them; not in the digest.
LIBRARIES = ("cleverhans", "pyautoattack", "textattack", "transformers")
DIGEST_LENGTH = 16
CHANGED = "the source or the packages of this worker have changed since it started"
TORCH_VERSION = re.compile(r"""^__version__\s*=\s*['"]([^'"]+)['"]""", re.MULTILINE)


@cache
def identity() -> WorkerIdentity:
    """Hash of the computing source, package versions, catalog digest, and a digest of all."""
    found = {"source_sha256": code()["source_sha256"], "packages": packages(), "catalog": load().digest}
    text = json.dumps(found, sort_keys=True, separators=(",", ":"))
    return WorkerIdentity(
        digest=hashlib.sha256(text.encode()).hexdigest()[:DIGEST_LENGTH],
        source_sha256=code()["source_sha256"],
        packages=packages(),
        catalog=load().digest,
        libraries=versions(LIBRARIES),
    )


@cache
def code() -> CodeProvenance:
    """Version, commit (null outside a checkout, "-dirty" when changed), hash of the computing source."""
    source = source_sha256(ROOT)
    assert source is not None, f"{ROOT} lacks a folder of the source, and runs all the same"
    return {"version": version_of(DISTRIBUTION), "commit": _commit(), "source_sha256": source}


def is_unchanged() -> bool:
    """Whether source and packages are still those of this process's start."""
    mine = identity()
    return mine["source_sha256"] == source_sha256(ROOT) and mine["packages"] == packages.__wrapped__()


@cache
def packages() -> dict[str, str]:
    """Versions of packages behind numbers; torch's build too ("+cpu", "+cu132"): kernels differ."""
    found = {"python": platform.python_version(), "torch": _torch_version()}
    return {name: text for name, text in found.items() if text is not None} | versions(PACKAGES)


def versions(names: Iterable[str]) -> dict[str, str]:
    """Versions of those distributions that are installed."""
    found = {name: version_of(name) for name in names}
    return {name: text for name, text in found.items() if text is not None}


def _torch_version() -> str | None:
    """`torch.__version__` from its file: importing torch takes seconds, and memory for good."""
    spec = find_spec("torch")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        try:
            found = TORCH_VERSION.search(Path(folder, "version.py").read_text())
        except OSError:
            continue
        if found is not None:
            return found[1]
    return version_of("torch")


def _commit() -> str | None:
    if "ASSAY_COMMIT" in os.environ:
        return os.environ["ASSAY_COMMIT"] or None
    if not (ROOT / ".git").exists():
        return None  # a repository around a virtual environment is not Assay's
    try:
        answer = subprocess.run(  # noqa: S603 (fixed command)
            ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],  # noqa: S607
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() or None
