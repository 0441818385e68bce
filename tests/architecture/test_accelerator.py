"""One module decides what an accelerator is, so that an emulated device takes CUDA's branches."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("attacks", "models", "service", "workers")
DECIDES = "workers/accelerator.py"


def is_cuda(node: ast.expr) -> bool:
    """Whether it is the literal "cuda" or "cuda:0", or a collection with one."""
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return any(map(is_cuda, node.elts))
    return isinstance(node, ast.Constant) and str(node.value).partition(":")[0] == "cuda"


def of_torch(node: ast.expr) -> bool:
    """Whether a side of a comparison is a torch device: its `type`, or its text."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "str":
        return True
    return isinstance(node, ast.Attribute) and node.attr == "type"


def driver_of(node: ast.AST) -> str | None:
    """Where a node names torch's modules of drivers."""
    match node:
        case ast.Attribute(value=ast.Name(id="torch"), attr="cuda" | "accelerator"):
            return f"torch.{node.attr}"
        case ast.Import(names=names) if any(one.name.startswith("torch.cuda") for one in names):
            return "torch.cuda"
        case ast.ImportFrom(module=str(module)) if module.startswith("torch.cuda"):
            return "torch.cuda"
        case ast.ImportFrom(module="torch", names=names) if any(one.name == "cuda" for one in names):
            return "torch.cuda"
        case ast.Call(func=ast.Name(id="getattr" | "hasattr"), args=[ast.Name(id="torch"), second, *_]):
            return "torch.cuda" if is_cuda(second) else None
    return None


def device_of(node: ast.AST) -> str | None:
    """Where a node asks for a device of CUDA's type."""
    match node:
        case ast.Attribute(attr="is_cuda"):
            return "is_cuda"
        case ast.Compare():
            sides = [node.left, *node.comparators]
            return "a comparison" if any(map(is_cuda, sides)) and any(map(of_torch, sides)) else None
        case ast.MatchValue(value=value):
            return "a comparison" if is_cuda(value) else None
        case ast.Call(func=ast.Attribute(attr="cuda")):
            return "a tensor on CUDA"
        case ast.Call(func=ast.Attribute(attr="to" | "device"), args=[first, *_]):
            return "a device of CUDA" if is_cuda(first) else None
    return None


def found_in(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Lines that name CUDA's driver or its type, and what each says."""
    for node in ast.walk(tree):
        if (said := driver_of(node) or device_of(node)) is not None:
            yield getattr(node, "lineno", 0), said


def test_no_other_module_asks_for_cuda() -> None:
    found = {
        path.relative_to(ROOT).as_posix(): list(found_in(ast.parse(path.read_text())))
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
    }
    assert found.pop(DECIDES)
    refused = [f"{name}:{line}: {what}" for name, places in found.items() for line, what in places]
    assert not refused, f"ask `{DECIDES}`; in `attacks` and `models`, compare with the CPU: {refused}"


@pytest.mark.parametrize(
    "planted",
    [
        "torch.cuda.empty_cache()",
        "import torch.cuda",
        "from torch import cuda",
        "from torch.cuda import Event",
        "hasattr(torch, 'cuda')",
        "device.type == 'cuda'",
        "'cuda' != shard.device.type",
        "images.device.type in ('cuda', 'mps')",
        "'cuda' in str(device)",
        "str(device) == 'cuda:0'",
        "images.is_cuda",
        "images.cuda()",
        "images.to('cuda')",
        "torch.device('cuda', 1)",
        "torch.accelerator.synchronize()",
        "match device.type:\n    case 'cuda':\n        pass",
    ],
)
def test_a_planted_one_is_found(planted: str) -> None:
    assert list(found_in(ast.parse(planted)))


@pytest.mark.parametrize(
    "planted",
    [
        "torch.version.cuda",
        "torch.backends.cuda.matmul.allow_tf32 = False",
        "if spec['execution']['device'] == 'cuda': pass",
        "'cuda' in device_classes()",
        "device.type != 'cpu'",
    ],
)
def test_what_is_something_else_is_not_found(planted: str) -> None:
    """A version; the flags of a library; the class of a device, which is a word of the contract."""
    assert not list(found_in(ast.parse(planted)))
