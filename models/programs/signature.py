"""What a program takes and gives, as its file states it.

Images are float32 (B, C, S, S), texts int64 ids (B, L). Logits of images are (B, K), or (B, K, S, S) for a
segmentation; logits of texts are (B, K), or (B, L, V) for a language model.

B = batch, C = channels, S = image size, K = classes, L = tokens of a text, V = words of the vocabulary.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from assay.models.programs.graph import Node, Ref
from assay.models.programs.payload import DTYPES
from assay.models.programs.reading import field, integer, listed, refuse, shown, union

MAX_CHANNELS, MAX_IMAGE_SIZE = 256, 4096
MAX_LENGTH = 65536
FLOAT32, INT64 = 7, 5
# A mask of whole numbers or truth values, true where a token takes part.
MASKS = {5: torch.int64, 12: torch.bool}
# Torch's name of a plain dynamic size. It is compared, never evaluated.
SYMBOL = re.compile(r"(?:Symbol\(')?([a-z]+[0-9]+)(?:'[a-z=, A-Z]*\))?")
DYNAMIC = (
    "give it a dynamic batch: batch = torch.export.Dim('batch', min=1);"
    " torch.export.export(model, (images,), dynamic_shapes=({0: batch},)), with at least two images"
)
# Their results have the values of their first argument, so that ids stay ids.
SAME_VALUES = frozenset(
    [
        *("alias", "clone", "contiguous", "detach", "expand", "flatten", "lift_fresh_copy", "reshape"),
        *("slice", "squeeze", "to", "unsqueeze", "view", "_to_copy"),
    ]
)

# The task of a program, by the dimensions of its logits.
TASKS_OF_IMAGES = {2: "classification", 4: "segmentation"}
TASKS_OF_TEXTS = {2: "sequence", 3: "language"}


@dataclass(frozen=True)
class Signature:
    """Declared signature of a program."""

    # names in the graph: of the images (B, channels, image_size, image_size), float32; or of the ids (B,
    # length), int64, and of their mask
    inputs: tuple[str, ...]
    # name of the result, (B, classes), (B, classes, image_size, image_size), or (B, length, classes)
    logits: str
    dimensions: int  # of the logits
    channels: int  # of the images; of texts the words V, one more than the largest id
    image_size: int | None  # None for texts
    classes: int  # for a language model the words
    largest_batch: int | None  # of the export; None without a limit
    length: int | None = None  # tokens of a text; None for images
    mask: torch.dtype | None = None  # type of the mask; None for a program without one

    @property
    def task(self) -> str:
        """The task of the program: of images, or of texts."""
        return (TASKS_OF_IMAGES if self.length is None else TASKS_OF_TEXTS)[self.dimensions]

    @property
    def per_token(self) -> bool:
        """Whether each token of a text has logits."""
        return self.length is not None and self.dimensions > 2

    @property
    def answer(self) -> tuple[int, ...]:
        """The shape of an input's logits."""
        places = self.dimensions - 2
        if self.length is not None:
            return (*[self.length] * places, self.classes)
        return (self.classes, *[self.image_size or 0] * places)


def read_inputs(specs: list[Any]) -> tuple[dict[str, str], set[str], tuple[str, ...]]:
    """Stored tensors (name in the graph to qualified name), which of them are parameters, and the inputs."""
    stored: dict[str, str] = {}
    parameters: set[str] = set()
    inputs: list[str] = []
    keys = {"parameter": "parameter_name", "buffer": "buffer_name", "tensor_constant": "tensor_constant_name"}
    for spec in specs:
        which, value = union(spec, "an input")
        if which in keys:
            name = field(field(value, "arg", dict), "name", str)
            stored[name] = field(value, keys[which], str)
            if which == "parameter":
                parameters.add(name)
        elif which == "user_input":
            kind, tensor = union(field(value, "arg", dict), "an input")
            if kind == "as_none":
                continue
            if kind != "as_tensor":
                refuse(
                    f"it takes an input of the kind {shown(kind)}: a program takes one tensor of images, or"
                    " ids and their mask"
                )
            inputs.append(field(tensor, "name", str))
        elif which != "constant_input":
            refuse(f"it has an input of the kind {shown(which)}, which is not taken")
    if not 1 <= len(inputs) <= 2 or stored.keys() & {*inputs} or len({*inputs}) < len(inputs):
        _refuse_count(len(inputs))
    return stored, parameters, tuple(inputs)


