"""A live module as a program: equal answers, or a sentence that says where and why not."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional
from torchvision.models import VisionTransformer, resnet18

from assay.workers.weights import export
from assay.workers.weights.export import export_program
from assay.workers.weights.export_inputs import CannotExport, unwrapped
from assay.workers.weights.program_check import examine
from assay.workers.weights.programs import as_classifier, read_program
from tests.support import programs
from tests.support.programs import CLASSES, TEXT_WORDS, Net, Words
from tests.support.weights import disturb

Answer = Callable[[Any, Tensor], Any]


def small_vit() -> nn.Module:
    sizes = {"num_layers": 2, "num_heads": 2, "hidden_dim": 16, "mlp_dim": 24, "num_classes": 5}
    return VisionTransformer(image_size=32, patch_size=8, **sizes)


def of_timm(name: str, **sizes: Any) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        return timm.create_model(name, num_classes=5, **sizes)

    return build


FAMILIES = {
    "torchvision resnet18": (lambda: resnet18(num_classes=5), 32),
    "torchvision vit": (small_vit, 32),
    "timm resnet": (of_timm("resnet10t"), 32),
    "timm vit": (of_timm("vit_tiny_patch16_224", img_size=32, patch_size=8, depth=2), 32),
    "timm convnext": (of_timm("convnext_atto", depths=(1, 1, 1, 1), dims=(8, 16, 16, 16)), 64),
    "timm swin": (
        of_timm("swin_tiny_patch4_window7_224", img_size=56, depths=(2, 2), num_heads=(1, 2), embed_dim=16),
        56,
    ),
    "timm efficientnet": (of_timm("efficientnet_b0"), 64),
    "timm mobilenet": (of_timm("mobilenetv3_small_050"), 64),
}


@pytest.mark.sampled
@pytest.mark.parametrize("family", FAMILIES)
def test_families_of_models_become_programs_that_answer_equally(family: str, tmp_path: Path) -> None:
    build, size = FAMILIES[family]
    torch.manual_seed(0)
    module = build()
    disturb(module)
    done = export_program(module, tmp_path / "net.pt2", image_size=size)
    assert (done.classes, done.channels, done.image_size) == (5, 3, size)
    assert done.difference <= 1e-6
    assert all(part.training for part in module.modules())
    images = torch.rand(3, 3, size, size)
    torch.testing.assert_close(read_program(done.path)(images), module.eval()(images), rtol=0, atol=1e-5)
    assert [file.name for file in tmp_path.iterdir()] == ["net.pt2"]


@pytest.mark.costly
def test_an_exported_module_passes_the_check_of_an_upload(tmp_path: Path) -> None:
    done = export_program(Net(), tmp_path / "net.pt2", image_size=8)
    dtypes, gradients = examine(as_classifier(read_program(done.path)).eval())
    assert dtypes == ["float32", "float64", "bfloat16"]
    assert gradients


def test_normalisation_goes_into_the_program(tmp_path: Path) -> None:
    net = Net().eval()
    mean, std = [0.1, 0.2, 0.3], [0.5, 0.25, 0.5]
    done = export_program(net, tmp_path / "net.pt2", image_size=8, mean=mean, std=std)
    images = torch.rand(2, 3, 8, 8)
    wanted = net((images - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1))
    torch.testing.assert_close(read_program(done.path)(images), wanted)


def test_modes_and_a_module_in_half_precision_stay_as_they_are(tmp_path: Path) -> None:
    net = Net().half()
    net.norm.eval()
    with pytest.warns(UserWarning, match="numbers of float16 and was changed to float32"):
        export_program(net, tmp_path / "net.pt2", image_size=8)
    assert net.training
    assert net.drop.training
    assert not net.norm.training
    assert {parameter.dtype for parameter in net.parameters()} == {torch.float16}


@pytest.mark.parametrize(
    "answer",
    [lambda net, x: {"out": net.plain(x), "aux": x}, lambda net, x: _Output(net.plain(x))],
    ids=["mapping", "object"],
)
def test_logits_are_taken_from_what_a_module_returns(answer: Answer, tmp_path: Path) -> None:
    done = export_program(Net(answer), tmp_path / "net.pt2", image_size=8)
    images = torch.rand(2, 3, 8, 8)
    assert torch.equal(read_program(done.path)(images), Net().eval()(images))


class _Output:
    def __init__(self, logits: Tensor) -> None:
        self.logits = logits


@pytest.mark.costly
def test_wrappers_of_training_are_taken_off_and_a_stated_size_is_taken(tmp_path: Path) -> None:
    module = of_timm("resnet10t")()
    module.pretrained_cfg = {"input_size": (3, 40, 40)}  # type: ignore[assignment]
    done = export_program(nn.DataParallel(module), tmp_path / "net.pt2")
    assert done.image_size == 40


@pytest.mark.parametrize(
    ("outer", "inner"), [(nn.DataParallel, torch.compile), (torch.compile, nn.DataParallel)]
)
def test_a_wrapper_around_a_wrapper_is_taken_off_too(outer: Any, inner: Any) -> None:
    module = Net()
    assert unwrapped(outer(inner(module))) is module


def _branch(net: Any, x: Tensor) -> Tensor:
    logits: Tensor = net.plain(x)
    return logits + 1 if logits.sum() > 0 else logits


def _fixed_batch(net: Any, x: Tensor) -> Tensor:
    return torch.stack([net.plain(image[None])[0] for image in x])


def _in_numpy(net: Any, x: Tensor) -> Any:
    return net.plain(torch.from_numpy(x.numpy()))


def _no_grad(net: Any, x: Tensor) -> Any:
    with torch.no_grad():
        return net.plain(x)


def _counted(net: Any, x: Tensor) -> Any:
    net.calls = getattr(net, "calls", 0) + 1
    return net.plain(x) * net.calls


def _line(function: Answer) -> int:
    return function.__code__.co_firstlineno  # type: ignore[attr-defined, no-any-return]


class Around(nn.Module):
    """A part with a fault, inside a module."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self.part = Net(answer)

    def forward(self, x: Tensor) -> Any:
        """The part's answer."""
        return self.part(x)


