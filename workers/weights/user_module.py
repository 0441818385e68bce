"""A module from a function of the user's own code, which this imports and runs: for users, never a worker."""

from __future__ import annotations

import importlib
import pkgutil
import sys
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from assay.service.contract.problems import nearest

KEYS_SHOWN = 5
# Written by wrappers before every name.
WRAPPERS = ("module.", "_orig_mod.")


class CannotBuild(ValueError):
    """The user's code gives no module, or weights do not fit it; the message says what and where."""


def build_module(name: str, folder: Path) -> nn.Module:
    """Import a module of code and call a function of it for an `nn.Module`, or take a class or a module.

    The folder of the package goes to the front of `sys.path`.
    """
    where, separator, function = name.partition(":")
    if not separator or not where or not function:
        raise CannotBuild(
            f"{name!r} names no function; allowed: PACKAGE.MODULE:FUNCTION, as my_package.models:build"
        )
    if not folder.is_dir():
        raise CannotBuild(f"the folder {folder} is not there")
    place = str(folder.resolve())
    if place not in sys.path:
        sys.path.insert(0, place)
    module = _imported(where, folder)
    found = getattr(module, function, None)
    if found is None:
        names = [known for known in vars(module) if not known.startswith("_")]
        raise CannotBuild(f"{where} has no {function!r}{_hint(function, names)}")
    if isinstance(found, nn.Module):
        return found
    if not callable(found):
        raise CannotBuild(
            f"{name} is of the type {type(found).__name__}, allowed: a function that returns a module"
        )
    try:
        built = found()
    except Exception as error:
        raise CannotBuild(f"{name} failed{_line(error)}: {type(error).__name__}: {error}") from error
    if not isinstance(built, nn.Module):
        raise CannotBuild(
            f"{name} returned a value of the type {type(built).__name__}, allowed: a torch.nn.Module"
        )
    return built


def _imported(where: str, folder: Path) -> object:
    try:
        return importlib.import_module(where)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if where == missing or where.startswith(f"{missing}."):
            parent, _, last = missing.rpartition(".")
            paths = [str(folder.joinpath(*parent.split(".")) if parent else folder)]
            known = [found.name for found in pkgutil.iter_modules(paths)]
            raise CannotBuild(f"there is no module {missing!r} in {paths[0]}{_hint(last, known)}") from error
        raise CannotBuild(
            f"{where} imports {missing!r}{_line(error)}, which this environment ({sys.prefix}) does not have"
        ) from error
    except Exception as error:
        raise CannotBuild(
            f"{where} cannot be imported{_line(error)}: {type(error).__name__}: {error}"
        ) from error


def _hint(given: str, known: Iterable[str]) -> str:
    names = sorted(known)
    near = nearest(given, names)
    if near is not None:
        return f"; nearest: {near!r}"
    return f"; there are: {', '.join(names[:20])}" if names else ""


def _line(error: Exception) -> str:
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename != __file__
        and not frame.filename.startswith("<")
        and "importlib" not in frame.filename
    ]
    return f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""


def load_tensors(module: nn.Module, file: Path) -> None:
    """Load the tensors of a safetensors file into a module, all of them by name.

    A wrapper's prefix before all names is taken off. Of tied weights the file needs one name.
    """
    if not file.is_file():
        raise CannotBuild(f"there is no file {file}")
    try:
        given = load_file(file)
    except (SafetensorError, ValueError, OSError) as error:
        raise CannotBuild(
            f"{file} cannot be read as safetensors ({error}); `assay import-pickle` converts files of"
            " torch.save"
        ) from error
    own = module.state_dict(keep_vars=True)
    for prefix in WRAPPERS:
        if (
            given
            and all(name.startswith(prefix) for name in given)
            and not any(name in own for name in given)
        ):
            given = {name.removeprefix(prefix): tensor for name, tensor in given.items()}
    if faults := _faults(own, given):
        raise CannotBuild(f"the weights in {file} do not fit: {'; '.join(faults)}")
    with torch.no_grad():
        for name, tensor in given.items():
            own[name].copy_(tensor)


def _faults(own: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> list[str]:
    loaded = {own[name].data_ptr() for name in given if name in own and own[name].numel()}
    missing = [name for name, tensor in own.items() if name not in given and tensor.data_ptr() not in loaded]
    unexpected = [name for name in given if name not in own]
    shapes = [
        f"{name} has the shape {tuple(tensor.shape)}, the module's is {tuple(own[name].shape)}"
        for name, tensor in given.items()
        if name in own and tensor.shape != own[name].shape
    ]
    near = {name: nearest(name, unexpected) for name in missing}
    return [
        *_first("missing", [f"{n} (nearest in the file: {near[n]})" if near[n] else n for n in missing]),
        *_first("unexpected", unexpected),
        *_first("other shapes", shapes),
    ]


def _first(what: str, names: list[str]) -> list[str]:
    if not names:
        return []
    more = f" and {len(names) - KEYS_SHOWN} more" if len(names) > KEYS_SHOWN else ""
    return [f"{what}: {', '.join(names[:KEYS_SHOWN])}{more}"]
