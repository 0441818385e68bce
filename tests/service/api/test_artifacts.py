from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

JOBS = "/api/v1/jobs"
CONTENT = b"step,loss\n1,0.5\n" * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def job_id(api: httpx.Client, train_body: Callable[..., dict[str, Any]]) -> str:
    return str(api.post(JOBS, json=train_body()).json()["id"])


@pytest.fixture
def add(settings: Any, app_store: Any, job_id: str) -> Callable[..., Path]:
    """Puts a file into the job's folder and notes it, under a path of one's own if wanted."""

    def add(name: str, path: str | None = None, media_type: str = "text/csv") -> Path:
        file: Path = settings.artifacts / job_id / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(CONTENT)
        app_store.artifacts.add(job_id, name, path or str(file), len(CONTENT), SHA256, media_type)
        return file

    return add


def test_artifacts_are_listed(api: httpx.Client, job_id: str, add: Any) -> None:
    assert api.get(f"{JOBS}/{job_id}/artifacts").json() == {"items": [], "next_cursor": None}
    add("log.csv")
    (item,) = api.get(f"{JOBS}/{job_id}/artifacts").json()["items"]
    created_at = item.pop("created_at")
    assert created_at.endswith("Z")
    assert item == {
        "name": "log.csv",
        "size": len(CONTENT),
        "sha256": SHA256,
        "media_type": "text/csv",
        "href": f"{JOBS}/{job_id}/artifacts/log.csv",
        "expired": False,
    }


def test_an_expired_artifact_is_listed_and_says_what_became_of_it(
    api: httpx.Client, job_id: str, add: Any, app_store: Any
) -> None:
    file = add("log.csv")
    app_store.jobs.cancel(job_id)
    assert app_store.artifacts.expire([job_id], -1).expired == {job_id}
    (item,) = api.get(f"{JOBS}/{job_id}/artifacts").json()["items"]
    assert (item["expired"], item["sha256"]) == (True, SHA256)
    # Whether its file is still there or not, and whoever has it already.
    for headers in ({}, {"if-none-match": f'"{SHA256}"'}):
        answer = api.get(item["href"], headers=headers)
        assert answer.status_code == 404
        assert answer.json()["error"]["type"] == "not_found"
        assert "expired on 20" in answer.json()["error"]["message"]
    file.unlink()
    assert "expired" in api.get(item["href"]).json()["error"]["message"]


def test_artifacts_are_downloaded(api: httpx.Client, job_id: str, add: Any) -> None:
    add("log 1.csv")
    (item,) = api.get(f"{JOBS}/{job_id}/artifacts").json()["items"]
    answer = api.get(item["href"])
    assert answer.status_code == 200
    assert answer.content == CONTENT
    assert answer.headers["etag"] == f'"{SHA256}"'
    assert answer.headers["content-type"].startswith("text/csv")
    assert answer.headers["content-disposition"].startswith("attachment")
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_paths_relative_to_the_artifacts_folder_are_found(api: httpx.Client, job_id: str, add: Any) -> None:
    add("log.csv", path=f"{job_id}/log.csv")
    assert api.get(f"{JOBS}/{job_id}/artifacts/log.csv").content == CONTENT


def test_a_known_hash_is_not_sent_again(api: httpx.Client, job_id: str, add: Any) -> None:
    add("log.csv")
    url = f"{JOBS}/{job_id}/artifacts/log.csv"
    answer = api.get(url, headers={"if-none-match": f'"other", "{SHA256}"'})
    assert (answer.status_code, answer.content) == (304, b"")
    assert api.get(url, headers={"if-none-match": '"other"'}).status_code == 200


@pytest.mark.parametrize("part", ["bytes=0-9", "bytes=5-5", "bytes=15990-"])
def test_a_part_is_sent(api: httpx.Client, job_id: str, add: Any, part: str) -> None:
    add("log.csv")
    answer = api.get(f"{JOBS}/{job_id}/artifacts/log.csv", headers={"range": part})
    first, last = part.removeprefix("bytes=").split("-")
    assert answer.status_code == 206
    assert answer.content == CONTENT[int(first) : int(last or len(CONTENT)) + 1]


@pytest.mark.parametrize(
    "part", ["bytes=99999-", "bytes=9-3", "bytes=a-b", "bytes=", "lines=1-2", "x", "bytes=-0"]
)
def test_an_odd_range_is_ignored(api: httpx.Client, job_id: str, add: Any, part: str) -> None:
    add("log.csv")
    answer = api.get(f"{JOBS}/{job_id}/artifacts/log.csv", headers={"range": part})
    assert (answer.status_code, answer.content) == (200, CONTENT)


@pytest.mark.costly
@pytest.mark.parametrize(
    "name", ["nope", "%2e%2e", "..%2flog.csv", "%00", "log.csv%00", "a%2fb", "%2fetc%2fpasswd"]
)
def test_unknown_names_are_404(api: httpx.Client, job_id: str, add: Any, name: str) -> None:
    add("log.csv")
    answer = api.get(f"{JOBS}/{job_id}/artifacts/{name}")
    assert answer.status_code == 404
    assert answer.json()["error"]["type"] == "not_found"


def test_a_file_outside_the_folder_is_never_sent(
    api: httpx.Client, job_id: str, add: Any, tmp_path: Path
) -> None:
    """Nor is the file of another job: what rows say of paths, in versions before, came from evaluators."""
    secret, other = tmp_path / "secret", add("here.csv").parents[1] / "other" / "weights.safetensors"
    other.parent.mkdir()
    for file in (secret, other):
        file.write_text("secret")
    for name, target in (("link.csv", secret), ("other.csv", other)):
        link = add(name)
        link.unlink()
        link.symlink_to(target)
    second = add("second.csv")
    second.unlink()
    second.hardlink_to(other)
    add("pipe.csv").unlink()
    os.mkfifo(other.parents[1] / job_id / "pipe.csv")
    for name, path in (("absolute.csv", str(other)), ("relative.csv", "../other/weights.safetensors")):
        add(name, path=path)
        assert api.get(f"{JOBS}/{job_id}/artifacts/{name}").content == CONTENT
    add("gone.csv").unlink()
    for name in ("link.csv", "other.csv", "second.csv", "pipe.csv", "gone.csv"):
        answer = api.get(f"{JOBS}/{job_id}/artifacts/{name}")
        assert answer.status_code == 404, name
        assert answer.json()["error"]["type"] == "not_found"
        assert str(tmp_path) not in answer.text


def test_the_media_type_is_of_the_name_alone(api: httpx.Client, job_id: str, add: Any) -> None:
    add("page.html", media_type="text/html")
    add("log.csv", media_type="text/html\r\nX-Evil: 1")
    for name, wanted in (("page.html", "application/octet-stream"), ("log.csv", "text/csv; charset=utf-8")):
        answer = api.get(f"{JOBS}/{job_id}/artifacts/{name}")
        assert (answer.status_code, answer.headers["content-type"]) == (200, wanted)
        assert "x-evil" not in answer.headers


def test_downloads_leave_no_file_open(api: httpx.Client, job_id: str, add: Any) -> None:
    add("log.csv")
    url = f"{JOBS}/{job_id}/artifacts/log.csv"
    api.get(url)
    before = len(os.listdir("/proc/self/fd"))
    for headers in ({}, {"range": "bytes=0-9"}, {"if-none-match": f'"{SHA256}"'}):
        assert api.get(url, headers=headers).status_code in (200, 206, 304)
    assert api.head(url).status_code == 200
    assert len(os.listdir("/proc/self/fd")) <= before
