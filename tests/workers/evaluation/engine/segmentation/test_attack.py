"""Engine of attacks on segmentation models: counts, rejections, records and untouched cases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.attacks.adversarial.sea import sea
from assay.attacks.adversarial.segmentation_apgd import segmentation_apgd
from assay.attacks.adversarial.segpgd import segpgd
from assay.attacks.kernel import Setting, State
from assay.attacks.segmentation.kernel import PixelEnsemble, PixelExamples, begin, look, record
from assay.attacks.segmentation.losses import IGNORE, PixelLoss
from assay.attacks.threat import Ball
from assay.service.contract.gallery import GalleryMaps
from assay.workers.evaluation.engine.segmentation.attack import attack_segmentation
from assay.workers.evaluation.engine.segmentation.attacked import AttackedPixels

N, K, SIDE, EPSILON = 6, 2, 4, 0.05
IDS = [f"image {row}" for row in range(N)]


class Threshold(nn.Module):
    """Calls a pixel 1 where it is lighter than a half; NaN where it is black."""

    scale = nn.Parameter(torch.ones(()))
    calls: list[int]

    def __init__(self) -> None:
        super().__init__()
        self.calls = []

    def forward(self, images: Tensor) -> Tensor:
        self.calls.append(len(images))
        score = (images[:, 0] - 0.5) * self.scale.to(images.dtype)
        score = torch.where(images[:, 0] == 0, torch.nan, score)
        return torch.stack([-score, score], dim=1)


def shades() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.rand(N, 1, SIDE, SIDE, generator=generator) * 0.4 + 0.3


IMAGES = shades()
MAPS = (IMAGES[:, 0] > 0.5).to(torch.uint8)


def run(
    ensemble: PixelEnsemble | None = None,
    model: nn.Module | None = None,
    images: Tensor = IMAGES,
    maps: Tensor = MAPS,
    **changes: Any,
) -> AttackedPixels:
    options: dict[str, Any] = {"classes": K, "seed": 0, "batch_size": 4} | changes

    def images_of(rows: Sequence[int]) -> Tensor:
        return images[list(rows)]

    return attack_segmentation(
        ensemble or segpgd(epsilon=EPSILON, steps=10),
        model or Threshold(),
        images_of,
        lambda rows: maps[list(rows)],
        IDS,
        class_weights=(1.0, 1.0),
        **options,
    )


@dataclass(frozen=True)
class Given:
    """Attack with a scripted single iterate and scripted claims about it."""

    images: Tensor
    right: int
    ball: Ball = field(default_factory=lambda: Ball("Linf", EPSILON))
    loss: PixelLoss = field(default_factory=lambda: PixelLoss("ce"))
    name: str = "given"

    def start(self, setting: Setting, examples: PixelExamples) -> State:
        state = begin(examples, examples.images)
        state["best"] = self.images[examples.rows]
        return state | {"right": torch.full_like(examples.right, self.right)}

    def step(self, setting: Setting, model: Any, state: State) -> None:
        state["done"] |= True


def given(images: Tensor, right: int = 1) -> PixelEnsemble:
    return PixelEnsemble("given", lambda loss: Given(images, right), ("ce",))


def right_of(found: AttackedPixels, place: int) -> list[int]:
    return found.intersection[:, place].sum(1).tolist()


def test_pixels_within_reach_of_the_threshold_fall_and_no_others() -> None:
    found = run(sea(epsilon=EPSILON, steps=10))
    far = ((IMAGES[:, 0] - 0.5).abs() > EPSILON + 1e-6).flatten(1).sum(1).tolist()
    assert found.names == ("clean", "mce", "mce_bal", "js")
    assert right_of(found, 0) == [SIDE**2] * N
    assert [right_of(found, place) for place in (1, 2, 3)] == [far] * 3
    assert found.worst.tolist() == [1] * N  # of several the first
    assert all(0 < count < SIDE**2 for count in far)
    columns = found.columns()
    assert columns["worst"] == ["mce"] * N
    assert columns["intersection"] == columns["mce_intersection"] == found.intersection[:, 1].tolist()
    assert columns["predicted"] == columns["mce_predicted"]
    assert {len(column) for column in columns.values()} == {N}
    names = [(stage["name"], stage["n"], stage["broken"]) for stage in found.stages]
    assert names == [("clean", N, 0), ("mce", N, 0), ("mce_bal", N, 0), ("js", N, 0)]
    assert sum(stage["forward"] for stage in found.stages) == int(found.forward.sum())
    assert sum(stage["backward"] for stage in found.stages) == int(found.backward.sum())


def test_ignored_pixels_count_nowhere() -> None:
    maps = MAPS.clone()
    maps[:, 0] = IGNORE
    found = run(maps=maps)
    assert found.target.sum(1).tolist() == [SIDE * (SIDE - 1)] * N
    assert found.predicted.sum(2).tolist() == [[SIDE * (SIDE - 1)] * 2] * N


def test_an_image_without_right_pixels_is_not_attacked() -> None:
    maps = MAPS.clone()
    maps[2] = 1 - maps[2]
    maps[4] = IGNORE
    found = run(maps=maps)
    assert [found.forward[row].item() for row in (2, 4)] == [1, 1]
    assert [found.backward[row].item() for row in (2, 4)] == [0, 0]
    assert found.stages[1]["n"] == N - 2
    assert found.worst[[2, 4]].tolist() == [0, 0]


def test_wholly_wrong_images_free_their_slots_at_once() -> None:
    # Within reach everywhere: one step is enough, and the other images take the slots.
    model, near = Threshold(), (IMAGES - 0.5) * 0.1 + 0.5
    found = run(segpgd(epsilon=EPSILON, steps=50, relative_step_size=1.0), model, images=near, batch_size=2)
    assert right_of(found, 1) == [0] * N
    assert found.stages[1]["broken"] == N
    assert int(found.forward.max()) <= 6
    assert sum(model.calls) < N * 10


def test_what_lies_outside_the_ball_or_the_range_does_not_count() -> None:
    flipped = 1 - IMAGES
    found = run(given(flipped))
    assert found.flags["out_of_ball"] == N
    assert torch.equal(found.intersection[:, 1], found.intersection[:, 0])
    outside = IMAGES.clone()
    outside[0, 0, 0, 0] = -0.01
    light = outside + 0
    found = run(given(light), images=IMAGES.clamp(max=0.9))
    assert (found.flags["out_of_box"], found.flags["out_of_ball"]) == (1, 1)
    assert right_of(found, 1) == right_of(found, 0)


def test_an_attack_is_not_believed_and_never_raises_accuracy() -> None:
    # It says that one pixel is right, and kept the unattacked image.
    found = run(given(IMAGES, right=1), keep_adversarial=True)
    assert found.flags["unverified"] == N
    assert right_of(found, 1) == [SIDE**2] * N
    # Here the kept image has more right pixels than the unattacked one.
    maps = MAPS.clone()
    maps[:, 0, 0] = 1 - maps[:, 0, 0]
    better = IMAGES.clone()
    better[:, 0, 0, 0] = 0.5 + (IMAGES[:, 0, 0, 0] < 0.5) * 0.01 - (IMAGES[:, 0, 0, 0] > 0.5) * 0.01
    wide = PixelEnsemble("given", lambda _: replace(Given(better, SIDE**2), ball=Ball("Linf", 1.0)), ("ce",))
    found = run(wide, maps=maps, keep_adversarial=True)
    assert right_of(found, 1) == right_of(found, 0) == [SIDE**2 - 1] * N
    assert found.adversarial is not None
    assert torch.equal(found.adversarial, IMAGES)


def test_a_loss_finds_the_same_alone_and_in_the_ensemble() -> None:
    whole = run(sea(epsilon=EPSILON, steps=10))
    for place, loss in enumerate(whole.names[1:], start=1):
        alone = run(segmentation_apgd(epsilon=EPSILON, steps=10, loss=loss))  # type: ignore[arg-type]
        assert torch.equal(alone.predicted[:, 1], whole.predicted[:, place])


def test_pixels_that_are_not_finite_are_wrong_and_images_with_some_are_counted() -> None:
    images = IMAGES.clone()
    images[1, 0, 0, 0] = 0
    found = run(images=images)
    assert found.flags["nonfinite"] == 1
    assert right_of(found, 0) == [SIDE**2 - (row == 1) for row in range(N)]
    assert int(found.predicted[1, 0].sum()) == SIDE**2 - 1
    assert found.flags["nonfinite_gradient"] <= 1


def test_screening_takes_both_runs_and_keeps_the_better() -> None:
    plain, screened = run(), run(screening="bfloat16")
    assert (screened.intersection.sum(2) <= plain.intersection.sum(2)).all()
    assert int(screened.backward.sum()) == 2 * int(plain.backward.sum())
    assert "screened" not in plain.evidence()
    for each in (screened, run(screening="bfloat16_gradients"), run(dtype="bfloat16")):
        assert each.evidence()["screened"] == [*each.names[1:]]


def test_dtype_bfloat16_has_one_run_with_gradients_in_bfloat16() -> None:
    mixed, rough = run(screening="bfloat16_gradients"), run(dtype="bfloat16")
    assert rough.columns() == mixed.columns()
    assert int(rough.backward.sum()) == int(run().backward.sum())


def test_passes_that_do_not_fit_into_memory_are_halved() -> None:
    class Small(Threshold):
        def forward(self, images: Tensor) -> Tensor:
            if len(images) > 2:
                raise torch.OutOfMemoryError("too large")
            return super().forward(images)

    found, whole = run(model=Small()), run()
    assert found.noted == {"reduced_batch": {"asked": 4, "used": 2}}
    assert found.columns() == whole.columns()


def test_progress_grows_to_all_images_and_stages_are_told() -> None:
    told: list[int] = []
    stages: list[tuple[str, int]] = []
    run(sea(epsilon=EPSILON, steps=10), progress=told.append, staged=lambda *one: stages.append(one))
    assert told == sorted(told)
    assert told[0] == 0
    assert told[-1] == N
    assert stages == [("mce", N), ("mce_bal", N), ("js", N)]


def test_the_images_that_are_kept_are_those_with_the_fewest_right_pixels() -> None:
    found = run(sea(epsilon=EPSILON, steps=10), keep_adversarial=True)
    assert found.adversarial is not None
    assert found.maps is not None
    assert torch.equal(found.maps, MAPS)
    prediction = Threshold()(found.adversarial).argmax(1)
    counted = (prediction == MAPS).flatten(1).sum(1)
    assert counted.tolist() == found.intersection.sum(2).amin(1).tolist()


@pytest.mark.parametrize("flipped", [(3, 1), (1, 3), (2, 2)])
def test_a_later_loss_that_does_less_does_not_replace_the_image_that_is_kept(
    flipped: tuple[int, int],
) -> None:
    def found_by(pixels: int) -> Tensor:
        images = IMAGES.clone()
        images[:, 0, 0, :pixels] = 1 - images[:, 0, 0, :pixels]
        return images

    counts = dict(zip(("ce", "mce"), flipped, strict=True))

    def make(loss: PixelLoss) -> Given:
        pixels = counts[loss.name]
        return Given(found_by(pixels), SIDE**2 - pixels, ball=Ball("Linf", 1.0), loss=loss)

    found = run(PixelEnsemble("given", make, ("ce", "mce")), keep_adversarial=True)
    assert [right_of(found, place) for place in (1, 2)] == [[SIDE**2 - pixels] * N for pixels in flipped]
    assert found.adversarial is not None
    assert torch.equal(found.adversarial, found_by(max(flipped)))


def test_errors() -> None:
    with pytest.raises(ValueError, match=r"must give logits \(4, 3, 4, 4\), it gave \(4, 2, 4, 4\)"):
        run(classes=3)
    with pytest.raises(ValueError, match=r"images must be in \[0, 1\]"):
        run(images=IMAGES * 2)


def test_look_gives_gradients_only_where_they_are_wanted() -> None:
    examples = PixelExamples(torch.arange(N), IMAGES, MAPS, torch.full((N,), SIDE**2))
    state = begin(examples, IMAGES)
    wants = torch.arange(N) % 2 == 0
    with torch.no_grad():
        seen = look(Threshold().requires_grad_(False), state, PixelLoss("ce"), wants, torch.zeros(N))
        record(state, seen.right)
    assert (seen.gradient.flatten(1).abs().sum(1) > 0).tolist() == wants.tolist()
    assert (state["forward"].tolist(), state["backward"].tolist()) == ([1] * N, wants.long().tolist())
    assert seen.right.tolist() == [SIDE**2] * N


def test_the_gallery_takes_no_passes_and_shows_what_counts() -> None:
    attack, plain = sea(epsilon=EPSILON, steps=10), run(sea(epsilon=EPSILON, steps=10), keep_adversarial=True)
    found = run(attack, ranks={row: N - row for row in range(N)}, keep_adversarial=True)
    assert found.columns() == plain.columns()
    assert found.gallery is not None
    assert [item.id for item in found.gallery] == [IDS[row] for row in reversed(range(N))]
    assert plain.gallery == ()
    for item in found.gallery:
        row = IDS.index(item.id)
        assert isinstance(item, GalleryMaps)
        assert (item.loss, item.succeeded) == (found.names[found.worst[row]], True)
        assert item.accuracy_after == int(found.intersection[row, found.worst[row]].sum()) / SIDE**2
