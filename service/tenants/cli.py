"""`assay quota` and `assay tenants`: limits of the caller's tenant, and weights and limits of all."""

from __future__ import annotations

import argparse
import math
import sys
from typing import Any

from assay.service.cli import output
from assay.service.cli.commands import OK, UsageError, connected
from assay.service.contract.limits import LIMITS, QuotaStatus, Tenant
from assay.service.contract.problems import nearest

DEFAULT = "default"


def quota(options: argparse.Namespace) -> int:
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
        sys.stderr.write(
            f"note: no key belongs to the tenant {output.printable(options.name)}{hint} A key's tenant is in"
            " `assay keys list`; `assay keys create --tenant NAME` chooses it\n"
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
    sys.stdout.write(f"{output.json_text(value) if options.json else text}\n")
