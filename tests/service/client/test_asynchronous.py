"""The client for asyncio: every method of the other one, with its results and errors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from assay.service.client import AssayClient, AsyncAssayClient, asynchronous
from assay.service.contract.errors import InvalidSpec, NotFound, Unavailable
from assay.service.contract.states import JobState

Make = Callable[..., dict[str, Any]]
URL = "http://127.0.0.1:8000"


def run(transport: httpx.BaseTransport, work: Callable[[AsyncAssayClient], Any]) -> Any:
    async def inside() -> Any:
        async with AsyncAssayClient(URL, transport=transport) as client:
            return await work(client)

    return asyncio.run(inside())


def test_every_method_is_there(transport: httpx.BaseTransport) -> None:
    async def names(client: AsyncAssayClient) -> set[str]:
        return {
            name for name in dir(AssayClient) if not name.startswith("_") and callable(getattr(client, name))
        }

    wanted = {name for name in vars(AssayClient) if not name.startswith("_")}
    assert wanted <= run(transport, names)
    assert {"plots", "artifacts", "download"} <= run(transport, names)


@pytest.mark.costly
def test_jobs_are_submitted_listed_and_waited_for_together(
    transport: httpx.BaseTransport, train_body: Make
) -> None:
    async def work(client: AsyncAssayClient) -> tuple[list[str], list[str]]:
        jobs = [await client.submit(train_body(name=f"run {i}")) for i in range(40)]

        async def end() -> None:
            for job in jobs:
                await client.cancel(job.id)

        # More waits than calls at a time: waiting holds no thread.
        waits = [client.wait(job.id, poll_seconds=0.05) for job in jobs]
        ended, _ = await asyncio.gather(asyncio.gather(*waits), end())
        assert {job.state for job in ended} == {JobState.CANCELED}
        listed = [job.id async for job in client.jobs(page_size=7)]
        return [job.id for job in jobs], listed

    made, listed = run(transport, work)
    assert listed == made[::-1]


def test_errors_are_those_of_the_contract(transport: httpx.BaseTransport) -> None:
    async def missing(client: AsyncAssayClient) -> None:
        await client.job("0" * 26)

    async def wrong(client: AsyncAssayClient) -> None:
        await client.submit({"kind": "train"})

    with pytest.raises(NotFound):
        run(transport, missing)
    with pytest.raises(InvalidSpec):
        run(transport, wrong)


def test_waiting_ends_in_time(transport: httpx.BaseTransport, train_body: Make) -> None:
    async def work(client: AsyncAssayClient) -> None:
        job = await client.submit(train_body())
        await client.wait(job.id, poll_seconds=0.01, timeout_seconds=0.05)

    with pytest.raises(TimeoutError):
        run(transport, work)


def test_an_unknown_method_is_an_attribute_error(transport: httpx.BaseTransport) -> None:
    async def work(client: AsyncAssayClient) -> None:
        client.nothing  # noqa: B018

    with pytest.raises(AttributeError, match="nothing"):
        run(transport, work)


def test_a_lost_service_is_told_with_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    monkeypatch.setattr(asynchronous, "RECONNECT_SECONDS", -1.0)
    with pytest.raises(Unavailable, match=r"job x1 is kept there: .*`assay status x1 --wait` follows it"):
        run(httpx.MockTransport(refuse), lambda client: client.wait("x1"))
