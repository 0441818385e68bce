"""CIFAR-100, by its 100 fine classes, from the binary or the python version of its authors' archive."""

from __future__ import annotations

from assay.workers.data.formats import parameters
from assay.workers.data.formats.arrays import ArrayDataSet
from assay.workers.data.formats.images.cifar_files import CifarArchive, read_archive

__all__ = ["cifar100"]

TASKS = ("classification",)
PAPER = "Krizhevsky 2009, Learning Multiple Layers of Features from Tiny Images"
BINARY, PYTHON = "cifar-100-binary", "cifar-100-python"
FACTS = {
    "classes": 100, "channels": 3, "size": 32, "train": 50_000, "test": 10_000, "marks": [BINARY, PYTHON],
}  # fmt: skip

# In alphabetical order.
CLASS_NAMES = (
    "apple", "aquarium_fish", "baby", "bear", "beaver", "bed", "bee",
    "beetle", "bicycle", "bottle", "bowl", "boy", "bridge", "bus",
    "butterfly", "camel", "can", "castle", "caterpillar", "cattle", "chair",
    "chimpanzee", "clock", "cloud", "cockroach", "couch", "crab", "crocodile",
    "cup", "dinosaur", "dolphin", "elephant", "flatfish", "forest", "fox",
    "girl", "hamster", "house", "kangaroo", "keyboard", "lamp", "lawn_mower",
    "leopard", "lion", "lizard", "lobster", "man", "maple_tree", "motorcycle",
    "mountain", "mouse", "mushroom", "oak_tree", "orange", "orchid", "otter",
    "palm_tree", "pear", "pickup_truck", "pine_tree", "plain", "plate", "poppy",
    "porcupine", "possum", "rabbit", "raccoon", "ray", "road", "rocket",
    "rose", "sea", "seal", "shark", "shrew", "skunk", "skyscraper",
    "snail", "snake", "spider", "squirrel", "streetcar", "sunflower", "sweet_pepper",
    "table", "tank", "telephone", "television", "tiger", "tractor", "train",
    "trout", "tulip", "turtle", "wardrobe", "whale", "willow_tree", "wolf",
    "woman", "worm",
)  # fmt: skip
MEAN = (0.5071, 0.4865, 0.4409)  # Per channel over the train pixels in [0, 1]
STD = (0.2673, 0.2564, 0.2762)

ROWS = {"train": 50_000, "test": 10_000}
FILES = {"train": ["train"], "test": ["test"]}


def cifar100(
    root: parameters.Root,
    split: parameters.Split,
    *,
    folder: parameters.VersionFolder = "cifar100",
    download: bool = False,
) -> ArrayDataSet:
    """CIFAR-100 (100 fine classes, 32 x 32 colour images; 50 000 train, 10 000 test).

    Below the folder, `cifar-100-binary` (binary version) or `cifar-100-python` (python version, checked by
    torchvision against the published MD5 sums before it is unpickled) must be complete for the split. Both
    give the same ids ("test/00012"), pixels, labels and content hash.

    Args:
        download: fetch the python version (169 MB) through torchvision when neither is complete.
    """
    archive = CifarArchive(
        name="cifar100",
        title="CIFAR-100",
        archive="cifar-100",
        binary=BINARY,
        python=PYTHON,
        files=FILES,
        meta="meta",
        rows=ROWS,
        label_bytes=2,
        reader="CIFAR100",
        class_names=CLASS_NAMES,
        mean=MEAN,
        std=STD,
    )
    return read_archive(archive, root, split, folder, download=download)
