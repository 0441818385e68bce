"""The features of the service: each is a folder beside the core, and one line here.

The core asks for the modules of a name, and every feature with a file of that name answers. So the core
imports no feature, and a feature is removed with its folder and its line. What each file defines is in
`docs/adding.md`, "Adding a feature".
"""

from __future__ import annotations

import functools
from importlib import import_module
from importlib.util import find_spec
from typing import Any

# In the order of the documentation and of the help.
FEATURES = (
    "signing",  # signs results, and checks signatures
    "checkpoints",  # takes uploaded weights and programs
    "webhooks",  # posts events to addresses of tenants
    "tenants",  # API keys, weights and limits
    "leaderboard",  # ranks finished evaluations
    "audit",  # reads who did what
    "workers",  # shows workers, and takes them out of service
)


@functools.cache
def modules(name: str) -> tuple[Any, ...]:
    """The modules `assay.service.FEATURE.name` of all features that have one."""
    paths = [f"assay.service.{feature}.{name}" for feature in FEATURES]
    return tuple(import_module(path) for path in paths if find_spec(path) is not None)
