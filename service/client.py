"""Python client of the service, over HTTP only.

    with AssayClient("http://127.0.0.1:8000") as client:
        job = client.submit({"kind": "train", ...})
        client.wait(job.id, callback=lambda job: print(job.progress))
        results = client.results(job.id)

Every error answer is raised as the class of `service.contract.errors` with the same type, details
included; a service that cannot be reached is `Unreachable`.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self
from urllib.parse import urlsplit

import httpx

from service import streams
from service.answers import ERRORS, BadAnswer, Unreachable, authorization, error_of, parsed, part, reaching
from service.contract import errors
from service.contract.checkpoints import Checkpoint
from service.contract.events import Event
from service.contract.results import Artifact, Job, Page, Results

DEFAULT_URL = "http://127.0.0.1:8000"
API = "/api/v1"
KEY_VARIABLE = "ASSAY_KEY"
__all__ = ["DEFAULT_URL", "ERRORS", "AssayClient", "BadAnswer", "Unreachable"]
SUBMIT_ATTEMPTS = 3
PATIENCE_SECONDS = 60.0
# A stream of events has a comment every 15 seconds: one that is silent for so long is broken.
SILENCE_SECONDS = 45.0


class AssayClient:
    """Speaks to one service. Close it, or use it in a `with` block.

    Args:
        url: address of the service, without path.
        key: the API key, which goes with every call; None takes it from ASSAY_KEY, "" sends none.
        timeout: seconds to wait for an answer.
        transport: how requests travel; for tests.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        key: str | None = None,
        *,
        timeout: float = 30.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        local = urlsplit(self.url).hostname in ("localhost", "127.0.0.1", "::1")
        key = os.environ.get(KEY_VARIABLE, "").strip() if key is None else key
        # A proxy from the environment must not see, or fail, calls to this machine.
        self._http = httpx.Client(
            base_url=self.url,
            headers=authorization(key),
            timeout=timeout,
            transport=transport,
            trust_env=not local,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    def ready(self) -> bool:
        """Whether the service answers and can reach its database."""
        try:
            self._call("GET", "/readyz")
        except (errors.Unavailable, BadAnswer):
            return False
        return True

    def submit(self, spec: Mapping[str, Any] | str | bytes, *, idempotency_key: str | None = None) -> Job:
        """Posts a job.

        A broken connection is retried under an idempotency key, so that the job cannot be posted twice.

        Args:
            spec: the spec, or its JSON text, which is sent as it is.
            idempotency_key: repeating a call with this key gives the same job; None makes one up.

        Raises:
            InvalidSpec: with a detail for every wrong field.
            MalformedJson: the text is not strict JSON.
        """
        headers = {"Idempotency-Key": idempotency_key or secrets.token_hex(16)}
        for attempt in range(1, SUBMIT_ATTEMPTS + 1):
            try:
                return self._job("POST", "/jobs", headers=headers, body=spec)
            except Unreachable:
                if attempt == SUBMIT_ATTEMPTS:
                    raise
                time.sleep(0.2 * attempt)
        raise AssertionError("the last attempt returns or raises")

    def dry_run(self, spec: Mapping[str, Any] | str | bytes) -> dict[str, Any]:
        """Validates a spec, stores nothing: `{"spec" with all defaults, "estimate", "warnings"}`."""
        return self._json("POST", f"{API}/jobs", params={"dry_run": "true"}, body=spec)

    def job(self, job_id: str) -> Job:
        """The job as it stands."""
        return self._job("GET", f"/jobs/{part(job_id)}")

    def jobs(
        self,
        *,
        state: str | None = None,
        kind: str | None = None,
        model: str | None = None,
        tag: str | None = None,
        page_size: int = 50,
    ) -> Iterator[Job]:
        """All jobs that match the filters, newest first; pages are fetched as they are needed."""
        filters = {"state": state, "kind": kind, "model": model, "tag": tag, "limit": page_size}
        params = {name: value for name, value in filters.items() if value is not None}
        while True:
            page = parsed(Page[Job], self._json("GET", f"{API}/jobs", params=params))
            yield from page.items
            if page.next_cursor is None:
                return
            params["cursor"] = page.next_cursor

    def wait(
        self,
        job_id: str,
        *,
        callback: Callable[[Job], None] | None = None,
        poll_seconds: float = 0.5,
        timeout_seconds: float | None = None,
    ) -> Job:
        """Polls until the job has ended, in whatever state.

        Args:
            job_id: the job.
            callback: called with the job after every poll, the last one included.
            poll_seconds: pause between polls.
            timeout_seconds: give up after this time; None waits for ever.

        Raises:
            TimeoutError: the job has not ended in time.
            Unavailable: the service was away for more than a minute; a restart in between is waited for.
        """
        begun = seen = time.monotonic()
        while True:
            try:
                job = self.job(job_id)
            except errors.Unavailable:
                if time.monotonic() - seen > PATIENCE_SECONDS:
                    raise
            else:
                seen = time.monotonic()
                if callback is not None:
                    callback(job)
                if job.state.terminal:
                    return job
            if timeout_seconds is not None and time.monotonic() - begun > timeout_seconds:
                raise TimeoutError(f"job {job_id} has not ended within {timeout_seconds} s")
            time.sleep(poll_seconds)

    def events(self, job_id: str, *, after: int = 0) -> Iterator[Event]:
        """What has happened to the job after an event, and what happens, until the job has ended.

        A broken stream is taken up again where it broke, a restart of the service included: every event
        comes once and in order.

        Args:
            job_id: the job.
            after: only events with a higher id.

        Raises:
            NotFound: there is no such job, or it was deleted meanwhile.
            Unavailable: the service was away for more than a minute.
        """
        return streams.followed(lambda last: self._event_lines(job_id, last), after)

    def results(self, job_id: str) -> Results:
        """The results so far. Raises NoResults before the first evaluation has finished."""
        return parsed(Results, self._json("GET", f"{API}/jobs/{part(job_id)}/results"))

    def results_csv(self, job_id: str) -> str:
        """The results so far as CSV, one row per metric."""
        return self._call("GET", f"{API}/jobs/{part(job_id)}/results", params={"format": "csv"}).text

    def cancel(self, job_id: str) -> Job:
        """Cancels the job; a running one stops soon after."""
        return self._job("POST", f"/jobs/{part(job_id)}/cancel")

    def retry(self, job_id: str) -> Job:
        """Queues a failed, canceled or timed-out job again."""
        return self._job("POST", f"/jobs/{part(job_id)}/retry")

    def delete(self, job_id: str) -> None:
        """Deletes a job that has ended."""
        self._call("DELETE", f"{API}/jobs/{part(job_id)}")

    def catalog(self, kind: str | None = None) -> list[dict[str, Any]]:
        """All components, or those of one kind."""
        params = {} if kind is None else {"kind": kind}
        items: list[dict[str, Any]] = self._json("GET", f"{API}/catalog", params=params)["items"]
        return items

    def component(self, kind: str, name: str) -> dict[str, Any]:
        """One component with the JSON Schema of its parameters."""
        return self._json("GET", f"{API}/catalog/{part(kind)}/{part(name)}")

    def artifacts(self, job_id: str) -> list[Artifact]:
        """The files that the job left."""
        page = self._json("GET", f"{API}/jobs/{part(job_id)}/artifacts")
        return parsed(Page[Artifact], page).items

    def download(self, job_id: str, name: str, target: Path) -> Path:
        """Downloads a file and checks its sha256; the target appears only when it is whole.

        Args:
            job_id: the job.
            name: the artifact's name.
            target: the file to write, or a folder to write it into under the last part of its name.

        Raises:
            BadAnswer: what came does not have the sha256 that the service states.
        """
        if target.is_dir():
            target = target / (Path(name).name or "artifact")
        partial = target.with_name(f"{target.name}.part")
        path = f"{API}/jobs/{part(job_id)}/artifacts/{part(name)}"
        try:
            with reaching(self.url), self._http.stream("GET", path) as response:
                if response.is_error:
                    response.read()
                    raise error_of(response)
                digest = hashlib.sha256()
                with partial.open("wb") as file:
                    for chunk in response.iter_bytes():
                        digest.update(chunk)
                        file.write(chunk)
            if response.headers.get("etag") != f'"{digest.hexdigest()}"':
                raise BadAnswer(f"{name}: the download does not have the sha256 that the service states")
            os.replace(partial, target)
        finally:
            partial.unlink(missing_ok=True)
        return target

    def upload_checkpoint(
        self,
        name: str,
        file: Path,
        *,
        model: str | Mapping[str, Any] | None = None,
        normalization: str | Mapping[str, Any] | None = None,
        positions: str | None = None,
    ) -> Checkpoint:
        """Uploads a safetensors file or an exported program; a worker checks it (`wait_for_checkpoint`).

        Args:
            name: jobs name it in `weights.checkpoint`. The same file may be uploaded again.
            file: the file.
            model: of which model the weights are, by name or as {"name", "params"}; None: the file says it,
                as those of training jobs and programs do.
            normalization: of a file from elsewhere: "imagenet", "inception", "data" or {"mean", "std"}.
            positions: how position embeddings of another grid are resized: "bilinear", "bicubic" or
                "bicubic_antialias"; None: they do not fit.

        Raises:
            InvalidSpec: it is no file that is taken, or the model is wrong.
            InvalidState: the name is taken by another file, or as many are kept as may be.
            TooLarge: the service takes no files of this size, or no more of them.
        """
        stated = {"model": model, "normalization": normalization, "positions": positions}
        texts = {
            key: v if isinstance(v, str) else json.dumps(v) for key, v in stated.items() if v is not None
        }
        params = {"name": name, **texts}
        with file.open("rb") as content:
            return parsed(Checkpoint, self._json("POST", f"{API}/checkpoints", params=params, file=content))

    def checkpoints(self) -> list[Checkpoint]:
        """All uploaded weights, by name."""
        found: list[Checkpoint] = []
        params = {"limit": "200"}
        while True:
            page = parsed(Page[Checkpoint], self._json("GET", f"{API}/checkpoints", params=params))
            found += page.items
            if page.next_cursor is None:
                return found
            params["cursor"] = page.next_cursor

    def checkpoint(self, name: str) -> Checkpoint:
        """Uploaded weights as they stand."""
        return parsed(Checkpoint, self._json("GET", f"{API}/checkpoints/{part(name)}"))

    def wait_for_checkpoint(
        self, name: str, *, poll_seconds: float = 0.5, timeout_seconds: float | None = None
    ) -> Checkpoint:
        """Polls until the check is over: the state is `ready` or `rejected`.

        Raises:
            TimeoutError: it is not over in time.
        """
        begun = time.monotonic()
        while (found := self.checkpoint(name)).state == "checking":
            if timeout_seconds is not None and time.monotonic() - begun > timeout_seconds:
                raise TimeoutError(f"checkpoint {name} was not checked within {timeout_seconds} s")
            time.sleep(poll_seconds)
        return found

    def delete_checkpoint(self, name: str) -> None:
        """Deletes uploaded weights that no job needs any more."""
        self._call("DELETE", f"{API}/checkpoints/{part(name)}")

    def compare(self, job_ids: Sequence[str]) -> dict[str, Any]:
        """The same metrics of several jobs side by side, with paired tests against the first."""
        return self._json("GET", f"{API}/compare", params={"jobs": ",".join(job_ids)})

    @contextmanager
    def _event_lines(self, job_id: str, last: int) -> Iterator[Iterator[str] | None]:
        path = f"{API}/jobs/{part(job_id)}/events"
        headers = {"Accept": "text/event-stream", "Last-Event-ID": str(last)}
        usual = self._http.timeout
        timeout = httpx.Timeout(usual.connect, read=max(SILENCE_SECONDS, usual.read or 0))
        with (
            reaching(self.url),
            self._http.stream("GET", path, headers=headers, timeout=timeout) as response,
        ):
            if response.is_error:
                response.read()
                raise error_of(response)
            if response.status_code == httpx.codes.NO_CONTENT:
                yield None
                return
            if not response.headers.get("content-type", "").startswith("text/event-stream"):
                raise BadAnswer(f"{self.url} answers, but not with events")
            yield response.iter_lines()

    def _job(self, method: str, path: str, **options: Any) -> Job:
        return parsed(Job, self._json(method, API + path, **options))

    def _json(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        response = self._call(method, path, **options)
        try:
            answer = response.json()
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise BadAnswer(f"{self.url} answers, but not as an Assay service")
        return answer

    def _call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | str | bytes | None = None,
        file: BinaryIO | None = None,
    ) -> httpx.Response:
        content: dict[str, Any] = {}
        sent = dict(headers or {})
        if file is not None:
            content = {"content": file}
            sent["Content-Type"] = "application/octet-stream"
        elif isinstance(body, str | bytes):
            content = {"content": body}
            sent["Content-Type"] = "application/json"
        elif body is not None:
            content = {"json": body}
        with reaching(self.url):
            response = self._http.request(method, path, params=params, headers=sent, **content)
        if response.is_error:
            raise error_of(response)
        return response
