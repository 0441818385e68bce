"""Compares clients of an object store: import time, packages, memory, and speed of a large put and get.

    python benchmarks/object_clients.py obstore|s3fs ENDPOINT BUCKET [MIB]

Each client runs in an environment that has it alone, against a server that runs already, such as
`moto_server -p 5555`. Writes a line of JSON: seconds are wall time, memory is the process's peak in MiB.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

Move = Callable[[str, Path], object]
PART = 16 * 2**20


def measured(client: str, endpoint: str, bucket: str, size: int) -> dict[str, object]:
    """The measures of a client with a file of `size` MiB."""
    began = time.perf_counter()
    importlib.import_module(client)
    told: dict[str, object] = {"client": client, "import": round(time.perf_counter() - began, 3)}
    told["packages"], told["memory_imported"] = len([*importlib.metadata.distributions()]), _peak()
    put, get = (_obstore if client == "obstore" else _s3fs)(endpoint, bucket)
    with tempfile.TemporaryDirectory() as folder:
        source, copy = Path(folder, "source"), Path(folder, "copy")
        with source.open("wb") as file:
            for _ in range(size):
                file.write(os.urandom(2**20))
        for name, call, path in (("put", put, source), ("get", get, copy)):
            began = time.perf_counter()
            call("benchmark/object", path)
            told[name] = round(time.perf_counter() - began, 2)
        told["memory"], told["size_equal"] = _peak(), copy.stat().st_size == size * 2**20
    return told


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def _obstore(endpoint: str, bucket: str) -> tuple[Move, Move]:
    client = importlib.import_module("obstore.store").S3Store(
        bucket,
        endpoint=endpoint,
        access_key_id="a",
        secret_access_key="b",  # noqa: S106
        region="us-east-1",
        client_options={"allow_http": True},
    )

    def get(key: str, path: Path) -> None:
        with path.open("wb") as file:
            for chunk in client.get(key).stream(min_chunk_size=2**20):
                file.write(chunk)

    return lambda key, path: client.put(key, path, chunk_size=PART, max_concurrency=4), get


def _s3fs(endpoint: str, bucket: str) -> tuple[Move, Move]:
    client = importlib.import_module("s3fs").S3FileSystem(key="a", secret="b", endpoint_url=endpoint)  # noqa: S106
    return (
        lambda key, path: client.put_file(str(path), f"{bucket}/{key}", chunksize=PART, max_concurrency=4),
        lambda key, path: client.get_file(f"{bucket}/{key}", str(path)),
    )


if __name__ == "__main__":
    *place, mib = [*sys.argv[1:4], *(sys.argv[4:] or ["1024"])]
    sys.stdout.write(json.dumps(measured(place[0], place[1], place[2], int(mib))) + "\n")
