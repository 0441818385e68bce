"""The client for asyncio: the methods of `AssayClient`, awaited.

    async with AsyncAssayClient("http://127.0.0.1:8000") as client:
        jobs = [await client.submit(spec) for spec in specs]
        await asyncio.gather(*(client.wait(job.id) for job in jobs))
        async for event in client.events(jobs[0].id): ...

Calls run on threads of this client over the same connections; waiting holds no thread.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from assay.service.client.jobs import AssayClient
from assay.service.client.transport import DEFAULT_URL, POLLED, RECONNECT_SECONDS, Ending, lost
from assay.service.contract.errors import Unavailable
from assay.service.contract.results import Job

if TYPE_CHECKING:
    import httpx

Result = TypeVar("Result")
MAX_CALLS = 32


class AsyncAssayClient:
    """Client of a service for asyncio. Close it, or use it in an `async with` block.

    Methods and arguments are `AssayClient`'s; iterators become asynchronous, other methods coroutines. At
    most `max_calls` run at a time; further calls wait.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        key: str | None = None,
        *,
        timeout: float = 30.0,
        transport: httpx.BaseTransport | None = None,
        max_calls: int = MAX_CALLS,
    ) -> None:
        self._client = AssayClient(url, key, timeout=timeout, transport=transport)
        self._threads = ThreadPoolExecutor(max_calls, thread_name_prefix="assay-client")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = None if name.startswith("_") else getattr(AssayClient, name, None)
        if not inspect.isfunction(method):
            raise AttributeError(f"AssayClient has no method {name!r}")
        bound = getattr(self._client, name)
        iterates = str(method.__annotations__.get("return")).startswith("Iterator[")

        @functools.wraps(method)
        def call(*args: Any, **options: Any) -> Any:
            if (look := getattr(method, POLLED, None)) is not None:
                given = inspect.signature(method).bind(self, *args, **options)
                given.apply_defaults()
                return self._polled(look, given.args[1], **given.kwargs)
            if iterates:
                return self._iterated(functools.partial(bound, *args, **options))
            return self._called(functools.partial(bound, *args, **options))

        return call

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *(name for name in dir(AssayClient) if not name.startswith("_"))})

    async def wait(
        self,
        job_id: str,
        *,
        callback: Callable[[Job], None] | None = None,
        poll_seconds: float = 0.5,
        timeout_seconds: float | None = None,
    ) -> Job:
        """Polls until the job has ended, as `AssayClient.wait`."""
        what = f"job {job_id}"
        return await self._ended(what, lambda: self.job(job_id), callback, poll_seconds, timeout_seconds)

    async def close(self) -> None:
        """Closes the connections; calls that run are waited for."""
        await asyncio.to_thread(self._threads.shutdown, wait=True, cancel_futures=True)
        self._client.close()

    async def _polled(self, look: str, sought: str, **options: Any) -> Any:
        """Polls a method of the client, as a method marked `polling` does."""
        return await self._ended(f"{look} {sought}", lambda: getattr(self, look)(sought), **options)

    async def _called(self, call: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    async def _iterated(self, begin: Callable[[], Iterator[Result]]) -> AsyncIterator[Result]:
        items, end = await self._called(begin), object()
        while (item := await self._called(lambda: next(items, end))) is not end:
            yield item  # type: ignore[misc]

    async def _ended(
        self,
        what: str,
        look: Callable[[], Awaitable[Ending]],
        callback: Callable[[Ending], None] | None,
        poll_seconds: float,
        timeout_seconds: float | None,
    ) -> Ending:
        """Polls by the rules of `Connection._ended`."""
        loop = asyncio.get_running_loop()
        begun = seen = loop.time()
        while True:
            try:
                found = await look()
            except Unavailable as error:
                if loop.time() - seen > RECONNECT_SECONDS:
                    raise lost(error, what) from error
            else:
                seen = loop.time()
                if callback is not None:
                    callback(found)
                if found.state.terminal:
                    return found
            if timeout_seconds is not None and loop.time() - begun > timeout_seconds:
                raise TimeoutError(f"{what} has not ended within {timeout_seconds} s")
            await asyncio.sleep(poll_seconds)
