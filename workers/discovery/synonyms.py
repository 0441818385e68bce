"""Words of other libraries for parameters, which their users write first.

A parameter's name has one meaning in all components, so each name is listed once. The catalog has its words
under `also`; the service suggests the parameter for them. A module's `ALSO` has its component's words.
Capitals, hyphens and underscores do not count.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

# cleverhans, Foolbox, torchattacks, ART, AutoAttack, RobustBench, TextAttack, timm.
PARAMETERS: Mapping[str, Sequence[str]] = json.loads(
    Path(__file__).with_name("synonyms.json").read_text(encoding="utf-8")
)


def with_synonyms(properties: Mapping[str, Any]) -> dict[str, Any]:
    """A schema's parameters with their words, except words that are parameters too."""
    found = {
        name: [word for word in PARAMETERS.get(name, ()) if word not in properties] for name in properties
    }
    return {
        name: part | ({"also": " ".join(found[name])} if found[name] else {})
        for name, part in properties.items()
    }


def checked_words(where: str, stated: Iterable[str] | None) -> list[str]:
    """A module's ALSO; ValueError: no list of texts."""
    words = [] if stated is None else list(stated)
    if isinstance(stated, str) or not all(isinstance(word, str) and word for word in words):
        raise ValueError(f"{where}: ALSO must list other names of the component; it is {stated!r}")
    return words
