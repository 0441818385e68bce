"""The page that ranks finished evaluations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import httpx
import pytest

from assay.service.catalog.catalog import Catalog, load
from assay.service.contract.threat import Threat
from assay.service.dashboard.frame import made_once
from assay.service.leaderboard import pages as leaderboard
from assay.service.leaderboard.entries import LeaderboardEntry, LeaderboardGroup
from assay.service.leaderboard.methods import RankedMethod
from assay.service.leaderboard.store import Leaderboards
from assay.service.store.store import Store
from assay.service.store.tenants import TenantStore, View
from tests.service.conftest import provenance
from tests.support.pages import Tags

Make = Callable[..., dict[str, Any]]
PAGE = {"Accept": "text/html"}


@pytest.fixture
def finished(api: httpx.Client, worker: Any, evaluate_body: Make) -> Callable[..., str]:
    def finished(correct: list[int], **changes: Any) -> str:
        body = evaluate_body(evaluations=[{"name": "clean"}], **changes)
        job_id = str(api.post("/api/v1/jobs", json=body).json()["id"])
        worker.run(job_id, correct)
        return job_id

    return finished


def page(api: httpx.Client, path: str, status: int = 200) -> str:
    answer = api.get(path, headers=PAGE)
    assert answer.status_code == status, answer.text[:2000]
    return answer.text


def test_an_empty_leaderboard(api: httpx.Client) -> None:
    assert "No evaluation has finished" in page(api, "/leaderboard")


def test_jobs_are_ranked_and_other_examples_stand_apart(
    api: httpx.Client, finished: Callable[..., str]
) -> None:
    worse, better = finished([1, 0, 0, 0]), finished([1, 1, 1, 0], model={"name": "other_vit"})
    text = page(api, "/leaderboard")
    assert text.index(better) < text.index(worse)
    assert "2 jobs on 4 examples" in text
    assert "not told apart" in text
    finished([1, 1])
    text = page(api, "/leaderboard")
    assert "2 jobs on 4 examples" in text
    assert text.count("<table") == 1
    assert "2 examples</a>: 1 job<" in text


def test_only_the_table_on_the_page_is_ranked(
    api: httpx.Client, finished: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ranked: list[int] = []
    rank = leaderboard.ranked_methods

    def counted(entries: Sequence[LeaderboardEntry]) -> list[RankedMethod]:
        ranked.append(len(entries))
        return rank(entries)

    monkeypatch.setattr(leaderboard, "ranked_methods", counted)
    for correct in ([1, 0, 0, 0], [1, 1, 1, 0], [1, 1], [1, 0, 1]):
        finished(correct)
    assert page(api, "/leaderboard").count("examples</a>: 1 job<") == 2
    assert ranked == [2]


def test_filters_choose_and_refuse(api: httpx.Client, finished: Callable[..., str]) -> None:
    first, second = finished([1, 0], seed=3), finished([1, 1], model={"name": "other_vit"})
    for query, kept, gone in (
        ("model=other_vit", second, first),
        ("seed=3", first, second),
        ("data=digits&protocol=pixel&threat=no+attack&seed=3", first, second),
    ):
        text = page(api, f"/leaderboard?{query}")
        assert kept in text, query
        assert gone not in text, query
    assert "No finished evaluation matches" in page(api, "/leaderboard?signed=yes")
    assert "No finished evaluation matches" in page(api, "/leaderboard?examples=x")
    assert "<code>other_vit</code>" in page(api, "/leaderboard?model=other_vti", 422)
    assert "query.modle" in page(api, "/leaderboard?modle=x", 422)
    text = page(api, "/leaderboard?seed=x", 422)
    assert "the seed must be a whole number, or nothing" in text
    assert "[0-9]" not in text.partition("<main")[2]
    assert first in page(api, "/leaderboard?parameters=1234")
    assert "No finished evaluation matches" in page(api, "/leaderboard?parameters=1233")
    page(api, "/leaderboard?parameters=-1", 422)


def test_parameters_are_those_that_the_plan_counted(api: httpx.Client, finished: Callable[..., str]) -> None:
    finished([1, 0])
    assert 'data-sort="1234"' in page(api, "/leaderboard")


def test_signed_results_are_marked(api: httpx.Client, finished: Callable[..., str], app_store: Store) -> None:
    first, second = finished([1, 0]), finished([1, 1])
    assert ">signed</span>" not in page(api, "/leaderboard")
    app_store.artifacts.add(first, "signature.json", "p", 1, "0" * 64, "application/json")
    assert page(api, "/leaderboard").count(">signed</span>") == 1
    text = page(api, "/leaderboard?signed=yes")
    assert first in text
    assert second not in text


def test_a_job_is_read_once_and_gone_when_it_is_deleted(
    api: httpx.Client, finished: Callable[..., str], app_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = finished([1, 0]), finished([1, 1])
    assert first in page(api, "/leaderboard")
    monkeypatch.setattr(Leaderboards, "read", None)
    app_store.jobs.delete(first)
    text = page(api, "/leaderboard")
    assert first not in text
    assert second in text


def test_a_page_waits_for_few_jobs_and_a_thread_reads_the_others(
    api: httpx.Client, transport: Any, finished: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaderboard, "READ_NOW", 1)
    for _ in range(3):
        finished([1, 0])
    text = page(api, "/leaderboard?seed=0")
    assert "2 evaluations are being read" in text
    assert '<a href="/leaderboard?seed=0">load' in text
    assert "1 job on 2 examples" in text
    made_once(transport.app, leaderboard.LeaderboardCache).wait()
    text = page(api, "/leaderboard")
    assert "being read" not in text
    assert "3 jobs on 2 examples" in text


def test_long_tables_are_cut_and_told(
    api: httpx.Client, finished: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaderboard, "MAX_ROWS", 1)
    for correct in ([1, 0], [1, 1], [1, 1, 1]):
        finished(correct)
    text = page(api, "/leaderboard")
    assert "2 jobs on 2 examples" in text
    assert "the first 1 are shown" in text
    assert "Other tables" in text
    assert "3 examples</a>: 1 job<" in text


def test_names_are_escaped(api: httpx.Client, finished: Callable[..., str]) -> None:
    finished([1, 0], name="<script>alert(1)</script>\u202e" + "x" * 60)
    text = page(api, "/leaderboard")
    assert "<script>alert" not in text
    assert "&lt;script&gt;" in text


def test_a_tenant_sees_its_own(
    api: httpx.Client,
    finished: Callable[..., str],
    serve: Callable[..., Any],
    settings: Any,
    app_store: Store,
) -> None:
    first = finished([1, 0])
    key = app_store.keys.create("other", ["read"], tenant="other")[1]
    headers = {**PAGE, "Authorization": f"Bearer {key}"}
    assert first in page(api, "/leaderboard")
    with serve(settings.model_copy(update={"require_keys": True}), app_store) as other:
        text = other.get("/leaderboard", headers=headers).text
    assert "No evaluation has finished" in text
    assert first not in text


def test_a_plot_that_jobs_do_not_allow_together_is_not_on_the_page(
    api: httpx.Client, worker: Any, evaluate_body: Make, app_store: Store
) -> None:
    def attacked(steps: int) -> str:
        attack = {"name": "pgd", "params": {"epsilon": "2/255", "steps": steps}}
        body = evaluate_body(evaluations=[{"name": "clean"}, attack])
        job = str(api.post("/api/v1/jobs", json=body).json()["id"])
        worker.run(job, [1, 1, 0, 1], [1, 0, 0, 1])
        return job

    first = attacked(5)
    second = attacked(6)
    refused = api.get(f"/api/v1/plots/tradeoff?jobs={first},{second}&format=vl.json")
    assert refused.status_code == 409
    assert "an attack with equal parameters" in refused.text
    third = attacked(5)
    assert api.get(f"/api/v1/plots/tradeoff?jobs={first},{third}&format=vl.json").status_code == 200
    store, catalog = TenantStore(app_store, View(None, everything=True)), load()

    def kinds(*jobs: str) -> list[str]:
        group = LeaderboardGroup("digits", "x", 4, 4, "pixel", "Linf", 0.1, "top1")
        board = leaderboard.Board(group, [], len(jobs), list(jobs), [], "", "")
        return [kind for kind, _ in leaderboard._plotted(store, catalog, board).plots]

    assert kinds(first, second) == ["cost"]
    assert kinds(first, third) == ["tradeoff", "cost"]
    assert kinds(first) == []


@pytest.fixture
def measured(
    api: httpx.Client, worker: Any, evaluate_body: Make, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., str]:
    """A finished evaluation without an attack and under attacks, of weights with this hash."""
    threats = {"pgd": Threat(knowledge="white_box", search="iterative")}
    monkeypatch.setattr(Catalog, "threat_of", lambda _, name: threats.get(name))

    def measured(
        sha256: str, weights: Any, *attacks: tuple[str, list[int]], width: int = 16, **own: Any
    ) -> str:
        named = [{"name": name, "params": {"epsilon": "2/255"}} for name, _ in attacks]
        model = {"name": "tiny_vit", "params": {"width": width}, "weights": weights}
        body = evaluate_body(evaluations=[{"name": "clean"}, *named], model=model, **own)
        job = str(api.post("/api/v1/jobs", json=body).json()["id"])
        worker.plan(job, 4)
        for correct in ([1, 1, 1, 1], *(correct for _, correct in attacks)):
            worker.evaluate(job, correct)
        assert worker.store.jobs.succeed(job, {**provenance(), "weights_sha256": sha256})
        return job

    return measured


def board_of(text: str) -> str:
    """The table of the attacked accuracies."""
    start = text.index("Linf 2/255, protocol")
    return text[start : text.index("</table>", start)]


def test_every_job_of_a_line_has_its_name_and_seed(api: httpx.Client, measured: Callable[..., str]) -> None:
    names = {"study: rpc, seed 0": "study: rpc, seed 0", "again": "again, seed 0", "": "tiny_vit, seed 0"}
    jobs = {measured("a" * 64, None, ("pgd", [1, 0, 0, 0]), name=name): names[name] for name in names}
    text = board_of(page(api, "/leaderboard"))
    for job_id, name in jobs.items():
        assert f'<a href="/jobs/{job_id}">{name}</a>' in text


def test_jobs_of_the_same_weights_are_one_row_with_the_lowest_accuracy(
    api: httpx.Client, measured: Callable[..., str]
) -> None:
    weak = measured("a" * 64, None, ("pgd", [1, 1, 1, 0]))
    other = measured("b" * 64, None, ("pgd", [1, 1, 0, 0]))
    strong = measured("a" * 64, None, ("pgd", [1, 0, 0, 0]))
    text = board_of(page(api, "/leaderboard"))
    assert "1 method in 3 jobs" in text
    assert text.count('class="line"') == 2
    lines = text.split('class="line"')[1:]
    assert other in lines[0]
    assert weak in lines[1]
    assert strong in lines[1]
    assert "25.0 %" in lines[1]
    assert "75.0 %" not in text
    assert text.count(">caution: single attack</a>") == 3, "of both sets of weights and of their method"


def test_the_radius_of_the_table_is_chosen(api: httpx.Client, measured: Callable[..., str]) -> None:
    measured("a" * 64, None, ("pgd", [1, 0, 0, 0]))
    text = page(api, "/leaderboard")
    assert text.count("<table") == 1
    links = [one for tag, one in Tags(text).found if tag == "a" and "threat=" in str(one.get("href"))]
    assert [one.get("aria-current") for one in links] == [None, "page"]
    assert "Other tables" not in text
    other = page(api, str(links[0]["href"]))
    assert "no attack, protocol pixel, 4 examples</h2>" in other
    assert str(links[1]["href"]).replace("&", "&amp;") in other


def test_a_coarser_arithmetic_is_a_row_that_names_it(api: httpx.Client, finished: Callable[..., str]) -> None:
    exact = finished([1, 0, 0, 0])
    rough = finished([1, 1, 0, 0], execution={"device": "auto", "dtype": "bfloat16"})
    text = page(api, "/leaderboard")
    assert "2 methods in 2 jobs" in text
    (named,) = [row for row in text.split("<tr")[1:] if '<span class="tag">bfloat16</span>' in row]
    assert rough in named
    assert exact not in named


def test_a_method_has_its_seeds_inside(
    api: httpx.Client, worker: Any, measured: Callable[..., str], train_body: Make
) -> None:
    trained = []
    for seed in (0, 1):
        trained.append(str(api.post("/api/v1/jobs", json=train_body(seed=seed)).json()["id"]))
        worker.train(trained[-1])
    first = measured("a" * 64, {"job": trained[0]}, ("pgd", [1, 1, 1, 0]))
    second = measured("b" * 64, {"job": trained[1]}, ("pgd", [1, 0, 0, 0]))
    alone = measured("c" * 64, None, ("pgd", [1, 1, 0, 0]))
    text = board_of(page(api, "/leaderboard"))
    assert "2 methods in 3 jobs" in text
    assert "2 seeds" in text
    assert "50.0 % ± 35.4 %" in text
    assert "no ensemble" in text
    assert text.index(first) < text.index(second)
    assert alone in text
    assert "recipe" in text, "what tells the methods of one model apart"


def test_a_training_of_another_tenant_is_not_read(
    app_store: Store, api: httpx.Client, train_body: Make
) -> None:
    job = str(api.post("/api/v1/jobs", json=train_body()).json()["id"])
    assert set(Leaderboards(app_store, View(None, everything=True)).specs({job})) == {job}
    assert Leaderboards(app_store, View("other", everything=False)).specs({job}) == {}


def test_plots_draw_the_median_seed_of_each_method(api: httpx.Client, measured: Callable[..., str]) -> None:
    low, high, median = (measured(str(n) * 64, None, ("pgd", [1] * n + [0] * (4 - n))) for n in (1, 3, 2))
    other = measured("c" * 64, None, ("pgd", [1, 0, 0, 0]), width=32)
    text = page(api, "/leaderboard")
    assert f"/compare?jobs={median},{other}" in text
    assert "3 seeds" in text
    assert all(job in text for job in (low, high))
    assert "width=32" in text, "the parameter by which the methods differ"
