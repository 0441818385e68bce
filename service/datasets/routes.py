"""Published data sets for nodes, with keys of the scope `worker`: those that the key's tenant may read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from fastapi import Depends, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import FileResponse, RedirectResponse, StreamingResponse

from assay.service.api.artifacts import OpenFileResponse, ignore_odd_ranges
from assay.service.api.authentication import GATEWAY_PATH
from assay.service.api.caller import CallerDep
from assay.service.api.deps import BodyDep, SettingsDep, StrictRouter, validated
from assay.service.contract.errors import InvalidSpec, NotFound
from assay.service.files.data_store import DataStore, PublishedSet

router = StrictRouter(prefix=f"{GATEWAY_PATH}/data", tag="gateway")
ROUTERS, BEFORE = (router,), "quota"
MAX_TOGETHER, MAX_SMALL = 256, 2**20  # contents of an answer, and bytes of each
CHUNK = 2**20
NO_STORE = "this service has no store of data: its operator sets ASSAY_DATA_STORE"
SetName = Annotated[str, Query(min_length=1, max_length=1024)]
SHA256 = r"^[0-9a-f]{64}$"


class BlobsCall(BaseModel):
    """The contents of small files of a data set, one after another."""

    model_config = ConfigDict(extra="forbid", strict=True)
    name: Annotated[str, Field(min_length=1, max_length=1024)]
    sha256: Annotated[
        list[Annotated[str, Field(pattern=SHA256)]], Field(min_length=1, max_length=MAX_TOGETHER)
    ]


class OpenSets:
    """The store, as far as the caller's tenant may read it."""

    def __init__(self, caller: CallerDep, settings: SettingsDep) -> None:
        self._store = settings.published
        # Without keys the operator is alone.
        self._tenant = None if caller.key is None else caller.key.tenant

    @property
    def store(self) -> DataStore:
        """The store. Raises NotFound: there is no store."""
        if self._store is None:
            raise NotFound(NO_STORE)
        return self._store

    def all(self) -> list[PublishedSet]:
        """The data sets of the tenant."""
        return self.store.sets(self._tenant)

    def find(self, name: str) -> PublishedSet:
        """A data set of the tenant. Raises NotFound."""
        return self.store.find(name, self._tenant)


OpenSetsDep = Annotated[OpenSets, Depends()]


@router.get("/sets", include_in_schema=False)
def published_sets(sets: OpenSetsDep, name: SetName | None = None) -> dict[str, Any]:
    """Name, hash, number of files and bytes of each data set, or of the one with a name."""
    found = sets.all() if name is None else [sets.find(name)]
    # Other tenants' names are no node's business.
    return {"sets": [{**one.record, "tenants": None} for one in found]}


@router.get("/tree", include_in_schema=False, response_class=FileResponse)
def published_tree(name: SetName, sets: OpenSetsDep) -> Response:
    """The files of a data set, a line each."""
    one = sets.find(name)
    return OpenFileResponse(sets.store.open_tree(one), "files.tree", f'"{one.sha256}"')


@router.get("/blob", include_in_schema=False, response_class=FileResponse)
def published_blob(
    name: SetName, sha256: Annotated[str, Query(pattern=SHA256)], request: Request, sets: OpenSetsDep
) -> Response:
    """A content, or the part that `Range` names; 303 to where it lies, if elsewhere."""
    one, store = sets.find(name), sets.store
    if (address := store.blobs.address(store.checked(one, sha256))) is not None:
        return RedirectResponse(address, status_code=303)
    file = store.open_blob(one, sha256)
    ignore_odd_ranges(request, file.seek(0, 2))
    return OpenFileResponse(file, "blob", f'"{sha256}"')


@router.post("/addresses", include_in_schema=False)
def published_addresses(body: BodyDep, sets: OpenSetsDep) -> dict[str, Any]:
    """Where small contents lie, if elsewhere, in the order of the call."""
    call = validated(BlobsCall, body)
    one, store = sets.find(call.name), sets.store
    found = [store.blobs.address(store.checked(one, each)) for each in call.sha256]
    return {"urls": None if None in found else found}


@router.post("/blobs", include_in_schema=False)
def published_blobs(body: BodyDep, sets: OpenSetsDep) -> Response:
    """Small contents in the order of the call: a request for each would cost more than they do."""
    call = validated(BlobsCall, body)
    one, store = sets.find(call.name), sets.store
    for each in call.sha256:  # What is missing is said before the answer begins.
        if store.size(one, each) > MAX_SMALL:
            raise InvalidSpec(f"sha256: {each} has more than {MAX_SMALL:,} bytes; ask for it alone")

    def contents() -> Iterator[bytes]:
        held = bytearray()
        for each in call.sha256:
            with store.blobs.open(each) as file:
                held += file.read(MAX_SMALL)
            if len(held) >= CHUNK:
                yield bytes(held)
                held.clear()
        yield bytes(held)

    return StreamingResponse(contents(), media_type="application/octet-stream")
