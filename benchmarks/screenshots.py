"""Pictures of every page of the dashboard, from real small jobs: `make screenshots`.

`python -m benchmarks.screenshots [--folder docs/images] [--state FOLDER] [--review FOLDER]` starts the
embedded service, trains and measures small models of each kind, and writes `dashboard-*.webp`. Needs
Chromium. With `--state` the jobs are kept, and a second run takes those that are there. With `--review` each
page is drawn whole instead, at 390 and 1440 pixels, light and dark; `faults.txt` beside the pictures lists
cut and wide parts, uneven cards and errors of the console.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from assay.service.client import AssayClient
from assay.service.client.local import local_service

TAG = "screenshots"
DIGITS = {"name": "digits"}
SHAPE = {"image_size": 32, "patch_size": 8, "depth": 2, "width": 64, "heads": 4}
PURSUIT = {"rpc_layers": "all", "iterations": 2, "regularization": 3.0}
RADII = ("1/255", "2/255", "4/255", "8/255")
GRID = [{"name": name, "params": {"epsilon": epsilon}} for name in ("fgsm", "pgd") for epsilon in RADII]
ATTACKS = [
    {"name": "top1"},
    *GRID,
    {"name": "autoattack", "params": {"epsilon": "4/255"}},
    {"name": "corruptions", "params": {"severities": [1, 3, 5]}},
]
MODELS: dict[str, dict[str, Any]] = {
    "SymViT": {"name": "symvit", "params": SHAPE},
    "RPC-SymViT": {"name": "rpc_symvit", "params": SHAPE | PURSUIT},
}
STUDY: dict[str, Any] = {
    "kind": "study",
    "name": "SymViT against RPC-SymViT",
    "tags": [TAG],
    "arms": [{"name": name, "model": model} for name, model in MODELS.items()],
    "data": DIGITS,
    "recipe": {"name": "small_vit", "params": {"epochs": 25}},
    "seeds": 2,
    "evaluations": [{"name": "clean"}, *GRID],
    "baseline": "SymViT",
}
LANGUAGE = {"width": 64, "depth": 2, "heads": 4, "hidden": 128, "length": 64, "cutoffs": [2000, 10000]}
# What it shows, name, training, evaluations: a kind of data each.
OTHERS: tuple[tuple[str, str, dict[str, Any], list[dict[str, Any]]], ...] = (
    (
        "language",
        "Language model, swapped words",
        {
            "model": {"name": "lm", "params": LANGUAGE | {"initialization": "scaled"}},
            "data": {"name": "pydoc"},
            "recipe": {"name": "small_lm", "params": {"epochs": 3, "learning_rate": 0.003}},
        },
        [{"name": "perplexity"}, {"name": "word_swap", "params": {"rate": 0.05}}],
    ),
    (
        "segmentation",
        "Segmenter under attack",
        {
            "model": {
                "name": "segmenter",
                "params": {"backbone": {"name": "symvit", "params": {**SHAPE, "depth": 2}}},
            },
            "data": {"name": "shapes"},
            "recipe": {"name": "small_segmenter", "params": {"epochs": 12}},
        },
        [{"name": "clean"}, {"name": "segmentation_pgd", "params": {"epsilon": "4/255", "steps": 10}}],
    ),
    (
        "series",
        "Motions under attack",
        {
            "model": {
                "name": "series_transformer",
                "params": {"width": 32, "heads": 2, "hidden": 64, "length": 48},
            },
            "data": {"name": "motions"},
            "recipe": {"name": "small_series", "params": {"epochs": 20}},
        },
        [{"name": "clean"}, {"name": "pgd", "params": {"epsilon": 0.3, "steps": 10}}],
    ),
)
LOAD_PICTURES = """() => Promise.all([...document.images].filter((one) => one.offsetParent).map((one) => {
  one.loading = "eager";
  return one.decode().catch(() => null);
}))"""
COLOURS = 256
RUNNING, QUEUED, FAILED = (
    "RPC-SymViT, more epochs",
    "RPC-SymViT on a GPU",
    "SymViT of a canceled training",
)
START_SECONDS = 120
WIDTHS = {"desktop": (1280, 800), "short": (1280, 534), "phone": (390, 844)}
REVIEWED = [(width, scheme) for width in (390, 1440) for scheme in ("light", "dark")]
# Name, path, size and colours of each page; the path with ids of jobs by what they show.
PAGES = (
    ("overview", "/", "desktop", "light"),
    ("jobs", "/jobs", "phone", "light"),
    ("jobs-grouped", "/jobs?group=study&sort=-worst", "desktop", "light"),
    ("job", "/jobs/{second}", "desktop", "light"),
    ("job-running", "/jobs/{running}", "desktop", "light"),
    ("job-failed", "/jobs/{failed}", "desktop", "light"),
    ("job-training", "/jobs/{training}", "desktop", "dark"),
    ("gallery", "/jobs/{second}/gallery/6", "desktop", "light"),
    ("gallery-language", "/jobs/{language}/gallery/1", "short", "light"),
    ("gallery-segmentation", "/jobs/{segmentation}/gallery/1", "desktop", "light"),
    ("gallery-series", "/jobs/{series}/gallery/1", "desktop", "dark"),
    ("examples", "/jobs/{second}/examples/6?only=broken", "desktop", "light"),
    ("example", "/jobs/{second}/gallery/6/0", "desktop", "light"),
    ("plot", "/plots/curve?jobs={first},{second}", "desktop", "light"),
    ("compare", "/compare?jobs={first},{second}", "desktop", "light"),
    ("compare-picker", "/compare", "short", "light"),
    ("leaderboard", "/leaderboard", "desktop", "light"),
    ("studies", "/studies", "desktop", "light"),
    ("study", "/studies/{study}", "desktop", "light"),
    ("submit", "/submit?from={second}", "desktop", "light"),
    ("catalog", "/catalog", "short", "light"),
    ("component", "/catalog/attack/pgd", "short", "dark"),
    ("warnings", "/warnings", "short", "light"),
    ("workers", "/workers", "desktop", "light"),
    ("usage", "/usage", "desktop", "light"),
    ("report", "/api/v1/report?jobs={second}&format=html", "desktop", "light"),
)
# Looked at, and in no document.
OTHERS_REVIEWED = (
    ("job-queued", "/jobs/{queued}", "desktop", "light"),
    ("job-language", "/jobs/{language}", "desktop", "light"),
    ("job-segmentation", "/jobs/{segmentation}", "desktop", "light"),
    ("job-series", "/jobs/{series}", "desktop", "light"),
    ("example-language", "/jobs/{language}/examples/1/0", "desktop", "light"),
    ("example-segmentation", "/jobs/{segmentation}/gallery/1/0", "desktop", "light"),
    ("example-series", "/jobs/{series}/gallery/1/0", "desktop", "light"),
    ("examples-language", "/jobs/{language}/examples/1", "desktop", "light"),
    ("examples-series", "/jobs/{series}/examples/1", "desktop", "light"),
    ("submit-empty", "/submit", "desktop", "light"),
    ("usage-tag", "/usage?by=tag", "desktop", "light"),
    ("error", "/jobs?state=runing", "desktop", "light"),
    ("docs", "/docs", "desktop", "light"),
)
FAULTS = """() => {
  const found = [];
  if (document.documentElement.scrollWidth > innerWidth) {
    found.push(`the page is ${document.documentElement.scrollWidth} wide`);
  }
  for (const one of document.querySelectorAll('main *')) {
    if (!one.checkVisibility()) continue;
    if (one.closest('pre, .unseen, .log, .pan, .scroll, .large, details:not([open])')) continue;
    const box = one.getBoundingClientRect();
    const clipped = getComputedStyle(one).overflowX !== 'visible' && one.scrollWidth > one.clientWidth + 1;
    if (box.width > 0 && (box.right > innerWidth + 1 || (one.clientWidth > 0 && clipped))) {
      found.push(`cut: ${one.tagName} ${one.className} ${one.textContent.trim().slice(0, 60)}`);
    }
  }
  const cards = [...document.querySelectorAll('.plots .plot')].map((card) => {
    const all = card.getBoundingClientRect(), drawn = card.querySelector('img').getBoundingClientRect();
    return [all.height, drawn.width * drawn.height / (all.width * all.height), card.id];
  });
  const heights = cards.map((one) => one[0]);
  if (Math.max(...heights) > 1.2 * Math.min(...heights)) found.push(`heights of cards: ${heights}`);
  for (const [, share, name] of cards) if (share < 0.6) found.push(`${name} fills ${share} of its card`);
  return found;
}"""


def main(arguments: list[str] | None = None) -> int:
    """Measures what is missing, then writes the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("docs/images"))
    parser.add_argument("--state", type=Path, help="keep the service's files here")
    parser.add_argument("--review", type=Path, help="draw every page at both widths and in both schemes here")
    options = parser.parse_args(arguments)
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        sys.stderr.write("this needs Chromium: apt-get install chromium\n")
        return 1
    options.folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        local_service(options.state or Path(folder) / "state", workers=2) as client,
    ):
        jobs = measured(client)
        with open_jobs(client, jobs), sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            try:
                if options.review is None:
                    take_pictures(browser, client.url, jobs, options.folder)
                else:
                    review(browser, client.url, jobs, options.review)
            finally:
                browser.close()
    return 0


