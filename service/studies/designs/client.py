"""The Python client's calls about registered designs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from assay.service.client.groups import GroupCalls
from assay.service.client.transport import API, parsed, part
from assay.service.studies.designs.wire import DesignSummary, RegisteredDesign

DESIGNS = f"{API}/designs"


class DesignCalls(GroupCalls):
    """Designs of studies, registered before they run."""

    def register_study(self, spec: Mapping[str, Any] | str | bytes) -> RegisteredDesign:
        """Stores the design of a study with its digest and the time; nothing is queued.

        A design that is registered keeps its time. Raises InvalidSpec with a detail per wrong field.
        """
        return parsed(RegisteredDesign, self._json("POST", DESIGNS, body=spec))

    def design(self, digest: str) -> RegisteredDesign:
        """A registered design with the studies that were posted from it."""
        return parsed(RegisteredDesign, self._json("GET", f"{DESIGNS}/{part(digest)}"))

    def canonical_design(self, digest: str) -> bytes:
        """The canonical JSON of a registered design (RFC 8785); its SHA-256 is the digest."""
        return self._call("GET", f"{DESIGNS}/{part(digest)}", params={"format": "canonical"}).content

    def designs(self, *, page_size: int = 50) -> Iterator[DesignSummary]:
        """All registered designs, newest first; pages are fetched on demand."""
        return self._pages(DesignSummary, DESIGNS, {"limit": page_size})

    def delete_design(self, digest: str) -> None:
        """Deletes a design that no study was posted from."""
        self._call("DELETE", f"{DESIGNS}/{part(digest)}")
