"""Parameters that data sets share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Gt, Interval, Le, doc

Root = Annotated[Path | None, doc("ASSAY_DATA_ROOT; some data sets read nothing from it.")]
Split = Literal["train", "test"]  # a test set refuses "train"
Folder = Annotated[str, "folder", doc("relative name of the folder.")]
ArchiveFolder = Annotated[
    str, "folder", doc("relative name of the folder into which the archive was unpacked.")
]
VersionFolder = Annotated[
    str, "folder", doc("relative name of the folder that holds one of the two versions.")
]
TableFolder = Annotated[
    str,
    "folder",
    doc(
        "relative name of the folder with {train,test}.{parquet,csv,tsv,jsonl}, or of what `save_to_disk` "
        "has written."
    ),
]
CropFraction = Annotated[float, Gt(0), Le(1), doc("side of the centre crop / short side after resizing.")]
Episodes = Annotated[int, Interval(ge=1, le=100_000), doc("how many episodes a policy is judged in.")]
