"""An exported program as a module: the content of a `.pt2` file, run operator by operator.

Logits (B, K) classify, logits (B, K, S, S) segment, logits (B, L, V) predict words.

B = batch, C = channels, S = image size, K = classes, N = tokens of a text, L = those that a program takes,
V = words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from assay.models.layers.language import PAD
from assay.models.programs.graph import Calls, Node, Own, Ref, read_nodes, unlisted
from assay.models.programs.guards import find_check
from assay.models.programs.payload import read_tensors
from assay.models.programs.reading import ReadEntry, field, of_type, parse, refuse, shown
from assay.models.programs.signature import Signature, count_words, read_inputs, read_output, read_signature
from assay.models.programs.sizes import MAX_ELEMENTS, check_prediction, check_results

MAX_GRAPH_BYTES = 64 * 2**20
SCHEMA = 8
# Shapes of images remembered as giving small results only.
MAX_SHAPES = 64
# Written beside the graph by the export, as far as it is known: {"vocabulary": sha256} of texts,
# {"class_names": [...]} of logits, {"gradients": "compared"}.
NOTES = "extra/assay.json"
GRADIENTS, COMPARED = "gradients", "compared"
MAX_NOTES_BYTES = 8 * 2**20
MAX_CLASS_NAME = 200
SHA256 = re.compile(r"[0-9a-f]{64}")


class Program(nn.Module):
    """An exported program, from images or ids to logits by its signature. Float32 tensors follow `to`."""

    _where: Tensor
    # Stated by the file: the sha256 of the words of its ids, the names of its logits, and that its gradients
    # equal its module's.
    vocabulary: str | None = None
    class_names: tuple[str, ...] | None = None
    compared = False

    def __init__(
        self, signature: Signature, calls: Calls, tensors: Mapping[str, Tensor], parameters: set[str]
    ) -> None:
        super().__init__()
        self.signature = signature
        self.image_size = signature.image_size
        self.random = calls.random
        self._nodes = calls.nodes
        self._known: set[torch.Size] = set()
        self._places: list[tuple[str, str]] = []
        for number, (name, tensor) in enumerate(tensors.items()):
            place = f"tensor_{number}"
            if name in parameters and tensor.is_floating_point():
                self.register_parameter(place, nn.Parameter(tensor, requires_grad=False))
            else:
                self.register_buffer(place, tensor)
            self._places.append((name, place))
        self.register_buffer("_where", torch.zeros(()), persistent=False)

    def forward(self, *inputs: Tensor) -> Tensor:
        """Logits of images (B, C, S, S), or of ids (B, L) and their mask; large batches are split."""
        if self.signature.length is not None:
            self._check_ids(inputs[0])
        largest = self.signature.largest_batch
        if largest is not None and inputs[0].shape[0] > largest:
            parts = zip(*(given.split(largest) for given in inputs), strict=True)
            return torch.cat([self._run(part) for part in parts])
        return self._run(inputs)

    def _check_ids(self, ids: Tensor) -> None:
        """Before anything is looked up: a GPU finds a wrong id too late, and is lost with it."""
        if not ids.numel() or ids.is_meta:
            return
        lowest, highest = torch.stack(torch.aminmax(ids)).tolist()
        if lowest < 0 or highest >= self.signature.channels:
            raise ValueError(
                f"ids of tokens must be 0 to {self.signature.channels - 1}: got {lowest} to {highest}"
            )

    def _run(self, inputs: tuple[Tensor, ...]) -> Tensor:
        values: dict[str, Any] = {name: getattr(self, place) for name, place in self._places}
        values |= zip(self.signature.inputs, inputs, strict=True)
        own = {"device": self._where.device, "dtype": self._where.dtype}
        max_elements = MAX_ELEMENTS * max(1, inputs[0].shape[0])
        known = inputs[0].shape in self._known
        trace = torch._C._get_tracing_state()  # of `torch.jit`: so that its nodes have the names of modules
        for node in self._nodes:
            if trace is not None:
                trace.push_scope(node.module)
            run_node(node, values, own, max_elements, known=known)
            if trace is not None:
                trace.pop_scope()
        if len(self._known) < MAX_SHAPES:
            self._known.add(inputs[0].shape)
        logits: Tensor = values[self.signature.logits]
        return logits

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Program:
        own = self._where.dtype

        def follow(tensor: Tensor) -> Tensor:
            moved = fn(tensor)
            return moved if tensor.dtype == own else tensor.to(moved.device)

        super()._apply(follow, recurse)  # type: ignore[no-untyped-call]
        return self


def present(ids: Tensor) -> Tensor:
    """Mask of ids (B, L), true where a token takes part: the first one, and all that are no padding."""
    return torch.cat([torch.ones_like(ids[:, :1], dtype=torch.bool), ids[:, 1:] != PAD], dim=1)


def random_texts(count: int, words: int, length: int, generator: torch.Generator) -> Tensor:
    """Ids of texts of several lengths, padded at the right: int64 (count, length), the first one full."""
    ids = torch.randint(min(PAD + 1, words - 1), words, (count, length), generator=generator)
    lengths = torch.tensor([max(1, length * (count - row) // count) for row in range(count)])
    return ids.masked_fill(torch.arange(length) >= lengths[:, None], PAD)


class TextProgram(nn.Module):
    """A program for texts as a model of words: it takes texts of any length up to its own."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        assert program.signature.length is not None
        self.program = program
        self.sequence_length = program.signature.length

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (B, K), or (B, N, V) of a language model, of ids, int64 (B, N).

        Ids are padded to L at the right. The mask never leaves out the first token.
        """
        signature, longest = self.program.signature, self.sequence_length
        if tokens.dim() != 2 or not 1 <= tokens.shape[1] <= longest:
            raise ValueError(f"tokens must be (batch, 1 to {longest}): got {tuple(tokens.shape)}")
        ids = pad(tokens, (0, longest - tokens.shape[1]), value=PAD)
        mask: tuple[Tensor, ...] = ()
        if signature.mask is not None:
            mask = (present(ids).to(signature.mask),)
        logits: Tensor = self.program(ids, *mask)
        return logits[:, : tokens.shape[1]] if signature.per_token else logits


def load_program(read: ReadEntry, graph: str, model: str, *, notes: bool = False) -> Program:
    """Load the program of an archive."""
    content = _graph(read, graph)
    module = field(content, "graph_module", dict)
    body, stated = field(module, "graph", dict), field(module, "signature", dict)
    stored, parameters, inputs = read_inputs(field(stated, "input_specs", list))
    logits = read_output(field(stated, "output_specs", list))
    calls = read_nodes(body, set(stored), set(inputs), logits)
    found = read_tensors(read, model)
    absent = [name for name in stored.values() if name not in found]
    if absent:
        refuse(f"the tensor {shown(absent[0])} is not in the file")
    tensors = {name: found[key] for name, key in stored.items()}
    rows = {name: len(tensor) for name, tensor in tensors.items() if tensor.dim()}
    words = count_words(calls.nodes, inputs[0], rows)
    signature = read_signature(content, field(body, "tensor_values", dict), inputs, logits, words)
    program = Program(signature, calls, tensors, parameters)
    if notes:
        stated = parse(read(NOTES, MAX_NOTES_BYTES), NOTES)
        program.class_names = _class_names(stated, signature.classes)
        program.vocabulary, program.compared = _vocabulary(stated), _compared(stated)
    return program


def notes_file(notes: Mapping[str, Any]) -> dict[str, str] | None:
    """`NOTES` as an extra file of `torch.export.save`, without what is None; None where nothing is stated."""
    stated = {name: value for name, value in notes.items() if value is not None}
    return {NOTES.partition("/")[2]: json.dumps(stated)} if stated else None


def _class_names(notes: Mapping[str, Any], classes: int) -> tuple[str, ...] | None:
    names = notes.get("class_names")
    if names is None:
        return None
    for name in of_type(names, list, "class_names"):
        text = of_type(name, str, "class_names")
        if not (1 <= len(text) <= MAX_CLASS_NAME and text.isprintable()):
            allowed = f"1 to {MAX_CLASS_NAME} printable characters"
            refuse(f"its {NOTES} has the class name {shown(name)}; allowed: {allowed}")
    if len(names) != classes or len({*names}) != classes:
        refuse(
            f"its {NOTES} names {len(names)} classes ({len({*names})} different ones), and it has {classes}"
            " logits"
        )
    return tuple(names)


def _vocabulary(notes: Mapping[str, Any]) -> str | None:
    stated = notes.get("vocabulary")
    if stated is not None and not SHA256.fullmatch(of_type(stated, str, "vocabulary")):
        refuse(f"its {NOTES} has the vocabulary {shown(stated)}; allowed: a sha256 in 64 hexadecimal digits")
    return stated


def _compared(notes: Mapping[str, Any]) -> bool:
    stated = notes.get(GRADIENTS)
    if stated not in (None, COMPARED):
        refuse(f"its {NOTES} has the {GRADIENTS} {shown(stated)}; allowed: {COMPARED!r}, or none")
    return stated is not None


def unlisted_calls(read: ReadEntry, graph: str) -> list[tuple[str, str]]:
    """All calls of a program that are not allowed; see `unlisted`. Raises UnsafeProgram: malformed graph."""
    return unlisted(field(field(_graph(read, graph), "graph_module", dict), "graph", dict))


def _graph(read: ReadEntry, graph: str) -> dict[str, Any]:
    content = parse(read(graph, MAX_GRAPH_BYTES), "graph")
    version = field(field(content, "schema_version", dict), "major", int)
    if version != SCHEMA:
        refuse(
            f"its schema has the version {version}, allowed: {SCHEMA}; save it with torch.export.save of"
            " torch 2.10 or newer"
        )
    return content


def _value(argument: Any, values: Mapping[str, Any], own: Mapping[str, Any]) -> Any:
    if isinstance(argument, Ref):
        return values[argument.name]
    if isinstance(argument, Own):
        return own[argument.what]
    if isinstance(argument, list):
        return [_value(item, values, own) for item in argument]
    return argument


def run_node(
    node: Node, values: dict[str, Any], own: Mapping[str, Any], max_elements: int, *, known: bool = False
) -> None:
    """Make one call of a graph: `values` gain its results, and lose what is no longer needed.

    The sizes of the results are not predicted where they are `known` from a call on the same shapes. Raises
    UnsafeProgram: the call is refused by a check of its arguments, or its results are too large.
    """
    arguments = [_value(argument, values, own) for argument in node.arguments]
    keywords = {name: _value(argument, values, own) for name, argument in node.keywords.items()}
    if node.operator is None:
        _keep(node, node.call(*arguments, **keywords), values)
        return
    if not known:
        if (check := find_check(node.operator)) is not None:
            check(*arguments, **keywords)
        check_prediction(node.operator, arguments, keywords, node.results, max_elements)
    found = node.call(*arguments, **keywords)
    check_results(node.operator, found, node.results, max_elements)
    _keep(node, found, values)


def _keep(node: Node, result: Any, values: dict[str, Any]) -> None:
    results = (result,) if len(node.results) == 1 else tuple(result) if node.results else ()
    for name, value in zip(node.results, results, strict=True):
        if isinstance(name, list):
            values.update(zip(name, value, strict=True))
        else:
            values[name] = value
    for name in node.last:
        del values[name]
