"""Hostile uploads: archives and programs that must be refused by name, and checks that must end."""

from __future__ import annotations

import io
import json
import stat
import struct
import tempfile
import time
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from assay.service.client import AssayClient
from assay.service.contract.errors import AssayError
from tests.fuzz.containers import program
from tests.hostile.attempt import Attempt, Target
from tests.support.archives import GRAPH, archive, entries_of

SHOWN = 110
BIG = 2**62


def _upload(target: Target, name: str, content: bytes, **fields: Any) -> str:
    """Why an upload of alice's was refused, at once or by its check."""
    with tempfile.TemporaryDirectory() as folder, AssayClient(target.url, key=target.alice) as client:
        path = Path(folder) / "file"
        path.write_bytes(content)
        try:
            client.upload_checkpoint(name, path, **fields)
        except AssayError as error:
            said = "; ".join([error.message, *(detail.message for detail in error.details)])
            return "at once: " + said.rpartition("this is no exported program that can be taken: ")[2]
        checked = client.wait_for_checkpoint(name)
        client.delete_checkpoint(name)
        assert checked.state == "rejected", f"it is {checked.state}"
        assert checked.error is not None
        return "by its check: " + checked.error.message.removeprefix("the exported program is not taken: ")


def _attempt(title: str, content: Callable[[], bytes], *reasons: str, **fields: Any) -> Attempt:
    name = "".join(c if c.isalnum() else "-" for c in title.lower())[:40].strip("-")

    def run(target: Target) -> str:
        said = _upload(target, name, content(), **fields)
        assert any(reason in said for reason in reasons), said
        return said if len(said) <= SHOWN else said[: SHOWN - 3] + "..."

    return Attempt(title, run)


def _entries() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        path.write_bytes(program())
        return entries_of(path)


def _with_entry(name: str, data: bytes = b"x", *, mode: int = 0, method: int = zipfile.ZIP_STORED) -> bytes:
    content = io.BytesIO(program())
    info = zipfile.ZipInfo(name)
    info.create_system, info.external_attr, info.compress_type = 3, mode << 16, method
    with zipfile.ZipFile(content, "a") as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a name that is there already
        file.writestr(info, data)
    return content.getvalue()


def _patched(at: int, value: bytes) -> bytes:
    """The last entry of the directory with a field changed."""
    content = bytearray(program())
    begin = content.rindex(b"PK\1\2")
    content[begin + at : begin + at + len(value)] = value
    return bytes(content)


def _many_entries() -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as file:
        for number in range(60_000):
            file.writestr(f"n/{number}", b"")
    return content.getvalue()


def _graph(*nodes: tuple[str, dict[str, Any]], repeat: int = 1) -> bytes:
    """The program with calls before its own; each result is called by the number of its node."""
    entries = _entries()
    content = json.loads(entries[GRAPH])
    found = []
    for round_ in range(repeat):
        for number, (target, arguments) in enumerate(nodes):
            inputs = [{"name": name, "arg": value, "kind": 1} for name, value in arguments.items()]
            result = {"as_tensor": {"name": f"evil_{round_}_{number}"}}
            found.append({"target": f"torch.ops.aten.{target}", "inputs": inputs, "outputs": [result]})
    content["graph_module"]["graph"]["nodes"][:0] = found
    return archive(entries | {GRAPH: json.dumps(content).encode()})


def _images() -> dict[str, Any]:
    return {"as_tensor": {"name": "x"}}


def _endless() -> bytes:
    """Products of matrices of 8192 x 8192, a second each or more: a day in a few hundred kilobytes."""
    size = {"as_ints": [8192, 8192]}
    matrix = {"as_tensor": {"name": "evil_0_0"}}
    first = _graph(("ones.default", {"size": size}), ("mm.default", {"self": matrix, "mat2": matrix}))
    with zipfile.ZipFile(io.BytesIO(first)) as file:
        entries = {name.partition("/")[2]: file.read(name) for name in file.namelist()}
    content = json.loads(entries[GRAPH])
    nodes = content["graph_module"]["graph"]["nodes"]
    product = nodes[1]
    repeated = [
        {**product, "outputs": [{"as_tensor": {"name": f"product_{number}"}}]} for number in range(1000)
    ]
    content["graph_module"]["graph"]["nodes"] = [nodes[0], *repeated, *nodes[2:]]
    return archive(entries | {GRAPH: json.dumps(content).encode()})


def _header(content: dict[str, Any]) -> bytes:
    raw = json.dumps(content, separators=(",", ":")).encode()
    return len(raw).to_bytes(8, "little") + raw


