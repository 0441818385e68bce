"""Gradients of a program beside its module's, which the graph of an export does not hold.

A graph holds what `forward` computes, and its derivative is the graph's own. What a module says of its
derivative is lost: the `backward` of a `torch.autograd.Function`, hooks on gradients, a branch taken only
where gradients are asked for.

A few inputs are differentiated, each by one of three losses, with the same random numbers, in float32; where
that differs, in float64, if both can. Texts are differentiated by the tables with a row for each word.

B = batch, C = channels, S = image size, K = classes, L = tokens of a text, V = words.
"""

from __future__ import annotations

import copy
import inspect
import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, cross_entropy

from assay.attacks.kernel import frozen
from assay.models.programs.program import Program
from assay.workers.weights.export_failure import own_path
from assay.workers.weights.export_inputs import CannotExport, varied

Given = tuple[Tensor, ...]
Nets = tuple[nn.Module, Program]
# Four of the inputs, each differentiated by one of three losses.
EXAMPLES = 4
# As a share of the longer gradient or the largest logit, in float32: there is no need to look in float64.
EQUAL = 1e-4
# A share of the longer gradient. Module and program make the same calls: the difference is mostly 0.
DIFFERENT = {torch.float64: 1e-3, torch.float32: 1e-2}
# A share of the longest gradient: what is below is rounding.
NOISE = {torch.float64: 1e-9, torch.float32: 1e-5}
# A share of the largest logit.
SAME_LOGITS = {torch.float64: 1e-9, torch.float32: 1e-4}
# A change of pixels: a gradient that changes as much with them jumps there, and says nothing.
NUDGE = {torch.float64: 1e-9, torch.float32: 1e-6}
NAMED = 5
LOST = (
    "the backward of an autograd.Function, a hook on gradients, or what forward does only where gradients are"
    " asked for"
)
REMEDY = (
    "write a straight-through estimator as x + (q(x) - x).detach(), which exports rightly; or export q(x)"
    " alone, whose program has no gradients, and attack it by bpda with a program of the smooth version"
)


def compare_gradients(program: Program, network: nn.Module, inputs: Given) -> bool:
    """Whether module and program could be differentiated; CannotExport names why gradients differ."""
    nets, examples = (network, program), _examples(inputs)
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")  # torch's, about hooks
        looks = _looks(nets, examples, torch.float32)
        if looks is None:
            return False
        if lost := sum(math.isnan(look.logits_differ) for look in looks):
            raise CannotExport(
                f"its logits are not finite for {lost} of {len(looks)} images with pixels in [0, 1]"
            )
        if all(max(look.logits_differ, look.difference) <= EQUAL for look in looks):
            return True
        wide = _wide(nets)
        wider = None if wide is None else _looks(wide, examples, torch.float64)
        if wide is not None and wider is not None and _same_logits(wider, torch.float64):
            return _judge(wide, wider, torch.float64)
        if _same_logits(looks, torch.float32):
            return _judge(nets, looks, torch.float32)
    if program.random:
        return False  # other draws
    raise CannotExport(
        "it answers differently where gradients are asked for (torch.is_grad_enabled(), requires_grad), and a"
        " program has one graph: attacks would follow other gradients than the module's"
    )


def _examples(inputs: Given) -> list[Given]:
    given = (varied(inputs[0]),) if inputs[0].is_floating_point() else inputs
    return [tuple(tensor[row : row + 1] for tensor in given) for row in range(EXAMPLES)]


@dataclass(frozen=True)
class _Look:
    """One example and the gradients of its loss, of the module and of the program."""

    number: int
    given: Given
    theirs: Tensor
    ours: Tensor
    logits_differ: float

    @property
    def longest(self) -> float:
        return max(float(self.theirs.norm()), float(self.ours.norm()))

    @property
    def difference(self) -> float:
        return _difference(self.theirs, self.ours)


def _wide(nets: Nets) -> Nets | None:
    try:
        return copy.deepcopy(nets[0]).double(), copy.deepcopy(nets[1]).double()
    except Exception:  # a module that cannot be copied, or too large a one
        return None


def _looks(nets: Nets, examples: Sequence[Given], dtype: torch.dtype) -> list[_Look] | None:
    """None where the module cannot be differentiated, or not in this type."""
    try:
        with frozen(nets[0]), frozen(nets[1]):
            return [_look(nets, given, dtype, number) for number, given in enumerate(examples)]
    except Exception:  # of the module's own code
        return None


def _same_logits(looks: Sequence[_Look], dtype: torch.dtype) -> bool:
    return all(look.logits_differ <= SAME_LOGITS[dtype] for look in looks)


def _judge(nets: Nets, looks: Sequence[_Look], dtype: torch.dtype) -> bool:
    """False where every clear difference is at a point where the module's gradient jumps."""
    least = NOISE[dtype] * max(look.longest for look in looks)
    clear = [look for look in looks if look.longest >= least]
    found = [look for look in clear if look.difference > DIFFERENT[dtype]]
    with frozen(nets[0]):
        if lost := [look for look in found if not _jumps(nets[0], look, NUDGE[dtype])]:
            raise CannotExport(_message(nets, lost, len(looks)))
    return len(found) < len(clear)


