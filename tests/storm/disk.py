"""A disk that can be full: a small file system in memory where one may be mounted, else an emulation."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

SIZE = 256 * 1024**2  # A storm of 500 jobs wrote 64 MiB
CHUNK = 1 << 20


class Disk:
    """The disk of the state folder. Close it.

    Without the right to mount, processes in disguise fail to write while it is full (`disguise.fill_up`).

    Args:
        folder: its place.

    Attributes:
        mounted: whether it is one.
        flag: a file that is there while an emulated one is full; None for a real one.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)]
        try:
            self.mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
        except OSError:
            self.mounted = False
        self.flag = None if self.mounted else folder.with_name(f"{folder.name}-is-full")
        self._ballast = folder / "ballast"

    def fill(self) -> None:
        """Leave no room."""
        if self.flag is not None:
            self.flag.touch()
            return
        with self._ballast.open("wb", buffering=0) as file:
            for size in (CHUNK, 1):
                try:
                    while file.write(b"x" * size):
                        pass
                except OSError:
                    continue

    def free(self) -> None:
        """Give the room back."""
        (self.flag or self._ballast).unlink(missing_ok=True)

    def close(self) -> None:
        """Unmount it, once no process has a file of it open."""
        for _ in range(50 if self.mounted else 0):
            if subprocess.run(["umount", str(self.folder)], capture_output=True, check=False).returncode == 0:
                return
            time.sleep(0.1)
