"""A program made of a user's code or ONNX file by another process, and what that process says is wrong."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from assay.service.contract.errors import InvalidSpec
from assay.service.contract.extras import require
from assay.service.contract.problems import Problems

EXPORT = "assay.workers.weights.export"
IMPORT_ONNX = "assay.workers.import_onnx"
PROGRAM = ".pt2"
FAULT_OF_WEIGHTS = "weights: "  # as `assay.workers.weights.export` says it


@contextmanager
def written_program(
    module: str,
    arguments: Sequence[str],
    loc: tuple[str, ...],
    stem: str,
    folder: Path = Path(),
    tell: Callable[[str], None] = print,
) -> Iterator[Path]:
    """A program that a workers' module writes, until the block ends; its warnings are told."""
    require(f"the model {arguments[0]}", "worker", *(["onnx"] if module == IMPORT_ONNX else []))
    with tempfile.TemporaryDirectory(prefix="assay-") as made:
        target = Path(made) / f"{stem}{PROGRAM}"
        output = [str(target)] if module == IMPORT_ONNX else ["--output", str(target)]
        command = [sys.executable, "-P", "-m", module, arguments[0], *output, *arguments[1:]]
        done = subprocess.run(  # noqa: S603 (our own module)
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise _failed(done, loc, arguments)
        for line in done.stderr.splitlines():
            if line.startswith("warning: "):
                tell(line)
        yield target


def _failed(
    done: subprocess.CompletedProcess[str], loc: tuple[str, ...], arguments: Sequence[str]
) -> InvalidSpec:
    problems = Problems()
    said = done.stderr.strip() or f"it ended with code {done.returncode}"
    for fault in re.split(r"^error: ", said, flags=re.MULTILINE)[1:] or [said]:
        if fault.startswith(FAULT_OF_WEIGHTS) and "--weights" in arguments:
            file = arguments[arguments.index("--weights") + 1]
            problems.add((*loc, "weights"), fault.removeprefix(FAULT_OF_WEIGHTS).strip(), given=file)
        else:
            problems.add(loc, fault.strip(), given=arguments[0])
    try:
        problems.raise_if_any()
    except InvalidSpec as error:
        return error
    raise AssertionError("a fault is told")
