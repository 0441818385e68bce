"""The version of a service."""

from __future__ import annotations

from assay.service.contract.results import Answer


class ServiceVersion(Answer):
    """Which program answers, and which code its workers run.

    `version` is of the distribution `name`, `api` in the paths of its REST calls, `catalog` the digest of its
    components; `identities` counts workers online by identity of code: source, packages and catalog.
    """

    name: str
    version: str
    api: str
    catalog: str
    identities: dict[str, int]
