"""The Python client's calls for uploaded weights."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.service.checkpoints.wire import Checkpoint
from assay.service.client.transport import API, Connection, parsed, part


class CheckpointCalls(Connection):
    """Uploads, lists, awaits and deletes weights and exported programs."""

    def upload_checkpoint(
        self,
        name: str,
        file: Path | str,
        *,
        model: str | Mapping[str, Any] | None = None,
        normalization: str | Mapping[str, Any] | None = None,
        positions: str | None = None,
        class_names: Sequence[str] | None = None,
    ) -> Checkpoint:
        """Uploads a safetensors file or an exported program; a worker checks it (`wait_for_checkpoint`).

        Jobs name it in `weights.checkpoint`; the same file may be uploaded again. `model`: a name or {"name",
        "params"}; None: named by the file. For a file from elsewhere `normalization` is "imagenet",
        "inception", "data" or {"mean", "std"}, and `positions` resizes position embeddings of another grid:
        "bilinear", "bicubic" or "bicubic_antialias"; None: they do not fit. `class_names`: of each logit, by
        which jobs find the data's classes; None: unknown. Raises InvalidSpec: wrong kind of file or model;
        InvalidState: another file has the name, or the quota of checkpoints is used up; TooLarge: over the
        service's limit or the rest of the quota.
        """
        names = None if class_names is None else [*class_names]
        stated: dict[str, Any] = {"model": model, "normalization": normalization, "positions": positions}
        stated |= {"class_names": names}
        texts = {
            key: v if isinstance(v, str) else json.dumps(v) for key, v in stated.items() if v is not None
        }
        params = {"name": name, **texts}
        with Path(file).open("rb") as content:
            return parsed(Checkpoint, self._json("POST", f"{API}/checkpoints", params=params, file=content))

    def checkpoints(self) -> list[Checkpoint]:
        """All uploaded weights, by name."""
        return list(self._pages(Checkpoint, f"{API}/checkpoints", {"limit": 200}))

    def checkpoint(self, name: str) -> Checkpoint:
        """Uploaded weights in their present state."""
        return parsed(Checkpoint, self._json("GET", f"{API}/checkpoints/{part(name)}"))

    def wait_for_checkpoint(
        self, name: str, *, poll_seconds: float = 0.5, timeout_seconds: float | None = None
    ) -> Checkpoint:
        """Polls until the check is over: the state is `ready` or `rejected`."""
        begun = time.monotonic()
        while (found := self.checkpoint(name)).state == "checking":
            if timeout_seconds is not None and time.monotonic() - begun > timeout_seconds:
                raise TimeoutError(f"checkpoint {name} was not checked within {timeout_seconds} s")
            time.sleep(poll_seconds)
        return found

    def delete_checkpoint(self, name: str) -> None:
        """Deletes uploaded weights that no job needs."""
        self._call("DELETE", f"{API}/checkpoints/{part(name)}")
