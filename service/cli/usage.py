"""The parser of the command line: help by topic, and wrong usage in one line."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NoReturn, get_args

from assay.service.cli import commands, output
from assay.service.contract.errors import AssayError
from assay.service.contract.problems import nearest, path_text
from assay.service.fitted_text import fitted

# Headings of `assay help more`, in this order.
Topic = Literal[
    "jobs", "results", "studies", "data and weights", "catalog", "this machine", "administration"
]  # fmt: skip
MAX_EXAMPLE = 46  # columns of the lines to copy
OF_QUERIES = ", separated by commas"  # What only the REST interface asks for: here ids are words.


class Actions(argparse._SubParsersAction):  # type: ignore[type-arg]
    """Subcommands; options before the action hold, where the action's own defaults would replace them."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Parses the rest of the line."""
        before = {name: given for name, given in vars(namespace).items() if given != parser.get_default(name)}
        super().__call__(parser, namespace, values, option_string)
        action = self.choices[values[0]]
        for name, given in before.items():
            known = any(one.dest == name for one in action._actions)
            if known and getattr(namespace, name) == action.get_default(name):
                setattr(namespace, name, given)


class Parser(argparse.ArgumentParser):
    """Shows few of its subcommands first, and names the nearest of what it does not know."""

    topic: Topic | None = None
    first = ""  # a line to copy; only the verbs of the short help have it
    gathers = False  # its command tells faults of the line with its own
    older: Mapping[str, str] = {}  # names that a subcommand had, each with the words that it adds now

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.register("action", "parsers", Actions)
        self.faults: list[tuple[str, str]] = []  # option or "", and what is wrong with its value
        self.verbs: argparse._SubParsersAction[Parser] | None = None  # of the `assay` command alone

    def topics(self, *, rest: bool = False) -> dict[Topic, list[argparse.Action]]:
        """The subcommands by topic; with `rest` without the verbs of the short help."""
        assert self.verbs is not None
        found: dict[Topic, list[argparse.Action]] = {topic: [] for topic in get_args(Topic)}
        for action in self.verbs._choices_actions:
            parser = self.verbs.choices[action.dest]
            if parser.topic is not None and not (rest and parser.first):
                found[parser.topic].append(action)
        return found

    def format_help(self) -> str:
        """The short help, where subcommands have a line for it."""
        if self.verbs is None:
            return super().format_help()
        first = {name: parser.first for name, parser in self.verbs.choices.items() if parser.first}
        formatter = argparse.HelpFormatter(self.prog, max_help_position=MAX_EXAMPLE)
        formatter.add_text(self.description)
        formatter.start_section(f"usage: {self.prog} VERB ..., to begin with")
        for action in self.verbs._choices_actions:
            if action.dest in first:
                line = f"{self.prog} {action.dest} {first[action.dest]}"
                formatter.add_argument(argparse.Action([], line, help=(action.help or "").partition(";")[0]))
        formatter.end_section()
        count = sum(map(len, self.topics(rest=True).values()))
        formatter.add_text(
            f"`{self.prog} help VERB` has its options, `{self.prog} help more` {count} more verbs"
        )
        return formatter.format_help()

    def format_more(self) -> str:
        """The subcommands by topic that the short help leaves out, old names, and the epilog."""
        assert self.verbs is not None
        formatter = argparse.HelpFormatter(self.prog)
        for topic, actions in self.topics(rest=True).items():
            formatter.start_section(topic)
            formatter.add_arguments(actions)
            formatter.end_section()
        formatter.start_section("older names, which go on working")
        for name, words in self.older_names().items():
            formatter.add_argument(argparse.Action([], name, help=f"{self.prog} {' '.join(words)}"))
        formatter.end_section()
        formatter.add_text(self.epilog)
        return formatter.format_help()

    def older_names(self) -> dict[str, list[str]]:
        """What stands today for each older name, a verb and its words."""
        verbs = self.verbs.choices.items() if self.verbs else ()
        return {old: [verb, *words.split()] for verb, parser in verbs for old, words in parser.older.items()}

    def _actions_of(self, verb: str) -> set[str]:
        assert self.verbs is not None
        found = (one.choices for one in self.verbs.choices[verb]._actions if isinstance(one, Actions))
        return {name for choices in found for name in choices}

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """As argparse's, with older names; what is not known ends here, in the subcommand of it."""
        if args and args[0] in (older := self.older_names()):
            verb, *words = older[args[0]]
            # `assay study register` is an action that `study` never had alone.
            args = [verb, *([] if set(args[1:2]) & self._actions_of(verb) else words), *args[1:]]
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            near = nearest(unknown[0].partition("=")[0], self._option_string_actions)
            hint = f"; did you mean {near!r}?" if near and unknown[0].startswith("-") else ""
            self.faults.append(("", f"unrecognized arguments: {output.printable(' '.join(unknown))}{hint}"))
        if self.faults and not self.gathers:
            self.error("")
        return found, []

    def error(self, message: str) -> NoReturn:
        """Ends with a line for each fault in place of the whole usage."""
        said = [f"argument {name}: {text}" if name else text for name, text in self.faults]
        told = "\n  ".join([*said, message] if message else said)
        usage = f"`{self.prog} --help` shows the usage"
        help_of = "" if "--help`" in told else f" {usage}" if told.endswith("?") else f"; {usage}"
        self.exit(commands.INVALID, f"{fitted(f'{self.prog}: error: {told}{help_of}', sys.stderr)}\n")

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        try:
            return super()._get_values(action, arg_strings)
        except argparse.ArgumentError as error:
            if isinstance(action, argparse._SubParsersAction):
                raise
            self.faults.append((error.argument_name or "", str(error.message)))
            return argparse.SUPPRESS  # The option keeps its default, and counts as given.

    def refuse_early_options(self, arguments: Sequence[str]) -> None:
        """Ends with the line as it should be, where options stand before the verb."""
        subcommands = {*(self.verbs.choices if self.verbs else ()), *self.older_names()}
        first = arguments[0] if arguments else ""
        if not first.startswith("-") or first.partition("=")[0] in self._option_string_actions:
            return
        named = [index for index, text in enumerate(arguments) if text in subcommands]
        # A word after an option may be its value.
        sure = [index for index in named if not arguments[index - 1].startswith("-")]
        at = next(iter([*sure, *named]), None)
        subcommand, rest = "VERB", list(arguments)
        if at is not None:
            # What belongs to the subcommand stays before the options: it may be an action of its own.
            subcommand, rest = arguments[at], [*arguments[at + 1 :], *arguments[:at]]
        line = output.printable(shlex.join(rest))
        self.error(f"options go after the verb: {self.prog} {subcommand} {line}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            near = nearest(value, action.choices)
            hint = f"did you mean {near!r}?" if near else f"`{self.prog} --help` lists all"
            what = f"{str(action.metavar).lower()} {output.printable(value)!r}"
            raise argparse.ArgumentError(None, f"`{self.prog}` has no {what}; {hint}")
        super()._check_value(action, value)


def as_typed(error: AssayError, parser: argparse.ArgumentParser) -> AssayError:
    """The same error, with options and arguments in place of what the request calls them."""
    names = {
        action.dest: max(action.option_strings, key=len, default=str(action.metavar or action.dest.upper()))
        for action in parser._actions
    }
    details, message = [], error.message.replace(OF_QUERIES, "")
    for detail in error.details:
        if detail.loc[:1] in (["query"], ["header"]) and len(detail.loc) > 1:
            field = str(detail.loc[1])
            loc = [names.get(field.replace("-", "_").lower(), field), *detail.loc[2:]]
            text = detail.message.replace(OF_QUERIES, "")
            message = message.replace(
                f"{path_text(detail.loc)}: {detail.message}", f"{path_text(loc)}: {text}"
            )
            detail = detail.model_copy(update={"loc": loc, "message": text})  # noqa: PLW2901
        details.append(detail)
    error.message, error.details = message, details
    return error