def _refuse_count(count: int) -> None:
    refuse(
        f"it takes {count} tensors; a program takes one: images (batch, channels, height, width); or ids of"
        " tokens (batch, length), alone or with their mask"
    )


def read_output(specs: list[Any]) -> str:
    """Name of the logits. Raises UnsafeProgram: several values, no tensor, or it changes its buffers."""
    kinds = [union(spec, "a result") for spec in specs]
    mutated = [which for which, _ in kinds if which != "user_output"]
    if mutated:
        refuse(
            f"it does more than answer ({shown(mutated[0])}): export the model in evaluation mode, without"
            " counters and without a loss"
        )
    if len(kinds) != 1:
        refuse(f"it returns {len(kinds)} values; a program returns one: logits (batch, classes)")
    which, value = union(field(kinds[0][1], "arg", dict), "a result")
    if which != "as_tensor":
        refuse(f"it returns something of the kind {shown(which)}; a program returns logits (batch, classes)")
    return field(value, "name", str)


def read_signature(
    content: Mapping[str, Any], values: Mapping[str, Any], inputs: tuple[str, ...], logits: str, words: int
) -> Signature:
    """Check the stated shapes of inputs and result."""
    given = field(values, inputs[0], dict)
    number, sizes = field(given, "dtype", int), listed(given.get("sizes"), _size)
    if number == INT64 and len(sizes) == 2:
        return _of_texts(content, values, inputs, logits, words)
    if len(inputs) != 1:
        _refuse_count(len(inputs))
    if number != FLOAT32:
        name = str(DTYPES.get(number, number)).removeprefix("torch.")
        refuse(
            f"it takes images of the type {name}: export it with float32 images; ids of tokens are int64"
            " (batch, length)"
        )
    return _of_images(content, field(values, logits, dict), sizes, inputs, logits)


def _of_images(
    content: Mapping[str, Any],
    result: Mapping[str, Any],
    sizes: list[tuple[str | None, int]],
    inputs: tuple[str, ...],
    logits: str,
) -> Signature:
    shape = [example for _, example in sizes]
    if len(sizes) != 4:
        refuse(f"it takes a tensor of {len(sizes)} dimensions; images are (batch, channels, height, width)")
    batch = _batch(sizes)
    if not (0 < shape[1] <= MAX_CHANNELS and 0 < shape[2] <= MAX_IMAGE_SIZE):
        refuse(
            f"it takes images of {shape[1]} channels and {shape[2]} pixels; allowed: 1 to {MAX_CHANNELS}"
            f" channels, 1 to {MAX_IMAGE_SIZE} pixels"
        )
    if shape[2] != shape[3]:
        refuse(f"it takes images of {shape[2]} x {shape[3]} pixels; allowed: square ones")
    if sizes[1][0] is not None:
        refuse(
            "its number of channels is dynamic: only the number of images may be, and their height and width"
        )
    returned = listed(result.get("sizes"), _size)
    per_pixel = [(None, shape[2])] * (len(returned) - 2)
    plain = [(name, size if name is None else 0) for name, size in returned[2:]]
    known = len(returned) in TASKS_OF_IMAGES
    if not known or returned[0][0] != batch or returned[1][0] is not None or plain != per_pixel:
        refuse(
            f"its result has the shape ({_shape(returned)}); logits are ({batch}, classes), with the batch"
            f" first, or ({batch}, classes, {shape[2]}, {shape[2]}) for a segmentation"
        )
    return Signature(
        inputs, logits, len(returned), shape[1], shape[2], returned[1][1], _largest(content, batch)
    )


