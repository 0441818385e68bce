"""`assay audit`: who did what, as a table or JSON lines, and whether entries were changed or removed."""

from __future__ import annotations

import argparse
import itertools
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TextIO

from assay.service.cli import output
from assay.service.cli.arguments import Subcommands, add_remote, count, json_argument
from assay.service.cli.commands import JOB_FAILED, OK, UsageError, connected
from assay.service.contract.audit import ACTIONS, AuditEntry, Chain
from assay.service.contract.times import iso
from assay.service.fitted_text import say, tell

AGO = re.compile(r"([1-9][0-9]{0,4})([mhd])", re.ASCII)
UNITS = {"m": "minutes", "h": "hours", "d": "days"}
HEAD = re.compile(r"([1-9][0-9]{0,17}):([0-9a-f]{64})", re.ASCII)
MAX_BREAKS = 20


def add_commands(subcommands: Subcommands) -> None:
    """Adds `audit`."""
    summary = "show who did what; needs an admin key"
    examples = "--since 7d --action key.create", "--jsonl audit.jsonl --verify"
    parser = add_remote(subcommands, "audit", audit, summary, *examples, topic="administration")
    when = "7d, 12h or 30m ago, or ISO 8601"
    parser.add_argument("--since", type=moment, metavar="WHEN", help=f"entries from then on: {when}")
    parser.add_argument("--until", type=moment, metavar="WHEN", help="entries before then")
    parser.add_argument("--tenant", help="of the key that acted")
    parser.add_argument("--action", choices=ACTIONS, metavar="ACTION", help=", ".join(ACTIONS))
    parser.add_argument("--key", metavar="ID", help="id of the key that acted")
    parser.add_argument("--limit", type=count, default=50, help="newest entries to show (default: 50)")
    parser.add_argument("--jsonl", metavar="FILE", help="write all of them as JSON lines; - is the terminal")
    parser.add_argument(
        "--verify", action="store_true", help="check the chain of all entries; exit code 1 when it is broken"
    )
    parser.add_argument(
        "--head", type=head, metavar="ID:SHA256", help="with --verify: an entry that must still be there"
    )
    json_argument(parser)


def audit(options: argparse.Namespace) -> int:
    """Shows the newest entries, writes them as JSON lines, or verifies the chain of all."""
    filters = {
        "after": options.since,
        "before": options.until,
        "tenant": options.tenant,
        "action": options.action,
        "key": options.key,
    }
    given = [name for name, value in filters.items() if value is not None]
    if options.head is not None and not options.verify:
        raise UsageError("--head: goes with --verify")
    if options.verify and given:
        raise UsageError("--verify: a chain is verified whole; leave the filters out")
    with connected(options) as client:
        if options.verify:
            return _verify(client.audit(), options)
        if options.jsonl is not None:
            count = sum(1 for _ in _written(client.audit(**filters), options.jsonl))
            tell(f"{count} entries")
            return OK
        newest = client.newest_audit(options.limit, **filters)[::-1]
    output.show([entry.model_dump(mode="json") for entry in newest], _table(newest), as_json=options.json)
    return OK


def moment(text: str) -> str:
    """The `type` of times: `7d`, `12h` or `30m` ago, a date, or ISO 8601; in UTC unless it says otherwise."""
    ago = AGO.fullmatch(text)
    if ago is not None:
        return iso((datetime.now(UTC) - timedelta(**{UNITS[ago[2]]: int(ago[1])})).timestamp())
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} given; allowed: 7d, 12h or 30m ago, 2026-01-31, or 2026-01-31T12:00:00Z"
        ) from None
    return iso(found.replace(tzinfo=found.tzinfo or UTC).timestamp())


def head(text: str) -> tuple[int, str]:
    """The `type` of `--head`: the id and hash of an entry, as an earlier verification printed them."""
    found = HEAD.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} given; allowed: ID:SHA256, as --verify prints it")
    return int(found[1]), found[2]


def _verify(entries: Iterator[AuditEntry], options: argparse.Namespace) -> int:
    chain = Chain()
    seen = options.head is None
    for entry in entries if options.jsonl is None else _written(entries, options.jsonl):
        chain.add(entry)
        seen = seen or (entry.id, entry.sha256) == options.head
    breaks = chain.end()
    if not seen:
        breaks.append(f"entry {options.head[0]} does not have the hash given by --head, or is gone")
    for line in itertools.islice(breaks, MAX_BREAKS):
        tell(line)
    if len(breaks) > MAX_BREAKS:
        tell(f"... and {len(breaks) - MAX_BREAKS} more")
    last = "" if chain.last is None else f"; the newest is {chain.last.id}:{chain.last.sha256}"
    say(f"{chain.count} entries, {'broken' if breaks else 'unbroken'}{last}")
    return JOB_FAILED if breaks else OK


def _written(entries: Iterator[AuditEntry], name: str) -> Iterator[AuditEntry]:
    """The entries, each written as a line; a file appears only when it is whole, `-` is standard output."""
    if name == "-":
        yield from _lines(entries, sys.stdout)
        return
    target = Path(name)
    # Readable by its owner alone: it has addresses of people.
    number, partial = tempfile.mkstemp(prefix=f"{target.name}.", suffix=".part", dir=target.parent)
    try:
        with os.fdopen(number, "w", encoding="ascii") as file:
            yield from _lines(entries, file)
        os.replace(partial, target)
    finally:
        Path(partial).unlink(missing_ok=True)


def _lines(entries: Iterator[AuditEntry], file: TextIO) -> Iterator[AuditEntry]:
    for entry in entries:
        file.write(entry.model_dump_json(ensure_ascii=True) + "\n")
        yield entry


def _table(entries: list[AuditEntry]) -> str:
    if not entries:
        return "no entries"
    header = ["ID", "TIME", "TENANT", "KEY", "ADDRESS", "ACTION", "OBJECT", "OUTCOME"]
    return output.table(header, [_cells(entry) for entry in entries])


def _cells(entry: AuditEntry) -> list[str]:
    who = [entry.tenant or "-", entry.key or "-", entry.address or "-"]
    return [str(entry.id), entry.at, *who, entry.action, entry.object or "-", entry.outcome]