@pytest.mark.costly
@pytest.mark.parametrize(
    ("answer", "reason", "lines"),
    [
        (
            _branch,
            "asks for the value of a tensor, in 'part' (Net) at {file}:{line}, and a program has one",
            2,
        ),
        (_fixed_batch, "one size of the batch only, in 'part' (Net) at {file}:{line}: take the size from", 1),
        (_in_numpy, "cannot follow its forward, in 'part' (Net) at {file}:{line}: .numpy()", 1),
        (_no_grad, "would be refused: it has a part of its own for control flow", None),
        (_counted, "of the largest one (allowed: 1e-04): its forward may keep values of the export", None),
        (
            lambda net, x: net.plain(x + torch.empty_like(x)),
            "would be refused: it calls torch.ops.aten.empty_like.default, which is not among the operators"
            " that are allowed; programs as torch.export.export gives them, without run_decompositions, need"
            " the fewest (in part)",
            None,
        ),
        (
            lambda net, x: net.plain(x[:, :2]),
            "it cannot be run on images of shape (5, 3, 8, 8), in 'part' (Net) at ",
            None,
        ),
        (
            lambda net, x: (net.plain(x), x),
            "returns a value of the type tuple, allowed: a tensor of logits",
            None,
        ),
        (lambda net, x: net.plain(x) / 0, "logits are not finite", None),
        (lambda net, x: net.plain(x).sum(0), "its result has the shape (4); logits are", None),
    ],
)
def test_what_cannot_be_a_program_is_refused_with_place_and_reason(
    answer: Answer, reason: str, lines: int | None, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(CannotExport) as raised:
        export_program(Around(answer), tmp_path / "net.pt2", image_size=8)
    line = None if lines is None else _line(answer) + lines
    assert reason.format(file=__file__, line=line) in str(raised.value)
    assert not list(tmp_path.iterdir())
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("module", "how", "reason"),
    [
        (
            Net(),
            {},
            "give image_size, in pixels (on the command line --image-size N)",
        ),
        (Net(), {"image_size": 8, "channels": 0}, "images of 0 channels and 8 pixels are not taken"),
        (Net(), {"image_size": 8, "mean": [0.5] * 3}, "mean and std are given together"),
        (Net(), {"image_size": 8, "mean": [0.5], "std": [0.5]}, "mean has 1 numbers and std 1, allowed: 3"),
        (Net(), {"image_size": 8, "mean": [0.5] * 3, "std": [0.0] * 3}, "std must be above 0"),
        (Net(), {"image_size": 8, "task": "detection"}, "task is 'detection', allowed: classification"),
        (nn.LazyLinear(3), {"image_size": 8}, "parameters without a shape (lazy modules)"),
        (nn.Linear(3, 3, device="meta"), {"image_size": 8}, "on the meta device"),
        ([1], {"image_size": 8}, "of the type list, allowed: a torch.nn.Module"),
    ],
)
def test_wrong_arguments_are_refused(module: Any, how: dict[str, Any], reason: str, tmp_path: Path) -> None:
    with pytest.raises(CannotExport, match=re.escape(reason)):
        export_program(module, tmp_path / "net.pt2", **how)


