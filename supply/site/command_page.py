"""The reference of the command line, from its parser: every subcommand with its arguments and examples."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator

from supply.site.markdown import cell, code, table

COLUMNS = "96"  # of the usage lines


def page() -> str:
    """The lists of all subcommands by topic, then each of them."""
    shown = {name: os.environ.pop(name) for name in ("ASSAY_URL", "COLUMNS") if name in os.environ}
    os.environ["COLUMNS"] = COLUMNS
    try:
        from assay.service.cli.main import build_parser  # its defaults are of the environment

        parser = build_parser()
        topics = [_topic(title, actions) for title, actions in parser.topics().items()]
        return "\n".join([*topics, *(_command(one, 2) for one in _subcommands(parser))])
    finally:
        del os.environ["COLUMNS"]
        os.environ.update(shown)


def _topic(title: str, actions: list[argparse.Action]) -> str:
    rows = [[f"[`assay {one.dest}`](#assay-{one.dest})", cell(one.help or "")] for one in actions]
    return f"**{title[:1].upper()}{title[1:]}**\n\n{table(['command', 'what it does'], rows)}"


def _subcommands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from (action.choices[one.dest] for one in action._choices_actions)


def _anchor(parser: argparse.ArgumentParser) -> str:
    return parser.prog.replace(" ", "-")


def _command(parser: argparse.ArgumentParser, level: int) -> str:
    actions = list(_subcommands(parser))
    prefix = "usage: "
    usage = "\n".join(line[len(prefix) :] for line in parser.format_usage().rstrip().splitlines())
    parts = [
        f"{'#' * level} {parser.prog} {{ #{_anchor(parser)} }}\n",
        f"{_prose(parser.description or '')}\n",
        f"```text\n{usage}\n```\n",
    ]
    rows = [
        [_name(parser, action), _default(action), cell(_help(parser, action))]
        for action in parser._actions
        if not isinstance(action, argparse._SubParsersAction | argparse._HelpAction)
        and action.help != argparse.SUPPRESS
    ]
    if rows:
        parts.append(table(["argument", "default", "meaning"], rows))
    if examples := _examples(parser.epilog or ""):
        parts.append(f"```sh\n{examples}\n```\n")
    return "\n".join([*parts, *(_command(one, level + 1) for one in actions)])


def _prose(text: str) -> str:
    return re.sub(r"([<*_])", r"\\\1", text)


def _examples(epilog: str) -> str:
    lines = epilog.splitlines()
    return "\n".join(line.strip() for line in lines if line.startswith("  ")) if lines else ""


def _name(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    formatter = parser._get_formatter()
    if not action.option_strings:
        return code(formatter._metavar_formatter(action, action.dest)(1)[0])
    metavar = "" if action.nargs == 0 else " " + formatter._format_args(action, action.dest.upper())
    return ", ".join(code(f"{option}{metavar}") for option in action.option_strings)


def _default(action: argparse.Action) -> str:
    if action.required and action.option_strings:
        return "required"
    if not action.option_strings or action.nargs == 0 or action.default in (None, [], argparse.SUPPRESS):
        return ""
    return code(str(action.default))


def _help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    return parser._get_formatter()._expand_help(action) if action.help else ""
