"""The features of the service: each is a folder beside the core, and one line here.

The core asks for the modules of a name, and every feature with a file of that name answers. So the core
imports none of `FEATURES`, and each is removed with its folder and its line. What each file defines is in
`docs/adding.md`, "Adding a feature".
"""

from __future__ import annotations

import functools
from importlib import import_module
from importlib.util import find_spec
from typing import Any

SHARED = (  # Pages of the core and of other features show them as parts, so the core imports them.
    "plots",  # draws results: in pages of jobs, comparisons and the leaderboard, in reports, and in workers
    "galleries",  # shows examples before and after: in the page of a job
    "reports",  # numbers and tables for papers, and the gate: their texts are used by pages and terminal
)
FEATURES = (  # In the order of the documentation and of the help.
    "signing",  # signs results, and checks signatures
    "checkpoints",  # takes uploaded weights and programs
    "studies",  # compares methods: arms x seeds x evaluations
    "leaderboard",  # ranks finished evaluations
    "webhooks",  # posts events to addresses of tenants
    "tenants",  # API keys, weights and limits
    "audit",  # reads who did what
    "workers",  # shows workers, takes them out of service, and asks schedulers of machines for them
    "usage",  # tells what jobs, tenants, tags and studies have cost
    "gateway",  # gives workers shards over HTTP, and takes outcomes
    "datasets",  # gives nodes the published data sets
    "mcp",  # gives agents the service as tools
    "evalhub",  # runs suites as benchmarks of an EvalHub server
)


@functools.cache
def modules(name: str) -> tuple[Any, ...]:
    """The modules `assay.service.FEATURE.name` of all features that have one."""
    return tuple(import_module(path) for path in names(name))


def names(name: str) -> list[str]:
    """The full names of these modules, which are not imported."""
    paths = [f"assay.service.{feature}.{name}" for feature in (*SHARED, *FEATURES)]
    return [path for path in paths if find_spec(path) is not None]