MINE = """
import torch
from torch import nn

class Mine(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5))
        self.head = nn.Linear(4, 10)
        self.again = self.head  # tied

    def forward(self, x):
        return self.again(self.features(x).mean((2, 3)))

def build():
    torch.manual_seed(0)
    return Mine()

def broken():
    return Mine(3)

def text():
    return "text"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's folder with a package."""
    package = tmp_path / "mine_of_a_user"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "models.py").write_text(MINE)
    (package / "needs.py").write_text("import a_package_that_is_not_there\n")
    (package / "wrong.py").write_text("value = 1\n\nvalue / 0\n")
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith(package.name)]:
        del sys.modules[name]


class Command:
    """Runs the command on a function of the user's package."""

    COMMON: ClassVar = ["--channels", "1", "--image-size", "12"]

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.capsys, self.output = folder, capsys, folder / "net.pt2"

    def __call__(self, function: str, *more: str) -> tuple[int, str]:
        given = [function, "--folder", str(self.folder), "--output", str(self.output), *self.COMMON, *more]
        code = export.main(given)
        said = self.capsys.readouterr()
        return code, said.out + said.err


@pytest.fixture
def command(folder: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(folder, capsys)


def test_the_command_exports_a_users_module_with_its_weights(command: Command) -> None:
    with torch.random.fork_rng(devices=[]):
        weights = {
            "features.0.weight": torch.randn(4, 1, 3, 3),
            "features.0.bias": torch.randn(4),
            **{
                f"features.1.{name}": torch.rand(4)
                for name in ("weight", "bias", "running_mean", "running_var")
            },
            "features.1.num_batches_tracked": torch.tensor(3),
            "head.weight": torch.randn(10, 4),
            "head.bias": torch.randn(10),
        }
    # As saved from DistributedDataParallel; of tied weights a file has one name.
    file = command.folder / "w.safetensors"
    save_file({f"module.{name}": tensor for name, tensor in weights.items()}, file)
    code, said = command("mine_of_a_user.models:build", "--weights", str(file))
    assert code == 0, said
    assert "classification, 10 classes, 1 channels, 12 x 12 pixels" in said
    module = sys.modules["mine_of_a_user.models"].build().eval()
    module.load_state_dict(weights, strict=False)
    images = torch.rand(3, 1, 12, 12)
    torch.testing.assert_close(read_program(command.output)(images), module(images))
    assert command("mine_of_a_user.models:build") == (2, f"error: {command.output} is there already\n")


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (
            "mine_of_a_user.model:build",
            "no module 'mine_of_a_user.model' in {folder}/mine_of_a_user; nearest: 'models'",
        ),
        ("mine_of_user.models:build", "no module 'mine_of_user' in {folder}; nearest: 'mine_of_a_user'"),
        ("mine_of_a_user.models:built", "mine_of_a_user.models has no 'built'; nearest: 'build'"),
        ("mine_of_a_user.models", "names no function; allowed: PACKAGE.MODULE:FUNCTION"),
        ("mine_of_a_user.models:broken", "models.py:20: TypeError: "),
        ("mine_of_a_user.models:text", "returned a value of the type str, allowed: a torch.nn.Module"),
        (
            "mine_of_a_user.needs:build",
            "imports 'a_package_that_is_not_there' at {folder}/mine_of_a_user/needs.py:1",
        ),
        (
            "mine_of_a_user.wrong:build",
            "cannot be imported at {folder}/mine_of_a_user/wrong.py:3: ZeroDivisionError",
        ),
    ],
)
def test_faults_of_the_users_code_are_one_sentence(command: Command, function: str, reason: str) -> None:
    code, said = command(function)
    assert code == 2
    assert reason.format(folder=command.folder) in said
    assert said.count("\n") == 1
    assert not command.output.exists()


def test_weights_that_do_not_fit_are_named(command: Command) -> None:
    file = command.folder / "w.safetensors"
    save_file({"features.0.wait": torch.zeros(1), "head.weight": torch.zeros(2, 4)}, file)
    _, said = command("mine_of_a_user.models:build", "--weights", str(file))
    assert "missing: features.0.weight (nearest in the file: features.0.wait), features.0.bias" in said
    assert "and 4 more; unexpected: features.0.wait; " in said
    assert "other shapes: head.weight has the shape (2, 4), the module's is (10, 4)" in said
    _, said = command("mine_of_a_user.models:build", "--weights", str(file), "--data-classes", '["a", "b"]')
    assert said.startswith("error: it has 10 logits, and the data have 2 classes: a, b\nerror: weights: the")
    torch.save({}, file)
    assert "`assay import-pickle`" in command("mine_of_a_user.models:build", "--weights", str(file))[1]
    assert "there is no file" in command("mine_of_a_user.models:build", "--weights", "absent")[1]


