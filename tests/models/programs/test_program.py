"""An exported program equals its network on every device and in every dtype."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention as attention
from torchvision.models import VisionTransformer
from torchvision.models.resnet import BasicBlock, ResNet

from assay.models.exported import exported
from assay.models.programs.reading import UnsafeProgram
from assay.models.rpc_symvit import rpc_symvit
from tests.support.programs import CLASSES, Net, edited, export, load
from tests.support.weights import disturb


class Pixels(nn.Module):
    """A network with its normalisation."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("mean", torch.tensor([0.4, 0.5, 0.6]).view(1, 3, 1, 1))

    def forward(self, x: Tensor) -> Any:
        return self.network((x - self.mean) / 0.25)


def resnet() -> nn.Module:
    return ResNet(BasicBlock, [1, 1, 1, 1], num_classes=5)


def torchvisions_vit() -> nn.Module:
    sizes = {"num_layers": 2, "num_heads": 2, "hidden_dim": 16, "mlp_dim": 24, "num_classes": 5}
    return VisionTransformer(image_size=32, patch_size=8, **sizes)


def rpc_vit() -> nn.Module:
    return rpc_symvit(5, 3, image_size=32, patch_size=8, width=16, depth=2, heads=2, iterations=2)


@pytest.mark.costly
@pytest.mark.parametrize("build", [resnet, torchvisions_vit, rpc_vit])
def test_equals_the_network_in_logits_and_gradients(build: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = Pixels(build())
    disturb(network)
    program = load(export(network, tmp_path / "net.pt2", shape=(3, 32, 32)))
    network.eval().requires_grad_(False)
    for count in (1, 2, 7):
        ours, theirs = (torch.rand(count, 3, 32, 32, generator=_drawn(count)).requires_grad_() for _ in "ab")
        logits, wanted = program(ours), network(theirs)
        assert torch.equal(logits, wanted)
        logits.logsumexp(1).sum().backward()
        wanted.logsumexp(1).sum().backward()
        assert ours.grad is not None
        assert torch.equal(ours.grad, theirs.grad)
        assert ours.grad.any()


def test_equals_what_torch_itself_loads(plain: Path) -> None:
    images = torch.rand(3, 3, 8, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = torch.export.load(plain).module()
    assert torch.equal(load(plain)(images), theirs(images))


def test_knows_its_signature_and_is_frozen(plain: Path) -> None:
    program = load(plain)
    signature = program.signature
    assert (signature.channels, signature.image_size, signature.classes) == (3, 8, CLASSES)
    assert signature.largest_batch is None
    assert not program.random
    assert exported(CLASSES, 3, program=program) is program
    assert not any(parameter.requires_grad for parameter in program.parameters())
    assert sum(p.numel() for p in program.parameters()) == sum(p.numel() for p in Net().parameters())


def test_other_data_and_no_program_are_refused(plain: Path) -> None:
    with pytest.raises(ValueError, match="the exported program has 4 classes, the data 10"):
        exported(10, 3, program=load(plain))
    with pytest.raises(ValueError, match="the exported program has 3 channels, the data 1"):
        exported(CLASSES, 1, program=load(plain))
    with pytest.raises(ValueError, match="is what a checkpoint has"):
        exported(CLASSES, 3)


def test_float32_follows_the_module_and_other_types_stay(tmp_path: Path) -> None:
    def mixed(net: Net, x: Tensor) -> Tensor:
        exact = torch.ones(CLASSES, dtype=torch.float64) * 3
        return net.plain(x.to(torch.float32)) * exact.to(torch.float32) + torch.zeros(
            CLASSES, dtype=torch.float32
        )

    program = load(export(Net(mixed), tmp_path / "mixed.pt2"))
    images = torch.rand(2, 3, 8, 8, dtype=torch.float64)
    single = program(images.float())
    double = program.double()(images)
    assert single.dtype == torch.float32
    assert double.dtype == torch.float64
    torch.testing.assert_close(single.double(), double, rtol=1e-5, atol=1e-5)
    network = Net(mixed).eval().double()
    wanted = network.plain(images) * 3
    torch.testing.assert_close(double, wanted, rtol=0, atol=1e-12)


def test_half_precision_inside_is_kept(tmp_path: Path) -> None:
    class Halved(Net):
        def __init__(self) -> None:
            super().__init__(lambda net, x: net.plain(x) * net.scale.float())
            self.scale = nn.Parameter(torch.tensor(1 / 3, dtype=torch.bfloat16))

    program = load(export(Halved(), tmp_path / "halved.pt2")).double().float()
    assert {p.dtype for p in program.parameters()} == {torch.float32, torch.bfloat16}
    images = torch.rand(2, 3, 8, 8)
    assert torch.equal(program(images), Halved().eval()(images))


def test_devices_of_the_export_do_not_matter(tmp_path: Path) -> None:
    def made_there(net: Net, x: Tensor) -> Tensor:
        return net.plain(x) + torch.arange(CLASSES, device="cpu", dtype=torch.float32).to("cpu")

    program = load(export(Net(made_there), tmp_path / "net.pt2")).to("meta")
    assert program(torch.rand(2, 3, 8, 8, device="meta")).device.type == "meta"


def test_batches_beyond_the_exported_limit_are_cut(tmp_path: Path) -> None:
    limited = {0: torch.export.Dim("batch", min=1, max=4)}
    program = load(export(Net(), tmp_path / "net.pt2", batch=limited))
    assert program.signature.largest_batch == 4
    sizes: list[int] = []
    run = program._run

    def counted(inputs: tuple[Tensor, ...]) -> Tensor:
        sizes.append(len(inputs[0]))
        return run(inputs)

    program._run = counted  # type: ignore[method-assign]
    images = torch.rand(10, 3, 8, 8)
    torch.testing.assert_close(program(images), Net().eval()(images))
    assert sizes == [4, 4, 2]


def test_values_are_forgotten_once_nothing_needs_them(plain: Path) -> None:
    nodes = load(plain)._nodes
    dropped = [name for node in nodes for name in node.last]
    made = [name for node in nodes for name in node.results]
    assert set(made) - set(dropped) == {load(plain).signature.logits}
    assert len(dropped) == len(set(dropped))


def test_random_operators_are_noticed(tmp_path: Path) -> None:
    def noisy(net: Net, x: Tensor) -> Tensor:
        return net.plain(x + 0.1 * torch.randn_like(x))

    program = load(export(Net(noisy), tmp_path / "net.pt2"))
    assert program.random
    images = torch.rand(2, 3, 8, 8)
    assert not torch.equal(program(images), program(images))


def refusal(tmp_path: Path, answer: Any, **how: Any) -> str:
    path = export(Net(answer), tmp_path / "net.pt2", **how)
    with pytest.raises(UnsafeProgram) as raised:
        load(path)
    return str(raised.value)


def _counting(net: Any, x: Tensor) -> Any:
    net.counter.add_(1)
    return net.plain(x)


def _without_gradients(net: Any, x: Tensor) -> Any:
    with torch.no_grad():
        return net.plain(x)


@pytest.mark.costly
@pytest.mark.parametrize(
    ("answer", "how", "reason"),
    [
        (
            None,
            {"batch": None},
            "takes batches of exactly 2; give it a dynamic batch: batch = torch.export.Dim",
        ),
        (None, {"training": True}, "exported in training mode"),
        (
            lambda net, x: net.plain(torch.nn.functional.dropout(x, 0.3)),
            {},
            r"its forward calls dropout with train=True at .*programs\.py:\d+, in evaluation mode, too, so",
        ),
        (
            lambda net, x: net.plain(attention(x, x, x, dropout_p=0.5)),
            {},
            r"calls scaled_dot_product_attention with dropout_p=0\.5 at .*programs\.py:\d+, in evaluation",
        ),
        (
            lambda net, x: net.head(net.drop(x.mean((2, 3)).repeat(1, 2))),
            {"training": True},
            "dropout with train",
        ),
        (lambda net, x: (net.plain(x), x), {}, "returns 2 values; a program returns one: logits"),
        (lambda net, x: net.plain(x).sum(0), {}, r"has the shape \(4\); logits are"),
        (lambda net, x: net.plain(x).argmax(1), {}, "has the shape"),
        (
            lambda net, x: net.conv(x)[:, :, ::2, ::2],
            {},
            r"has the shape \(\w+, 6, 4, 4\); logits are .* or \(\w+, classes, 8, 8\) for a segmentation",
        ),
        (lambda net, x: net.plain(x[:, :, :4]), {"shape": (3, 8, 4)}, "images of 8 x 4 pixels"),
        (
            lambda net, x: net.plain(x.float()),
            {"dtype": torch.float16},
            "of the type float16: export it with float32",
        ),
        (
            lambda net, x: net.plain(x[..., None].expand(-1, 3, 8, 8)),
            {"shape": (3, 1)},
            "a tensor of 3 dimensions",
        ),
        (_counting, {}, "changes its own weights or buffers"),
        (_without_gradients, {}, "switched gradients"),
        (lambda net, x: net.plain(x + torch.empty_like(x)), {}, "empty_like.default, which is not among"),
    ],
)
def test_what_cannot_be_attacked_is_refused_with_the_reason(
    tmp_path: Path, answer: Any, how: dict[str, Any], reason: str
) -> None:
    assert re.search(reason, refusal(tmp_path, answer, **how))


def test_a_program_of_two_images_is_refused(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        images = (torch.rand(2, 3, 8, 8), torch.rand(2, 3, 8, 8))
        program = torch.export.export(_Two(), images, dynamic_shapes=({0: torch.export.Dim("b")},) * 2)
        torch.export.save(program, tmp_path / "two.pt2")
    with pytest.raises(UnsafeProgram, match="takes 2 tensors; a program takes one"):
        load(tmp_path / "two.pt2")


class _Two(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return (x + y).mean((2, 3))


def _drawn(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_calls_have_the_path_of_their_module_and_a_strange_one_is_none(tmp_path: Path) -> None:
    path = export(Net(), tmp_path / "net.pt2")
    modules = [node.module for node in load(path)._nodes]
    assert [name for name in modules if name] == ["conv", "norm", "drop", "head"]

    def strange(stack: Any) -> Any:
        def edit(content: Any) -> None:
            for node in content["graph_module"]["graph"]["nodes"]:
                node["metadata"]["nn_module_stack"] = stack

        return edit

    for stack in (7, None, ["a,b,c"], "a,b", "a,<b>,c", "a,b/c,d", f"a,{'b' * 300},c"):
        odd = load(edited(path, tmp_path / "odd.pt2", strange(stack)))
        assert {node.module for node in odd._nodes} == {""}, stack
    images = torch.rand(2, 3, 8, 8)
    assert torch.equal(odd(images), load(path)(images))
