"""Parameters that several data sets share: types with bounds, and what they mean."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Gt, Interval, Le, doc

Root = Annotated[Path | None, doc("ASSAY_DATA_ROOT; some data sets read nothing from it.")]
Split = Literal["train", "test"]  # a test set refuses "train"
Folder = Annotated[str, "folder", doc("relative name of the folder.")]
CropFraction = Annotated[float, Gt(0), Le(1), doc("side of the centre crop / short side after resizing.")]
Episodes = Annotated[int, Interval(ge=1, le=100_000), doc("how many episodes a policy is judged in.")]
