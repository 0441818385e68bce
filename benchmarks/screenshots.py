"""Pictures of every page of the dashboard, from real small jobs: `make screenshots`.

`python -m benchmarks.screenshots [--folder docs/images] [--state FOLDER]` starts the embedded service, trains
and measures small models of each kind, and writes `dashboard-*.png`. Needs Chromium. With `--state` the jobs
are kept, and a second run takes those that are there.
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
from playwright.sync_api import Browser, sync_playwright

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
# Name, training, evaluations: a kind of data each.
OTHERS: tuple[tuple[str, dict[str, Any], list[dict[str, Any]]], ...] = (
    (
        "Language model, swapped words",
        {
            "model": {"name": "lm", "params": LANGUAGE | {"initialization": "scaled"}},
            "data": {"name": "pydoc"},
            "recipe": {"name": "small_lm", "params": {"epochs": 3, "learning_rate": 0.003}},
        },
        [{"name": "perplexity"}, {"name": "word_swap", "params": {"rate": 0.05}}],
    ),
    (
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
RUNNING = "RPC-SymViT, more epochs"
START_SECONDS = 120
WIDTHS = {"desktop": (1280, 800), "phone": (390, 844)}


def main(arguments: list[str] | None = None) -> int:
    """Measures what is missing, then writes the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("docs/images"))
    parser.add_argument("--state", type=Path, help="keep the service's files here")
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
        with running_job(client), sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            try:
                take_pictures(browser, client.url, jobs, options.folder)
            finally:
                browser.close()
    return 0


@contextlib.contextmanager
def running_job(client: AssayClient) -> Iterator[None]:
    """A job that runs meanwhile, and no other: what a broken run left in the state is canceled."""
    for job in client.jobs(tag=TAG):
        if job.name == RUNNING and job.finished_at is None:
            client.cancel(job.id)
            client.wait(job.id)
    running = client.submit(training(RUNNING, MODELS["RPC-SymViT"], 400)).id
    try:
        deadline = time.monotonic() + START_SECONDS
        while not client.job(running).progress.done and time.monotonic() < deadline:
            time.sleep(0.5)
        yield
    finally:
        client.cancel(running)


def training(name: str, model: Mapping[str, Any], epochs: int) -> dict[str, Any]:
    """A training on digits."""
    recipe = {"name": "small_vit", "params": {"epochs": epochs}}
    return {"kind": "train", "name": name, "tags": [TAG], "model": model, "data": DIGITS, "recipe": recipe}


def measured(client: AssayClient) -> dict[str, str]:
    """Ids by what they show; jobs of an earlier run are taken as they are."""
    known = {job.name: job.id for job in client.jobs(tag=TAG) if job.state.value == "succeeded"}
    studies = {study.name: study.id for study in client.studies()}
    study = studies.get(STUDY["name"]) or client.submit_study(STUDY).id
    client.wait_study(study)
    found = {"study": study}
    for arm in client.study(study).runs:
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
        found[arm.name] = known.get(name) or client.submit(spec).id
        found[f"train {arm.name}"] = str(arm.runs[0].train)
    for name, trained, evaluations in OTHERS:
        if name not in known:
            source = client.submit({"kind": "train", "name": f"train: {name}", "tags": [TAG], **trained})
            model = {"name": trained["model"]["name"], "weights": {"job": source.id}}
            spec = {"kind": "evaluate", "name": name, "tags": [TAG], "limit": 60, "model": model}
            known[name] = client.submit({**spec, "data": trained["data"], "evaluations": evaluations}).id
        found[name] = known[name]
    for job in list(found.values()):
        if job != study and (ended := client.wait(job)).state.value != "succeeded":
            raise SystemExit(f"{ended.name}: {ended.error.message if ended.error else ended.state.value}")
    return found


def take_pictures(browser: Browser, url: str, jobs: Mapping[str, str], folder: Path) -> None:
    """Writes `dashboard-NAME.png` of each page.

    Args:
        browser: That draws them.
        url: Of the service.
        jobs: As `measured` returns them.
        folder: For the pictures.
    """
    first, second = jobs["SymViT"], jobs["RPC-SymViT"]
    language, maps, series = (name for name, _, _ in OTHERS)
    pages = (
        ("overview", "/", "desktop", "light"),
        ("jobs", "/jobs", "phone", "light"),
        ("job", f"/jobs/{second}", "desktop", "light"),
        ("gallery", f"/jobs/{second}/gallery/6", "desktop", "light"),
        ("gallery-language", f"/jobs/{jobs[language]}/gallery/1", "desktop", "light"),
        ("gallery-segmentation", f"/jobs/{jobs[maps]}/gallery/1", "desktop", "light"),
        ("gallery-series", f"/jobs/{jobs[series]}/gallery/1", "desktop", "dark"),
        ("compare", f"/compare?jobs={first},{second}", "desktop", "light"),
        ("leaderboard", "/leaderboard", "desktop", "light"),
        ("study", f"/studies/{jobs['study']}", "desktop", "light"),
        ("submit", f"/submit?from={second}", "desktop", "light"),
        ("catalog", "/catalog/attack/pgd", "desktop", "dark"),
    )
    for name, path, size, scheme in pages:
        width, height = WIDTHS[size]
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme="dark" if scheme == "dark" else "light"
        )
        page = context.new_page()
        page.goto(url + path)
        while page.get_by_text("load the page again").count():  # a thread of the service is at work
            page.wait_for_timeout(2000)
            page.reload()
        # Pictures of plots load when they come near the window.
        page.evaluate(LOAD_PICTURES)
        page.wait_for_timeout(500)
        clip = {"x": 0, "y": 0, "width": width, "height": min(_height(page), height * 3 // 2)}
        picture = page.screenshot(full_page=True, clip=clip)  # type: ignore[arg-type]
        # A palette is enough for pages, and half the size; fewer colours change those of texts.
        small = Image.open(io.BytesIO(picture)).convert("RGB").quantize(COLOURS)
        small.save(folder / f"dashboard-{name}.png", optimize=True)
        context.close()


def _height(page: Any) -> int:
    return int(page.evaluate("document.documentElement.scrollHeight"))


if __name__ == "__main__":
    sys.exit(main())
