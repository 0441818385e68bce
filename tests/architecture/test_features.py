"""A feature is a folder of `service`: the core finds it by `features.py`, and no feature imports another.

`test_removing.py` removes each from a copy of the repository.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

import pytest

from assay.service import features
from assay.service.features import FEATURES, SHARED
from tests.architecture.test_structure import Graph, graph

ROOT = Path(__file__).resolve().parents[2]
# The class `AssayClient` inherits the calls of features: type checkers and editors see them.
CLIENT = "service.client.jobs"
# What the core asks features for, and what a module of that name defines.
ASKED = {
    "routes": {"ROUTERS", "BEFORE"},
    "request_examples": {"BODIES"},
    "pages": {"router", "NAVIGATION"},
    "cli": {"add_commands"},
    "store": {"TENANT_STORE"},
    "outbox": {"announce_end", "announce_evaluation"},
    "delivery": {"start", "COUNTED"},
    "startup": {"check", "check_signing_key"},
    "tables": set(),
    "demo": {"main"},
}
OUTER = ("api", "dashboard", "cli", "client", "app", "serving", "dispatch")
# Packages of the core that the files of a feature do not import.
ABOVE = {
    "wire": (*OUTER, "store", "submission"),
    "tables": OUTER,
    "outbox": OUTER,
    "store": OUTER,
    "client": ("api", "dashboard", "cli", "store", "submission"),
    "cli": ("api", "dashboard", "store", "submission"),
}


def feature_of(module: str, names: Collection[str]) -> str | None:
    """The feature that a module belongs to; None for modules of the core and of other packages."""
    package, _, rest = module.partition(".")
    first = rest.partition(".")[0]
    return first if package == "service" and first in names else None


def wrong_imports(graph: Graph, names: Collection[str] = FEATURES) -> list[str]:
    """Imports of a feature by the core, by another package or by another feature."""
    return [
        f"{module} imports {imported}"
        for module, found in graph.items()
        for imported in sorted(found)
        if feature_of(imported, names) not in (None, feature_of(module, names))
        and not (module == CLIENT and imported.endswith(".client"))
    ]


def test_only_the_client_names_features() -> None:
    assert wrong_imports(graph()) == []


def test_an_import_of_a_feature_is_noticed() -> None:
    wrong: Graph = {
        "service.api.jobs": {"service.news.store"},
        CLIENT: {"service.news.client", "service.news.wire"},
        "service.news.routes": {"service.news.store", "service.api.deps", "service.polls.wire"},
        "workers.embedded": {"service.news.delivery"},
    }
    assert wrong_imports(wrong, ("news", "polls")) == [
        "service.api.jobs imports service.news.store",
        f"{CLIENT} imports service.news.wire",
        "service.news.routes imports service.polls.wire",
        "workers.embedded imports service.news.delivery",
    ]


@pytest.mark.parametrize("feature", [*SHARED, *FEATURES])
def test_the_files_of_a_feature_keep_the_layers(feature: str) -> None:
    for name, packages in ABOVE.items():
        for imported in graph().get(f"service.{feature}.{name}", ()):
            assert imported.split(".")[1] not in packages, f"{feature}/{name}.py imports {imported}"


@pytest.mark.parametrize("name", ASKED)
def test_a_module_defines_what_the_core_asks_for(name: str) -> None:
    for module in features.modules(name):
        assert ASKED[name] <= vars(module).keys(), module


def test_the_core_asks_for_these_names_and_no_other() -> None:
    asked = {
        name
        for path in (ROOT / "service").rglob("*.py")
        for name in re.findall(r'features\.(?:modules|names)\("(\w+)"\)', path.read_text())
    }
    assert asked == ASKED.keys()


@pytest.mark.parametrize("feature", [*SHARED, *FEATURES])
def test_the_tests_of_a_feature_lie_in_its_folder(feature: str) -> None:
    tests = {path.name for path in (ROOT / "tests" / "service" / feature).glob("test_*.py")}
    assert tests, feature
