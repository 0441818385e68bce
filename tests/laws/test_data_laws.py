"""Laws of every data set of images; `test_text_laws.py` has those of text, `test_control_laws.py` of control.

A new data set is found by its module's `__all__`. Its own test, tests/workers/data/test_MODULE.py, brings
`law_case(root, monkeypatch, change)`: it writes a tiny set below `root` (with one pixel or one label of each
split changed, for change = "pixel" or "label") and returns a function from the split to the data set.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import pkgutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import assay.workers.data
from assay.workers.data.formats.dataset import ImageSet, Levels, MissingData, stored_images
from assay.workers.data.formats.segmentation import IGNORE

REPOSITORY = Path(__file__).parents[2]


def components() -> Iterator[tuple[str, str]]:
    """(module, component) for every name that a module under workers/data exports."""
    for info in pkgutil.iter_modules(assay.workers.data.__path__):
        module = importlib.import_module(f"assay.workers.data.{info.name}")
        for name in getattr(module, "__all__", ()):
            yield info.name, name


TEXT = ("language", "sequence")
NO_IMAGES = (*TEXT, "series", "series_regression", "control")
COMPONENTS = [
    (module, name)
    for module, name in components()
    if not set(NO_IMAGES) & set(importlib.import_module(f"assay.workers.data.{module}").TASKS)
]
each_set = pytest.mark.parametrize("component", COMPONENTS, ids=[name for _, name in COMPONENTS])
Build = Callable[..., Callable[[str], Any]]


def task_of(component: tuple[str, str]) -> str:
    """The task that the module of a set states."""
    [task] = importlib.import_module(f"assay.workers.data.{component[0]}").TASKS
    return str(task)


def splits_of(component: tuple[str, str]) -> tuple[str, ...]:
    """The parts that a set has."""
    facts = getattr(importlib.import_module(f"assay.workers.data.{component[0]}"), "FACTS", {})
    return ("test",) if facts.get("test_only") else ("test", "train")


LABELLED = [component for component in COMPONENTS if task_of(component) != "segmentation"]
MAPPED = [component for component in COMPONENTS if task_of(component) == "segmentation"]
each_mapped = pytest.mark.parametrize("component", MAPPED, ids=[name for _, name in MAPPED])


TEST_ONLY = {name for module, name in COMPONENTS if not splits_of((module, name))[1:]}
PARTS = [(component, split) for component in COMPONENTS for split in splits_of(component)]


def each_part_of(components: list[tuple[str, str]]) -> pytest.MarkDecorator:
    """Every split of some sets; those that only test have no training part."""
    parts = [part for part in PARTS if part[0] in components]
    return pytest.mark.parametrize(
        ("component", "split"), parts, ids=[f"{component[1]}-{split}" for component, split in parts]
    )


each_part = each_part_of(COMPONENTS)
each_labelled_part = each_part_of(LABELLED)
each_mapped_part = each_part_of(MAPPED)


def truth(data: Any, indices: Sequence[int]) -> torch.Tensor:
    """The labels of some examples, or their label maps."""
    if data.task == "segmentation":
        maps: torch.Tensor = data.label_maps(indices, 12)
        return maps
    labels: torch.Tensor = data.labels[torch.tensor(indices)]
    return labels


def own_test(module: str) -> ModuleType:
    """The test module of a data set, imported once more from its file."""
    path = REPOSITORY / "tests" / "workers" / "data" / f"test_{module}.py"
    assert path.is_file(), f"a data set needs its own test with a law_case: {path}"
    spec = importlib.util.spec_from_file_location(f"law_case_{module}", path)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


@pytest.fixture
def build(
    component: tuple[str, str], tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Build:
    """A new tiny set in a new folder."""
    case = own_test(component[0]).law_case

    def make(change: str = "none") -> Callable[[str], ImageSet]:
        result: Callable[[str], ImageSet] = case(tmp_path_factory.mktemp("root"), monkeypatch, change)
        return result

    return make


def test_there_are_data_sets() -> None:
    assert {"digits", "cifar10", "cifar100", "svhn", "tiny_imagenet", "image_folder", "imagenet_o"} <= {
        name for _, name in LABELLED
    }
    stored = {"imagenet_c", "corrupted_folder", "cifar10_c", "cifar100_c", "tiny_imagenet_c"}
    shifts = {"imagenet_a", "imagenet_o", "imagenet_r", "imagenet_sketch", "imagenet_v2", "objectnet"}
    assert {*shifts, *stored} == TEST_ONLY
    assert {"ade20k", "camvid", "shapes"} <= {name for _, name in MAPPED}
    assert len(LABELLED) + len(MAPPED) == len(COMPONENTS)


@pytest.mark.sampled
@each_set
def test_component_is_a_documented_function_with_its_name(component: tuple[str, str]) -> None:
    function = getattr(importlib.import_module(f"assay.workers.data.{component[0]}"), component[1])
    assert function.__name__ == component[1]
    assert function.__doc__.splitlines()[0].strip()


@pytest.mark.sampled
@each_part
def test_description_is_consistent(build: Build, component: tuple[str, str], split: str) -> None:
    data = build()(split)
    assert data.name == component[1]
    assert data.task == task_of(component)
    assert data.classes == len(data.class_names) == len(set(data.class_names)) >= 2
    assert len(data.mean) == len(data.std) == data.channels
    assert min(data.std) > 0
    assert data.size is None or min(data.size) > 0


@pytest.mark.sampled
@each_part
def test_ids_are_unique(build: Build, split: str) -> None:
    data = build()(split)
    assert len(data) == len(data.ids) == len(set(data.ids)) > 0


@pytest.mark.sampled
@each_labelled_part
def test_labels_are_classes(build: Build, split: str) -> None:
    data = build()(split)
    assert len(data) == len(data.labels)
    assert data.labels.dtype == torch.int64
    assert data.labels.min() >= 0
    assert data.labels.max() < data.classes


@pytest.mark.sampled
@each_part
@pytest.mark.parametrize("size", [8, 33])
def test_images_have_the_size_dtype_and_range_asked_for(build: Build, split: str, size: int) -> None:
    data = build()(split)
    images = data.images(range(len(data)), size)
    assert images.shape == (len(data), data.channels, size, size)
    assert images.dtype == torch.float32
    assert images.device.type == "cpu"
    assert images.min() >= 0.0
    assert images.max() <= 1.0
    assert images.max() > images.min()


@pytest.mark.sampled
@each_mapped_part
@pytest.mark.parametrize("size", [8, 33])
def test_label_maps_are_classes_or_ignored(build: Build, split: str, size: int) -> None:
    data = build()(split)
    maps = data.label_maps(range(len(data)), size)
    assert maps.shape == (len(data), size, size)
    assert maps.dtype == torch.uint8
    assert maps.device.type == "cpu"
    assert maps[maps != IGNORE].max() < data.classes <= IGNORE


@pytest.mark.sampled
@each_mapped_part
def test_examples_are_whole_and_at_their_own_size(build: Build, split: str) -> None:
    load = build()
    data = load(split)
    for index in range(min(len(data), 3)):
        pixels, labels = data.example(index)
        assert pixels.dtype == labels.dtype == torch.uint8
        assert pixels.shape == (data.channels, *labels.shape)
        assert data.size is None or labels.shape == data.size
        assert labels[labels != IGNORE].max() < data.classes
        again, same = load(split).example(index)
        assert torch.equal(pixels, again)
        assert torch.equal(labels, same)
        pixels.zero_()
        labels.zero_()
        assert torch.equal(data.example(index)[1], same)
        side = min(same.shape)
        if same.shape[0] == same.shape[1]:
            assert torch.equal(data.label_maps([index], side)[0], same)
    for index in (-1, len(data)):
        with pytest.raises(IndexError, match=str(index)):
            data.example(index)


@each_mapped
def test_label_maps_belong_to_their_examples(build: Build) -> None:
    load = build()
    data = load("test")
    together = data.label_maps(range(len(data)), 20)
    backwards = load("test").label_maps(list(range(len(data)))[::-1], 20)
    assert torch.equal(together, backwards.flip(0))
    assert torch.equal(data.label_maps([1, 1], 20), together[[1, 1]])
    assert data.label_maps([], 20).shape == (0, 20, 20)
    data.label_maps([0], 20).zero_()
    assert torch.equal(data.label_maps([0], 20), together[:1])
    for index in (-1, len(data)):
        with pytest.raises(IndexError, match=str(index)):
            data.label_maps([index], 8)
    with pytest.raises(ValueError, match="got 0"):
        data.label_maps([0], 0)


@pytest.mark.sampled
@each_set
def test_splits_share_no_example(build: Build, component: tuple[str, str]) -> None:
    load = build()
    if component[1] in TEST_ONLY:
        with pytest.raises(MissingData, match="is a test set"):
            load("train")
        return
    assert not set(load("train").ids) & set(load("test").ids)
    assert load("train").class_names == load("test").class_names


@pytest.mark.sampled
@each_set
def test_order_and_pixels_are_stable(build: Build) -> None:
    load = build()
    first, second = load("test"), load("test")
    assert list(first.ids) == list(second.ids)
    everything = range(len(first))
    assert torch.equal(truth(first, everything), truth(second, everything))
    assert torch.equal(first.images(everything, 12), second.images(everything, 12))


@pytest.mark.sampled
@each_set
def test_an_image_does_not_depend_on_what_is_read_with_it(build: Build) -> None:
    load = build()
    data = load("test")
    together = data.images(range(len(data)), 20)
    backwards = load("test").images(list(range(len(data)))[::-1], 20)
    assert torch.equal(together, backwards.flip(0))
    assert torch.equal(together[2:3], load("test").images([2], 20))
    assert torch.equal(data.images([1, 1], 20), together[[1, 1]])
    assert data.images([], 20).shape == (0, data.channels, 20, 20)


@pytest.mark.sampled
@each_set
def test_images_are_levels_or_resized_in_floating_point(build: Build) -> None:
    data = build()("test")
    sizes = {8, 20, 32, *(data.size or ())}
    for size in sizes:
        found = stored_images(data, range(len(data)), size)
        if isinstance(found, Levels):
            assert found.levels.dtype == torch.uint8
            assert found.levels.max() <= found.white
            pixels = found.pixels()
            assert torch.equal(pixels, found.levels.float() / found.white)
            assert torch.equal(pixels, data.images(range(len(data)), size))
            found.levels.zero_()  # which belong to the caller
            assert torch.equal(pixels, data.images(range(len(data)), size))
        else:
            assert data.size is not None
            assert torch.equal(found, data.images(range(len(data)), size))
    square = data.size is not None and len(set(data.size)) == 1
    assert isinstance(stored_images(data, [0], data.size[0] if square else 32), Levels)


@pytest.mark.sampled
@each_set
def test_images_belong_to_the_caller(build: Build) -> None:
    data = build()("test")
    before = data.images([0], 8)
    data.images([0], 8).zero_()
    assert torch.equal(data.images([0], 8), before)


@pytest.mark.sampled
@each_set
def test_impossible_requests_are_refused(build: Build) -> None:
    data = build()("test")
    for index in (-1, len(data)):
        with pytest.raises(IndexError, match=str(index)):
            data.images([index], 8)
    with pytest.raises(ValueError, match="got 0"):
        data.images([0], 0)


@pytest.mark.sampled
@each_part
@pytest.mark.parametrize("change", ["pixel", "label"])
def test_hash_follows_the_content(build: Build, split: str, change: str) -> None:
    data = build()(split)
    original = data.content_sha256()
    assert len(original) == 64
    data.images([0], 9)  # what was read at which size is not content
    assert data.content_sha256() == original
    assert build()(split).content_sha256() == original
    assert build(change)(split).content_sha256() != original


IN_ANOTHER_PROCESS = """
import json, pathlib, sys, pytest
sys.path.insert(0, sys.argv[1])
from test_data_laws import COMPONENTS, own_test, splits_of
hashes = {}
for module, name in COMPONENTS:
    root = pathlib.Path(sys.argv[2], name)
    root.mkdir()
    load = own_test(module).law_case(root, pytest.MonkeyPatch(), "none")
    hashes[name] = [load(split).content_sha256() for split in splits_of((module, name))]
print(json.dumps(hashes))
"""


@pytest.fixture(scope="module")
def hashes_elsewhere(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The hashes of every set's splits, computed by one other process with another hash seed."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            IN_ANOTHER_PROCESS,
            str(Path(__file__).parent),
            str(tmp_path_factory.mktemp("sets")),
        ],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONHASHSEED": "12345"},
        capture_output=True,
        text=True,
        check=True,
    )
    result: dict[str, list[str]] = json.loads(done.stdout)
    return result


@pytest.mark.sampled
@each_set
def test_hash_is_the_same_in_another_process(
    build: Build, component: tuple[str, str], hashes_elsewhere: dict[str, list[str]]
) -> None:
    load = build()
    assert hashes_elsewhere[component[1]] == [load(split).content_sha256() for split in splits_of(component)]
