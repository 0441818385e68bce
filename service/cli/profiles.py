"""Profiles: addresses and keys of services in a file, and which of them a command uses.

    profile = "lab"

    [profiles.lab]
    url = "https://assay.example"
    key_env = "LAB_KEY"

The file is `~/.config/assay/config.toml`, or `assay/config.toml` in XDG_CONFIG_HOME. A command's own options
go first, then ASSAY_URL and ASSAY_KEY, then the profile (its key goes to its address alone), then localhost.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from assay.service.client import DEFAULT_URL, KEY_VARIABLE, Unreachable
from assay.service.contract.problems import nearest
from assay.service.files.state_lock import DEFAULT_STATE, holder_of
from assay.service.fitted_text import tell

URL_VARIABLE, PROFILE_VARIABLE = "ASSAY_URL", "ASSAY_PROFILE"
# What a profile may hold, and in words; the last three exclude each other.
SETTINGS: Mapping[str, str] = {
    "url": "address of the service",
    "key": "API key",
    "key_env": "variable of the environment that holds the key",
    "key_command": "command that prints the key",
}
KEYS = ("key", "key_env", "key_command")
DEFAULT_PROFILE = "default"
NAME = re.compile(r"[A-Za-z0-9_-]{1,40}", re.ASCII)
COMMAND_SECONDS = 60.0

Profile = dict[str, str]


class UsageError(Exception):
    """The command line, or a file that it names, is wrong."""


@dataclass(frozen=True)
class Config:
    """The content of the file; `profile` is the profile in use, empty without a profile."""

    profile: str
    profiles: Mapping[str, Profile]


@dataclass(frozen=True)
class Chosen:
    """Which service a command asks, and where that is said.

    `key` is what the profile says of a key, by the name of the setting, and empty where the key of the
    environment, or none, is used.
    """

    profile: str
    profile_from: str
    url: str
    url_from: str
    key: Profile
    key_from: str


def config_file() -> Path:
    """Where the file is, or would be."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".config") / "assay" / "config.toml"


def load_config() -> Config:
    """The file's content; empty where there is no file."""
    path = config_file()
    try:
        found = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return Config("", {})
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from None
    profile, profiles = found.pop("profile", ""), found.pop("profiles", {})
    if found:
        raise UsageError(_unknown(path, next(iter(found)), ("profile", "profiles")))
    if not isinstance(profile, str) or not isinstance(profiles, dict):
        raise UsageError(f"{path}: profile must be text, and profiles tables")
    for name, settings in profiles.items():
        check_name(name, f"{path}: profiles")
        if not isinstance(settings, dict):
            raise UsageError(f"{path}: profiles.{name} must be a table")
        for setting, value in settings.items():
            if setting not in SETTINGS:
                raise UsageError(_unknown(path, setting, tuple(SETTINGS)))
            check_value(setting, value, f"{path}: profiles.{name}.{setting}")
    if any("key" in settings for settings in profiles.values()) and path.stat().st_mode & 0o077:
        tell(f"{path} holds a key, and others may read it: `chmod 600 {path}`")
    return Config(profile, profiles)


def _unknown(path: Path, name: str, allowed: tuple[str, ...]) -> str:
    near = nearest(name, allowed)
    hint = f"; did you mean {near!r}?" if near else ""
    return f"{path}: {name!r} is no setting{hint} Allowed: {', '.join(allowed)}"


def save_config(config: Config) -> Path:
    """Writes the whole file, readable by its owner alone; comments in it are lost."""
    lines = [f"profile = {_toml(config.profile)}"] if config.profile else []
    for name, settings in config.profiles.items():
        lines += ["", f"[profiles.{name}]", *(f"{key} = {_toml(value)}" for key, value in settings.items())]
    path = config_file().resolve()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    number, partial = tempfile.mkstemp(prefix="config.", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(number, "w", encoding="utf-8") as file:
            file.write("\n".join(lines).strip() + "\n")
        os.replace(partial, path)
    finally:
        Path(partial).unlink(missing_ok=True)
    return path


def _toml(value: str) -> str:
    # JSON's escapes are TOML's, for text without control characters.
    return json.dumps(value, ensure_ascii=False)


def check_name(name: str, place: str) -> None:
    """Refuses what cannot be the name of a profile."""
    if not NAME.fullmatch(name):
        raise UsageError(f"{place}: {name!r} given; allowed: up to 40 letters, digits, - and _")


def check_known(name: str, known: Mapping[str, Profile], place: str = "") -> None:
    """Refuses a profile that is not there."""
    if name in known:
        return
    near = nearest(name, known)
    hint = f"; did you mean {near!r}?" if near else ""
    there = f"there are {', '.join(known)}" if known else "no profile yet; `assay config set url` makes one"
    raise UsageError(f"{place}there is no profile {name!r}{hint} ({there})")


def check_value(setting: str, value: object, place: str) -> None:
    """Refuses what cannot be a setting's value; a message never repeats a key."""
    if not isinstance(value, str) or not value or not value.isprintable():
        raise UsageError(f"{place}: must be a text of printable characters, not empty")
    if setting == "url":
        address = urlsplit(value)
        if address.scheme not in ("http", "https") or not address.hostname or address.password is not None:
            raise UsageError(f"{place}: {value!r} given; allowed: http:// or https:// and a host")
    if setting == "key_env" and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value, re.ASCII):
        raise UsageError(f"{place}: {value!r} given; allowed: the name of a variable, such as LAB_KEY")


