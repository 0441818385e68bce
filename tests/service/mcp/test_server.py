from __future__ import annotations

import asyncio
from typing import Any

import pytest
from mcp import Client

from assay.service.contract.errors import ErrorDetail, InvalidSpec
from assay.service.contract.warning_codes import warning_meanings
from assay.service.mcp.server import make_server


class Service:
    """A client whose service has one attack and refuses every job."""

    url = "http://127.0.0.1:1"

    def catalog(self, kind: str | None = None) -> list[dict[str, Any]]:
        return [
            {
                "kind": "attack",
                "name": "pgd",
                "summary": "Steps.",
                "paper": "Madry",
                "tasks": ["classification"],
            }
        ]

    def warnings(self) -> list[Any]:
        return warning_meanings()

    def dry_run(self, spec: object) -> dict[str, Any]:
        details = [
            ErrorDetail(loc=["limit"], message="at least 1"),
            ErrorDetail(loc=["data"], message="is missing"),
        ]
        raise InvalidSpec("2 fields are wrong", details)


async def called(tool: str, **given: Any) -> tuple[bool, str]:
    async with Client(make_server(Service())) as client:  # type: ignore[arg-type]
        found = await client.call_tool(tool, given)
    return bool(found.is_error), "".join(part.text for part in found.content)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("tool", "given", "refused", "said"),
    [
        ("check_job", {"spec": {}}, True, "limit: at least 1"),
        ("check_job", {"spec": {}}, True, "data: is missing"),
        ("explain", {"name": "pdg"}, True, "did you mean 'pgd'?"),
        ("explain", {"name": "unconverged"}, False, "More steps"),
        ("find_components", {"kind": "attack", "words": "madry STEPS"}, False, "pgd"),
        ("find_components", {"kind": "attack", "task": "language"}, False, "no attack fits"),
        ("wait_for_job", {"job": "1", "seconds": 601}, True, "seconds: must be at most 600; given 601"),
        ("compare_jobs", {"jobs": ["1"]}, True, "jobs: must have 2 items or more"),
        ("submit_job", {"spec": []}, True, "spec: must be an object"),
    ],
)
def test_a_tool_answers_or_refuses_in_words(
    tool: str, given: dict[str, Any], refused: bool, said: str
) -> None:
    error, text = asyncio.run(called(tool, **given))
    assert error == refused
    assert said in text


def test_only_posting_and_cancelling_change_anything() -> None:
    async def changing() -> dict[str, bool | None]:
        async with Client(make_server(Service())) as client:  # type: ignore[arg-type]
            tools = (await client.list_tools()).tools
        return {
            tool.name: tool.annotations.destructive_hint
            for tool in tools
            if tool.annotations is not None and not tool.annotations.read_only_hint
        }

    assert asyncio.run(changing()) == {"submit_job": False, "cancel_job": True}
