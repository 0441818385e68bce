"""The client's calls for reports: the format by the file's ending, and what is not chosen is not sent."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from assay.service.client import AssayClient
from assay.service.contract.errors import InvalidSpec
from assay.service.reports.client import ENDINGS, report_format


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_ending_of_a_file_is_the_format(ending: str) -> None:
    assert report_format(Path(f"out.x/report.{ending}"), "report") == ending


@pytest.mark.parametrize("name", ["report", "report.pdf", "html"])
def test_other_endings_are_refused_with_the_allowed(name: str) -> None:
    with pytest.raises(InvalidSpec) as raised:
        report_format(Path(name), "report")
    (problem,) = raised.value.details
    assert problem.given == name
    assert problem.allowed == ".html, .md, .tex, .csv"


def test_only_what_was_chosen_is_sent() -> None:
    seen: list[dict[str, str]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(dict(request.url.params))
        return httpx.Response(200, text="| a |")

    client = AssayClient(transport=httpx.MockTransport(answer))
    assert client.table(["a", "b"], metric="top1") == "| a |"
    assert client.report(tag="sweep", format="md") == "| a |"
    common = {"adjust": "holm", "format": "md"}
    table = {"jobs": "a,b", "rows": "attack", "columns": "model", "metric": "top1"}
    assert seen == [{**table, **common}, {"tag": "sweep", **common}]
