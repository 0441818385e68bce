"""Key maps: from the tensor names of a foreign state dict to the names of a `Classifier`.

A layout is a pair of prefixes, of the backbone's names in the file and in a `Classifier`, and a form of
`key_maps` for the names after the prefix. Prefixes come from DeiT's training script, which the authors of
RPC-Attention and of Segmenter use too ({"model": ..., "model_ema": ...}), Lightning and others
({"state_dict": ...}), and torch's data parallelism ("module."), with nested names joined by dots.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from assay.models.weights.key_maps import FORMS, SAME, Form, Part, Shapes

BACKBONE = "backbone."
# A Classifier's own; foreign files have none.
NORMALIZATION = frozenset({"mean", "std"})


@dataclass(frozen=True)
class Layout:
    """Naming of a `Classifier`'s tensors in a kind of file."""

    name: str  # of the kind
    theirs: str  # prefix of the names in such a file
    ours: str  # its replacement in a Classifier's state dict
    form: Form = SAME  # the differences after the prefix

    @property
    def foreign(self) -> bool:
        """Whether such files lack a normalisation."""
        return bool(self.ours)

    @property
    def unused(self) -> frozenset[str]:
        """Names in such files that the model does not need."""
        return frozenset(self.theirs + name for name in self.form.unused)

    def parts(self, key: str) -> tuple[Part, ...]:
        """The file's tensors that make up a Classifier's tensor; empty if such files lack it."""
        if self.foreign and key in NORMALIZATION:
            return ()
        parts = self.form.parts(key.removeprefix(self.ours))
        return tuple(replace(part, name=self.theirs + part.name) for part in parts)

    def names(self, wanted: Iterable[str]) -> frozenset[str]:
        """All names possible in such a file of a Classifier with these names."""
        return self.unused.union(part.name for key in wanted for part in self.parts(key))


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


def layouts_for(wanted: Shapes) -> list[Layout]:
    """All possible layouts for weights of a Classifier with these tensors, likeliest first."""
    found = list(LAYOUTS)
    for form in FORMS:
        if form is SAME or not form.applies(wanted):
            continue
        for layout in LAYOUTS:
            if layout.foreign:
                name = f"{layout.name}/{form.name}" if layout.theirs else form.name
                found.append(replace(layout, name=name, form=form))
    return found


def find_layout(given: Iterable[str], wanted: Shapes) -> Layout:
    """Layout that matches most names of a file, by the shapes in a Classifier's state dict; first of ties."""
    keys, layouts = set(given), layouts_for(wanted)
    matches = [len(keys & layout.names(wanted)) for layout in layouts]
    return layouts[matches.index(max(matches))]