@contextlib.contextmanager
def open_jobs(client: AssayClient, found: dict[str, str]) -> Iterator[None]:
    """A job that runs meanwhile and a job that waits for a GPU; what a broken run left is canceled."""
    for job in client.jobs(tag=TAG):
        if job.name in (RUNNING, QUEUED) and job.finished_at is None:
            client.cancel(job.id)
            client.wait(job.id)
    model = MODELS["RPC-SymViT"]
    found["running"] = running = client.submit(training(RUNNING, model, epochs=400)).id
    found["queued"] = client.submit(training(QUEUED, model, epochs=25) | {"execution": {"device": "cuda"}}).id
    try:
        deadline = time.monotonic() + START_SECONDS
        while not client.job(running).progress.done and time.monotonic() < deadline:
            time.sleep(0.5)
        yield
    finally:
        client.cancel(running)
        client.cancel(found["queued"])


def training(name: str, model: Mapping[str, Any], **params: float) -> dict[str, Any]:
    """A training on digits."""
    recipe = {"name": "small_vit", "params": params}
    return {"kind": "train", "name": name, "tags": [TAG], "model": model, "data": DIGITS, "recipe": recipe}


def measured(client: AssayClient) -> dict[str, str]:
    """Ids by what they show; jobs of an earlier run are taken as they are."""
    ended = [job for job in client.jobs(tag=TAG) if job.finished_at is not None]
    known = {job.name: job.id for job in ended if job.state.value == "succeeded" or job.name == FAILED}
    studies = {study.name: study.id for study in client.studies()}
    study = studies.get(STUDY["name"]) or client.submit_study(STUDY).id
    client.wait_study(study)
    found = {"study": study}
    for place, arm in zip(("first", "second"), client.study(study).runs, strict=True):
        name = f"{arm.name} on digits"
        spec = {
            "kind": "evaluate",
            "name": name,
            "tags": [TAG],
            "limit": 200,
            "model": {"name": MODELS[arm.name]["name"], "weights": {"job": arm.runs[0].train}},
            "data": DIGITS,
            "evaluations": ATTACKS,
        }
        found[place] = known.get(name) or client.submit(spec).id
        found["training"] = str(arm.runs[0].train)
    for place, name, trained, evaluations in OTHERS:
        if name not in known:
            source = client.submit({"kind": "train", "name": f"train: {name}", "tags": [TAG], **trained})
            model = {"name": trained["model"]["name"], "weights": {"job": source.id}}
            spec = {"kind": "evaluate", "name": name, "tags": [TAG], "limit": 60, "model": model}
            known[name] = client.submit({**spec, "data": trained["data"], "evaluations": evaluations}).id
        found[place] = known[name]
    for job in (one for place, one in found.items() if place != "study"):
        if (end := client.wait(job)).state.value != "succeeded":
            raise SystemExit(f"{end.name}: {end.error.message if end.error else end.state.value}")
    if FAILED not in known:
        failing = client.submit(training(f"train: {FAILED}", MODELS["SymViT"], epochs=400)).id
        model = {"name": MODELS["SymViT"]["name"], "weights": {"job": failing}}
        spec = {"kind": "evaluate", "name": FAILED, "tags": [TAG], "model": model, "data": DIGITS}
        known[FAILED] = client.submit(spec | {"evaluations": GRID}).id
        client.cancel(failing)
    found["failed"] = client.wait(known[FAILED]).id
    return found


