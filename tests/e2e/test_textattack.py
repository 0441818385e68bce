"""The native recipes against TextAttack's own code, through the service.

The package runs in a worker with an environment of its own, beside an embedded service. TextFooler and PWWS
draw nothing: status, queries and changed words are the same for every text. DeepWordBug and Pruthi draw
letters and places, and the two have other generators: their rates are alike.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.service.client import AssayClient
from assay.service.contract.errors import InvalidSpec
from tests.e2e.jobs import finished, outcomes
from tests.e2e.running import RunningService, wait_for
from tests.support.textattack_environment import joined_worker, make_environment
from tests.support.word_vectors import write_vectors
from tests.support.wordnet_files import write_wordnet

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]

OPINIONS = ("bad awful terrible dull slow hated", "good great decent fine funny loved")
OTHER = "the film movie story director scene actor a of and tale watched night city children big old it was"
TEXTS = 40
SIZES = {"width": 16, "depth": 1, "heads": 2, "hidden": 32, "length": 24}
MODEL = {"name": "text_classifier", "params": {"backbone": {"name": "lm", "params": SIZES}}}
DATA = {"name": "sst", "params": {"folder": "opinions"}}
EXACT, DRAWN = ("textfooler", "pwws"), ("deepwordbug", "pruthi")
RECIPES = (*EXACT, *DRAWN)
# Passes are left out: the package asks once for what the model reads alike.
COLUMNS = ("id", "label", "status", "queries", "words", "changed")
Tables = dict[str, list[dict[str, str]]]


def write_texts(root: Path) -> None:
    """Texts in SST-2's files: two opinions of one kind, sometimes one of the other, among other words."""
    draws = random.Random(1)
    (root / "opinions").mkdir(parents=True)
    for part, count in (("train", 300), ("test", TEXTS)):
        rows = []
        for number in range(count):
            label = number % 2
            words = draws.choices(OTHER.split(), k=draws.randrange(5, 12))
            said = draws.choices(OPINIONS[label].split(), k=2) + draws.choices(
                OPINIONS[1 - label].split(), k=number % 3 == 0
            )
            for word in said:
                words.insert(draws.randrange(len(words)), word)
            rows.append(f"{' '.join(words)}\t{label}\n")
        (root / "opinions" / f"sst2.{part}.tsv").write_text("".join(rows))


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of the environment."""
    return make_environment(tmp_path_factory.mktemp("textattack") / "environment")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """An embedded service with one worker of this environment."""
    folder = tmp_path_factory.mktemp("service")
    root = folder / "data"
    write_texts(root)
    write_wordnet(root / "wordnet")
    (root / "wordnet" / "lexnames").unlink()  # Debian's WordNet has none
    write_vectors(root / "counter-fitted")
    running = RunningService(folder / "state", ASSAY_WORKERS="1", ASSAY_DATA_ROOT=str(root)).start()
    yield running
    running.close()


@pytest.fixture(scope="module")
def trained(service: RunningService) -> str:
    """A finished training: the job's id."""
    recipe = {"name": "finetune_text", "params": {"epochs": 12, "learning_rate": 0.01}}
    body = {"kind": "train", "model": MODEL, "data": DATA, "recipe": recipe}
    job = service.client.submit(body | {"execution": {"device": "cpu", "batch_size": 32}}).id
    finished(service.client, job)
    return job


def attacking(weights: str, backend: str, *names: str, **top: Any) -> dict[str, Any]:
    return {
        "kind": "evaluate",
        "seed": 5,
        "model": {"name": "text_classifier", "weights": {"job": weights}},
        "data": DATA,
        "evaluations": [{"name": name, "params": {"backend": backend}} for name in names],
        "execution": {"device": "cpu", "batch_size": 16},
        **top,
    }


def tables(client: AssayClient, job: str, folder: Path) -> Tables:
    """The outcomes of each recipe of a finished job."""
    finished(client, job, 1200)
    found = outcomes(client, job, folder).items()
    return {
        name.removesuffix(".csv").split("-")[-1]: list(csv.DictReader(text.splitlines()))
        for name, text in found
    }


def measured(rows: list[dict[str, str]]) -> list[tuple[str, ...]]:
    return [tuple(row[column] for column in COLUMNS) for row in rows]


def test_the_package_and_the_native_recipes_agree(
    service: RunningService, trained: str, python: Path, tmp_path: Path
) -> None:
    client = service.client
    with pytest.raises(InvalidSpec, match="workers do not have") as caught:
        client.submit(attacking(trained, "textattack", "pwws"))
    assert "`docker compose --profile textattack up -d`" in str(caught.value.details[0].allowed)
    native = client.submit(attacking(trained, "native", *RECIPES)).id
    environment = {"ASSAY_DATA_ROOT": str(service.state.parent / "data"), "ASSAY_POLL_SECONDS": "0.1"}
    with joined_worker(python, service.state, environment) as worker:
        wait_for(lambda: worker.poll() is not None or takes_the_backend(client, trained), 240)
        assert worker.poll() is None, service.state.with_suffix(".worker.log").read_text()
        package = client.submit(attacking(trained, "textattack", *RECIPES)).id
        again = client.submit(
            attacking(trained, "textattack", *DRAWN, limit=12, execution={"device": "cpu", "batch_size": 5})
        ).id
        ours = tables(client, native, tmp_path / "native")
        theirs = tables(client, package, tmp_path / "package")
        fewer = tables(client, again, tmp_path / "fewer")

    for name in EXACT:
        assert measured(theirs[name]) == measured(ours[name]), name
    for name in RECIPES:
        states = {row["status"] for row in theirs[name]}
        assert states >= {"failed", "succeeded"}, (name, "the texts show both ends")
        assert len(theirs[name]) == TEXTS
    for name in DRAWN:
        right = [row for row in theirs[name] if row["status"] != "skipped"]
        assert {row["id"] for row in right} == {row["id"] for row in ours[name] if row["status"] != "skipped"}
        assert abs(broken(theirs[name]) - broken(ours[name])) <= 0.2 * len(right), name
        assert queries(theirs[name]) == pytest.approx(queries(ours[name]), rel=0.25), name
        kept = {row["id"]: row for row in theirs[name]}
        assert measured(fewer[name]) == measured([kept[row["id"]] for row in fewer[name]]), "of other batches"

    rows = client.results(package).evaluations
    assert [row.backend for row in rows] == ["textattack"] * len(RECIPES)
    codes = {row.name: {warning.code for warning in row.warnings} for row in rows}
    assert all("library_backend" in found for found in codes.values())
    assert {name for name, found in codes.items() if "recipe_left_out" in found} == {"textfooler"}
    provenance = client.results(package).provenance
    assert provenance is not None
    assert provenance.packages["textattack"] == "0.3.11"


def takes_the_backend(client: AssayClient, trained: str) -> bool:
    try:
        client.dry_run(attacking(trained, "textattack", "pwws"))
    except InvalidSpec:
        return False
    return True


def broken(rows: list[dict[str, str]]) -> int:
    return sum(row["status"] == "succeeded" for row in rows)


def queries(rows: list[dict[str, str]]) -> float:
    attacked = [int(row["queries"]) for row in rows if row["status"] != "skipped"]
    return sum(attacked) / len(attacked)
