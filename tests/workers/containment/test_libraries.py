"""Libraries that jobs use do their work in the containment: none needs what it refuses."""

from __future__ import annotations

import importlib
import os
import sqlite3
import sys
import tempfile
import zipfile
from collections.abc import Callable
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

from assay.workers.containment.contain import contain
from assay.workers.containment.policy import Policy, libraries
from assay.workers.containment.probe import missing_parts
from assay.workers.containment.template import TEMPORARY
from tests.support.children import in_a_child
from tests.support.packages import install

pytestmark = pytest.mark.skipif(bool(missing_parts()), reason=f"this machine lacks {list(missing_parts())}")
KINDS: dict[str, dict[str, bool]] = {
    "evaluation": {},
    "evaluation on a GPU": {"gpu": True},
    "training": {"processes": True},
    "training on several devices": {"processes": True, "loopback": True},
}


class Squares(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        return np.array([index * index])


def torch_files(folder: Path) -> list[float]:
    torch.save({"weight": torch.ones(3)}, folder / "state.pt")
    loaded = torch.load(folder / "state.pt", weights_only=True)["weight"]
    safetensors.torch.save_file({"weight": loaded}, folder / "weights.safetensors")
    return list(safetensors.torch.load_file(folder / "weights.safetensors")["weight"].tolist())


def pictures(folder: Path) -> list[int]:
    for name in ("image.png", "image.jpeg"):
        Image.new("RGB", (8, 8), (255, 0, 0)).save(folder / name)
    return [Image.open(folder / name).size[0] for name in ("image.png", "image.jpeg")]


def archives(folder: Path) -> list[str]:
    with zipfile.ZipFile(folder / "some.zip", "w") as archive:
        archive.writestr("inner", "x")
    with zipfile.ZipFile(folder / "some.zip") as archive:
        archive.extractall(folder / "unpacked")
    np.savez_compressed(folder / "arrays.npz", a=np.ones(2))
    with sqlite3.connect(folder / "cache.sqlite") as database:
        database.execute("CREATE TABLE one (a)")
    return sorted(path.name for path in (folder / "unpacked").iterdir())


def temporary_files(folder: Path) -> bool:
    with tempfile.NamedTemporaryFile() as file, tempfile.TemporaryDirectory() as inside:
        Path(inside, "inner").write_text("x")
        file.write(b"x")
        os.replace(Path(inside, "inner"), folder / "moved")
    return (folder / "moved").exists()


def program(folder: Path) -> list[int]:
    exported = torch.export.export(nn.Linear(2, 3).eval(), (torch.ones(1, 2),))
    torch.export.save(exported, folder / "program.pt2")
    return list(torch.export.load(folder / "program.pt2").module()(torch.ones(1, 2)).shape)


WORK: dict[str, tuple[Callable[[Path], Any], Any]] = {
    "torch and safetensors": (torch_files, [1.0, 1.0, 1.0]),
    "PIL": (pictures, [8, 8]),
    "archives and databases": (archives, ["inner"]),
    "temporary files": (temporary_files, True),
}


def in_a_job(folder: Path, kind: str, work: Callable[[Path], Any]) -> Any:
    chosen = Policy(
        folder=folder, files=frozenset(), temporary=folder, libraries=libraries(os.environ, ()), **KINDS[kind]
    )

    def contained() -> Any:
        os.environ.update(dict.fromkeys(TEMPORARY, str(folder)))
        tempfile.tempdir = None
        torch.set_num_threads(1)
        assert contain(chosen) == {}
        return work(folder)

    return in_a_child(contained)


@pytest.mark.sampled
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", WORK)
def test_files_are_written_and_read(tmp_path: Path, name: str, kind: str) -> None:
    work, expected = WORK[name]
    assert in_a_job(tmp_path, kind, work) == expected


@pytest.mark.costly
@pytest.mark.parametrize("kind", ["evaluation", "evaluation on a GPU"])
def test_programs_are_exported_and_loaded(tmp_path: Path, kind: str) -> None:
    assert in_a_job(tmp_path, kind, program) == [1, 3]


@pytest.mark.parametrize("kind", ["training", "training on several devices"])
def test_other_processes_make_examples(tmp_path: Path, kind: str) -> None:
    """As `training/batch_workers.py` has them: forks that send arrays."""

    def work(folder: Path) -> list[int]:
        loader = DataLoader(
            Squares(), batch_size=None, num_workers=2, collate_fn=list, multiprocessing_context="fork"
        )
        return [int(made[0]) for made in loader]

    assert in_a_job(tmp_path, kind, work) == [index * index for index in range(8)]


@pytest.mark.parametrize("module", ["editable_one.assay", "spaced.editable_one.assay"])
def test_an_editable_package_is_read_where_python_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    """As setuptools installs such a package: by a finder, and not by a folder of `sys.path`."""
    install(tmp_path / "metadata", "editable_one", "1.0", {"one": module}, assay__attack="FOUND = 7\n")
    top = tmp_path / "checkout" / module.partition(".")[0]
    inner = top if module.startswith("editable_one") else top / "editable_one"
    inner.parent.mkdir(parents=True)
    (tmp_path / "metadata" / "editable_one").rename(inner)
    (tmp_path / "job").mkdir()

    class Editable:
        @staticmethod
        def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
            return PathFinder.find_spec(name, [str(top.parent)]) if name == top.name else None

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Editable])
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "metadata")])
    read = in_a_job(
        tmp_path / "job", "evaluation", lambda _: importlib.import_module(f"{module}.attack").FOUND
    )
    assert read == 7
    assert not {"editable_one", "spaced.editable_one"} & {*sys.modules}
    own = inner.resolve()
    assert own in libraries({}, [tmp_path / "state"])
    for state in (own / "state", own, own.parent):
        assert own not in libraries({}, [state])
