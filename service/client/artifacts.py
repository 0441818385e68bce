"""The Python client's calls for files of a job."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from assay.service.client.transport import API, BadAnswer, Connection, error_of, parsed, part, reaching
from assay.service.contract.results import Artifact, Page
from assay.service.contract.signatures import KeySet


class ArtifactCalls(Connection):
    """Lists and downloads files of jobs."""

    def artifacts(self, job_id: str) -> list[Artifact]:
        """The files of the job."""
        page = self._json("GET", f"{API}/jobs/{part(job_id)}/artifacts")
        return parsed(Page[Artifact], page).items

    def signature(self, job_id: str) -> bytes:
        """The bytes of `signature.json` of the job's complete results; InvalidState for incomplete ones."""
        return self._call("GET", f"{API}/jobs/{part(job_id)}/signature").content

    def signing_keys(self) -> KeySet:
        """The public keys of the service, which check signatures; needs no API key."""
        return parsed(KeySet, self._json("GET", "/.well-known/assay-keys"))

    def download(self, job_id: str, name: str, target: Path) -> Path:
        """Downloads a file and checks its sha256; the target appears only when complete.

        `target` is the file to write, or a folder for the last part of `name`. BadAnswer: another sha256.
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