def test_a_class_of_the_user_and_classes_of_logits(command: Command) -> None:
    code, said = command("mine_of_a_user.models:Mine")
    assert code == 0, said
    assert read_program(command.output).signature.classes == 10 != CLASSES


def of_texts(path: Path, answer: Answer | None = None, **how: Any) -> Any:
    net = Words(answer or (lambda net, ids: net.head(net.embedding(ids).mean(1))))
    return export_program(net, path, **{"task": "sequence", "words": TEXT_WORDS, "length": 5} | how)


def test_a_module_of_texts_becomes_a_program(tmp_path: Path) -> None:
    done = of_texts(tmp_path / "net.pt2", vocabulary="b" * 64)
    assert (done.task, done.classes, done.channels, done.length) == ("sequence", CLASSES, TEXT_WORDS, 5)
    assert done.image_size is None
    assert done.difference <= 1e-6
    program = read_program(done.path)
    assert program.vocabulary == "b" * 64
    assert examine(as_classifier(program).eval())[0] == ["float32", "float64", "bfloat16"]


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ({"words": None}, "words is None, allowed: the rows of the module's embedding"),
        ({"words": 8}, "words is 8, and its embedding has 9 rows"),
        ({"words": 10}, "it cannot be run on ids of shape \\(5, 5\\), in 'embedding'|index out of range"),
        ({"length": None}, "does not say how many tokens it reads: give length"),
        ({"length": 0}, "length is 0, allowed: 1 to 65536"),
        ({"mask": "float"}, "mask is 'float', allowed: bool, int64, or none"),
        ({"vocabulary": "abc"}, "vocabulary is 'abc', allowed: a sha256"),
        ({"mean": [0.5]}, "mean is for images, and the task is sequence: leave it out"),
        ({"task": "language"}, "which is for sequence, and the task is language"),
        ({"task": "words"}, "allowed: classification, segmentation, sequence, language"),
    ],
)
def test_what_is_no_program_of_texts_is_refused(how: dict[str, Any], reason: str, tmp_path: Path) -> None:
    with pytest.raises(CannotExport, match=reason):
        of_texts(tmp_path / "net.pt2", **how)
    assert not list(tmp_path.iterdir())


def test_words_are_for_texts(tmp_path: Path) -> None:
    with pytest.raises(CannotExport, match="words is for texts, and the task is classification"):
        export_program(Net(), tmp_path / "net.pt2", image_size=8, words=9)


def test_logits_are_taken_from_a_mapping_of_another_type(tmp_path: Path) -> None:
    done = export_program(Net(lambda net, x: _Answers(net.plain(x))), tmp_path / "net.pt2", image_size=8)
    images = torch.rand(2, 3, 8, 8)
    assert torch.equal(read_program(done.path)(images), Net().eval()(images))


class _Answers(Mapping[str, Tensor]):
    """A mapping that is no dict, and has no attribute of the name."""

    def __init__(self, found: Tensor) -> None:
        self.found = found

    def __getitem__(self, name: str) -> Tensor:
        return {"logits": self.found}[name]

    def __iter__(self) -> Iterator[str]:
        return iter(["logits"])

    def __len__(self) -> int:
        return 1


ALWAYS = (
    ", in evaluation mode, too, so that an answer depends on chance or on the other images of the batch: "
)


def _train(net: Any, x: Tensor) -> Any:
    net.drop.train()
    return net.plain(x)


