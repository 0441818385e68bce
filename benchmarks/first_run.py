"""The quick start's lines in an empty folder, recorded with times: writes `docs/measurements/first-run.txt`.

`python -m benchmarks.first_run [--file FILE]` runs each line of `LINES` with the `assay` beside this
interpreter, its output in a pipe, and stamps every line with the seconds since its command began.
`my_models.py` is the quick start's.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LINES = (
    "assay evaluate example --report report.html",
    "assay evaluate my_models:build --data digits --limit 100",
)
MODULE = re.compile(r'```python title="my_models.py"\n(.*?)```', re.DOTALL)
STAMP = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ ")
HEAD = """A first run: the lines of the quick start in an empty folder, as `python -m benchmarks.first_run`
recorded them on {cores} cores ({processor}; {load:.0f} processes wanted them, other work included).
On the left are the seconds since the command began. A pipe gets lines where a terminal draws a bar.
"""


def main(arguments: list[str] | None = None) -> int:
    """Writes the file; 1 where a line fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--file", type=Path, default=ROOT / "docs" / "measurements" / "first-run.txt")
    options = parser.parse_args(arguments)
    found = MODULE.search((ROOT / "docs" / "quick-start.md").read_text("utf-8"))
    assert found is not None, "the quick start has a module of the user's"
    parts = []
    with tempfile.TemporaryDirectory(prefix="assay-first-run-") as folder:
        (Path(folder) / "my_models.py").write_text(found[1], encoding="utf-8")
        for line in LINES:
            code, text = recorded(line, Path(folder))
            if code:
                sys.stderr.write(f"{line}: code {code}\n{text}")
                return 1
            parts.append(f"$ {line}\n{text}")
    head = HEAD.format(cores=os.cpu_count(), processor=processor(), load=os.getloadavg()[1])
    options.file.write_text("\n".join([head, *parts]), encoding="utf-8")
    return 0


def recorded(line: str, folder: Path) -> tuple[int, str]:
    """The exit code of a command, and its output, each line behind its seconds."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ASSAY_")}
    begun = time.monotonic()
    with subprocess.Popen(  # noqa: S602 (a line of this file, as a shell reads it)
        line,
        shell=True,
        cwd=folder,
        env=kept | {"PATH": path, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        text = "".join(stamped(process.stdout, begun))
    return process.returncode, text


def stamped(lines: Iterator[str], begun: float) -> Iterator[str]:
    """Each line as it comes, its time of day replaced by the seconds since the begin."""
    for line in lines:
        yield f"{time.monotonic() - begun:5.0f} s  {STAMP.sub('', line)}"


def processor() -> str:
    """The processor's name; `unknown` where the system does not say."""
    try:
        names = re.findall(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text("utf-8"))
    except OSError:
        names = []
    return names[0] if names else "unknown"


if __name__ == "__main__":
    sys.exit(main())
