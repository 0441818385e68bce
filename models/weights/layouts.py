"""Key maps: where the tensors of a state dict from elsewhere belong in a `Classifier`.

A layout is a pair of prefixes, what stands before each of the backbone's names in the file and what stands
there in ours, and a form of `key_maps`, which says how the names after the prefix differ. The prefixes are
those of wrappers: of DeiT's training script, which the authors of RPC-Attention and of Segmenter use too
({"model": ..., "model_ema": ...}), of Lightning and others ({"state_dict": ...}), and of torch's data
parallelism ("module."), as they look when nested names are joined by dots.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from assay.models.weights.key_maps import FORMS, SAME, Form, Part, Shapes

BACKBONE = "backbone."
# A Classifier's own; files from elsewhere have none.
NORMALIZATION = frozenset({"mean", "std"})


@dataclass(frozen=True)
class Layout:
    """How a kind of file names what a `Classifier` has.

    Attributes:
        name: of the kind.
        theirs: what each name in such a file begins with.
        ours: what stands there in a Classifier's state dict instead.
        form: how the names differ after that.
    """

    name: str
    theirs: str
    ours: str
    form: Form = SAME

    @property
    def foreign(self) -> bool:
        """Whether such files have no normalisation."""
        return bool(self.ours)

    @property
    def unused(self) -> frozenset[str]:
        """Names that such a file may have and the model does not need."""
        return frozenset(self.theirs + name for name in self.form.unused)

    def parts(self, key: str) -> tuple[Part, ...]:
        """The file's tensors that make a Classifier's tensor; none for those that such files do not have."""
        if self.foreign and key in NORMALIZATION:
            return ()
        parts = self.form.parts(key.removeprefix(self.ours))
        return tuple(replace(part, name=self.theirs + part.name) for part in parts)

    def names(self, wanted: Iterable[str]) -> frozenset[str]:
        """Every name that such a file of a Classifier with these names may have."""
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
    """Every layout in which weights of a Classifier with such tensors may come, the likeliest first.

    One with a form of its own is called after the form, and after what wraps it, if anything does:
    "nvidia_fan", "deit/nvidia_fan".
    """
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
    """The layout that knows most names of a file; of several the first.

    Args:
        given: the names in the file.
        wanted: the shapes in the Classifier's state dict by name.
    """
    keys, layouts = set(given), layouts_for(wanted)
    matches = [len(keys & layout.names(wanted)) for layout in layouts]
    return layouts[matches.index(max(matches))]
