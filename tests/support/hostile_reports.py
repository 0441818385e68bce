"""An evaluator whose code has got out of its model: it speaks the pipe's protocol, and every line is hostile.

    ASSAY_EVALUATOR_COMMAND="python -S tests/support/hostile_reports.py"

The job's `name` says what it does, in three words: the kind of shard that attacks, the attack (a name of
`ATTACKS`), and a seed; further words are its arguments. Other shards answer as the fake evaluator does. No
torch.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import fake_evaluator as fake

Json = dict[str, Any]
TEXTS = (
    "../../../other/weights.safetensors",
    "/etc/passwd",
    "a\r\nSet-Cookie: x=1",
    "\x1b[2J\x1b]0;title\x07",
    "2026-01-01 00:00:00,000 INFO assay: forged\n2026-01-01 INFO assay: forged",
    "<script>alert(1)</script>",
    "'; DROP TABLE jobs; --",
    "nul\0nul",
    "half \ud800 of a character",
    "\u202egnp.exe",
    "x" * 100_000,
    "",
)
VALUES: tuple[Any, ...] = (
    *TEXTS,
    *(None, True, False, -1, 0, 2**31, 2**63, 2**70, -(2**63), 10**400, 1e308, -1e308, 0.5),
    *(float("nan"), float("inf"), [], {}, [[]], {"": []}, ["x"], {"x": None}, [1] * 1000),
)


def main() -> None:
    """Serve requests until the pipe closes."""
    with os.fdopen(int(os.environ["ASSAY_REQUESTS_FD"])) as lines:
        for line in lines:
            request = json.loads(line)
            if request["kind"] == "self_test":
                fake.self_test(request)
            elif request["kind"] == "hash":
                fake.report({"type": "hashed", "data_sha256": {"digits": "d"}})
            else:
                serve(request)


def serve(request: Json) -> None:
    """Attack, where the request is of the kind that the job names."""
    kind, attack, seed, *arguments = request["spec"]["name"].split(" ")
    if kind != request["kind"]:
        fake.serve(request, {"shards": "1"})
        return
    Path(request["folder"]).mkdir(parents=True, exist_ok=True)
    ATTACKS[attack](request, random.Random(seed), arguments)


def valid(request: Json) -> list[Json]:
    """The reports of an honest evaluator to a request, the answer last."""
    sent: list[Json] = []
    report, fake.report = fake.report, sent.append
    try:
        fake.serve(request, {"shards": "1", "checkpoint": ""})
    finally:
        fake.report = report
    return sent


def mutated(request: Json, chance: random.Random, arguments: list[str]) -> None:
    """Valid reports with a field exchanged, dropped or added in each, then the answer in the same way."""
    *on_the_way, answer = valid(request)
    for one in on_the_way[:1]:
        write(mutate(one, chance))
    write(mutate(answer, chance))


def mutate(report: Json, chance: random.Random) -> Json:
    """A report with something wrong at a random place."""
    report = json.loads(json.dumps(report))
    places = [*of(report)]
    holder, key = chance.choice(places)
    match chance.randrange(4):
        case 0 if isinstance(holder, dict):
            del holder[key]
        case 1 if isinstance(holder, dict):
            holder[chance.choice(TEXTS)] = chance.choice(VALUES)
        case _:
            holder[key] = chance.choice(VALUES)
    return report


def of(value: Any) -> Any:
    """Every place in a JSON value: what holds it, and its key."""
    if isinstance(value, dict | list):
        for key in list(value) if isinstance(value, dict) else range(min(len(value), 3)):
            yield value, key
            yield from of(value[key])


def typed(request: Json, chance: random.Random, arguments: list[str]) -> None:
    """A report of every type but those that the request allows."""
    write({"type": chance.choice(["self_tested", "hashed", "trained", "state", "admin", "checked"]), "n": 5})
    time.sleep(600)


def said(request: Json, chance: random.Random, arguments: list[str]) -> None:
    """An error report of the type that the first argument names, with a hostile message."""
    text = chance.choice(TEXTS)
    write({"type": "error", "error_type": arguments[0], "message": text, "retry": True})
    time.sleep(600)


def described(request: Json, chance: random.Random, arguments: list[str]) -> None:
    """An outcome with a file: its name, its path, its media type, and what the job's folder has in its place.

    Arguments: what it is (`link`, `hard`, `pipe`, `folder`, `none`, `name`), and another tenant's file.
    """
    how, target = arguments
    place = Path(request["folder"]) / "stolen.csv"
    if how == "link":
        place.symlink_to(target)
    elif how == "hard":
        os.link(target, place)
    elif how == "pipe":
        os.mkfifo(place)
    elif how == "folder":
        place.mkdir()
    name = os.path.relpath(target, request["folder"]) if how == "name" else place.name
    answer = valid(request)[-1]
    stolen = {"name": name, "path": target, "size": -5, "sha256": "0" * 64, "media_type": "text/html\r\nX: y"}
    answer["extra"]["artifacts"] = [stolen]
    write(answer)
    time.sleep(600)


def exchanged(request: Json, chance: random.Random, arguments: list[str]) -> None:
    """An honest file, and a link to another tenant's under its name once it has been looked at."""
    place = Path(request["folder"]) / "stolen.csv"
    place.write_text("mine")
    answer = valid(request)[-1]
    stolen = {
        "name": place.name,
        "path": arguments[0],
        "size": 1,
        "sha256": "0" * 64,
        "media_type": "text/html",
    }
    answer["extra"]["artifacts"] = [stolen]
    write(answer)
    while not (place.parent / "outcomes-000-clean.csv").exists():
        time.sleep(0.01)
    place.unlink()
    place.symlink_to(arguments[0])


