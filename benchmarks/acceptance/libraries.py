"""Attacks of cleverhans, pyautoattack, foolbox and torchattacks at the sizes of `anchor.ATTACKS`.

Each is used as its documentation says, on one batch, and only where it can be imported. A library's attack is
a function of a model, images (B, C, S, S) in [0, 1] and classes (B,), all on the device.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

Run = Callable[[nn.Module, Tensor, Tensor], object]
LIBRARIES = ("cleverhans", "pyautoattack", "foolbox", "torchattacks")


class Counted(nn.Module):
    """Counts the images of forward and backward passes."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.passes = [0, 0]

    def forward(self, images: Tensor) -> Tensor:
        """The model's logits."""
        self.passes[0] += len(images)
        logits: Tensor = self.model(images)
        if logits.requires_grad:
            logits.register_hook(self._back)
        return logits

    def _back(self, gradient: Tensor) -> None:
        self.passes[1] += len(gradient)


def attacks_of(library: str, epsilon: float, sizes: dict[str, dict[str, Any]]) -> dict[str, Run]:
    """The library's attacks by our names; none where it is not installed.

    Args:
        library: One of `LIBRARIES`.
        epsilon: Radius of attacks that have one.
        sizes: Parameters of our attacks by name: their steps, queries, restarts.
    """
    if importlib.util.find_spec(library) is None:
        return {}
    made: dict[str, Run] = MAKERS[library](epsilon, sizes)
    return {name: run for name, run in made.items() if name in sizes}


def _cleverhans(epsilon: float, sizes: dict[str, dict[str, Any]]) -> dict[str, Run]:
    def labelled(module: str, *given: Any, **named: Any) -> Run:
        attack = getattr(importlib.import_module(f"cleverhans.torch.attacks.{module}"), module)
        return lambda model, images, labels: attack(model, images, *given, y=labels, **named)

    def pgd(model: nn.Module, images: Tensor, labels: Tensor) -> object:
        steps = sizes["pgd"]["steps"]
        attack = importlib.import_module("cleverhans.torch.attacks.projected_gradient_descent")
        given = epsilon, epsilon / 4, steps, float("inf"), 0.0, 1.0, labels
        return attack.projected_gradient_descent(model, images, *given, sanity_checks=False)

    def carlini_wagner(model: nn.Module, images: Tensor, labels: Tensor) -> object:
        size = sizes["carlini_wagner"]
        attack = importlib.import_module("cleverhans.torch.attacks.carlini_wagner_l2").carlini_wagner_l2
        with torch.no_grad():
            classes = model(images).shape[1]
        searches = {"binary_search_steps": size["searches"], "max_iterations": size["iterations"]}
        return attack(model, images, classes, y=labels, **searches)

    samples = {"spsa_samples": sizes["spsa"]["samples"], "sanity_checks": False}
    return {
        "fgsm": labelled("fast_gradient_method", epsilon, float("inf"), 0.0, 1.0),
        "pgd": pgd,
        "carlini_wagner": carlini_wagner,
        "spsa": labelled("spsa", epsilon, sizes["spsa"]["steps"], float("inf"), 0.0, 1.0, **samples),
    }