def _of_texts(
    content: Mapping[str, Any], values: Mapping[str, Any], inputs: tuple[str, ...], logits: str, words: int
) -> Signature:
    sizes = listed(field(values, inputs[0], dict).get("sizes"), _size)
    batch = _batch(sizes)
    symbol, length = sizes[1]
    if symbol is not None or not 0 < length <= MAX_LENGTH:
        refuse(
            f"it takes texts of {symbol or length} tokens; allowed: one length, 1 to {MAX_LENGTH}, to which"
            " texts are padded"
        )
    mask: torch.dtype | None = None
    batches = [batch]  # torch may keep a symbol for each input, of the same size
    if len(inputs) == 2:
        stated = field(values, inputs[1], dict)
        mask = MASKS.get(field(stated, "dtype", int))
        shape = listed(stated.get("sizes"), _size)
        if mask is None or shape[1:] != [(None, length)] or shape[0][0] is None:
            refuse(
                f"its second input has the shape ({_shape(shape)}) and the type number {stated['dtype']}; a"
                f" mask of the tokens is bool or int64 ({batch}, {length})"
            )
        batches.append(shape[0][0])
    if words < 1:
        refuse(
            "its ids are looked up in none of its tables: the embedding that takes them decides the number of"
            " its words, and so the ids that it may be given"
        )
    returned = listed(field(values, logits, dict).get("sizes"), _size)
    fixed = [size for name, size in returned[1:] if name is None]
    plain = len(fixed) == len(returned) - 1 and returned[0][0] in batches
    if len(returned) not in TASKS_OF_TEXTS or not plain or (len(fixed) > 1 and fixed != [length, words]):
        refuse(
            f"its result has the shape ({_shape(returned)}); logits of texts are ({batch}, classes), or"
            f" ({batch}, {length}, {words}) for a language model, whose embedding has {words} words"
        )
    limits = [limit for one in batches if (limit := _largest(content, one)) is not None]
    largest = min(limits, default=None)
    return Signature(inputs, logits, len(returned), words, None, fixed[-1], largest, length, mask)


def count_words(nodes: Sequence[Node], ids: str, rows: Mapping[str, int]) -> int:
    """Rows of the smallest stored table in which the values of an input are looked up; 0 without one."""
    same, found = {ids}, list[int]()
    for node in nodes:
        name = "" if node.operator is None else node.operator._schema.name.removeprefix("aten::")
        first, second = (*node.arguments[:2], None, None)[:2]
        if name in SAME_VALUES and isinstance(first, Ref) and first.name in same:
            same.update(result for result in node.results if isinstance(result, str))
        asked = second[0] if name == "index" and isinstance(second, list) and len(second) == 1 else second
        looked_up = name in ("embedding", "index") and isinstance(asked, Ref) and asked.name in same
        if looked_up and isinstance(first, Ref) and first.name in rows:
            found.append(rows[first.name])
    return min(found, default=0)


def _batch(sizes: list[tuple[str | None, int]]) -> str:
    batch, example = sizes[0]
    if batch is None:
        refuse(f"it takes batches of exactly {example}; {DYNAMIC}")
    return batch


def _largest(content: Mapping[str, Any], batch: str) -> int | None:
    limits = field(content, "range_constraints", dict).get(batch)
    largest = limits.get("max_val") if isinstance(limits, dict) else None
    if largest is not None and integer(largest) < 1:
        refuse(f"it takes batches of at most {largest}; {DYNAMIC}")
    return largest


def _shape(sizes: list[tuple[str | None, int]]) -> str:
    return ", ".join(name or str(size) for name, size in sizes)


def _size(content: Any) -> tuple[str | None, int]:
    """Symbol of a dynamic size (None for a fixed one), and the size at export."""
    which, value = union(content, "a size")
    if which == "as_int":
        return None, integer(value)
    text = field(value, "expr_str", str)
    match = SYMBOL.fullmatch(text)
    hint = value.get("hint") or {}
    if match is None or not isinstance(hint, dict):
        refuse(f"the size {shown(text)} is no plain symbol; {DYNAMIC}")
    return match[1], integer(hint.get("as_int", 0))