PROGRESS = b'{"type":"progress","done":1,"total":2,"message":"%s"}\n' % (b"m" * 100)
# What is written again and again: before it, the piece, its bytes in all, and after it.
FLOODS: dict[str, tuple[bytes, bytes, int, bytes]] = {
    "containers": (b"", b'{"":[]},', 1 << 25, b""),
    "inner": (b'{"type":"progress","message":[', b'{"":[]},', 1 << 23, b"0]}\n"),
    "values": (b'{"type":"progress","message":[', b"1,", 1 << 23, b"0]}\n"),
    "strings": (b'{"type":"progress","message":[', b'"ab",', 1 << 23, b"0]}\n"),
    "deep": (b"", b"[", 1 << 17, b"\n"),
    "quotes": (b'"', b'\\"', 1 << 20, b"\n"),
    "integer": (b'{"type":"progress","done":', b"9", 1 << 17, b"}\n"),
    "endless": (b"", b"x", 1 << 26, b""),
    "progress": (b"", PROGRESS, 40_000, b'{"type":"progress","done":"over","total":2,"message":""}\n'),
}


def raw(request: Json, chance: random.Random, arguments: list[str]) -> None:
    """Lines that are no reports: too long, too deep, too many objects, never ended, never stopping."""
    if arguments[0] == "garbage":
        write_line(chance.randbytes(5_000).replace(b"\n", b""))
    elif arguments[0] == "output":
        print("\x1b[31mforged\r\n" * 20_000, flush=True)
        write({"type": "over"})
    else:
        before, piece, size, after = FLOODS[arguments[0]]
        os.write(fake.REPORTS, before)
        repeat(piece, size)
        os.write(fake.REPORTS, after)
    time.sleep(600)


def repeat(piece: bytes, size: int) -> None:
    """So many bytes, unless the pipe is closed before."""
    block = piece * (min(size, 65_536) // len(piece))
    for _ in range(size // len(block)):
        left = block
        while left:
            left = left[os.write(fake.REPORTS, left) :]


def write(report: Any) -> None:
    """One report."""
    write_line(json.dumps(report).encode())


def write_line(line: bytes) -> None:
    """One line."""
    line += b"\n"
    while line:
        line = line[os.write(fake.REPORTS, line) :]


ATTACKS: dict[str, Callable[[Json, random.Random, list[str]], None]] = {
    one.__name__: one for one in (mutated, typed, said, described, exchanged, raw)
}


if __name__ == "__main__":
    main()