def _pyautoattack(epsilon: float, sizes: dict[str, dict[str, Any]]) -> dict[str, Run]:
    module = importlib.import_module

    def gradient(model: nn.Module, images: Tensor, labels: Tensor, *, name: str) -> object:
        library, size = module("pyautoattack.autopgd_base"), sizes[name]
        options = {"n_iter": size["steps"], "eps": epsilon, "norm": "Linf", "device": images.device}
        if name == "apgd_t":
            attack = library.APGDAttack_targeted(model, n_target_classes=size["targets"], **options)
        else:
            attack = library.APGDAttack(model, loss=name.removeprefix("apgd_"), **options)
        return attack.perturb(images, labels)

    def square(model: nn.Module, images: Tensor, labels: Tensor) -> object:
        options = {"n_queries": sizes["square"]["queries"], "eps": epsilon, "device": images.device}
        return (
            module("pyautoattack.square").SquareAttack(model, norm="Linf", **options).perturb(images, labels)
        )

    def fab(model: nn.Module, images: Tensor, labels: Tensor) -> object:
        size = sizes["fab_t"]
        options = {"n_restarts": size["restarts"], "n_iter": size["iterations"], "device": images.device}
        options |= {"targeted": True, "n_target_classes": size["targets"]}
        attack = module("pyautoattack.fab_pt").FABAttack_PT(model, norm="Linf", eps=epsilon, **options)
        return attack.perturb(images, labels)

    names = ("apgd_ce", "apgd_dlr", "apgd_t")
    return {name: partial(gradient, name=name) for name in names} | {"square": square, "fab_t": fab}


def _foolbox(epsilon: float, sizes: dict[str, dict[str, Any]]) -> dict[str, Run]:
    def run(
        model: nn.Module, images: Tensor, labels: Tensor, *, kind: str, options: Any, bound: Any
    ) -> object:
        library = importlib.import_module("foolbox")
        attack = getattr(importlib.import_module("foolbox.attacks"), kind)(**options)
        wrapped = library.PyTorchModel(model, bounds=(0, 1), device=images.device)
        return attack(wrapped, images, labels, epsilons=bound)

    steps = {name: {"steps": size["steps"]} for name, size in sizes.items() if "steps" in size}
    step_size = {"rel_stepsize": 0.25}
    search = {"binary_search_steps": sizes["carlini_wagner"]["searches"]}
    of: dict[str, tuple[str, dict[str, Any], float | None]] = {
        "fgsm": ("FGSM", {}, epsilon),
        "pgd": ("LinfPGD", steps["pgd"] | step_size, epsilon),
        "mi_fgsm": ("MIFGSM", steps["mi_fgsm"] | step_size, epsilon),
        "carlini_wagner": (
            "L2CarliniWagnerAttack",
            search | {"steps": sizes["carlini_wagner"]["iterations"]},
            None,
        ),
        "ddn": ("DDNAttack", steps["ddn"], None),
        "fmn": ("L2FMNAttack", steps["fmn"], None),
    }
    return {
        name: partial(run, kind=kind, options=options, bound=bound)
        for name, (kind, options, bound) in of.items()
    }


def _torchattacks(epsilon: float, sizes: dict[str, dict[str, Any]]) -> dict[str, Run]:
    def run(model: nn.Module, images: Tensor, labels: Tensor, *, kind: str, options: Any) -> object:
        return getattr(importlib.import_module("torchattacks"), kind)(model, **options)(images, labels)

    steps = {name: {"steps": size["steps"]} for name, size in sizes.items() if "steps" in size}
    ball, moves = {"eps": epsilon}, {"alpha": epsilon / 4}
    of: dict[str, tuple[str, dict[str, Any]]] = {
        "fgsm": ("FGSM", ball),
        "pgd": ("PGD", ball | moves | steps["pgd"]),
        "mi_fgsm": ("MIFGSM", ball | moves | steps["mi_fgsm"]),
        "carlini_wagner": ("CW", {"steps": sizes["carlini_wagner"]["iterations"]}),
        "apgd_ce": ("APGD", ball | steps["apgd_ce"] | {"loss": "ce"}),
        "apgd_dlr": ("APGD", ball | steps["apgd_dlr"] | {"loss": "dlr"}),
        "square": ("Square", ball | {"n_queries": sizes["square"]["queries"]}),
    }
    return {name: partial(run, kind=kind, options=options) for name, (kind, options) in of.items()}


MAKERS: dict[str, Callable[..., dict[str, Run]]] = {
    "cleverhans": _cleverhans,
    "pyautoattack": _pyautoattack,
    "foolbox": _foolbox,
    "torchattacks": _torchattacks,
}
