"""`assay keys`, `assay quota` and `assay tenants`: API keys, and weights and limits of tenants."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

from assay.service.cli import output
from assay.service.cli.arguments import (
    Subcommands,
    actions_of,
    add,
    add_remote,
    count,
    json_argument,
    url_arguments,
)
from assay.service.cli.commands import OK, UsageError, connected
from assay.service.contract.keys import SCOPES
from assay.service.contract.limits import LIMITS, QuotaStatus, Tenant
from assay.service.contract.problems import nearest
from assay.service.fitted_text import tell
from assay.service.tenants import keys

DEFAULT = "default"


def add_commands(subcommands: Subcommands) -> None:
    """Adds `keys`, `quota` and `tenants`."""
    _add_keys(subcommands)
    _add_tenants(subcommands)


def _add_keys(subcommands: Subcommands) -> None:
    summary = "make, list and revoke API keys"
    command = add(subcommands, "keys", keys.list_all, summary, "list", topic="administration")
    actions = actions_of(command)

    examples = "--name ci --scope submit --expires-days 90", "--state assay-state --name me --scope admin"
    create = add(actions, "create", keys.create, "make a key; prints it this once", *examples)
    create.add_argument("--name", required=True, help="what people call it")
    create.add_argument(
        "--scope",
        required=True,
        action="append",
        choices=SCOPES,
        help="what it allows: read, submit (and read), admin (everything, all tenants), worker (the gateway)",
    )
    create.add_argument("--tenant", help="whose jobs it makes and sees (default: its own)")
    create.add_argument("--expires-days", type=count, help="days until it expires (default: never)")

    listing = add(actions, "list", keys.list_all, "list all keys", "--json")

    revoke = add(actions, "revoke", keys.revoke, "end a key and its sessions", "3k9x7m2q")
    revoke.add_argument("key_id", metavar="ID", help="the key's id")
    for parser in (command, create, listing, revoke):
        url_arguments(parser, ", which is asked with the admin key in ASSAY_KEY or the profile")
        parser.add_argument(
            "--state",
            type=Path,
            help="open the database of the service itself, without a key: in this state folder, or where"
            " ASSAY_DATABASE_URL says (default without a key and an address: ASSAY_STATE)",
        )
        json_argument(parser)
    create.add_argument(
        "--init", action="store_true", help="with --state: make the database if it is missing"
    )


def _add_tenants(subcommands: Subcommands) -> None:
    summary = "show the limits of your tenant and their use"
    quota = add_remote(subcommands, "quota", show_quota, summary, topic="administration")
    example = "alice --weight 3 --running-shards 8 --queued-jobs default"
    summary = "weights and limits of tenants"
    command = add_remote(subcommands, "tenants", list_all, summary, f"set {example}", topic="administration")
    actions = actions_of(command)
    listing = add_remote(actions, "list", list_all, "list all tenants")
    change = add_remote(actions, "set", set_one, "set weight and limits of a tenant", example)
    change.add_argument("name", metavar="NAME", help="the tenant, as `assay keys list` shows it")
    change.add_argument("--weight", help="its part of the workers, against 1 of the others")
    for name in LIMITS:
        text = f"limit of {name.replace('_', ' ')}: an integer, 0 for none, or 'default'"
        change.add_argument(f"--{name.replace('_', '-')}", dest=name, metavar="N", help=text)
    for parser in (quota, command, listing, change):
        json_argument(parser)


def show_quota(options: argparse.Namespace) -> int:
    """Shows where the caller's tenant stands."""
    with connected(options) as client:
        found = client.quota()
    _show(options, found.model_dump(mode="json"), quota_text(found))
    return OK


def list_all(options: argparse.Namespace) -> int:
    """Lists all tenants."""
    with connected(options) as client:
        found = client.tenants()
    _show(options, [one.model_dump(mode="json") for one in found], tenants_table(found))
    return OK


def set_one(options: argparse.Namespace) -> int:
    """Changes the given settings of a tenant; the others stay."""
    given = {name: getattr(options, name) for name in ("weight", *LIMITS)}
    given = {name: text for name, text in given.items() if text is not None}
    if not given:
        named = ", ".join(f"--{name.replace('_', '-')}" for name in ("weight", *LIMITS))
        raise UsageError(f"nothing to set; allowed: {named}")
    with connected(options) as client:
        known = [one.name for one in client.tenants()]
        present = client.tenant(options.name)
        settings: dict[str, Any] = {"weight": present.weight, **present.own}
        settings |= {name: _value(name, text) for name, text in given.items()}
        found = client.set_tenant(options.name, **settings)
    if options.name not in known:
        near = nearest(options.name, known)
        hint = f"; did you mean {near}?" if near else ""
        tell(
            f"note: no key belongs to the tenant {output.printable(options.name)}{hint} A key's tenant is in"
            " `assay keys list`; `assay keys create --tenant NAME` chooses it"
        )
    _show(options, found.model_dump(mode="json"), tenants_table([found]))
    return OK


def quota_text(found: QuotaStatus) -> str:
    """Limits and places in the queues, for people."""
    header = ["LIMIT", "USED", "OF", "LEFT", "RESETS"]
    rows = [
        [name, str(one.used), _number(one.limit), _number(one.left), one.resets_at or ""]
        for name, one in found.limits.items()
    ]
    places = [
        [one.device, str(one.queued), str(one.running), str(one.before), f"{one.share:.0%}"]
        for one in found.queue
    ]
    lines = [
        f"tenant {found.tenant or '(none)'}, weight {found.weight:g}",
        output.table(header, rows),
        output.table(["WORKERS", "QUEUED", "RUNNING", "BEFORE", "SHARE"], places),
    ]
    if found.delayed_by:
        lines.append(f"queued shards wait: the limit of {' and '.join(found.delayed_by)} is reached")
    return "\n".join(lines)


def tenants_table(found: list[Tenant]) -> str:
    """Weights and limits in force; a tenant's own values have a star."""
    header = ["TENANT", "WEIGHT", *(name.replace("_", " ").upper() for name in LIMITS)]
    rows = [[one.name, f"{one.weight:g}", *(_limit(one, name) for name in LIMITS)] for one in found]
    return output.table(header, rows) if rows else "no tenants"


def _limit(tenant: Tenant, name: str) -> str:
    return _number(tenant.limits[name] or None) + ("*" if tenant.own[name] is not None else "")


def _number(value: int | None) -> str:
    return "any" if value is None else str(value)


def _value(name: str, text: str) -> float | int | None:
    try:
        if name == "weight":
            weight = float(text)
            if not math.isfinite(weight):
                raise ValueError
            return weight
        return None if text == DEFAULT else int(text)
    except ValueError:
        allowed = (
            "a number from 0.01 to 1000" if name == "weight" else "an integer, 0 for no limit, or 'default'"
        )
        option = name.replace("_", "-")
        raise UsageError(f"--{option}: {text!r} given; allowed: {allowed}") from None


def _show(options: argparse.Namespace, value: object, text: str) -> None:
    output.show(value, text, as_json=options.json)