def take_pictures(browser: Browser, url: str, jobs: Mapping[str, str], folder: Path) -> None:
    """Writes `dashboard-NAME.webp` of each page, with the jobs of `measured`."""
    for name, path, size, scheme in PAGES:
        width, height = WIDTHS[size]
        with opened(browser, url + path.format(**jobs), width, height, scheme) as (page, _):
            clip = {"x": 0, "y": 0, "width": width, "height": min(_height(page), height * 3 // 2)}
            picture = page.screenshot(full_page=True, clip=clip)  # type: ignore[arg-type]
        # A palette is enough for pages, and half the size; fewer colours change those of texts.
        small = Image.open(io.BytesIO(picture)).convert("RGB").quantize(COLOURS).convert("RGB")
        small.save(folder / f"dashboard-{name}.webp", lossless=True, quality=100, method=6)


def review(browser: Browser, url: str, jobs: Mapping[str, str], folder: Path) -> None:
    """Writes the whole of each page at both widths and in both schemes, and `faults.txt`."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "faults.txt").open("w") as faults:
        for name, path, _, _ in (*PAGES, *OTHERS_REVIEWED):
            for width, scheme in REVIEWED:
                with opened(browser, url + path.format(**jobs), width, 900, scheme) as (page, console):
                    page.screenshot(full_page=True, path=folder / f"{name}-{width}-{scheme}.png")
                    said = [*page.evaluate(FAULTS), *console]
                faults.writelines(f"{name} {width} {scheme}: {one}\n" for one in said)


@contextlib.contextmanager
def opened(
    browser: Browser, address: str, width: int, height: int, scheme: str
) -> Iterator[tuple[Page, list[str]]]:
    """A page with all its pictures, and the errors of its console."""
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme="dark" if scheme == "dark" else "light"
    )
    said: list[str] = []
    page = context.new_page()
    page.on("console", lambda one: said.extend([f"console: {one.text}"] * (one.type == "error")))
    if "/report?" in address:  # a file to download
        page.set_content(page.request.get(address).text())
    else:
        page.goto(address)
    while page.get_by_text("load the page again").count():  # a thread of the service is at work
        page.wait_for_timeout(2000)
        page.reload()
    # Pictures of plots load when they come near the window.
    page.evaluate(LOAD_PICTURES)
    page.wait_for_timeout(500)
    yield page, said
    context.close()


def _height(page: Any) -> int:
    return int(page.evaluate("document.documentElement.scrollHeight"))


if __name__ == "__main__":
    sys.exit(main())
