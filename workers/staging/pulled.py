"""Pulled weights in the store: published under their reference, staged into the weights folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Unpack

from assay.service.contract.errors import NotFound
from assay.service.contract.weights.pulled import SOURCES, parse_reference
from assay.service.files.data_store import DataStore, PublishedSet
from assay.workers.staging.publishing import publish
from assay.workers.staging.scratch import Scratch, StagingFailed
from assay.workers.staging.sources import ContentChunks, DataSource
from assay.workers.staging.staging import StageOptions, StageReport, stage
from assay.workers.weights.pulled import checked, folder_below, name_commit


def is_reference(name: str) -> bool:
    """Whether a name means weights, and no folder of data."""
    return name.partition(":")[0] in SOURCES and ":" in name


def publish_weights(
    root: Path,
    reference: str,
    store: DataStore,
    *,
    state: Path,
    tenants: Sequence[str] = (),
    report: StageReport = lambda name, done, total: None,
) -> PublishedSet:
    """Publishes weights, compared with their record. Raises ValueError, WeightsUnavailable; OSError."""
    found = checked(root, reference, None)
    name = found.folder.relative_to(root).as_posix()
    return publish(root, name, store, state=state, tenants=tenants, pulled=found, report=report)


def stage_weights(
    scratch: Scratch, source: DataSource, reference: str, **given: Unpack[StageOptions]
) -> PublishedSet:
    """Brings weights into the weights folder of `scratch`, as `stage`; also by another name of theirs."""
    one = find_weights(source, reference)
    scratch.root.mkdir(parents=True, exist_ok=True)
    if (report := given.get("report")) is not None:
        given["report"] = lambda name, done, total: report(one.name, done, total)
    stage(scratch, _AsFolder(source, one), folder_below(one.name), **given)
    _name(scratch.root, one)
    return one


def _name(root: Path, one: PublishedSet) -> None:
    """Names the commit of a repository as where it was pulled: that is no part of its folder."""
    reference = parse_reference(one.name)
    for alias in one.pulled["aliases"] if one.pulled and reference.source == "hf" else ():
        named = parse_reference(alias)
        if named.name == reference.name and named.revision and reference.revision:
            name_commit(root, reference.name, named.revision, reference.revision)


def find_weights(source: DataSource, reference: str) -> PublishedSet:
    """The published weights that a reference means. Raises NotFound."""
    try:
        one = source.find(reference)
    except NotFound:
        named = (one for one in source.sets() if one.pulled and reference in one.pulled["aliases"])
        if (alias := next(named, None)) is None:
            raise
        one = alias
    if one.pulled is None:
        raise StagingFailed(f"{reference!r} is published, but not as weights")
    return one


class _AsFolder:
    """A `DataSource` of some weights alone, under the name of their folder."""

    def __init__(self, source: DataSource, one: PublishedSet) -> None:
        self._source, self._one = source, one

    def sets(self) -> list[PublishedSet]:
        return [self.find("")]

    def find(self, name: str) -> PublishedSet:
        return replace(self._one, name=folder_below(self._one.name), pulled=None)

    def tree(self, one: PublishedSet) -> ContentChunks:
        return self._source.tree(self._one)

    def blob(self, one: PublishedSet, sha256: str, start: int) -> ContentChunks:
        return self._source.blob(self._one, sha256, start)

    def blobs(self, one: PublishedSet, sha256: Sequence[str]) -> ContentChunks:
        return self._source.blobs(self._one, sha256)
