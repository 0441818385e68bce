"""A feature is removed from a copy of the repository, with its lines and its tests: the rest goes on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from assay.service.features import FEATURES

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("service", "workers", "models", "attacks", "tests")
# Lines of a feature outside its folders: its name among the features, and its calls among the client's.
REGISTRY, CLIENT = "service/features.py", "service/client/jobs.py"
# Of the tests of the core: imports, contracts, OpenAPI and catalog, pages, the store, routes and subcommands.
SAMPLE = (
    "tests/architecture/test_layers.py::test_the_service_imports_without_torch_and_without_the_heavy_side",
    "tests/architecture/test_features.py",
    "tests/service/api/test_openapi.py::test_operation_ids_are_stable",
    "tests/service/api/test_openapi.py::test_no_route_is_left_out",
    "tests/service/api/test_openapi.py::test_every_reference_resolves",
    "tests/service/api/test_openapi.py::test_every_route_refuses_unknown_query_parameters",
    "tests/service/api/test_catalog.py",
    "tests/service/api/test_jobs.py::test_submit_answers_the_job",
    "tests/service/api/test_jobs.py::test_a_canceled_job_is_retried",
    "tests/service/api/test_health.py",
    "tests/service/client/test_asynchronous.py",
    "tests/service/dashboard/test_frame.py",
    "tests/service/dashboard/test_overview.py",
    "tests/service/store/test_tenants.py::test_what_is_not_filtered_is_not_there",
    "tests/service/store/test_tenants.py::test_lists_hold_the_tenants_jobs_only",
    "tests/service/cli/test_run.py::test_a_list_becomes_a_table_of_what_nothing_else_is_made_from",
)
JOB = """
import sys
from pathlib import Path
from tests.e2e.jobs import attacking, finished
from tests.e2e.running import RunningService

service = RunningService(Path(sys.argv[1]), ASSAY_WORKERS="1").start()
try:
    spec = attacking(None, [{"name": "clean"}, {"name": "fgsm", "params": {"epsilon": "8/255"}}])
    job = finished(service.client, service.client.submit(spec).id)
    print("measured", len(service.client.results(job.id).evaluations))
finally:
    service.close()
"""


def run(folder: Path, *arguments: str, given: str | None = None) -> str:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder / "src"), str(folder)])}
    process = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, input=given, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


def remove(root: Path, feature: str) -> None:
    """Removes what `docs/adding.md` says that a feature consists of."""
    shutil.rmtree(root / "service" / feature)
    shutil.rmtree(root / "tests" / "service" / feature)
    (root / "tests" / "hostile" / f"{feature}.py").unlink(missing_ok=True)
    registry = root / REGISTRY
    registry.write_text(re.sub(rf'    "{feature}",.*\n', "", registry.read_text()))
    client = root / CLIENT
    text, imported = client.read_text(), rf"from assay\.service\.{feature}\.client import (\w+)\n"
    for name in re.findall(imported, text):
        text = re.sub(imported, "", text).replace(f"    {name},\n", "")
    client.write_text(text)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    root = tmp_path / "assay"
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "src", root / "src", symlinks=True)
    shutil.copy(ROOT / "pyproject.toml", root)
    return root


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("removed", [*((feature,) for feature in FEATURES), FEATURES], ids="-".join)
def test_the_core_goes_on_without_a_feature(copy: Path, tmp_path: Path, removed: tuple[str, ...]) -> None:
    for feature in removed:
        remove(copy, feature)
    left = [
        f"{path.relative_to(copy)} names {feature}"
        for path in (copy / "service").rglob("*.py")
        for feature in removed
        if f"service.{feature}" in path.read_text()
    ]
    assert left == []
    features = "from assay.service import features; print(*features.FEATURES)"
    assert run(copy, "-c", features).split() == [name for name in FEATURES if name not in removed]
    run(copy, "-m", "assay.workers.catalog", "--check")
    assert run(copy, "-", str(tmp_path / "state"), given=JOB).split() == ["measured", "2"]
    run(copy, "-m", "pytest", "-qx", "-p", "no:cacheprovider", "-p", "no:xdist", *SAMPLE)
