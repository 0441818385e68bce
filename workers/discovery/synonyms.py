"""Words of other libraries for parameters, which their users write first.

A parameter's name has one meaning in all components, so each name is listed once. The catalog has its words
under `also`; the service suggests the parameter for them. A module's `ALSO` has its component's words.
Capitals, hyphens and underscores do not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

# cleverhans, Foolbox, torchattacks, ART, AutoAttack, RobustBench, TextAttack, timm.
PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "batch_size": ("bs",),
    "confidence": ("kappa",),
    "crop_fraction": ("crop", "crop_pct", "resize_fraction"),
    "draws": ("n_samples", "num_samples"),
    "eot": ("eot_iter", "n_eot", "eot_samples"),
    "epochs": ("num_epochs", "n_epochs"),
    "epsilon": ("eps", "epsilons", "eps_max", "max_norm", "radius", "perturbation_size"),
    "image": ("image_column",),
    "label": ("label_column",),
    "learning_rate": ("lr", "eta", "step_size"),
    "loss": ("loss_fn", "loss_type", "criterion"),
    "momentum": ("decay", "decay_factor", "mu"),
    "norm": ("ord", "p", "norm_type", "threat_model", "distance"),
    "queries": ("n_queries", "num_queries", "max_queries", "query_budget"),
    "random_start": ("rand_init", "random_init", "rand_start"),
    "relative_step_size": ("rel_stepsize", "alpha_ratio"),
    "restarts": ("num_restarts", "n_restarts", "nb_restarts", "num_random_init"),
    "step_size": ("alpha", "eps_iter", "eps_step", "stepsize", "abs_stepsize", "step"),
    "steps": (
        *("num_steps", "n_steps", "nb_steps", "nb_iter", "num_iter", "n_iter", "niter", "num_iterations"),
        *("iters", "iterations", "max_iter", "max_iterations", "perturb_steps"),
    ),
    "target_class": ("target_label", "y_target"),
    "targeted": ("is_targeted",),
    "text": ("text_column",),
    "weight_decay": ("wd",),
}


def with_synonyms(properties: Mapping[str, Any]) -> dict[str, Any]:
    """A schema's parameters with their words, except words that are parameters too."""
    found = {
        name: [word for word in PARAMETERS.get(name, ()) if word not in properties] for name in properties
    }
    return {
        name: part | ({"also": " ".join(found[name])} if found[name] else {})
        for name, part in properties.items()
    }


def checked_words(where: str, stated: Iterable[str] | None) -> list[str]:
    """A module's ALSO; ValueError: no list of texts."""
    words = [] if stated is None else list(stated)
    if isinstance(stated, str) or not all(isinstance(word, str) and word for word in words):
        raise ValueError(f"{where}: ALSO must list other names of the component; it is {stated!r}")
    return words
