"""Laws of every corruption in the catalog; new ones are covered automatically."""

from __future__ import annotations

import importlib
import inspect
import itertools
import pkgutil
from collections.abc import Callable
from statistics import fmean
from typing import get_args

import pytest
import torch
from sklearn.datasets import load_sample_images
from torch import Tensor

import assay.attacks.corruptions
from assay.attacks.corruptions.imaging import corruption as kernel
from assay.attacks.corruptions.imaging.constants import Constants, Script
from assay.attacks.corruptions.imaging.corruption import Corruption
from assay.service.catalog.catalog import load
from assay.workers.catalog import build

SEVERITIES = (1, 2, 3, 4, 5)
IDS = ("a", "b", "c", "d")
# Their severities are not steps of one scale: pale, then garish; rain, then mud; skewed, then wavy; more ice
# on less of the scene.
NO_SCALE = {"saturate", "spatter", "elastic_transform", "frost"}
# Greys have no saturation.
NOTHING_ON_GREY = {"saturate"}
# Colour channels are hit independently, so that a grey image is not a channel of a colour image.
NOISE = {"gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise"}
# These add their own colours.
COLOURED = {"frost", "spatter", "saturate"}


def modules() -> dict[str, str]:
    """Name of every component to its module."""
    found = {}
    for info in pkgutil.iter_modules(assay.attacks.corruptions.__path__):
        module = importlib.import_module(f"assay.attacks.corruptions.{info.name}")
        found |= dict.fromkeys(getattr(module, "__all__", ()), module.__name__)
    return found


MODULES = modules()
every = pytest.mark.parametrize("name", MODULES)


SCRIPTS: tuple[Constants, ...] = get_args(Script)
every_script = pytest.mark.parametrize("constants", SCRIPTS)


def make(name: str, severity: int, constants: Constants = "imagenet_c") -> Corruption:
    """Of a corruption that has several constants, with these."""
    component = getattr(importlib.import_module(MODULES[name]), name)
    several = "constants" in inspect.signature(component).parameters
    made: Corruption = component(severity=severity, **({"constants": constants} if several else {}))
    return made


@pytest.fixture(scope="module")
def photographs() -> Tensor:
    """Images (4, 3, 60, 76) in [0, 1], multiples of 1/255."""
    pixels = [torch.tensor(image).permute(2, 0, 1) for image in load_sample_images().images]
    crops = [image[:, top : top + 60, 300:376] for image in pixels for top in (100, 220)]
    return torch.stack(crops).float() / 255


def in_levels(images: Tensor) -> Tensor:
    return images.double() * 255


def test_the_nineteen_are_there() -> None:
    assert len(MODULES) >= 19
    groups = [load().find("corruption", name).facts for name in MODULES]
    assert sum(facts is not None and facts["group"] != "extra" for facts in groups) == 15


@pytest.mark.sampled
@every
def test_a_component_is_a_documented_function_of_the_severity(name: str) -> None:
    component = getattr(importlib.import_module(MODULES[name]), name)
    assert component.__name__ == name
    assert component.__doc__
    parameters = inspect.signature(component).parameters.values()
    several = "constants" in [parameter.name for parameter in parameters]
    assert [parameter.name for parameter in parameters] == ["severity", *["constants"] * several]
    assert {parameter.kind for parameter in parameters} == {inspect.Parameter.KEYWORD_ONLY}
    for constants in SCRIPTS if several else ():
        made = build("corruption", name, {"severity": 2, "constants": constants})()
        assert (made.name, made.severity) == (name, 2)
    if several:
        with pytest.raises(ValueError, match="must be one of imagenet_c, cifar_c"):
            component(severity=1, constants="imagenet")
    for wrong in (0, 6, 2.5, True):
        with pytest.raises(ValueError, match="from 1 to 5"):
            component(severity=wrong)
    with pytest.raises(ValueError, match="severity"):
        build("corruption", name, {"severity": 6})


@pytest.mark.sampled
@every
@every_script
@pytest.mark.parametrize("severity", SEVERITIES)
def test_results_are_levels_in_range_and_the_input_is_left_alone(
    name: str, severity: int, constants: Constants, photographs: Tensor
) -> None:
    before = photographs.clone()
    corrupted = make(name, severity, constants)(photographs, IDS, 0)
    assert torch.equal(photographs, before)
    assert corrupted.shape == photographs.shape
    assert corrupted.dtype == photographs.dtype
    assert corrupted.data_ptr() != photographs.data_ptr()
    assert 0 <= corrupted.min() < corrupted.max() <= 1
    torch.testing.assert_close(in_levels(corrupted), in_levels(corrupted).round(), rtol=0, atol=1e-4)
    assert not torch.equal(corrupted, photographs)


@pytest.mark.sampled
@every
def test_other_dtypes_get_the_same_levels(name: str, photographs: Tensor) -> None:
    ours = make(name, 3)
    expected = in_levels(ours(photographs, IDS, 0))
    for dtype, tolerance in ((torch.float64, 1e-4), (torch.float16, 0.1)):
        corrupted = ours(photographs.to(dtype), IDS, 0)
        assert corrupted.dtype == dtype
        torch.testing.assert_close(in_levels(corrupted), expected, rtol=0, atol=tolerance)


