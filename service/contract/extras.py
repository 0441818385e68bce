"""Extras: which optional packages each brings, and the sentence that says how to install them."""

from __future__ import annotations

import importlib.metadata
import json
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

DISTRIBUTION = "assay-robustness"
# What each extra is for, and the modules that it brings; tests hold them against pyproject.toml. A module of
# several extras is missed in the name of the first.
EXTRAS: dict[str, tuple[str, list[str]]] = json.loads(
    Path(__file__).with_name("extras.json").read_text(encoding="utf-8")
)


# Extras that need an environment of their own: a worker there runs what the others cannot.
OWN_ENVIRONMENT = frozenset({"textattack"})


class MissingExtra(ImportError):
    """Something needs packages that are not installed; the message is one sentence with the command."""


def require(what: str, *extras: str) -> None:
    """Refuses what cannot run here; `what` begins the sentence. MissingExtra names extras and command."""
    missing = [extra for extra in extras if not all(map(has_module, EXTRAS[extra][1]))]
    if missing:
        *before, last = (EXTRAS[extra][0] for extra in missing)
        needed = f"{', '.join(before)} and {last}" if before else last
        raise MissingExtra(f"{what} needs {needed}: {install_command(missing)}")


def require_to_run(module: str, *extras: str) -> None:
    """`require` for `python -m MODULE`, before its imports: ends the process with the sentence and code 2."""
    try:
        require(f"`python -m {module}`", *extras)
    except MissingExtra as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2)


def explained(what: str, error: ImportError) -> str | None:
    """The sentence for a failed import; None where it is of no optional package, and so a defect."""
    if isinstance(error, MissingExtra):
        return str(error)
    module = (error.name or "").partition(".")[0]
    if extra_of(module) is None or has_module(module):  # a package that is there may fail for another reason
        return None
    return f"{what} needs the package {module}: {command_for(module)}"


def require_module(what: str, module: str) -> None:
    """Refuses, as MissingExtra with the command that installs it, what needs one optional package."""
    if not has_module(module):
        raise MissingExtra(f"{what} needs the package {module}: {command_for(module)}")


def extra_of(module: str) -> str | None:
    """The extra that brings a top-level module; None for a module of the core, or of no extra."""
    return next((name for name, (_, modules) in EXTRAS.items() if module in modules), None)


def command_for(module: str) -> str:
    """How to get an optional package: the command, or a worker that has it."""
    extra = extra_of(module) or module
    command = install_command([extra])
    if extra not in OWN_ENVIRONMENT:
        return command
    return (
        f"{command} in an environment of its own and `assay worker` there, or"
        f" `docker compose --profile {extra} up -d`"
    )


def has_module(name: str) -> bool:
    """Whether a top-level module is installed; imports nothing."""
    return find_spec(name) is not None


def install_command(extras: Sequence[str]) -> str:
    """The command that installs some extras."""
    return f"pip install '{DISTRIBUTION}[{','.join(extras)}]'"


def version_of(distribution: str) -> str | None:
    """The version of an installed distribution; None without it."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
