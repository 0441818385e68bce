"""Key maps: where the tensors of a state dict from elsewhere belong in a `Classifier`.

The names and layouts inside our backbones are timm's, which are also those of DeiT and of the authors of
RPC-Attention (fused `qkv`, row blocks of the width, head-major). So a map is a pair of prefixes: what stands
before each of the backbone's names in the file, and what stands there in ours. The wrappers are those of
DeiT's training script, which the authors use too ({"model": ..., "model_ema": ...}), of Lightning and others
({"state_dict": ...}), and of torch's data parallelism ("module."), as they look when nested names are joined
by dots.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

BACKBONE = "backbone."
# A Classifier's own; files from elsewhere have none, and the data set's are taken.
NORMALIZATION = frozenset({"mean", "std"})


@dataclass(frozen=True)
class Layout:
    """How a kind of file names what a `Classifier` has.

    Attributes:
        name: of the kind.
        theirs: what each name in such a file begins with.
        ours: what stands there in a Classifier's state dict instead.
    """

    name: str
    theirs: str
    ours: str

    def to_ours(self, key: str) -> str | None:
        """The Classifier's name for a tensor of the file; None where such a file has none of this name."""
        return self.ours + key.removeprefix(self.theirs) if key.startswith(self.theirs) else None

    def to_theirs(self, key: str) -> str | None:
        """The file's name for a tensor of a Classifier; None for those that such files do not have."""
        if self.ours and key in NORMALIZATION:
            return None
        return self.theirs + key.removeprefix(self.ours)


LAYOUTS = (
    Layout("assay", "", ""),
    Layout("timm", "", BACKBONE),
    Layout("deit", "model.", BACKBONE),
    Layout("deit_ema", "model_ema.", BACKBONE),
    Layout("state_dict", "state_dict.", BACKBONE),
    Layout("parallel", "module.", BACKBONE),
    Layout("parallel_model", "model.module.", BACKBONE),
    Layout("parallel_state_dict", "state_dict.module.", BACKBONE),
    Layout("lightning", "state_dict.model.", BACKBONE),
)


def find_layout(given: Iterable[str], wanted: Iterable[str]) -> Layout:
    """The layout under which most names of a file are names of a Classifier; of several the first.

    Args:
        given: the names in the file.
        wanted: the names in the Classifier's state dict.
    """
    keys, known = list(given), set(wanted)
    matches = [sum(layout.to_ours(key) in known for key in keys) for layout in LAYOUTS]
    return LAYOUTS[matches.index(max(matches))]
