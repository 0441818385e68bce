"""Galleries of jobs: pages, pictures, and files that are damaged or hostile."""

from __future__ import annotations

import base64
import hashlib
import json
import struct
import zlib
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from assay.service.contract.gallery import Gallery
from assay.service.dashboard.formats import LOSS_BANDS, loss_band
from assay.service.settings import Settings
from assay.service.store.store import Store
from tests.support.pages import Tags, page

Make = Callable[..., dict[str, Any]]
HOSTILE = "<script>alert(1)</script>\u202e{{ 7 * 7 }}"


def png(width: int = 2, height: int = 3) -> str:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress(b"".join(b"\x00" + bytes(width) for _ in range(height)))
    whole = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    return base64.b64encode(whole).decode()


def example(**changes: Any) -> dict[str, Any]:
    before = {"prediction": 1, "confidence": 0.9}
    after = {"prediction": 2, "confidence": 0.6}
    return {"id": "x0", "rank": 0, "succeeded": True, "label": 1, "before": before, "after": after} | changes


def image(**changes: Any) -> dict[str, Any]:
    pictures = {"clean": png(), "changed": png(), "difference": png()}
    return example(kind="image", width=2, height=3, factor=63.75, linf=0.0078, l2=0.1, **pictures) | changes


def maps(**changes: Any) -> dict[str, Any]:
    names = ("clean", "changed", "difference", "truth", "map_before", "map_after")
    pictures = {name: png() for name in names}
    shares = {"accuracy_before": 0.9, "accuracy_after": 0.4, "shown": [0, 1]}
    both = {"before": None, "after": None, "label": None}
    return (
        example(kind="segmentation", width=2, height=3, factor=16, loss="ce", **pictures, **shares)
        | both
        | changes
    )


def text(**changes: Any) -> dict[str, Any]:
    clean = [{"text": "good", "loss": 1.5}, {"text": "film", "loss": 9.0}]
    perturbed = [{"text": "good", "loss": 1.5}, {"text": HOSTILE, "changed": True, "loss": 9.75}]
    return example(kind="text", clean=clean, perturbed=perturbed, words=2) | changes


def series(**changes: Any) -> dict[str, Any]:
    values = {"features": [0], "all_features": 1, "steps": 3, "every": 1}
    return example(kind="series", clean=[[0, 1, 2]], perturbed=[[0, 1.5, 2]], **values) | changes


def gallery(*items: dict[str, Any]) -> dict[str, Any]:
    classes = [
        {"index": 1, "name": "cat", "colour": "#102030"},
        {"index": 2, "name": HOSTILE},
    ]
    return {
        "kind": items[0]["kind"] if items else "image",
        "evaluation": "pgd",
        "params": {"epsilon": "2/255"},
        "protocol": "pixel",
        "classes": classes,
        "items": list(items),
    }


@pytest.fixture
def job(api: httpx.Client, worker: Any, evaluate_body: Make) -> str:
    found = str(api.post("/api/v1/jobs", json=evaluate_body(name="attacked")).json()["id"])
    worker.run(found, [1, 1, 0, 1], [1, 0, 0, 1])
    return found


@pytest.fixture
def store_file(app_store: Store, settings: Settings) -> Callable[..., None]:
    def store(job: str, name: str, content: bytes, media_type: str = "application/json") -> None:
        path = settings.artifacts / job / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        app_store.artifacts.add(job, name, str(path), len(content), digest, media_type)

    return store


def with_gallery(store_file: Any, job: str, *items: dict[str, Any]) -> None:
    content = json.dumps(gallery(*items)).encode()
    Gallery.model_validate_json(content)
    store_file(job, "gallery-001-pgd.json", content)


def test_images_are_shown_with_the_factor_and_both_answers(
    api: httpx.Client, job: str, store_file: Any
) -> None:
    with_gallery(store_file, job, image(), image(id="x1", succeeded=False, clamped=True))
    shown = page(api, f"/jobs/{job}/gallery/1")
    for part in ("63.8</figcaption>", "cat (90.0 %)", "survived", "shown as 0 and 1", "Example x1"):
        assert part in shown, part
    assert "<script>alert" not in shown
    assert "\u202e" not in shown
    assert ">49<" not in shown
    pictures = [a for tag, a in Tags(shown).found if tag == "img" and "/gallery/" in str(a.get("src"))]
    assert len(pictures) == 6
    assert all(a.get("alt") for a in pictures)
    for attributes in pictures:
        answer = api.get(str(attributes["src"]))
        assert answer.content.startswith(b"\x89PNG")
        assert answer.headers["content-type"] == "image/png"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "sandbox" in answer.headers["content-security-policy"]
    again = api.get(str(pictures[0]["src"]), headers={"If-None-Match": answer.headers["etag"]})
    assert again.status_code == 304
    assert f'href="/jobs/{job}/gallery/1"' in page(api, f"/jobs/{job}")


