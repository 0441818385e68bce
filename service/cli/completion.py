"""The subcommand `completion`: what a shell needs to complete `assay`, written by shtab."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from assay.service.cli.arguments import Subcommands, add
from assay.service.cli.commands import OK, Options, UsageError
from assay.service.contract.problems import nearest

# Where each shell looks for it.
PLACES = {
    "bash": "~/.local/share/bash-completion/completions/assay",
    "zsh": "~/.zfunc/_assay   (with fpath+=~/.zfunc before compinit in ~/.zshrc)",
    "fish": "~/.config/fish/completions/assay.fish",
    "tcsh": "~/.assay.csh   (with source ~/.assay.csh in ~/.tcshrc)",
}
FILES = ("file", "output", "signature", "jsonl")  # Arguments of these names, or of type Path, are files.


def add_completion(subcommands: Subcommands) -> None:
    """Adds `completion`."""
    summary = "print the completion script of a shell"
    script = "bash > ~/.local/share/bash-completion/completions/assay"
    examples = script, 'eval "$(assay completion bash)"'
    parser = add(subcommands, "completion", completion, summary, *examples, topic="this machine")
    where = "; ".join(f"{shell}: {place}" for shell, place in PLACES.items())
    parser.add_argument(
        "shell", metavar="SHELL", nargs="?", help=f"where to write it: {where} (default: $SHELL)"
    )


def completion(options: Options) -> int:
    """Prints the script."""
    shell = options.shell or Path(os.environ.get("SHELL", "")).name
    if shell not in PLACES:
        near = nearest(shell, PLACES)
        hint = f"; did you mean {near!r}?" if near else ""
        raise UsageError(f"SHELL: {shell!r} given; allowed: {', '.join(PLACES)}{hint}")
    import shtab

    parser: argparse.ArgumentParser = options.parser
    for action in _arguments(parser):
        if action.dest in FILES or action.type is Path:
            cast(Any, action).complete = shtab.FILE
    sys.stdout.write(shtab.complete(parser, shell) + "\n")
    return OK


def _arguments(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for choice in action.choices.values():
                yield from _arguments(choice)
