"""Measures of the product are at most their ceilings (house.json), which only fall."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from assay.service.features import FEATURES
from tests.support import house as measures
from tests.support.house import CEILINGS, MEASURES, House, ceilings, house

HOUSE = house()
CLEAN = {
    Path("service/store/jobs.py"): '"""Jobs."""\n\nCOUNT = 1\n',
    Path("attacks/adversarial/pgd.py"): '"""PGD."""\n\n__all__ = ["pgd"]\n',
}
HELPER = Path("service/store/rows.py")
LONG = "x = 1\n" * measures.FULL_FILE
KINDS = {"square": "attack", "apgd_ce": "attack", "apgd_t": "attack", "spectral": "attention"}
# A file that the measure must count, once.
FAULTS: dict[str, dict[str, str]] = {
    "machinery folders with more than 25 files": {f"workers/jobs/m{n}.py": LONG for n in range(26)},
    "file names that stand in 4 folders of service or more": {
        f"service/{folder}/studies.py": "" for folder in ("api", "cli", "store", "client")
    },
    "files of 380 lines or more": {"service/store/rows.py": LONG},
    "comparisons with a task's name outside components": {
        "service/store/rows.py": 'def f(task):\n    return task == "language"\n'
    },
    "lists of four component names or more outside components": {
        "service/store/rows.py": f"ATTACKS = {[*KINDS]}\n"
    },
    "type names with three meanings or more": {
        f"workers/jobs/m{n}.py": text
        for n, text in enumerate(["class Search:\n    pass\n", "Search = int\n", "Search = str\n"])
    },
    "files of service that name a component": {"service/store/rows.py": 'if NAME == "square":\n    pass\n'},
    "helper modules under 60 lines with one importer": {
        "service/store/rows.py": "",
        "service/store/users.py": "from assay.service.store.rows import Row\n" + LONG,
    },
    "lines in sections of docstrings": {
        "service/store/rows.py": 'def f(x):\n    """Text.\n\n    Args:\n    """\n'
    },
    "star-tuples in calls": {"service/store/rows.py": "f(*(1, 2))\n"},
    "pronouns in place of nouns": {"service/store/rows.py": "# those of a row\n"},
    "query parameters stated again by only(...)": {"service/api/rows.py": "only()\n"},
}


def test_every_measure_has_a_ceiling() -> None:
    assert list(ceilings()) == list(MEASURES)


@pytest.mark.parametrize("name", MEASURES)
def test_a_measure_is_at_most_its_ceiling(name: str) -> None:
    value, ceiling = MEASURES[name][0](HOUSE), ceilings()[name]
    assert value <= ceiling, f"{name}: {value:g}, ceiling {ceiling:g} in {CEILINGS.name}"


@pytest.mark.parametrize("name", FAULTS)
def test_a_measure_counts_what_it_names(name: str) -> None:
    def measured(files: dict[Path, str]) -> float:
        return MEASURES[name][0](House(files, kinds=KINDS, tasks=frozenset({"language"})))

    faults = {Path(file): text for file, text in FAULTS[name].items()}
    assert measured(CLEAN | faults) == measured(CLEAN) + 1


def test_the_file_names_of_features_are_no_slices() -> None:
    files = {Path(f"service/{feature}/routes.py"): "" for feature in FEATURES}
    assert len(files) >= measures.SLICES
    assert measures.sliced_features(House(files)) == 0


def test_lines_words_and_tests_are_counted() -> None:
    small = House(CLEAN, tests=frozenset({"service/store/test_jobs.py"}))
    assert measures.lines(small) == 6
    assert measures.prose(small) == 100  # two words, two lines of code
    assert measures.untested_helpers(small) == 0
    assert measures.untested_helpers(House({**CLEAN, HELPER: ""}, tests=small.tests)) == 50


def test_the_house_is_the_project() -> None:
    assert {file.parts[0] for file in HOUSE.files} == set(measures.PACKAGES)
    assert HOUSE.components
    assert HOUSE.tasks
    assert json.dumps(ceilings(), indent=2) + "\n" == CEILINGS.read_text()
