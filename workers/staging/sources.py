"""From where a node gets published data sets: a folder that it sees, or the gateway."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from assay.service.files.data_store import MAX_SETS, DataStore, PublishedSet, published_set, unpublished
from assay.workers.gateway.connection import Gateway
from assay.workers.settings import WorkerSettings
from assay.workers.staging.scratch import StagingFailed

CHUNK = 2**20
ContentChunks = AbstractContextManager[Iterator[bytes]]


class DataSource(Protocol):
    """Published data sets; calls raise NotFound, and an OSError or LEDGER_AWAY while the source is away."""

    def sets(self) -> list[PublishedSet]:
        """All that this node may fetch."""
        ...

    def tree(self, one: PublishedSet) -> ContentChunks:
        """The bytes of a data set's tree."""
        ...

    def blob(self, one: PublishedSet, sha256: str, start: int) -> ContentChunks:
        """The content of a file from a byte on."""
        ...

    def blobs(self, one: PublishedSet, sha256: Sequence[str]) -> ContentChunks:
        """The contents of small files, one after another."""
        ...


class FolderSource:
    """A `DataSource` that is a mounted store."""

    def __init__(self, store: DataStore) -> None:
        self._store = store

    def sets(self) -> list[PublishedSet]:
        """As `DataSource`."""
        return self._store.sets()

    @contextmanager
    def tree(self, one: PublishedSet) -> Iterator[Iterator[bytes]]:
        """As `DataSource`."""
        with self._store.open_tree(one) as file:
            yield iter(lambda: file.read(CHUNK), b"")

    @contextmanager
    def blob(self, one: PublishedSet, sha256: str, start: int) -> Iterator[Iterator[bytes]]:
        """As `DataSource`."""
        with self._store.open_blob(one, sha256) as file:
            file.seek(start)
            yield iter(lambda: file.read(CHUNK), b"")

    @contextmanager
    def blobs(self, one: PublishedSet, sha256: Sequence[str]) -> Iterator[Iterator[bytes]]:
        """As `DataSource`."""

        def contents() -> Iterator[bytes]:
            for each in sha256:
                with self._store.open_blob(one, each) as file:
                    yield file.read()

        yield contents()


class GatewaySource:
    """A `DataSource` over the gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def sets(self) -> list[PublishedSet]:
        """As `DataSource`; what is no record of a published set is left out."""
        found = []
        with self._gateway.fetch("/data/sets", {}) as answer:
            listed = json.loads(answer.read())["sets"][:MAX_SETS]
        for values in listed:
            try:
                found.append(published_set(values))
            except (ValueError, TypeError, AttributeError):
                continue
        return found

    @contextmanager
    def tree(self, one: PublishedSet) -> Iterator[Iterator[bytes]]:
        """As `DataSource`."""
        with self._gateway.fetch("/data/tree", {"name": one.name}) as answer:
            yield answer.iter_bytes(CHUNK)

    @contextmanager
    def blob(self, one: PublishedSet, sha256: str, start: int) -> Iterator[Iterator[bytes]]:
        """As `DataSource`."""
        params = {"name": one.name, "sha256": sha256}
        with self._gateway.fetch("/data/blob", params, start) as answer:
            if start and answer.status_code != 206:
                raise OSError(f"the service sends {sha256} from its beginning only")
            yield answer.iter_bytes(CHUNK)

    @contextmanager
    def blobs(self, one: PublishedSet, sha256: Sequence[str]) -> Iterator[Iterator[bytes]]:
        """As `DataSource`."""
        with self._gateway.download({"name": one.name, "sha256": [*sha256]}, "/data/blobs") as answer:
            yield answer.iter_bytes(CHUNK)


def find(source: DataSource, name: str) -> PublishedSet:
    """The published set of a name. Raises NotFound, with the nearest name."""
    known = {one.name: one for one in source.sets()}
    if name not in known:
        raise unpublished(name, [*known])
    return known[name]


@contextmanager
def source_of(settings: WorkerSettings) -> Iterator[DataSource]:
    """The gateway, else the folder of ASSAY_DATA_STORE. Raises StagingFailed: neither is set."""
    if settings.gateway:
        gateway = Gateway(settings)
        try:
            yield GatewaySource(gateway)
        finally:
            gateway.close()
    elif settings.data_store is not None:
        yield FolderSource(DataStore(settings.data_store))
    else:
        raise StagingFailed("no store of data: set ASSAY_GATEWAY (--gateway), or ASSAY_DATA_STORE (--store)")