def chosen(url: str | None = None, profile: str | None = None) -> Chosen:
    """Which service is asked; `url` and `profile` are the options `--url` and `--profile`."""
    config = load_config()
    said = os.environ.get(PROFILE_VARIABLE)
    named = (
        (profile, "--profile") if profile else (said, PROFILE_VARIABLE) if said else (config.profile, "file")
    )
    name, name_from = named[0] or DEFAULT_PROFILE, named[1] if named[0] else "default"
    if profile or said:
        check_known(name, config.profiles, f"{name_from}: ")
    own = config.profiles.get(name) or {}
    home = own.get("url", DEFAULT_URL)
    from_profile = (own.get("url"), f"profile {name}")
    # A profile that is named on the command line is an option, and goes before the environment.
    between = [(os.environ.get(URL_VARIABLE), URL_VARIABLE), from_profile]
    places = [(url, "--url"), *(between[::-1] if profile else between), (DEFAULT_URL, "default")]
    address, address_from = next((where, why) for where, why in places if where)
    assert address is not None
    key = {setting: own[setting] for setting in KEYS if setting in own}
    if address.rstrip("/") != home.rstrip("/") or (os.environ.get(KEY_VARIABLE) and not profile):
        key = {}
    key_from = f"profile {name}" if key else KEY_VARIABLE if os.environ.get(KEY_VARIABLE) else "none"
    return Chosen(name if own else "", name_from, address, address_from, key, key_from)


@contextmanager
def saying_whose(found: Chosen) -> Iterator[None]:
    """Adds to the error of an unreachable service where its address comes from, or what starts a service."""
    try:
        yield
    except Unreachable as error:
        hint = f"the address comes from {found.url_from}"
        if found.url_from == "default":
            hint = _default_hint()
        elif found.profile and found.url_from == f"profile {found.profile}":
            places = {"file": f"which {config_file()} has in use", "default": f"in {config_file()}"}
            hint += f", {places.get(found.profile_from, f'which {found.profile_from} names')}"
        raise Unreachable(f"{error.message}; {hint}") from error


def _default_hint() -> str:
    """What to do where no service is at the default address: the present folder may have a state folder."""
    if (holder := holder_of(DEFAULT_STATE)) is not None and holder.address:
        return f"a service runs with the folder {DEFAULT_STATE} here: --url {shlex.quote(holder.address)}"
    if DEFAULT_STATE.is_dir():
        return f"`assay serve --state {DEFAULT_STATE}` starts a service with the results in that folder"
    return "`assay serve` starts one on this machine, and `assay evaluate` needs none"


def key_of(found: Chosen) -> str | None:
    """The key that the profile states; None leaves it to ASSAY_KEY."""
    if "key" in found.key:
        return found.key["key"]
    if "key_env" in found.key:
        name = found.key["key_env"]
        if not os.environ.get(name):
            raise UsageError(f"{found.key_from}: key_env: the variable {name} is not set")
        return os.environ[name].strip()
    if "key_command" in found.key:
        return _printed(found.key["key_command"], found.key_from)
    return None


def _printed(command: str, place: str) -> str:
    """The first line that a command prints; no shell reads it."""
    try:
        ran = subprocess.run(  # noqa: S603 (the user's own command, from the user's own file)
            shlex.split(command), stdout=subprocess.PIPE, timeout=COMMAND_SECONDS, check=True, text=True
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise UsageError(f"{place}: key_command: {error}") from None
    key = ran.stdout.strip().partition("\n")[0].strip()
    if not key:
        raise UsageError(f"{place}: key_command: {command!r} printed nothing")
    return key
