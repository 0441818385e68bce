"""The reference of the warnings, from `service/contract/warning_codes.json`."""

from __future__ import annotations

import re
from itertools import groupby

from assay.service.contract.warning_codes import WarningMeaning, warning_meanings
from supply.site.markdown import code

# Links of the texts are relative to `docs`.
LINK = re.compile(r"\]\((?=[\w-]+\.md)")


def page() -> str:
    """Every code with its severity, places, cause, evidence and remedy, by group."""
    groups = groupby(warning_meanings(links=True), key=lambda one: one.group)
    return "\n".join(f"## {name}\n\n{''.join(map(_section, found))}" for name, found in groups)


def old_anchors() -> str:
    """A line for each code under the anchor that `docs/warnings.md` had for it."""
    lines = [
        f'- <a id="{one.code}"></a>[{code(one.code)}](reference/warnings.md#{one.code}): {one.severity}'
        for one in warning_meanings()
    ]
    return "\n".join(lines) + "\n"


def _section(one: WarningMeaning) -> str:
    lines = [f"### {code(one.code)} {{ #{one.code} }}", "", f"{one.severity}; on {', '.join(one.where)}.", ""]
    lines += [f"- {part.title()}: {getattr(one, part)}" for part in ("cause", "evidence", "remedy")]
    return LINK.sub("](../", "\n".join(lines)) + "\n\n"