@pytest.mark.sampled
@every
@every_script
@pytest.mark.parametrize("severity", [1, 5])
def test_an_example_does_not_depend_on_its_batch(
    name: str, severity: int, constants: Constants, photographs: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = make(name, severity, constants)
    together = ours(photographs, IDS, 3)
    alone = torch.cat([ours(photographs[row : row + 1], IDS[row : row + 1], 3) for row in range(4)])
    backwards = ours(photographs.flip(0), IDS[::-1], 3).flip(0)
    monkeypatch.setitem(kernel.CHUNK_PIXELS, "cpu", 3 * 60 * 76)
    other_chunks = ours(photographs, IDS, 3)
    assert torch.equal(together, alone)
    assert torch.equal(together, backwards)
    assert torch.equal(together, other_chunks)
    assert ours(photographs[:0], (), 3).shape == (0, 3, 60, 76)


@pytest.mark.sampled
@every
def test_chance_is_keyed_by_seed_severity_and_id(name: str, photographs: Tensor) -> None:
    ours = make(name, 3)
    image = photographs[:1]
    first, again = ours(image, ("a",), 0), ours(image, ("a",), 0)
    assert torch.equal(first, again)
    chance = bool(ours.draws(("a",), (3, 60, 76), 0))
    assert torch.equal(first, ours(image, ("a",), 1)) is not chance
    assert torch.equal(first, ours(image, ("b",), 0)) is not chance
    if chance:
        one, other = (make(name, severity).draws(("a",), (3, 60, 76), 0)[0] for severity in (3, 4))
        assert one.shape != other.shape or not torch.equal(one, other)


@pytest.mark.sampled
@every
def test_global_generators_are_not_touched(name: str, photographs: Tensor) -> None:
    state = torch.random.get_rng_state()
    make(name, 3)(photographs, IDS, 0)
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.sampled
@every
def test_higher_severities_move_an_image_farther(name: str, photographs: Tensor) -> None:
    # The haze of four photographs scatters by a tenth of its distance.
    seeds = range(12 if name == "fog" else 1)
    moved = [
        fmean(
            float((make(name, severity)(photographs, IDS, seed) - photographs).abs().mean()) for seed in seeds
        )
        for severity in SEVERITIES
    ]
    assert min(moved) > 0
    if name not in NO_SCALE:
        # By themselves some neighbouring severities are equally far: fog 3 and 4, glass 1 and 2, 3 and 4.
        assert moved[4] > 1.15 * moved[0], moved
        assert all(later > 0.9 * earlier for earlier, later in itertools.pairwise(moved)), moved


@pytest.mark.sampled
@every
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [(1, 1), (2, 3), (7, 5), (32, 32), (33, 90)])
def test_any_size_will_do(name: str, channels: int, size: tuple[int, int]) -> None:
    images = torch.rand(2, channels, *size, generator=torch.Generator().manual_seed(0))
    for severity, constants in itertools.product((1, 3, 5), SCRIPTS):
        corrupted = make(name, severity, constants)(images, IDS[:2], 0)
        assert corrupted.shape == images.shape
        assert corrupted.isfinite().all()
        assert 0 <= corrupted.min() <= corrupted.max() <= 1


@pytest.mark.sampled
@every
def test_grey_images_are_corrupted_as_grey_ones(name: str, photographs: Tensor) -> None:
    grey = photographs.mean(1, keepdim=True)
    for severity in (2, 5):
        ours = make(name, severity)
        corrupted = ours(grey, IDS, 0)
        assert torch.equal(corrupted, (grey * 255).round() / 255) is (name in NOTHING_ON_GREY)
        if name in NOISE | COLOURED:
            continue
        colour = ours(grey.expand(4, 3, 60, 76), IDS, 0)
        difference = in_levels(corrupted - colour.mean(1, keepdim=True)).abs()
        assert difference.max() <= 1 + 1e-4  # JPEG goes through other colours and back


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_gives_the_same_levels_but_for_rounding(photographs: Tensor) -> None:
    for name, severity in itertools.product(MODULES, SEVERITIES):
        ours = make(name, severity)
        there = ours(photographs.cuda(), IDS, 0)
        assert there.device.type == "cuda"
        difference = in_levels(there.cpu() - ours(photographs, IDS, 0)).abs()
        assert (difference > 1e-3).double().mean() < 0.01, name
        assert (difference > 1 + 1e-3).double().mean() < 1e-3, name


@pytest.mark.sampled
@every
def test_memory_is_that_of_a_chunk(name: str, photographs: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(kernel.CHUNK_PIXELS, "cpu", 2 * 60 * 76 + 5)
    sizes = []
    ours = make(name, 1)

    def watched(levels: Tensor, *draws: Tensor) -> Tensor:
        sizes.append(len(levels))
        return levels

    Corruption(name, 1, watched, ours.draw)(photographs[:3], IDS[:3], 0)
    assert sizes == [2, 1]


WRONG: list[tuple[Callable[[Tensor], Tensor], str]] = [
    (lambda images: images[0], "shape"),
    (lambda images: images[:, :2], "1 or 3 channels"),
    (lambda images: (images * 255).to(torch.uint8), "floating point"),
    (lambda images: images[:3], "4 ids for 3 images"),
]


@pytest.mark.parametrize(("change", "message"), WRONG)
def test_what_is_no_batch_is_refused(
    change: Callable[[Tensor], Tensor], message: str, photographs: Tensor
) -> None:
    with pytest.raises(ValueError, match=message):
        make("contrast", 1)(change(photographs), IDS, 0)
