"""Fuzz of the readers of untrusted files: valid ones with bytes changed, inserted and cut.

A reader returns, or refuses with the error of its format; anything else fails, as do much time and memory.

    python -m tests.fuzz.containers [--seconds 300] [--seed N]
"""

from __future__ import annotations

import argparse
import json
import resource
import struct
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path

from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from assay.models.programs.program import load_program
from assay.models.programs.reading import UnsafeProgram
from assay.service.contract.errors import InvalidSpec
from assay.service.files.program_file import BadProgram, open_program
from assay.service.files.safetensors_header import read_header
from tests.support.archives import archive

MAX_CPU_SECONDS = 5.0
MAX_BYTES = 64 * 2**20
# Written over fields: limits of 16, 32 and 64 bits, marks of zip and JSON.
WORDS: Sequence[bytes] = (
    *(struct.pack("<H", value) for value in (0, 1, 0x7FFF, 0xFFFF)),
    *(struct.pack("<I", value) for value in (0, 1, 2**31 - 1, 2**31, 2**32 - 1)),
    *(struct.pack("<Q", value) for value in (0, 1, 2**63 - 1, 2**64 - 1)),
    *(b"PK\1\2", b"PK\3\4", b"PK\5\6", b"PK\6\6", b"PK\6\7", b"\1\0\x1c\0", b"../", b"\\", b"/", b"\0"),
    *(b"{", b"}", b"[", b"]", b'"', b"-1", b"1e999", b"NaN", b"null", b'"as_int":', b"9" * 40, b"[" * 2000),
)
# (kind, place, bytes): overwrite, insert or cut at a place; `cut` takes out as many bytes as there are.
Change = tuple[str, int, bytes]
CHANGES = st.lists(
    st.tuples(
        st.sampled_from(("overwrite", "insert", "cut", "end", "copy")),
        st.integers(min_value=0, max_value=2**16),
        st.one_of(st.sampled_from(WORDS), st.binary(min_size=1, max_size=8)),
    ),
    min_size=1,
    max_size=6,
)


def changed(content: bytes, changes: Sequence[Change], places: Sequence[int]) -> bytes:
    """The content after changes; half of them are at places where its structure is.

    Args:
        content: valid.
        changes: at places modulo the length.
        places: of marks and fields.
    """
    for kind, place, data in changes:
        length = max(len(content), 1)
        at = (
            places[(place // 2) % len(places)] + (place // 2) // len(places) % 48
            if place % 2
            else place % length
        )
        match kind:
            case "overwrite":
                content = content[:at] + data + content[at + len(data) :]
            case "insert":
                content = content[:at] + data + content[at:]
            case "cut":
                content = content[:at] + content[at + len(data) :]
            case "end":
                content = content[:at]
            case "copy":
                content = content[:at] + content[at // 2 : at] + content[at:]
    return content


def read_program_file(path: Path) -> None:
    """Read an archive as the service and the worker do.

    Raises:
        BadProgram: by the reader of archives.
        UnsafeProgram: by the reader of programs.
    """
    file = open_program(path)
    with file.reading() as read:
        load_program(read, file.graph, file.model)


def read_weights(path: Path) -> None:
    """Read the header of weights.

    Raises:
        InvalidSpec: it is wrong.
    """
    read_header(path)


def program() -> bytes:
    """A program in a few hundred bytes: its logits are its images, flattened."""
    tensor = {"dtype": 7, "requires_grad": False, "device": {"type": "cpu"}, "strides": [], "layout": 7}
    batch = {"as_expr": {"expr_str": "s77", "hint": {"as_int": 2}}}
    sizes = {"x": [batch, *({"as_int": size} for size in (1, 2, 2))], "y": [batch, {"as_int": 4}]}
    weight = {"parameter": {"arg": {"name": "w"}, "parameter_name": "w"}}
    images = {"user_input": {"arg": {"as_tensor": {"name": "x"}}}}
    inputs = [
        {"name": "self", "arg": {"as_tensor": {"name": "x"}}, "kind": 1},
        {"name": "start_dim", "arg": {"as_int": 1}, "kind": 1},
    ]
    node = {
        "target": "torch.ops.aten.flatten.using_ints",
        "inputs": inputs,
        "outputs": [{"as_tensor": {"name": "y"}}],
    }
    graph = {
        "nodes": [node],
        "tensor_values": {name: {**tensor, "sizes": given} for name, given in sizes.items()},
    }
    signature = {
        "input_specs": [weight, images],
        "output_specs": [{"user_output": {"arg": {"as_tensor": {"name": "y"}}}}],
    }
    content = {
        "schema_version": {"major": 8, "minor": 1},
        "graph_module": {"graph": graph, "signature": signature},
        "range_constraints": {"s77": {"min_val": 1, "max_val": None}},
    }
    meta = {**tensor, "sizes": [{"as_int": 3}], "strides": [{"as_int": 1}], "storage_offset": {"as_int": 0}}
    table = {"config": {"w": {"path_name": "weight_0", "use_pickle": False, "tensor_meta": meta}}}
    return archive(
        {
            "models/model.json": json.dumps(content).encode(),
            "data/weights/model_weights_config.json": json.dumps(table).encode(),
            "data/weights/weight_0": bytes(12),
            "data/constants/model_constants_config.json": b'{"config": {}}',
        }
    )


def weights() -> bytes:
    """Three small tensors as safetensors."""
    header = {
        "__metadata__": {"trained_on": "digits"},
        "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
        "b": {"dtype": "I64", "shape": [], "data_offsets": [24, 32]},
        "c": {"dtype": "BF16", "shape": [0, 5], "data_offsets": [32, 32]},
    }
    raw = json.dumps(header).encode()
    return len(raw).to_bytes(8, "little") + raw + bytes(32)


def attempt(read: Callable[[Path], None], content: bytes, path: Path) -> bool:
    """Whether a file is read; False when it is refused.

    Raises:
        AssertionError: it took too long or too much memory.
    """
    path.write_bytes(content)
    tracemalloc.start()
    begun = time.process_time()
    try:
        read(path)
    except (BadProgram, UnsafeProgram, InvalidSpec) as error:
        return not str(error)  # a refusal says why
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        seconds = time.process_time() - begun
    assert peak < MAX_BYTES, f"{peak} bytes"
    assert seconds < MAX_CPU_SECONDS, f"{seconds} s"
    return True


def fuzz(read: Callable[[Path], None], content: bytes, path: Path, examples: int, number: int) -> None:
    """Read so many changed files; hypothesis raises what goes wrong, with the smallest changes that do it."""
    marks = (b"PK\1\2", b"PK\3\4", b"PK\5\6", b'"as_', b'"sizes"', b'"shape"', b"data_offsets", b'"dtype"')
    places = [at for mark in marks for at in range(len(content)) if content.startswith(mark, at)]

    @seed(number)
    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(CHANGES)
    def run(changes: list[Change]) -> None:
        attempt(read, changed(content, changes, places), path)

    run()


FORMATS = {"program": (read_program_file, program), "weights": (read_weights, weights)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz for some seconds; 1 after a failure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    begun, round_, files = time.monotonic(), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        while time.monotonic() - begun < options.seconds:
            for name, (read, make) in FORMATS.items():
                try:
                    fuzz(read, make(), Path(folder) / name, 500, options.seed + round_)
                except BaseException as error:
                    print(f"FAILED {name}: {type(error).__name__}: {error}")
                    return 1
                files += 500
            round_ += 1
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"{files} files, no failure, {time.monotonic() - begun:.0f} s, peak of the process {memory} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
