"""Contrast of texts with what is behind them, in light and in dark: 7:1, of WCAG's level AAA."""

from __future__ import annotations

import re

import pytest

from assay.service.api.login_page import STYLE
from assay.service.dashboard.frame import static_file

DARK = "prefers-color-scheme:dark"
LEAST = 7.0
# Text and what is behind it, as variables of the style sheets.
OF_LOGIN = (("text", "back"), ("on", "accent"))
OF_PAGES = (
    *((text, back) for text in ("text", "soft", "link") for back in ("back", "panel")),
    ("on-accent", "accent"),
    ("accent", "back"),
    *((name, f"{name}-back") for name in ("good", "bad", "busy", "wait")),
    *((name, "back") for name in ("good", "bad")),
)


def colours(style: str) -> dict[str, dict[str, str]]:
    """Variables of the light set and of the dark one."""
    light, _, dark = style.replace(" ", "").partition(DARK)
    found = {
        name: dict(re.findall(r"--([a-z-]+):(#[0-9a-f]{3,6})", part))
        for name, part in (("light", light), ("dark", dark))
    }
    return {"light": found["light"], "dark": found["light"] | found["dark"]}


def luminance(colour: str) -> float:
    """Relative luminance as WCAG 2 defines it."""
    digits = colour[1:] if len(colour) == 7 else "".join(2 * one for one in colour[1:])
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = (one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_the_formula_has_its_known_ends() -> None:
    assert contrast("#000000", "#fff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("part", ["login", "pages"])
def test_text_has_enough_contrast(part: str, scheme: str) -> None:
    style = STYLE if part == "login" else static_file("style.css")[0].decode()
    known = colours(style)[scheme]
    for text, back in OF_LOGIN if part == "login" else OF_PAGES:
        assert contrast(known[text], known[back]) >= LEAST, (text, back)