@pytest.mark.costly
@pytest.mark.parametrize(
    ("answer", "call", "remedy"),
    [
        (lambda net, x: net.plain(functional.dropout(x, 0.3)), "dropout with train=True", "training="),
        (lambda net, x: net.plain(functional.dropout2d(x)), "feature_dropout with train=True", "training="),
        (
            lambda net, x: net.plain(functional.alpha_dropout(x, training=True)),
            "alpha_dropout with train=True",
            "write training=self.training",
        ),
        (
            lambda net, x: net.plain(functional.rrelu(x, training=True)),
            "rrelu with training=True",
            "torch.rand_like(x), and average over it with the attacks' eot",
        ),
        (
            lambda net, x: net.plain(functional.batch_norm(x, None, None, training=True)),
            "batch_norm with training=True",
            "its running statistics (track_running_stats=True)",
        ),
        (
            lambda net, x: net.plain(functional.scaled_dot_product_attention(x, x, x, dropout_p=0.3)),
            "scaled_dot_product_attention with dropout_p=0.3",
            "write dropout_p=p if self.training else 0.0; draw chance that is meant",
        ),
        (
            lambda net, x: net.plain(functional.scaled_dot_product_attention(x, x, x, None, 0.3)),
            "scaled_dot_product_attention with dropout_p=0.3",
            "torch.rand_like(x), and average over it with the attacks' eot",
        ),
        (_train, "dropout with train=True", "no .train() in forward"),
    ],
    ids=[
        "dropout",
        "dropout2d",
        "alpha_dropout",
        "rrelu",
        "batch_norm",
        "attention",
        "by position",
        "train() in forward",
    ],
)
def test_a_function_that_is_always_in_training_is_named_with_its_line(
    answer: Answer, call: str, remedy: str, tmp_path: Path
) -> None:
    with pytest.raises(CannotExport) as raised:
        export_program(Around(answer), tmp_path / "net.pt2", image_size=8)
    said = str(raised.value)
    # The dropout that was put in training is called in the network's own code.
    file = __file__ if answer is not _train else programs.__file__
    assert f"its forward calls {call}, in 'part' (Net) at {file}:" in said
    assert ALWAYS in said
    assert remedy in said
    assert "eval()" not in said
    if answer is not _train:
        assert int(said.partition(f"{__file__}:")[2].partition(",")[0]) == _line(answer)


@pytest.mark.costly
def test_dropout_on_purpose_is_exported_as_the_message_says(tmp_path: Path) -> None:
    dropped = Net(lambda net, x: net.plain(x * (torch.rand_like(x) > 0.3) / 0.7))
    done = export_program(dropped, tmp_path / "net.pt2", image_size=8)
    assert read_program(done.path).random
    assert done.gradients_compared


def test_a_randomised_relu_is_exported_in_evaluation_mode(tmp_path: Path) -> None:
    net = Net(lambda net, x: net.plain(functional.rrelu(x - 0.5, training=net.training)))
    done = export_program(net, tmp_path / "net.pt2", image_size=8)
    assert not read_program(done.path).random
    assert done.difference <= 1e-6


def test_what_an_upload_refuses_is_refused_at_the_export(tmp_path: Path) -> None:
    logits = nn.Sequential(nn.Flatten(), nn.Linear(48, 3))
    with pytest.raises(CannotExport, match="as a program it would be refused: it returns probabilities"):
        export_program(nn.Sequential(logits, nn.Softmax(1)), tmp_path / "a.pt2", image_size=4)
    assert not (tmp_path / "a.pt2").exists()


def test_probabilities_are_told_at_the_export(tmp_path: Path) -> None:
    logits = nn.Sequential(nn.Flatten(), nn.Linear(48, 3))
    with pytest.warns(UserWarning, match=r"probabilities, not logits .*export it without them.*logarithm"):
        done = export_program(nn.Sequential(logits, nn.Sigmoid()), tmp_path / "a.pt2", image_size=4)
    assert done.probabilities
    assert not export_program(logits, tmp_path / "b.pt2", image_size=4).probabilities
    remedy = nn.Sequential(logits, nn.LogSoftmax(1))
    assert not export_program(remedy, tmp_path / "c.pt2", image_size=4).probabilities


def test_the_command_tells_a_change_of_types(command: Command) -> None:
    layers = "nn.Flatten(), nn.Linear(144, 3)"
    made = f"from torch import nn\ndef build():\n    return nn.Sequential({layers}).half()\n"
    (command.folder / "mine_of_a_user" / "half.py").write_text(made)
    code, said = command("mine_of_a_user.half:build")
    assert code == 0, said
    assert "warning: the module has numbers of float16 and was changed to float32" in said


def test_the_command_tells_probabilities(command: Command) -> None:
    layers = "nn.Flatten(), nn.Linear(144, 3), nn.Sigmoid()"
    code = f"from torch import nn\ndef build():\n    return nn.Sequential({layers})\n"
    (command.folder / "mine_of_a_user" / "sigmoids.py").write_text(code)
    code, said = command("mine_of_a_user.sigmoids:build")
    assert code == 0, said
    assert "\nwarning: the model returns probabilities, not logits" in said
    assert said.count("probabilities") == 1