def test_broken_examples_come_first_and_the_strongest_attack_is_previewed(
    api: httpx.Client, job: str, store_file: Any
) -> None:
    weak = json.dumps(gallery(image(id="x9"))).encode()
    store_file(job, "gallery-000-fgsm.json", weak)
    with_gallery(store_file, job, image(id="x1", succeeded=False), image(id="x2"))
    shown = page(api, f"/jobs/{job}/gallery/1")
    assert shown.index("Example x2") < shown.index("Example x1")
    preview = page(api, f"/jobs/{job}")
    assert preview.index("Example x2") < preview.index("Example x1")
    assert "Example x9" not in preview


def test_corrupted_images_share_the_clean_one(api: httpx.Client, job: str, store_file: Any) -> None:
    first = image(corruption="fog", severity=5, difference=None)
    with_gallery(store_file, job, first, image(corruption="snow", severity=3, difference=None, clean=None))
    shown = page(api, f"/jobs/{job}/gallery/1")
    assert shown.count("/gallery/1/0/clean.png") == 2
    assert "snow, severity 3" in shown


def test_label_maps_lie_over_the_images_with_a_legend(api: httpx.Client, job: str, store_file: Any) -> None:
    with_gallery(store_file, job, maps())
    shown = page(api, f"/jobs/{job}/gallery/1")
    assert 'fill="#102030"' in shown
    assert "90.0 % before, 40.0 % after" in shown
    for name in ("truth", "before", "after"):
        assert api.get(f"/jobs/{job}/gallery/1/0/{name}.png").status_code == 200


def test_changed_words_are_marked_and_have_their_loss(api: httpx.Client, job: str, store_file: Any) -> None:
    with_gallery(store_file, job, text())
    shown = page(api, f"/jobs/{job}/gallery/1")
    assert "<mark>&lt;script&gt;alert(1)" in shown
    assert '<small class="loss band-4">9.75</small>' in shown
    assert "&lt;mark&gt;" not in shown
    page(api, f"/jobs/{job}")


def test_series_are_drawn_over_each_other(api: httpx.Client, job: str, store_file: Any) -> None:
    with_gallery(store_file, job, series())
    shown = page(api, f"/jobs/{job}/gallery/1")
    assert shown.count("<polyline") == 2
    assert 'role="img" aria-label="Feature 0' in shown


def test_a_damaged_gallery_is_a_404_and_the_page_of_the_job_does_without(
    api: httpx.Client, job: str, store_file: Any
) -> None:
    for content in (b"", b'{"version": 2}', b"\xff\xfe", json.dumps(gallery(image(kind="text"))).encode()):
        store_file(job, "gallery-001-pgd.json", content)
        assert "damaged" in page(api, f"/jobs/{job}/gallery/1", 404)
    assert "First examples" not in page(api, f"/jobs/{job}")


def test_what_is_no_png_of_the_stated_size_is_not_served(
    api: httpx.Client, job: str, store_file: Any
) -> None:
    page_of_html = base64.b64encode(b"<html><script>alert(1)</script>" + bytes(40)).decode()
    with_gallery(store_file, job, image(clean=page_of_html, changed=png(9, 9), difference="AAAAA"))
    for name in ("clean", "changed", "difference"):
        assert api.get(f"/jobs/{job}/gallery/1/0/{name}.png").status_code == 404
    for path in ("1/0/truth", "1/0/id", "1/1/clean", "1/-1/clean", "0/0/clean"):
        assert api.get(f"/jobs/{job}/gallery/{path}.png").status_code == 404
    assert "those with one: 1" in page(api, f"/jobs/{job}/gallery/0", 404)


def test_svg_files_of_a_job_are_pictures_that_cannot_run(
    api: httpx.Client, job: str, store_file: Any
) -> None:
    svg = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
    store_file(job, "plot-001-spectrum.svg", svg, "image/svg+xml")
    store_file(job, "page.html", b"<script>", "text/html")
    answer = api.get(f"/jobs/{job}/pictures/plot-001-spectrum.svg")
    assert answer.content == svg
    assert answer.headers["content-security-policy"].startswith("sandbox; default-src 'none'")
    assert answer.headers["content-type"] == "image/svg+xml"
    assert f"/jobs/{job}/pictures/plot-001-spectrum.svg" in page(api, f"/jobs/{job}")
    for name in ("page.html", "nothing.svg", "..%2F..%2Fassay.sqlite"):
        assert api.get(f"/jobs/{job}/pictures/{name}").status_code == 404


def test_losses_have_a_shade_each() -> None:
    assert [loss_band(loss) for loss in (-1.0, 0.0, 2.5, 7.9, 1e300)] == [0, 0, 1, 3, LOSS_BANDS - 1]