def _look(nets: Nets, given: Given, dtype: torch.dtype, number: int) -> _Look:
    given = tuple(tensor.to(dtype) if tensor.is_floating_point() else tensor for tensor in given)
    words = nets[1].signature.channels
    (logits, theirs), (answers, ours) = (_differentiate(net, given, number, words) for net in nets)
    differ = float((logits - answers).abs().max()) / (float(logits.abs().max()) or 1.0)
    both = [key for key in theirs if key in ours]
    one, other = (torch.cat([gradients[key] for key in both]) for gradients in (theirs, ours))
    return _Look(number, given, one, other, differ)


def _differentiate(
    net: nn.Module, given: Given, number: int, words: int = 0
) -> tuple[Tensor, dict[float, Tensor]]:
    leaves, logits = _answer(net, given, number, words)
    parts: Sequence[Tensor | None] = [None] * len(leaves)
    if logits.requires_grad:
        parts = torch.autograd.grad(_loss(logits, number), leaves, allow_unused=True)
    found: dict[float, Tensor] = {}
    for leaf, part in zip(leaves, parts, strict=True):
        leaf.requires_grad_(False)
        flat = (torch.zeros_like(leaf) if part is None else part.to_dense()).flatten()
        # Tied weights are one tensor in the module, and may be two in the program.
        key = float(leaf.sum())
        found[key] = found[key] + flat if key in found else flat
    return logits.detach(), found


@torch.enable_grad()
def _answer(net: nn.Module, given: Given, number: int, words: int) -> tuple[list[Tensor], Tensor]:
    torch.default_generator.manual_seed(number)
    if given[0].is_floating_point():
        image = given[0].clone().requires_grad_()
        return [image], net(image.clone())  # forward may write into its input
    tensors = [tensor for tensor in chain(net.parameters(), net.buffers()) if tensor.is_floating_point()]
    tables = [tensor.requires_grad_() for tensor in tensors if tensor.dim() == 2 and len(tensor) == words]
    return tables, net(*given)


def _loss(logits: Tensor, number: int) -> Tensor:
    """A random direction of the logits, the cross-entropy or the margin of random classes, in turn."""
    generator = torch.Generator().manual_seed(number)
    rows = logits.movedim(-1 if logits.dim() == 3 else 1, -1).flatten(0, -2)
    labels = torch.randint(rows.shape[1], (len(rows), 1), generator=generator)
    if number % 3 == 0:
        return (rows * torch.randn(rows.shape, generator=generator)).sum()
    if number % 3 == 1:
        return cross_entropy(rows, labels[:, 0])
    return (rows.scatter(1, labels, -math.inf).amax(1) - rows.gather(1, labels)[:, 0]).mean()


def _difference(one: Tensor, other: Tensor) -> float:
    finite = bool(one.isfinite().all()), bool(other.isfinite().all())
    if not all(finite):
        return math.inf if any(finite) else 0.0
    return float((one - other).norm()) / (max(float(one.norm()), float(other.norm())) or 1.0)


def _jumps(network: nn.Module, look: _Look, nudge: float) -> bool:
    """Whether the module's gradient changes half as much with a tiny change of the image."""
    if not look.given[0].is_floating_point():
        return False
    noise = torch.randn(look.given[0].shape, generator=torch.Generator().manual_seed(0))
    _, beside = _differentiate(network, (look.given[0] + nudge * noise,), look.number)
    (theirs,) = beside.values()
    return 2 * _difference(look.theirs, theirs) > look.difference


def _message(nets: Nets, lost: Sequence[_Look], count: int) -> str:
    worst = max(lost, key=lambda look: look.difference)
    cosine = float(cosine_similarity(worst.theirs, worst.ours, dim=0))
    lengths = f"{float(worst.ours.norm()):.1e} long, the module's {float(worst.theirs.norm()):.1e}"
    _, logits = _answer(nets[0], worst.given, worst.number, nets[1].signature.channels)
    functions = [*_functions(logits)]
    causes = [*functions, *_hooks(nets[0])][:NAMED]
    what = "images" if worst.given[0].is_floating_point() else "texts"
    return (
        f"for {len(lost)} of {count} {what} its program has other gradients than the module (cosine"
        f" {cosine:.2g}; {lengths}), and attacks would follow them: a program keeps what forward computes,"
        f" and loses {' and '.join(causes) or LOST}; {REMEDY if functions or not causes else 'leave it out'}"
    )


def _functions(logits: Tensor) -> Iterator[str]:
    nodes, seen = [logits.grad_fn], set[object]()
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        nodes += [before for before, _ in node.next_functions]
        function = getattr(node, "_forward_cls", None)
        if function is None or function in seen or function.__module__.startswith("torch."):
            continue
        seen.add(function)
        yield f"the backward of the autograd.Function {function.__qualname__!r}{_line(function)}"


def _line(function: type) -> str:
    try:
        return f" ({inspect.getsourcefile(function)}:{inspect.getsourcelines(function)[1]})"
    except (OSError, TypeError):
        return ""


def _hooks(network: nn.Module) -> Iterator[str]:
    for name, part in network.named_modules():
        if part._backward_hooks or part._backward_pre_hooks:
            yield f"the hook on gradients of {own_path(name)!r} ({type(part).__name__})"
