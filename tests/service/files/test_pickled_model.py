"""What a PyTorch file without a state dict holds, found without unpickling: archives made by hand."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from assay.service.files.pickled_model import pickled_model

ATTRIBUTES = ("_parameters", "_buffers", "_modules")


def archive(file: Path, kind: int = zipfile.ZIP_STORED, **entries: bytes) -> Path:
    """An archive as `torch.save` writes one: a folder with a pickle `data` and more."""
    with zipfile.ZipFile(file, "w", kind) as opened:
        for name, content in entries.items():
            opened.writestr(f"archive/{name}.pkl", content)
    return file


def module_of(name: str, *attributes: str) -> bytes:
    """A pickle that would import a class, as of a module that is saved whole."""
    return b"".join([b"c", name.encode(), b"\n(", *(f"V{one}\n".encode() for one in attributes), b"t."])


def test_a_whole_module_is_named_and_nothing_in_it_runs(tmp_path: Path) -> None:
    touched = tmp_path / "touched"
    running = f"cos\nsystem\n(Vtouch {touched}\ntR(V_parameters\nV_buffers\nV_modules\nt.".encode()
    found = pickled_model(archive(tmp_path / "evil.pt", data=running))
    assert found is not None
    assert found.what == "holds a whole module (torch.save(model)), with os.system: to read it could run code"
    assert "torch.load('evil.pt', weights_only=False)" in found.remedy
    assert not touched.exists()


def test_the_class_that_is_named_is_the_first(tmp_path: Path) -> None:
    """A module's own class comes before the classes of its layers."""
    content = b"cmine.nets\nOuter\n0" + module_of("torch.nn.modules.linear\nLinear", *ATTRIBUTES)
    found = pickled_model(archive(tmp_path / "model.pt", data=content))
    assert found is not None
    assert "with mine.nets.Outer:" in found.what


@pytest.mark.parametrize("missing", ATTRIBUTES)
def test_what_lacks_an_attribute_of_modules_is_none(tmp_path: Path, missing: str) -> None:
    """Optimisers and state dicts with a class in them are no modules."""
    there = [one for one in ATTRIBUTES if one != missing]
    content = module_of("torch.optim\nSGD", *there)
    assert pickled_model(archive(tmp_path / "optimiser.pt", data=content)) is None


def test_plain_values_with_the_names_of_a_module_are_none(tmp_path: Path) -> None:
    content = pickle.dumps(dict.fromkeys(ATTRIBUTES, 1.0))
    assert pickled_model(archive(tmp_path / "dict.pt", data=content)) is None


def test_a_torchscript_program_is_told_by_its_constants(tmp_path: Path) -> None:
    content = module_of("__torch__.Net\nNet", *ATTRIBUTES)
    found = pickled_model(archive(tmp_path / "a'b.pt", data=content, constants=b"\x80\x02)."))
    assert found is not None
    assert found.what.startswith("is a TorchScript program")
    assert """torch.jit.load("a'b.pt").state_dict()""" in found.remedy, "a name is quoted as Python"


def flipped(content: bytes) -> bytes:
    """The bytes with the first of the stored data changed, not its header."""
    place = content.index(b"data.pkl") + len(b"data.pkl")
    return content[:place] + bytes(byte ^ 0xFF for byte in content[place : place + 8]) + content[place + 8 :]


DAMAGES: list[tuple[int, Callable[[bytes], bytes]]] = [
    (zipfile.ZIP_STORED, flipped),
    (zipfile.ZIP_DEFLATED, flipped),
    (zipfile.ZIP_BZIP2, flipped),
    (zipfile.ZIP_LZMA, flipped),
    (zipfile.ZIP_DEFLATED, lambda content: content[: len(content) // 2]),
    (zipfile.ZIP_STORED, lambda content: content.replace(b"archive/data.pkl", b"archive/data.pkm", 1)),
    (zipfile.ZIP_STORED, lambda _: b""),
    (zipfile.ZIP_STORED, lambda _: b"PK\x05\x06" + bytes(18)),
]


@pytest.mark.parametrize("damage", range(len(DAMAGES)))
def test_damaged_archives_are_no_model_and_no_error(tmp_path: Path, damage: int) -> None:
    """Whoever reads the file next says what is wrong with it."""
    kind, change = DAMAGES[damage]
    file = archive(tmp_path / "model.pt", kind, data=module_of("a\nB", *ATTRIBUTES) * 100)
    file.write_bytes(change(file.read_bytes()))
    assert pickled_model(file) is None


@pytest.mark.parametrize("content", [b"", b"K", b"\x8e" + b"\xff" * 8, b"I" + b"9" * 5000 + b"\n", b"\xfe."])
def test_what_is_no_pickle_is_no_model(tmp_path: Path, content: bytes) -> None:
    assert pickled_model(archive(tmp_path / "model.pt", data=content)) is None


def test_an_encrypted_entry_and_a_folder_are_no_models(tmp_path: Path) -> None:
    file = archive(tmp_path / "model.pt", data=module_of("a\nB", *ATTRIBUTES))
    content = bytearray(file.read_bytes())
    for header, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(header) + flags] |= 1
    file.write_bytes(content)
    assert pickled_model(file) is None
    assert pickled_model(tmp_path) is None
    assert pickled_model(tmp_path / "absent.pt") is None
