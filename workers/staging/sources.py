"""From where a node gets published data sets: a folder that it sees, or the gateway."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from assay.service.contract.errors import AssayError, NotFound
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

    def find(self, name: str) -> PublishedSet:
        """The data set of a name. Raises NotFound, with the nearest name."""
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

    def find(self, name: str) -> PublishedSet:
        """As `DataSource`."""
        return self._store.find(name)

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
        self._through = False  # small contents come through the gateway

    def sets(self) -> list[PublishedSet]:
        """As `DataSource`; what is no record of a published set is left out."""
        return self._sets({})

    def find(self, name: str) -> PublishedSet:
        """As `DataSource`."""
        try:
            found = self._sets({"name": name})
        except NotFound:
            raise
        except AssayError:  # a service of an earlier version
            found = self.sets()
        known = {one.name: one for one in found}
        if name not in known:
            raise unpublished(name, [*known])
        return known[name]

    def _sets(self, params: Mapping[str, str]) -> list[PublishedSet]:
        found = []
        with self._gateway.fetch("/data/sets", params) as answer:
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
        asked = {"name": one.name, "sha256": [*sha256]}
        if (urls := self._addresses(asked)) is not None:
            yield self._elsewhere(urls)
            return
        with self._gateway.download(asked, "/data/blobs") as answer:
            yield answer.iter_bytes(CHUNK)

    def _addresses(self, asked: Mapping[str, Any]) -> list[str] | None:
        if self._through:
            return None
        try:
            urls: list[str] | None = self._gateway.call("/data/addresses", asked)["urls"]
        except NotFound:  # a service of an earlier version, or a content that is missing, as `blobs` says
            urls = None
        self._through = urls is None
        return urls

    def _elsewhere(self, urls: Sequence[str]) -> Iterator[bytes]:
        for url in urls:
            with self._gateway.stored({"url": url, "headers": {}}) as answer:
                yield from answer.iter_bytes(CHUNK)


@contextmanager
def source_of(settings: WorkerSettings) -> Iterator[DataSource]:
    """The gateway, else the folder of ASSAY_DATA_STORE. Raises StagingFailed: neither is set."""
    if settings.gateway:
        gateway = Gateway(settings)
        try:
            yield GatewaySource(gateway)
        finally:
            gateway.close()
    elif (store := settings.published) is not None:
        yield FolderSource(store)
    else:
        raise StagingFailed("no store of data: set ASSAY_GATEWAY (--gateway), or ASSAY_DATA_STORE (--store)")
