"""CIFAR-10 from the binary or the python version of its authors' archive (`formats/cifar_files.py`)."""

from __future__ import annotations

from assay.workers.data.formats import parameters
from assay.workers.data.formats.arrays import ArrayDataSet
from assay.workers.data.formats.images.cifar_files import PIXEL_BYTES, CifarArchive, read_archive

__all__ = ["cifar10"]

TASKS = ("classification",)
PAPER = "Krizhevsky 2009, Learning Multiple Layers of Features from Tiny Images"
BINARY, PYTHON = "cifar-10-batches-bin", "cifar-10-batches-py"
FACTS = {
    "classes": 10,
    "channels": 3,
    "size": 32,
    "train": 50_000,
    "test": 10_000,
    "marks": [BINARY, PYTHON],
    # content hashes of the authors' archive
    "content": {
        "train": "7b269e030683ccb30ec655103a45375ffa3c0d61f781508b5bc0e8ae5a48c952",
        "test": "e2405361b304073013c622e4dfde3e981f39010401e7dd8ba1c0f12caa9fd2a6",
    },
}

CLASS_NAMES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
MEAN = (0.4914, 0.4822, 0.4465)  # Per channel over the train pixels in [0, 1]
STD = (0.2470, 0.2435, 0.2616)

ROWS = 10_000  # images per file
ROW_BYTES = 1 + PIXEL_BYTES
FILES = {"train": [f"data_batch_{number}" for number in range(1, 6)], "test": ["test_batch"]}


def cifar10(
    root: parameters.Root,
    split: parameters.Split,
    *,
    folder: parameters.VersionFolder = "cifar10",
    download: bool = False,
) -> ArrayDataSet:
    """CIFAR-10 (10 classes, 32 x 32 colour images; 50 000 train, 10 000 test).

    Below the folder, `cifar-10-batches-bin` (binary version) or `cifar-10-batches-py` (python version,
    checked by torchvision against the published MD5 sums before it is unpickled) must be complete for
    the split. Both give the same ids ("test/00012"), pixels, labels and content hash.

    Args:
        download: fetch the python version (170 MB) through torchvision when neither is complete.
    """
    archive = CifarArchive(
        name="cifar10",
        title="CIFAR-10",
        archive="cifar-10",
        binary=BINARY,
        python=PYTHON,
        files=FILES,
        meta="batches.meta",
        rows={"train": ROWS, "test": ROWS},
        label_bytes=1,
        reader="CIFAR10",
        class_names=CLASS_NAMES,
        mean=MEAN,
        std=STD,
    )
    return read_archive(archive, root, split, folder, download=download)