def _checks_do_not_wait(target: Target) -> str:
    """Alice's endless check is running; a job of bob's must start and end."""
    with tempfile.TemporaryDirectory() as folder, AssayClient(target.url, key=target.alice) as alice:
        path = Path(folder) / "file"
        path.write_bytes(_endless())
        alice.upload_checkpoint("endless", path)
        spec = {
            "kind": "evaluate",
            "model": {"name": "symvit", "params": {"width": 12, "depth": 1, "heads": 2}},
            "data": {"name": "digits"},
            "limit": 4,
            "evaluations": [{"name": "clean"}],
        }
        begun = time.monotonic()
        with AssayClient(target.url, key=target.bob) as bob:
            job = bob.wait(bob.submit(spec).id)
        seconds, state = time.monotonic() - begun, alice.checkpoint("endless").state
        assert job.state == "succeeded", job.state
        assert state == "checking", state
        alice.delete_checkpoint("endless")
        return f"bob's job took {seconds:.0f} s, and alice's check still ran; deleting it ended it"


SMALL = {"name": "symvit", "params": {}}
ATTEMPTS: tuple[Attempt, ...] = (
    _attempt(
        "a bomb: 50 MB of zeros, compressed",
        lambda: _with_entry("net/data/bomb", bytes(50 * 2**20), method=zipfile.ZIP_DEFLATED),
        "its entry 'net/data/bomb' is compressed",
    ),
    _attempt(
        "a symbolic link to /etc/passwd",
        lambda: _with_entry("net/link", b"/etc/passwd", mode=stat.S_IFLNK | 0o777),
        "its entry 'net/link' is a symbolic link",
    ),
    _attempt("an entry twice", lambda: _with_entry(f"net/{GRAPH}", b"{}"), "two entries with the name"),
    _attempt("an absolute name", lambda: _with_entry("/etc/cron.d/evil"), "'/etc/cron.d/evil'"),
    _attempt("a name with ..", lambda: _with_entry("net/../../evil"), "'net/../../evil'"),
    _attempt("a name with backslashes", lambda: _with_entry("net/..\\evil"), "evil': names are relative"),
    _attempt("an encrypted entry", lambda: _patched(8, b"\1\0"), "compressed or encrypted"),
    _attempt("an entry that claims 4 GB", lambda: _patched(20, b"\xfe" * 8), "they overlap", "claims"),
    _attempt("an entry over another", lambda: _patched(42, struct.pack("<I", 40)), "they overlap"),
    _attempt("60,000 entries", _many_entries, "more than 50000 entries"),
    _attempt(
        "a graph of a million brackets",
        lambda: archive(_entries() | {GRAPH: b"[" * 10**6}),
        "its graph is no JSON",
    ),
    _attempt("a pickle", lambda: archive({"data.pkl": b"cos\nsystem\n."}), "unpickling can run code"),
    _attempt(
        "weights of 300 dimensions",
        lambda: _header({"t": {"dtype": "F32", "shape": [1] * 300, "data_offsets": [0, 4]}}) + bytes(4),
        "has 300 dimensions, allowed: at most 16",
        model=SMALL,
    ),
    _attempt(
        "a header of 620,000 texts",
        lambda: _header({"__metadata__": {f"{n:x}": "" for n in range(620_000)}}),
        "values, allowed: at most 600000",
        model=SMALL,
    ),
    _attempt(
        "_reshape_alias, which checks no strides",
        lambda: _graph(
            (
                "_reshape_alias.default",
                {"self": _images(), "size": {"as_ints": [9999]}, "stride": {"as_ints": [1]}},
            )
        ),
        "it calls torch.ops.aten._reshape_alias.default, which is not among the operators",
    ),
    _attempt(
        "dimensions out of range, which end a process",
        lambda: _graph(
            (
                "_fft_r2c.default",
                {
                    "self": _images(),
                    "dim": {"as_ints": [BIG]},
                    "normalization": {"as_int": 0},
                    "onesided": {"as_bool": True},
                },
            )
        ),
        f"it calls aten._fft_r2c.default with dim [{BIG}]",
    ),
    _attempt(
        "a tensor of 2^40 elements",
        lambda: _graph(("zeros.default", {"size": {"as_ints": [2**20, 2**20]}})),
        "its node 'evil_0_0' (aten.zeros.default) makes a tensor of shape (1048576, 1048576)",
    ),
    _attempt(
        "40 tensors of 1 GiB",
        lambda: _kept(40),
        "its check needs more than",
    ),
    Attempt("a check without end, beside bob's job", _checks_do_not_wait),
)


def _kept(count: int) -> bytes:
    """Tensors that are all needed at the end."""
    size = {"size": {"as_ints": [2**14, 2**14]}}
    content = _graph(("ones.default", size), repeat=count)
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        entries = {name.partition("/")[2]: file.read(name) for name in file.namelist()}
    graph = json.loads(entries[GRAPH])
    names = [{"name": f"evil_{number}_0"} for number in range(count)]
    inputs = [
        {"name": "tensors", "arg": {"as_tensors": names}, "kind": 1},
        {"name": "dim", "arg": {"as_int": 0}, "kind": 1},
    ]
    joined = {"target": "torch.ops.aten.stack.default", "inputs": inputs}
    joined["outputs"] = [{"as_tensor": {"name": "joined"}}]
    graph["graph_module"]["graph"]["nodes"].insert(count, joined)
    return archive(entries | {GRAPH: json.dumps(graph).encode()})
