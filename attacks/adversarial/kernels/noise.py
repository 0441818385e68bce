"""Random noise: perturbations drawn without the model, evaluated one by one. Shared by the noise attacks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from assay.attacks.adversarial.kernels.targeting import Goal
from assay.attacks.kernel import Examples, Forward, Setting, State, begin, record
from assay.attacks.passes import ask
from assay.attacks.threat import Ball, clip_to


@dataclass(frozen=True)
class Noise:
    """Tries several perturbations of each image."""

    name: str
    ball: Ball | None
    draws: int
    perturbation: Callable[[Setting, State], Tensor]
    backend: ClassVar[str] = "native"
    gradient: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.draws < 1:
            raise ValueError(f"draws is {self.draws}, it must be at least 1")

    def start(self, setting: Setting, examples: Examples) -> State:
        """The state of new slots, at the image."""
        del setting  # nothing is drawn yet
        return begin(examples, examples.labels, examples.images)

    def step(self, setting: Setting, model: Forward, state: State) -> None:
        """Draws and evaluates one perturbation for every slot."""
        state["adversarial"] = clip_to(state["images"] + self.perturbation(setting, state), setting.box)
        logits, values = ask(model, state, Goal().objective(state["goal"]))
        record(setting, state, logits, values)
        state["restart"] += 1
        state["done"] = state["restart"] >= self.draws


def draw(
    setting: Setting,
    state: State,
    law: Literal["uniform", "normal"],
    shape: tuple[int, ...] | None = None,
    purpose: str = "start",
) -> Tensor:
    """Draws numbers for every slot, keyed by its example and by the number of the perturbation.

    The law is `uniform` in [0, 1) or standard `normal`; the shape, of a slot's draw, is by default its
    image's; `purpose` keeps draws for one perturbation apart.
    """
    images = state["images"]
    source = setting.randomness.uniform if law == "uniform" else setting.randomness.normal
    return source(
        setting.ids_of(state["row"]),
        tuple(images.shape[1:]) if shape is None else shape,
        restart=state["restart"].tolist(),
        purpose=purpose,
        dtype=images.dtype,
        device=images.device,
    )
