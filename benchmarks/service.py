"""Load benchmarks of the service and its workers: `python -m benchmarks.service [PART ...]`.

Parts, by default all: `requests` (latency at 100 requests a second), `sizes` (lists and status at 1,000 to
100,000 jobs, with the plans of their queries), `fleet` (1,000 simulated workers and 2,000,000 shards),
`pages` (of the dashboard, with 10,000 jobs and 100 watchers), `usage` (of 10,000 jobs), `shards` (time in
which a busy worker is not evaluating) and `workers` (two against one). Other load on the machine slows down
all of it: report it with the numbers.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from benchmarks import (
    service_fleet,
    service_pages,
    service_requests,
    service_shards,
    service_sizes,
    service_usage,
)

PARTS: dict[str, Callable[[int], str]] = {
    "requests": service_requests.main,
    "sizes": service_sizes.main,
    "pages": service_pages.main,
    "usage": service_usage.main,
    "fleet": service_fleet.main,
    "shards": service_shards.overhead,
    "workers": service_shards.speedup,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the chosen parts, and prints each when done."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.service", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args(arguments)
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"unknown part {', '.join(sorted(unknown))}; allowed: {', '.join(PARTS)}")
    for part in options.parts or PARTS:
        sys.stdout.write(f"\n== {part}\n{PARTS[part](options.repeats)}")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
