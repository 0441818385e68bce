"""A report as PDF, printed by the Chromium or Chrome of the user's machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

VARIABLE = "ASSAY_BROWSER"  # names the program
PROGRAMS = (
    "chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge",
)  # fmt: skip
ELSEWHERE = {
    "darwin": tuple(
        f"/Applications/{name}.app/Contents/MacOS/{name}" for name in ("Google Chrome", "Chromium")
    ),
    "win32": tuple(
        rf"{folder}\{name}"
        for folder in (r"C:\Program Files", r"C:\Program Files (x86)")
        for name in (r"Google\Chrome\Application\chrome.exe", r"Microsoft\Edge\Application\msedge.exe")
    ),
}
SECONDS = 120
MAX_SAID = 300  # Characters of the browser's own words in an error


class NoPdf(ValueError):
    """There is no browser that prints, or it did not print."""


def find_browser() -> str:
    """The program that prints: `ASSAY_BROWSER`, else the first known name on the path. Raises NoPdf."""
    if given := os.environ.get(VARIABLE):
        if (found := shutil.which(given)) is None:
            raise NoPdf(f"{VARIABLE}: {given!r} is no program that can be run")
        return found
    looked = (*PROGRAMS, *ELSEWHERE.get(sys.platform, ()))
    found = next(filter(None, map(shutil.which, looked)), None)
    if found is None:
        raise NoPdf(
            "a PDF is printed by Chromium or Chrome, which this machine lacks; looked for:"
            f" {', '.join(looked)}. Install one, name it in {VARIABLE}, or write .html and print it"
        )
    return found


def print_pdf(page: str, browser: str) -> bytes:
    """An HTML page as PDF; the browser has a profile of its own, and the page loads nothing. Raises NoPdf."""
    with tempfile.TemporaryDirectory(prefix="assay-pdf-", ignore_cleanup_errors=True) as folder:
        source, target = Path(folder, "report.html"), Path(folder, "report.pdf")
        source.write_text(page, encoding="utf-8")
        command = [
            browser, "--headless", "--disable-gpu", "--no-first-run", "--disable-extensions",
            f"--user-data-dir={Path(folder, 'profile')}", "--no-pdf-header-footer",
            f"--print-to-pdf={target}", source.as_uri(),
        ]  # fmt: skip
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            command.insert(1, "--no-sandbox")  # Chromium refuses root otherwise.
        try:
            done = subprocess.run(command, capture_output=True, timeout=SECONDS, check=False)  # noqa: S603 (the user's browser)
        except subprocess.TimeoutExpired:
            raise NoPdf(f"{browser} did not print the report within {SECONDS} s") from None
        content = target.read_bytes() if target.is_file() else b""
    if not content.startswith(b"%PDF"):
        said = done.stderr.decode(errors="replace").strip()[-MAX_SAID:]
        raise NoPdf(f"{browser} did not print the report (exit code {done.returncode}): {said}")
    return content
