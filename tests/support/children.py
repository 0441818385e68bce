"""Functions in a process of their own, which may restrict itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

ANSWER = "ASSAY_TEST_ANSWER"
AFTER_GRADIENTS = "Unable to handle autograd's threading"
ROOT = Path(__file__).resolve().parents[2]


def in_a_child(work: Callable[[], Any]) -> Any:
    """What a function returns in a forked process, which it may restrict.

    torch computes no gradients in a fork of a process that has computed some. Where it says so, the present
    test is run up to here once more, in a new process.
    """
    found = _forked(work)
    answer = os.environ.get(ANSWER)
    if answer is not None:
        Path(answer).write_text(json.dumps(found))
        os._exit(0)
    return _anew() if isinstance(found, str) and AFTER_GRADIENTS in found else found


def _forked(work: Callable[[], Any]) -> Any:
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(write, json.dumps(work()).encode())
        except BaseException as error:
            os.write(write, json.dumps(f"raised {error!r}").encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        text = answer.read()
    os.waitpid(pid, 0)
    return json.loads(text)


def _anew() -> Any:
    test = os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0]
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-m", "", "-p", "no:cacheprovider", test]
    with tempfile.NamedTemporaryFile() as answer:
        environment = os.environ | {ANSWER: answer.name}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        text = Path(answer.name).read_text()
        assert text, done.stdout + done.stderr
        return json.loads(text)
