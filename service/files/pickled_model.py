"""What a PyTorch file without a state dict holds, found without unpickling: a TorchScript program, a module.

`torch.save` and `torch.jit.save` write a ZIP archive with one folder. Its `data.pkl` is a pickle: the
instructions are listed and not run. Only TorchScript writes `constants.pkl`.
"""

from __future__ import annotations

import lzma
import pickletools
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

OF_MODULES = frozenset({"_parameters", "_buffers", "_modules"})  # Attributes of every pickled nn.Module.
MAX_BYTES = 64 * 2**20
EVALUATE = "`assay evaluate PACKAGE.MODULE:FUNCTION`"


@dataclass(frozen=True)
class PickledModel:
    """What a file is, and how its model is evaluated all the same; both in words."""

    what: str
    remedy: str


def pickled_model(path: Path) -> PickledModel | None:
    """The TorchScript program or whole module of a file; None for another file, also a state dict."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = {name.partition("/")[2]: name for name in archive.namelist()}
            if "constants.pkl" in names:
                return _torchscript(path)
            if "data.pkl" not in names:
                return None
            with archive.open(names["data.pkl"]) as file:
                content = file.read(MAX_BYTES)
        classes, words = [], set()
        for code, value, _ in pickletools.genops(content):
            if code.name == "GLOBAL":
                classes.append(str(value).replace(" ", "."))
            elif isinstance(value, str):
                words.add(value)
    except (OSError, EOFError, ValueError, RuntimeError, zipfile.BadZipFile, zlib.error, lzma.LZMAError):
        return None
    return _module(path, classes[0]) if classes and words >= OF_MODULES else None


def _torchscript(path: Path) -> PickledModel:
    return PickledModel(
        "is a TorchScript program (torch.jit.save), which has no Python code to export",
        "a function of your own code that builds the module, loads its weights,"
        f" module.load_state_dict(torch.jit.load({path.name!r}).state_dict()), and returns it: {EVALUATE}",
    )


def _module(path: Path, name: str) -> PickledModel:
    return PickledModel(
        f"holds a whole module (torch.save(model)), with {name}: to read it could run code",
        f"if the file is yours, a function of your own code that returns torch.load({path.name!r},"
        f" weights_only=False): {EVALUATE}; or the file of its model.state_dict()",
    )
