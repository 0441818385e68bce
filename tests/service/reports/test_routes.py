from __future__ import annotations

import base64
import csv
import html
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import httpx
import pytest

from assay.service.contract.results import Results, Warning
from assay.service.reports import figures
from assay.service.reports import routes as reports
from assay.service.reports.tidy import ReportedJob
from assay.service.settings import Settings
from assay.service.store.store import Store
from tests.support.result_rows import row

JOBS = "/api/v1/jobs"
REPORT = "/api/v1/report"
TABLE = "/api/v1/table"
SVG = b'<svg xmlns="http://www.w3.org/2000/svg"/>'


@pytest.fixture(autouse=True)
def _drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rendering has its own tests, and takes seconds."""
    monkeypatch.setattr(figures, "render", lambda *_, **__: SVG)


@pytest.fixture
def finished(
    api: httpx.Client, worker: Any, evaluate_body: Callable[..., dict[str, Any]]
) -> Callable[..., str]:
    def finished(*correct: list[int], **fields: Any) -> str:
        job_id = str(api.post(JOBS, json=evaluate_body(**fields)).json()["id"])
        worker.run(job_id, *correct)
        return job_id

    return finished


@pytest.fixture
def pair(finished: Callable[..., str]) -> str:
    first = finished([1] * 12, [1] * 12, name="first <script>alert(1)</script>", tags=["pair"])
    return f"{first},{finished([0] * 12, [0] * 12, name='second_& 100 %', tags=['pair'])}"


class Tags(HTMLParser):
    """Collects the tags and addresses of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.addresses: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.addresses += [str(value) for name, value in attrs if name in ("src", "srcset", "href")]
        if tag not in ("meta", "img", "source", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_page_loads_nothing_and_escapes_names(api: httpx.Client, pair: str) -> None:
    answer = api.get(REPORT, params={"jobs": pair})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "sandbox" in answer.headers["content-security-policy"]
    tags = Tags()
    tags.feed(answer.text)
    assert not tags.open
    assert "script" not in tags.seen
    assert "link" not in tags.seen
    assert all(address.startswith(("data:image/svg+xml;", "#")) for address in tags.addresses)
    assert "first &lt;script&gt;" in answer.text
    assert answer.text.count('<tr class="counted">') == answer.text.count("<small>worst case</small>") == 1
    assert ".counted th, .counted td { border-block: 2px solid var(--ink); }" in answer.text, (
        "bold is significant"
    )
    assert "Comparison" in answer.text
    assert "weights_sha256" in answer.text or "Provenance" in answer.text


@pytest.fixture
def drawn_by_table(settings: Settings, app_store: Store) -> Callable[[str, str, bytes], None]:
    """Stores a file of a job as a worker does."""

    def store(job: str, name: str, content: bytes) -> None:
        file = settings.artifacts / job / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        app_store.artifacts.add(job, name, str(file), len(content), "0" * 64, "image/svg+xml")

    return store


def test_plots_of_outcome_tables_are_in_the_page_once_each(
    api: httpx.Client,
    pair: str,
    drawn_by_table: Callable[[str, str, bytes], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = pair.split(",")
    own = {job: f"<svg>{job}</svg>".encode() for job in (first, second)}
    for job, content in own.items():
        drawn_by_table(job, "plot-001-confidence.svg", content)
        drawn_by_table(job, "plot-heatmap.svg", b"<svg>of a known kind</svg>")

    def shown(jobs: str) -> tuple[list[bytes], str]:
        text = api.get(REPORT, params={"jobs": jobs}).text
        sources = re.findall(r'<img src="data:image/svg\+xml;base64,([^"]+)"', text)
        return [base64.b64decode(source) for source in sources], text

    pictures, text = shown(first)
    assert pictures[-1] == own[first]
    assert re.findall("<figcaption>(.*)</figcaption>", text) == ["confidence (evaluation 2)"]
    first_plot = text.partition("</picture>")[0]
    assert first_plot.count('srcset="data:') == 3, "dark, and both schemes for phones"
    pictures, text = shown(pair)
    assert pictures[-2:] == [own[first], own[second]]
    assert "<figcaption>second_&amp; 100 %: confidence (evaluation 2)</figcaption>" in text
    assert b"<svg>of a known kind</svg>" not in pictures
    monkeypatch.setattr(reports, "MAX_TABLE_PLOTS_BYTES", len(own[first]))
    pictures, text = shown(pair)
    assert pictures[-1] == own[first]
    assert "confidence (evaluation 2) and those after it would make the report too large" in text


def test_results_that_a_second_worker_has_otherwise_are_not_to_be_used(
    api: httpx.Client, worker: Any, finished: Callable[..., str], evaluate_body: Callable[..., dict[str, Any]]
) -> None:
    good, worker.identity = finished([1] * 12, [1] * 12, name="good"), "planner"
    worker.differ(job := str(api.post(JOBS, json=evaluate_body(name="doubted")).json()["id"]), [0] * 12)
    results = api.get(f"{JOBS}/{job}/results").json()
    assert (len(results["evaluations"]), results["complete"]) == (2, False)
    (warning,) = results["warnings"]
    assert (warning["code"], warning["severity"]) == ("repeated_differently", "invalid")
    assert warning["evidence"] == {"error": results["error"]["message"]}
    report = api.get(REPORT, params={"jobs": job, "format": "md"}).text
    assert "state: not complete, the job failed: invalid: shard 0" in report
    assert "evaluations are missing" not in report
    for format in ("md", "html", "tex"):  # noqa: A001 (the contract's name)
        text = api.get(REPORT, params={"jobs": f"{good},{job}", "format": format}).text
        assert "repeated" in text, format
        assert "use no number of the job" in text, format
    for format in ("md", "html", "latex"):  # noqa: A001 (the contract's name)
        text = api.get(TABLE, params={"jobs": job, "format": format}).text
        assert "(doubted): a shard had other numbers when it was computed again: use no number" in text
    warnings = api.get("/api/v1/compare", params={"jobs": f"{good},{job}"}).json()["warnings"]
    assert [one["code"] for one in warnings] == ["incomplete", "repeated_differently"]
    assert warnings[0]["message"] == "job 'doubted' has failed (invalid)"


def test_bold_only_where_all_differences_are_significant(api: httpx.Client, pair: str) -> None:
    page = api.get(TABLE, params={"jobs": pair, "columns": "name"}).text
    first, second = (line for line in page.splitlines() if line.startswith(("| clean", "| pgd")))
    for line in (first, second):
        assert line.count("**") == 2
        assert line.index("**100.0 %**") < line.index("0.0 % [", line.index("**100"))
    alone = api.get(TABLE, params={"jobs": pair.split(",")[0]}).text
    assert "**" not in alone
    few = api.get(TABLE, params={"tag": "pair", "columns": "name", "format": "latex"}).text
    assert few.count(r"\textbf{100.0\,\%}") == 2
    named = api.get(TABLE, params={"tag": "pair", "columns": "name", "format": "tex"})
    assert named.text == few
    assert named.headers["content-disposition"].endswith('assay-table.tex"')


def test_of_three_jobs_one_cell_of_a_row_is_bold(api: httpx.Client, finished: Callable[..., str]) -> None:
    """The second best differs from the third significantly too."""
    best, middle, worst = ([1] * n + [0] * (60 - n) for n in (60, 40, 10))

    def bold(*given: list[int]) -> list[list[str]]:
        jobs = ",".join(finished(correct, correct) for correct in given)
        page = api.get(TABLE, params={"jobs": jobs, "columns": "job"}).text
        lines = [line for line in page.splitlines() if line.startswith(("| clean", "| pgd"))]
        return [re.findall(r"[*]{2}(.+?)[*]{2}", line) for line in lines]

    assert bold(best, middle, worst) == [["100.0 %"], ["100.0 %"]]
    assert bold(worst, best, middle) == [["100.0 %"], ["100.0 %"]]
    assert bold(best, best, worst) == [[], []]


def test_equal_jobs_have_no_bold_number(api: httpx.Client, finished: Callable[..., str]) -> None:
    jobs = ",".join(finished([1, 1, 0, 1], [0, 1, 0, 1]) for _ in range(3))
    assert "**" not in api.get(TABLE, params={"jobs": jobs, "columns": "job"}).text


def test_latex_escapes_and_states_protocol_and_n(api: httpx.Client, pair: str) -> None:
    text = api.get(REPORT, params={"jobs": pair, "format": "tex"}).text
    assert r"second\_\& 100 \%" in text
    assert r"\begin{document}" not in text
    assert "protocol: pixel" in text
    assert "n: 12" in text
    assert text.count(r"\begin{tabular}") == text.count(r"\toprule") == 2


def test_tidy_csv(api: httpx.Client, finished: Callable[..., str]) -> None:
    job = finished([1, 1, 1, 1], [1, 1, 0, 1], name="=1+1")
    rows = list(csv.DictReader(api.get(REPORT, params={"jobs": job, "format": "csv"}).text.splitlines()))
    found = [row for row in rows if row["attack"] == "pgd" and row["metric"] == "top1"]
    assert [(row["job"], row["name"], float(row["value"]), row["n"]) for row in found] == [
        (job, "'=1+1", 0.75, "4")
    ]
    assert found[0]["epsilon"]
    assert not [row for row in rows if row["attack"] == "clean" and row["epsilon"]]


def test_a_report_has_sentence_curve_table_and_details_in_this_order(
    api: httpx.Client, finished: Callable[..., str]
) -> None:
    job = finished([1, 1, 1, 0], [1, 0, 0, 0], name="a <b>")
    said = "1 of 4 images hold at 2/255 under the strongest attack run; clean 3 of 4"
    page, text, tex = (
        api.get(REPORT, params={"jobs": job, "format": style}).text for style in ("html", "md", "tex")
    )
    parts = [
        page.index(part) for part in (f'class="headline">{said}', "<figure>", "<h2>Results", "<details>")
    ]
    assert parts == sorted(parts)
    assert page.index("<details>") < page.index("All metrics") < page.index("Provenance")
    assert text.splitlines()[2] == f"{said}."
    assert text.index(said) < text.index("| attack |") < text.index("## a")
    assert rf"{said}}}" in tex


def test_a_report_of_two_jobs_has_a_sentence_each(api: httpx.Client, pair: str) -> None:
    page = api.get(REPORT, params={"jobs": pair}).text
    assert '<li><a href="#job-1">first &lt;script&gt;' in page
    assert "</a>: 12 of 12 images hold at 2/255" in page
    assert "</a>: 0 of 12 images hold at 2/255" in page
    text = api.get(REPORT, params={"jobs": pair, "format": "md"}).text
    assert text.count("images hold at 2/255") == 2


def test_a_report_of_a_training_has_no_sentence(
    api: httpx.Client, worker: Any, train_body: Callable[..., dict[str, Any]]
) -> None:
    job = str(api.post(JOBS, json=train_body(name="tiny")).json()["id"])
    worker.train(job)
    for style in ("html", "md", "tex"):
        answer = api.get(REPORT, params={"jobs": job, "format": style})
        assert answer.status_code == 200
        assert "strongest" not in answer.text
    assert r"\caption{Robustness of tiny}" in answer.text


def test_markdown_report(api: httpx.Client, pair: str) -> None:
    text = api.get(REPORT, params={"jobs": pair, "format": "md"}).text
    assert text.startswith("# Robustness of 2 jobs")
    assert "<script>" not in text
    assert "## Comparison" in text


def test_a_report_ends_with_the_job_as_it_was_posted(
    api: httpx.Client, worker: Any, finished: Callable[..., str], train_body: Callable[..., dict[str, Any]]
) -> None:
    training = str(api.post(JOBS, json=train_body(seed=41)).json()["id"])
    worker.train(training)
    model = {"name": "tiny_vit", "params": {"width": 16}, "weights": {"job": training}}
    jobs = f"{finished([1, 1], [1, 0], name='<b>`x`', seed=7, model=model)},{finished([1, 1], [1, 0])}"
    page, text = (api.get(REPORT, params={"jobs": jobs, "format": style}).text for style in ("html", "md"))
    found = [html.unescape(part) for part in re.findall(r'<pre tabindex="0">(.*?)</pre>', page, re.S)]
    specs = [json.loads(part) for part in found]
    assert [json.loads(part) for part in re.findall(r"</summary>\n(.*?)</details>", text, re.S)] == specs
    assert page.rindex("The job as it was posted") > page.rindex("Provenance")
    assert specs[0]["job"] == jobs.partition(",")[0]
    assert (specs[0]["seed"], specs[0]["model"]["params"]["width"]) == (7, 16)
    assert [one["name"] for one in specs[0]["evaluations"]] == ["clean", "pgd"]
    trained = specs[0]["trained_by"]
    assert (trained["job"], trained["page"]) == (training, f"/jobs/{training}")
    assert (trained["recipe"]["name"], trained["seed"]) == ("short", 41)
    assert "trained_by" not in specs[1]


def test_columns_tell_numbers_apart(api: httpx.Client, finished: Callable[..., str]) -> None:
    jobs = ",".join(finished([1, 1], [1, 0], seed=seed) for seed in (0, 1))
    head = api.get(TABLE, params={"jobs": jobs}).text.splitlines()[0]
    assert re.search(r"seed 0 \| \S+, seed 1", head)


@pytest.mark.parametrize(
    ("params", "field", "near"),
    [
        ({"rows": "atack"}, "rows", "attack"),
        ({"columns": "modl"}, "columns", "model"),
        ({"columns": "epsilonn"}, "columns", "epsilon"),
        ({"metric": "top11"}, "metric", "top1"),
        ({"rows": "model"}, "columns", None),
    ],
)
def test_misspelt_fields_are_named(
    api: httpx.Client, finished: Callable[..., str], params: dict[str, str], field: str, near: str | None
) -> None:
    answer = api.get(TABLE, params={"jobs": finished([1], [1]), **params})
    assert answer.status_code == 422
    detail = answer.json()["error"]["details"][0]
    assert (detail["loc"], detail["nearest"]) == (["query", field], near)


def test_number_of_jobs_is_limited(api: httpx.Client, finished: Callable[..., str]) -> None:
    ids = [finished([1], [1], tags=["many"]) for _ in range(11)]
    answer = api.get(REPORT, params={"jobs": ",".join(ids)})
    assert answer.status_code == 422
    assert "allowed: 10; a table takes 200" in answer.json()["error"]["message"]
    assert api.get(REPORT, params={"tag": "many"}).status_code == 422
    assert api.get(REPORT, params={"tag": "many", "format": "csv"}).status_code == 200
    assert api.get(TABLE, params={"tag": "many", "rows": "job"}).text.count("\n| 0") == 11


def test_jobs_must_be_named(api: httpx.Client, finished: Callable[..., str]) -> None:
    job = finished([1], [1])
    for params in ({}, {"jobs": f"{job},{job}"}, {"jobs": job, "tag": "x"}):
        assert api.get(REPORT, params=params).json()["error"]["type"] == "invalid_spec"
    assert api.get(REPORT, params={"jobs": "x"}).json()["error"]["type"] == "not_found"
    assert api.get(REPORT, params={"tag": "unused"}).json()["error"]["type"] == "no_results"


def test_a_table_names_an_arithmetic_other_than_float32(
    api: httpx.Client, finished: Callable[..., str]
) -> None:
    plain = [finished([1, 1], [1, 0], name=name) for name in ("a", "b")]
    rough = finished([1, 1], [1, 0], name="<i>rough_&", execution={"device": "auto", "dtype": "bfloat16"})

    def table(*jobs: str, style: str = "md") -> str:
        return api.get(TABLE, params={"jobs": ",".join(jobs), "format": style}).text

    assert "computed in" not in table(*plain)
    assert "computed in bfloat16" in table(rough)
    assert "computed in float32: a, b; bfloat16: " in table(*plain, rough)
    assert "<i>" not in table(*plain, rough, style="html")
    assert r"rough\_\&" in table(*plain, rough, style="latex")
    assert "computed in bfloat16" in api.get(REPORT, params={"jobs": rough}).text


def test_tables_without_a_list_of_warnings_name_doubts_below() -> None:
    def told(code: Any, severity: Any) -> Warning:
        return Warning(code=code, severity=severity, message="m")

    masked = [told("zero_gradient", "invalid"), told("unconverged", "caution"), told("subset", "note")]
    given = {
        "job": "j",
        "complete": True,
        "evaluations": [row("pgd", {}), row("fgsm", {})],
        "warnings": [told("partial_overlap", "caution")],
        "provenance": None,
    }
    results = Results.model_validate(given)
    results.evaluations[0].warnings += masked
    results.evaluations[1].warnings += masked[1:]
    assert reports._doubts([ReportedJob("j", "mine", {}, results)]) == [
        "invalid zero_gradient (mine: pgd): m",
        "caution: partial_overlap, unconverged",
    ]


@pytest.mark.parametrize("path", ["report?jobs=", "report?jobs=a,", "table?jobs=a,a", "compare?jobs=,"])
def test_wrong_lists_of_ids_are_told_with_what_is_allowed(api: httpx.Client, path: str) -> None:
    answer = api.get(f"/api/v1/{path}")
    (detail,) = answer.json()["error"]["details"]
    assert (answer.status_code, detail["loc"]) == (422, ["query", "jobs"])
    assert "different job ids, separated by commas" in detail["allowed"]
