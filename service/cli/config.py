"""The subcommand `config`: profiles in the user's configuration file."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from assay.service.cli import output, profiles
from assay.service.cli.arguments import Subcommands, actions_of, add, json_argument
from assay.service.cli.commands import OK, Options, UsageError
from assay.service.cli.profiles import (
    KEYS,
    SETTINGS,
    Config,
    Profile,
    chosen,
    config_file,
    load_config,
    save_config,
)
from assay.service.fitted_text import say, tell

# A key of this length shows its end, a shorter key nothing.
LONG_KEY, SHOWN_OF_KEY = 20, 4


def add_config(subcommands: Subcommands) -> None:
    """Adds `config list`, `get`, `set`, `unset` and `use`."""
    summary, example = "addresses and keys of services, in profiles", "url https://assay.example"
    command = add(subcommands, "config", list_all, summary, f"set {example}", topic="this machine")
    actions = actions_of(command)
    listing = add(actions, "list", list_all, "show what is used and why, and all profiles")
    get = add(actions, "get", get_one, "print a setting", "url")
    summary = "set a setting of a profile, made if it is new"
    examples = example, "key_command 'pass show assay' --profile lab", "key - < key.txt"
    change = add(actions, "set", set_one, summary, *examples)
    unset = add(actions, "unset", unset_one, "remove a setting of a profile", "key")
    use = add(actions, "use", use_one, "use a profile from now on", "lab")
    for parser in (get, change, unset):
        allowed = "; ".join(f"{name}: {text}" for name, text in SETTINGS.items())
        parser.add_argument("name", metavar="SETTING", choices=list(SETTINGS), help=allowed)
    change.add_argument(
        "value", metavar="VALUE", help="- reads standard input, which keeps a key out of history"
    )
    use.add_argument("use", metavar="PROFILE", help="its name")
    for parser in (command, listing, get, change, unset):
        parser.add_argument(
            "--profile", metavar="NAME", help="which profile (default: ASSAY_PROFILE, else the one in use)"
        )
    for parser in (command, listing):
        json_argument(parser)


def list_all(options: Options) -> int:
    """Shows the settings in use with their origin, then all profiles."""
    found, config = chosen(profile=options.profile), load_config()
    key = ", ".join(_hidden(*item) for item in found.key.items())
    rows = [
        ("profile", found.profile or "none", found.profile_from if found.profile else "default"),
        ("url", found.url, found.url_from),
        ("key", key or ("set" if found.key_from != "none" else "none"), found.key_from),
    ]
    if options.json:
        used = {name: {"value": value, "from": origin} for name, value, origin in rows}
        hidden = {
            name: {setting: _hidden(setting, value) for setting, value in settings.items()}
            for name, settings in config.profiles.items()
        }
        answer = {"file": str(config_file()), "used": used, "profile": config.profile, "profiles": hidden}
        sys.stdout.write(f"{output.json_text(answer)}\n")
        return OK
    sys.stdout.write(f"{output.table(('SETTING', 'VALUE', 'FROM'), rows)}\n")
    if config.profiles:
        listed = [
            (
                name,
                settings.get("url", ""),
                ", ".join(_hidden(key, settings[key]) for key in KEYS if key in settings),
            )
            for name, settings in config.profiles.items()
        ]
        sys.stdout.write(f"\n{output.table(('PROFILE', 'URL', 'KEY'), listed)}\n")
    say(f"\nfile: {config_file()}")
    return OK


def get_one(options: Options) -> int:
    """Prints a setting of a profile."""
    name = _profile(options)
    settings = load_config().profiles.get(name, {})
    if options.name not in settings:
        raise UsageError(f"{options.name}: the profile {name!r} does not set it")
    sys.stdout.write(f"{settings[options.name]}\n")
    return OK


def set_one(options: Options) -> int:
    """Sets a setting; the last of the three ways to give a key stays."""
    name = _profile(options)
    profiles.check_name(name, "--profile")
    value = sys.stdin.readline().strip() if options.value == "-" else options.value
    profiles.check_value(options.name, value, options.name)
    config = load_config()
    replaced = KEYS if options.name in KEYS else (options.name,)
    kept = {key: text for key, text in config.profiles.get(name, {}).items() if key not in replaced}
    return _saved(config.profile, {**config.profiles, name: {**kept, options.name: value}})


def unset_one(options: Options) -> int:
    """Removes a setting, and a profile that has none left."""
    name, config = _profile(options), load_config()
    settings = config.profiles.get(name, {})
    if options.name not in settings:
        raise UsageError(f"{options.name}: the profile {name!r} does not set it")
    left = {key: text for key, text in settings.items() if key != options.name}
    others = {key: one for key, one in config.profiles.items() if key != name}
    if left:
        return _saved(config.profile, {**config.profiles, name: left})
    if config.profile != name:
        return _saved(config.profile, others)
    now = profiles.DEFAULT_PROFILE
    said = f"the profile {name!r}, which was in use, had no other setting and is gone; in use: {now}"
    tell(said)
    return _saved("", others)


def use_one(options: Options) -> int:
    """Uses a profile from now on."""
    found = load_config().profiles
    profiles.check_known(options.use, found)
    return _saved(options.use, found)


def _saved(profile: str, found: Mapping[str, Profile]) -> int:
    path = save_config(Config(profile, found))
    tell(f"written: {path}")
    return OK


def _hidden(setting: str, value: str) -> str:
    """What says where a key is; for the key itself at most its end."""
    if setting != "key":
        return value if setting == "url" else f"{setting} {value}"
    return f"...{value[-SHOWN_OF_KEY:]}" if len(value) >= LONG_KEY else "..."


def _profile(options: Options) -> str:
    given = options.profile or os.environ.get(profiles.PROFILE_VARIABLE)
    return given or load_config().profile or profiles.DEFAULT_PROFILE
