"""The version of a service."""

from __future__ import annotations

from assay.service.contract.results import Answer


class ServiceVersion(Answer):
    """Which program answers, and which code its workers run.

    `version` is that of the distribution `name`, `api` the version in the paths of its REST calls. `catalog`
    is the digest of its components, `identities` counts the workers online by the identity of their code:
    source, packages and catalog.
    """

    name: str
    version: str
    api: str
    catalog: str
    identities: dict[str, int]
