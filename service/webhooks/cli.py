"""The subcommands of `webhooks`."""

from __future__ import annotations

import itertools
import sys
from typing import Any

from assay.service.cli import commands, output
from assay.service.cli.arguments import Subcommands, actions_of, add_remote, count, json_argument
from assay.service.cli.commands import Options
from assay.service.fitted_text import say, tell
from assay.service.webhooks.wire import JOB_ENDED, WEBHOOK_EVENTS, Webhook, WebhookDelivery

HOOK = "01jd3q0x5v8f7m2n9k4t6w1z0w"


def add_commands(subcommands: Subcommands) -> None:
    """Adds `webhooks add`, `list`, `remove`, `rotate`, `enable`, `test`, `deliveries` and `redeliver`."""
    summary, example = "post events to an address of yours", "https://ci.example.com/assay --tag paper"
    command = add_remote(subcommands, "webhooks", list_all, summary, "list", topic="administration")
    actions = actions_of(command)

    create = add_remote(actions, "add", add_one, "register an address; prints its secret this once", example)
    create.add_argument("address", metavar="ADDRESS", help="an https address of a public host")
    create.add_argument(
        "--event",
        action="append",
        choices=WEBHOOK_EVENTS,
        metavar="EVENT",
        help=f"may be repeated: {', '.join(WEBHOOK_EVENTS)} (default: {', '.join(JOB_ENDED)})",
    )
    create.add_argument(
        "--kind", action="append", default=[], choices=["train", "evaluate"], help="only of these jobs"
    )
    create.add_argument("--tag", action="append", default=[], help="only of jobs with one of these tags")
    create.add_argument("--description", help="for people")
    listing = add_remote(actions, "list", list_all, "list the webhooks of your tenant")
    log = add_remote(actions, "deliveries", deliveries, "list its deliveries", HOOK)
    again = add_remote(
        actions, "redeliver", redeliver, "post a message again", f"{HOOK} 01jd3q0x5v8f7m2n9k4t6w1z0d"
    )
    changing = [
        add_remote(actions, name, run, summary, HOOK)
        for name, run, summary in (
            ("remove", remove, "remove a webhook with its log"),
            ("rotate", rotate, "make a new secret; the old one signs too for a day"),
            ("enable", enable, "put a disabled webhook into service again"),
            ("test", test, "post a test message"),
        )
    ]
    for parser in (log, again, *changing):
        parser.add_argument("webhook", metavar="WEBHOOK", help="its id")
    log.add_argument("--limit", type=count, default=20, help="how many (default: %(default)s)")
    again.add_argument("delivery", metavar="DELIVERY", help="id of the delivery")
    for parser in (command, create, listing, log, again, *changing[1:]):
        json_argument(parser)


def add_one(options: Options) -> int:
    """Registers a webhook."""
    with commands.connected(options) as client:
        made = client.add_webhook(
            options.address,
            events=options.event,
            kinds=options.kind,
            tags=options.tag,
            description=options.description,
        )
    return _show(options, made, f"{made.id}\n{made.secret}\n", "the secret is shown this once")


def list_all(options: Options) -> int:
    """Lists the webhooks."""
    with commands.connected(options) as client:
        found = client.webhooks()
    rows = [
        (one.id, one.url, _state(one), str(one.pending), str(one.dropped), " ".join(one.events))
        for one in found
    ]
    table = output.table(("ID", "ADDRESS", "STATE", "PENDING", "DROPPED", "EVENTS"), rows)
    return _show(options, found, f"{table}\n")


def remove(options: Options) -> int:
    """Removes a webhook."""
    with commands.connected(options) as client:
        client.remove_webhook(options.webhook)
    return commands.OK


def rotate(options: Options) -> int:
    """Makes a new secret."""
    with commands.connected(options) as client:
        made = client.rotate_webhook(options.webhook)
    return _show(
        options, made, f"{made.secret}\n", "the secret is shown this once; the old one signs too for a day"
    )


def enable(options: Options) -> int:
    """Enables a webhook."""
    with commands.connected(options) as client:
        found = client.enable_webhook(options.webhook)
    return _show(options, found, f"{_state(found)}\n")


def test(options: Options) -> int:
    """Posts a test message."""
    with commands.connected(options) as client:
        made = client.test_webhook(options.webhook)
    return _show(
        options, made, f"{made.id}\n", f"see its outcome with: assay webhooks deliveries {options.webhook}"
    )


def deliveries(options: Options) -> int:
    """Lists the deliveries."""
    with commands.connected(options) as client:
        found = client.webhook_deliveries(options.webhook, page_size=min(options.limit, 200))
        listed = list(itertools.islice(found, options.limit))
    rows = [
        (one.id, one.event, one.object, one.state, str(one.attempts), _outcome(one), one.next_at or "-")
        for one in listed
    ]
    table = output.table(("ID", "EVENT", "OBJECT", "STATE", "ATTEMPTS", "ANSWER", "NEXT ATTEMPT"), rows)
    return _show(options, listed, f"{table}\n")


def redeliver(options: Options) -> int:
    """Posts a message again."""
    with commands.connected(options) as client:
        made = client.redeliver_webhook(options.webhook, options.delivery)
    return _show(options, made, f"{made.state}\n")


def _state(one: Webhook) -> str:
    if one.disabled:
        return f"disabled: {one.disabled_reason}"
    return "enabled" if one.failing_since is None else f"failing since {one.failing_since}"


def _outcome(one: WebhookDelivery) -> str:
    return str(one.status) if one.status is not None else one.error or "-"


def _show(options: Options, value: Any, text: str, note: str = "") -> int:
    if options.json:
        shown = (
            [one.model_dump(mode="json") for one in value]
            if isinstance(value, list)
            else value.model_dump(mode="json")
        )
        sys.stdout.write(f"{output.json_text(shown)}\n")
        return commands.OK
    say(text.removesuffix("\n"))
    if note:
        tell(note)
    return commands.OK
