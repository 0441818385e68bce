"""Whether the stored corrupted images that an evaluation asks for are there, at submission."""

from __future__ import annotations

from pathlib import Path

from assay.service.catalog.catalog import Checked
from assay.service.catalog.class_lists import class_list
from assay.service.contract.problems import Loc, Report
from assay.service.submission.data_folders import check_folder
from assay.service.submission.imagenet_c_layout import LAYOUT, TASK, Tree, cells_of, find_gaps

# ImageNet-C has 3.75 million files. A request waits until so many names have been compared; the plan compares
# all of them.
NAMES_AT_SUBMISSION = 200_000


def check_stored(
    evaluation: Checked, data: Checked, data_root: Path | None, report: Report, loc: Loc
) -> None:
    """Report what a folder of stored corrupted images lacks of what is asked for, where its root is seen.

    Args:
        evaluation: Of these images; its parameters are right.
        data: Whose folder is looked at.
        data_root: The data root, or None.
        report: Receives the one message.
        loc: Where the data stand in the body.
    """
    folder = data.params.get("folder")
    stored = TASK in data.component.tasks and evaluation.params.get("source") == "stored"
    if not stored or not isinstance(folder, str) or data_root is None or not data_root.is_dir():
        return
    if check_folder(folder, data_root) is not None:  # reported already
        return
    listed = (data.component.facts or {}).get("class_list")
    place, base = (data_root / folder).resolve(), data_root.resolve()
    tree = Tree(place, base, cells_of(evaluation.params), None if listed is None else class_list(listed))
    try:
        gaps = find_gaps(tree, NAMES_AT_SUBMISSION)
    except ValueError:
        gaps = "a symbolic link in it leads out of the data root"
    except OSError as error:
        gaps = f"it cannot be read ({error.strerror})"
    if gaps is not None:
        report.add(
            (*loc, "params", "folder"),
            f"{folder!r} is wanted as {LAYOUT}: {gaps}",
            given=folder,
            allowed=LAYOUT,
        )
