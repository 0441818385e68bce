"""Runs a tutorial as a reader would: writes its files and runs its commands, in order, in an empty folder.

    python -m tests.docs.tutorials two-models    # runs one and shows what it prints

A block with `title="NAME"` is the content of that file. A block `sh` is typed; with the title of a terminal
(`title="Terminal 1"`) it is left running, such as a service. All other blocks only show
something, such as `text` output and `bash` what needs a network.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.support.servers import free_port

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "tutorials"
BLOCK = re.compile(r"^( *)```(\w+)([^\n]*)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
TITLE = re.compile(r'title="([^"]+)"')
ADDRESS = "http://127.0.0.1:8000"
END = "END_OF_BLOCK"
SECONDS = 500


@dataclass(frozen=True)
class Block:
    """A block of code of a page: its language, its title (empty without one) and its text."""

    language: str
    title: str
    text: str

    @property
    def background(self) -> bool:
        """Whether it is left running in a terminal of its own."""
        return self.language == "sh" and self.title.startswith("Terminal")

    @property
    def shown(self) -> bool:
        """Whether it only shows something, such as output."""
        return self.language != "sh" and not self.title


def pages() -> list[Path]:
    """The quick start and all tutorials."""
    found = sorted(path for path in FOLDER.glob("*.md") if path.name != "index.md")
    return [FOLDER.parent / "quick-start.md", *found]


def blocks(page: Path) -> list[Block]:
    """The blocks of a page, in order."""
    found = []
    for indent, language, rest, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        title = TITLE.search(rest)
        dedented = re.sub(rf"^{indent}", "", text, flags=re.MULTILINE)
        found.append(Block(language, title[1] if title else "", dedented))
    return found


def script(parts: list[Block], address: str) -> str:
    """A bash script that does what the page says."""
    lines = ["set -euo pipefail"]
    for part in parts:
        text = part.text.replace(ADDRESS, address)
        if part.background:
            lines += [f"{{ {text}}} > '{part.title}.log' 2>&1 &", f"export ASSAY_URL={address}"]
            lines += [
                f"for n in {{1..300}}; do curl -sf {address}/readyz > /dev/null && break; sleep 0.2; done"
            ]
        elif part.language == "sh":
            lines += [text]
        elif not part.shown:
            lines += [
                f"mkdir -p \"$(dirname '{part.title}')\"",
                f"cat > '{part.title}' <<'{END}'\n{text}{END}",
            ]
    return "\n".join(lines) + "\n"


def run(page: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """What a reader sees who does everything that the page says, in this empty folder."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    kept = {name: text for name, text in os.environ.items() if not name.startswith("ASSAY_")}
    environment = {
        **kept,
        "ASSAY_PORT": str(port),
        "HOME": str(folder),
        "OMP_NUM_THREADS": "1",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    # A file, not a pipe: the services that the page starts hold the output open.
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            ["bash", "-c", script(blocks(page), address)],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        code = None
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(timeout=SECONDS)
        finally:
            with contextlib.suppress(ProcessLookupError):  # nothing was left running
                os.killpg(process.pid, signal.SIGTERM)
            process.wait(timeout=60)
        output.seek(0)
        said = output.read() + ("" if code is not None else f"\nnot done after {SECONDS} seconds\n")
    return subprocess.CompletedProcess(str(page), -1 if code is None else code, said)


if __name__ == "__main__":
    for page in pages():
        if page.stem in (sys.argv[1:] or [page.stem]):
            with tempfile.TemporaryDirectory() as folder:
                done = run(page, Path(folder))
            sys.stdout.write(f"{done.stdout}{page.stem}: exit code {done.returncode}\n")
