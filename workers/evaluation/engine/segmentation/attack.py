"""Runs attacks over the images of a segmentation set: every loss on every image, each candidate verified.

There is one protocol, `pixel`: images in [0, 1], true label maps, normalisation inside the model, Linf balls.
An image whose pixels are all wrong without an attack is not attacked. The images are the squares of
`segment`; whole images by sliding windows are not attacked.

An attack's own claims never count: its stored image must be within the ball and [0, 1], and its pixels are
counted by the model without autocast. Where it has more right pixels than the unattacked image, the
unattacked image counts instead, so accuracy cannot rise.

Legend: n images, B batch, C channels, K classes, H and W height and width.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

import torch
from torch import Tensor, nn

from assay.attacks.kernel import Setting, State, frozen
from assay.attacks.randomness import Randomness
from assay.attacks.segmentation.kernel import PixelAttack, PixelEnsemble, PixelExamples, unconverged
from assay.attacks.sending import sent
from assay.attacks.threat import PIXELS, as_column
from assay.service.contract.gallery import GalleryMaps
from assay.workers.evaluation.engine.attack.slots import run_slots
from assay.workers.evaluation.engine.attack.verification import out_of_ball, out_of_box
from assay.workers.evaluation.engine.captured import Preparing
from assay.workers.evaluation.engine.forward import Passes
from assay.workers.evaluation.engine.gallery.candidates import safely
from assay.workers.evaluation.engine.gallery.images import MapCandidates, attacked_maps
from assay.workers.evaluation.engine.loader import Images, Loader, Running, Screening
from assay.workers.evaluation.engine.segmentation.attacked import CLEAN, AttackedPixels
from assay.workers.evaluation.engine.segmentation.pixel_counts import Maps, checked_prediction, count_pixels

# A second judgement may differ from the first by rounding: by up to this share of an image's pixels.
ROUNDING = 0.01
SEEN = ("seen_gradient", "zero_gradient", "nonfinite_gradient")
FLAGS = (*SEEN, "nonfinite", "unconverged", "unverified", "out_of_ball", "out_of_box")


def attack_segmentation(
    ensemble: PixelEnsemble,
    model: nn.Module,
    images_of: Images,
    maps_of: Maps,
    ids: Sequence[str],
    *,
    classes: int,
    seed: int,
    class_weights: tuple[float, ...] | None = None,
    screening: Screening | None = None,
    capture: bool = False,
    compiled: bool = False,
    preparing: Preparing | None = None,
    keep_adversarial: bool = False,
    ranks: Mapping[int, int] | None = None,
    staged: Callable[[str, int], None] | None = None,
    **running: Unpack[Running],
) -> AttackedPixels:
    """Attacks the model with every loss of an ensemble; further arguments and errors as for `segment`.

    `class_weights` (K,) are for losses that are balanced.

    With `screening` bfloat16 each loss is raised in it first, and without autocast on images with right
    pixels left: the better of both counts. With bfloat16_gradients, and with dtype bfloat16, there is one
    run, and only gradients are in bfloat16: every map has pixels near a boundary, which no bound could spare.

    `keep_adversarial` returns the images with the fewest right pixels.
    """
    loader = Loader(model, images_of, None, ids, **running)
    screened = screening is not None or loader.forward is not loader.exact
    loader.prepare_passes(capture=capture, compiled=compiled, screened=screened, preparing=preparing)
    with torch.no_grad(), frozen(model):
        attacks = ensemble.attacks(class_weights)
        passes = loader.passes(screening)
        shown = MapCandidates(ranks or {})
        run = _Run(loader, maps_of, ids, classes, attacks, len(passes), shown, keep=keep_adversarial)
        run.judge_clean()
        for number, attack in enumerate(attacks, start=1):
            left = run.stage(
                number, attack, passes, Setting(ids, _randomness(seed, attack)), loader.batch_size
            )
            if staged is not None:
                staged(attack.loss.name, left)
        return run.close()


def _randomness(seed: int, attack: PixelAttack) -> Randomness:
    return Randomness(seed, f"{attack.name}/{attack.loss.name}")


class _Run:
    """State of all images while one loss after the other is raised."""

    def __init__(
        self,
        loader: Loader,
        maps_of: Maps,
        ids: Sequence[str],
        classes: int,
        attacks: Sequence[PixelAttack],
        passes: int,
        shown: MapCandidates,
        *,
        keep: bool,
    ) -> None:
        n = loader.n
        self._loader = loader
        self._maps_of = maps_of
        self._ids = tuple(ids)
        self._names = (CLEAN, *(attack.loss.name for attack in attacks))
        self._counts = torch.zeros(n, len(self._names), 3, classes, dtype=torch.int64)
        self._cost = {key: torch.zeros(n, dtype=torch.int64) for key in ("forward", "backward")}
        self._flags = {key: torch.zeros(n, dtype=torch.bool) for key in FLAGS}
        self._stages: list[dict[str, Any]] = []
        self._keep = keep
        self._shown = shown
        self._ball = attacks[0].ball
        self._worst: Tensor | None = None
        self._maps: Tensor | None = None
        # Runs in all, finished runs, and images left to the present one.
        self._parts, self._over, self._left = len(attacks) * passes, 0, n
        self._final = False

    @property
    def _right(self) -> Tensor:
        return self._counts[:, :, 0].sum(2)

    def judge_clean(self) -> None:
        """Counts the pixels of every unattacked image."""
        begun = time.monotonic()
        for rows in self._loader.batches():
            images, maps = self._loader.images(rows), self._maps_of(rows.tolist())
            # Candidate of each loss until it has its own.
            counts, predictions = self._counted(rows, images, maps)
            self._counts[rows] = counts[:, None]
            self._shown.note_clean(rows, predictions)
            if self._keep:
                if self._worst is None or self._maps is None:
                    self._worst = images.new_zeros(self._loader.n, *images.shape[1:], device="cpu")
                    self._maps = maps.new_zeros(self._loader.n, *maps.shape[1:])
                self._worst[rows], self._maps[rows] = images.cpu(), maps
            self._tell()
        n = self._loader.n
        self._note_stage(0, (n, n), (0, 0), begun)

    def stage(
        self, number: int, attack: PixelAttack, passes: Sequence[Passes], setting: Setting, slots: int
    ) -> int:
        """Raises one loss on every image; returns how many have a right pixel left."""
        begun, before = time.monotonic(), self._spent()
        given = int((self._right[:, number] > 0).sum())
        for forward in passes:
            self._final = forward is passes[-1]
            rows = (self._right[:, number] > 0).nonzero().flatten()
            self._left = len(rows)
            run_slots(
                attack,
                setting,
                forward,
                take=_Waiting(self._examples(rows, number)).take,
                slots=slots,
                leave=lambda state: self._leave(number, attack, state),
                tell=self._tell,
                read=lambda state: state,
            )
            self._loader.note_stage(attack.loss.name, forward)
            self._over, self._left = self._over + 1, self._loader.n
        left = int((self._right[:, number] > 0).sum())
        self._note_stage(number, (given, left), before, begun)
        self._tell()
        return left

    def close(self) -> AttackedPixels:
        """The outcomes of all images."""
        flags = {key: int(values.sum()) for key, values in self._flags.items()}
        gradients = flags.pop("seen_gradient")
        outcomes = AttackedPixels(
            ids=self._ids,
            names=self._names,
            intersection=self._counts[:, :, 0],
            target=self._counts[:, 0, 1],
            predicted=self._counts[:, :, 2],
            forward=self._cost["forward"],
            backward=self._cost["backward"],
            flags={"gradients": gradients, **flags},
            stages=self._stages,
            noted=self._loader.noted(),
            adversarial=self._worst,
            maps=self._maps,
        )
        return replace(outcomes, gallery=safely(lambda: self._items(outcomes)))

    def _items(self, outcomes: AttackedPixels) -> list[GalleryMaps]:
        rows = self._shown.chosen()
        if not rows:
            return []
        return attacked_maps(
            self._shown,
            self._ids,
            [self._names[place] for place in outcomes.worst.tolist()],
            self._loader.images(torch.tensor(rows)).cpu(),
            self._maps_of(rows),
            classes=self._counts.shape[3],
            ball=self._ball,
        )

    def _examples(self, rows: Tensor, number: int) -> Iterator[PixelExamples]:
        for some in self._loader.batches(rows):
            images = self._loader.images(some)
            maps = sent(self._maps_of(some.tolist()), images)
            yield PixelExamples(some, images, maps, sent(self._right[some, 0], images))

    def _leave(self, number: int, attack: PixelAttack, state: State) -> None:
        rows = state["row"]
        self._left -= len(rows)
        for key, spent in self._cost.items():
            spent[rows] += state[key].cpu()
        for key in SEEN:
            self._flags[key][rows] |= state[key].cpu()
        found, maps = state["best"], state["maps"].cpu()
        counts, predictions = self._counted(rows, found, maps)
        right, judged = counts[:, 0].sum(1), counts[:, 1].sum(1)
        outside = {
            "out_of_ball": out_of_ball(found - state["images"], attack.ball).cpu(),
            "out_of_box": out_of_box(found, PIXELS).cpu(),
        }
        refused = torch.stack([*outside.values()]).any(0)
        if self._final:
            said = state["right"].cpu()
            self._flags["unverified"][rows] |= right - said > (ROUNDING * judged).clamp(min=1)
            self._flags["unconverged"][rows] |= unconverged(state).cpu()
            for key, which in outside.items():
                self._flags[key][rows] |= which
        better = (right < self._right[rows, number]) & ~refused
        lowest = better & (right < self._right[rows].amin(1))
        self._shown.note(rows, lowest, found, predictions)
        if self._worst is not None:
            column = as_column(lowest, found)
            self._worst[rows] = torch.where(column, found.cpu(), self._worst[rows])
        self._counts[rows[better], number] = counts[better]

    def _counted(self, rows: Tensor, images: Tensor, maps: Tensor) -> tuple[Tensor, Tensor]:
        """The counts of images by the model without autocast, int64 (B, 3, K), and its predictions."""
        classes = self._counts.shape[3]
        prediction = checked_prediction(self._loader.exact(images), maps, classes)
        self._cost["forward"][rows] += 1
        self._flags["nonfinite"][rows] |= (prediction == classes).flatten(1).any(1)
        return count_pixels(prediction, maps, classes), prediction

    def _note_stage(
        self, number: int, images: tuple[int, int], before: tuple[int, int], begun: float
    ) -> None:
        """Adds a candidate's counts; `images`: those given to it, and those with a right pixel left."""
        forward, backward = (after - past for after, past in zip(self._spent(), before, strict=True))
        self._stages.append(
            {
                "name": self._names[number],
                "number": number,
                "n": images[0],
                "broken": images[0] - images[1],
                "forward": forward,
                "backward": backward,
                "seconds": time.monotonic() - begun,
            }
        )

    def _spent(self) -> tuple[int, int]:
        return int(self._cost["forward"].sum()), int(self._cost["backward"].sum())

    def _tell(self) -> None:
        n = self._loader.n
        self._loader.tell((n * self._over + n - self._left) // self._parts)


class _Waiting:
    """Images that wait for a slot, loaded a batch at a time."""

    def __init__(self, batches: Iterator[PixelExamples]) -> None:
        self._batches = batches
        self._held: PixelExamples | None = None

    def take(self, count: int) -> PixelExamples | None:
        """The next images, at most `count`; None at the end."""
        while self._held is None or len(self._held.rows) < count:
            fresh = next(self._batches, None)
            if fresh is None:
                break
            held = self._held
            self._held = (
                fresh if held is None else PixelExamples(*map(torch.cat, zip(held, fresh, strict=True)))
            )
        if self._held is None or len(self._held.rows) == 0:
            return None
        taken = PixelExamples(*(values[:count] for values in self._held))
        self._held = PixelExamples(*(values[count:] for values in self._held))
        return taken
