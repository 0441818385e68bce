"""The warning `library_backend`: differences of rows where a library ran the attack or made its draws.

Backend and attack determine whether an example's result depends on the examples beside it: the attack states
it (`THREAT`), `tests/laws/test_attack_laws.py` tests it. cleverhans and pyautoattack's Auto-PGD get Assay's
draws, keyed by example; `compatible` kernels and the library's Square and FAB take one stream of draws per
batch (FAB only after its first restart).
"""

from __future__ import annotations

from collections.abc import Sequence

from assay.service.catalog.catalog import load
from assay.service.catalog.parameters import numbers
from assay.service.catalog.rules import evaluate
from assay.service.contract.stored_specs import Params


def draws_for_a_batch(backend: str, attack: str, params: Params) -> bool:
    """Whether an attack's random numbers are drawn for a whole batch, so that its neighbours matter."""
    component = load().find("attack", attack)
    condition = component.threat.batch_draws.get(backend) if component.threat is not None else None
    if condition is None:
        return False
    parts = component.parameters["properties"]
    defaults = {name: part["default"] for name, part in parts.items() if "default" in part}
    return bool(evaluate(condition, {"params": numbers(component.parameters, {**defaults, **params})}))


def describe(backend: str, attack: str, params: Params, stages: Sequence[str]) -> str:
    """Caveats of a row due to its backend: cleverhans, compatible, pyautoattack or textattack."""
    if backend == "textattack":
        return (
            "the package's own code ran its recipe, one text at a time, with its random numbers seeded by"
            " example: an example's result does not depend on the batch; stop words, WordNet and word vectors"
            " are the native recipe's"
        )
    if backend == "cleverhans":
        own = (
            "the library's own code ran the attack, on random numbers keyed by example; its iterates are"
            " float32, and only the images that it returns were judged"
        )
        mean = "its loss is a mean over the batch, so that very small gradients depend on the batch size"
        threat = load().threat_of(attack)
        return f"{own}; {mean}" if threat is not None and backend in threat.mean_loss_in else own
    who = "our kernels" if backend == "compatible" else "the library's own code"
    ran = f"{who} ran the attack"
    parts: list[tuple[str, Params]] = [(name, {}) for name in stages] or [(attack, params)]
    drawing = list(dict.fromkeys(name for name, own in parts if draws_for_a_batch(backend, name, own)))
    if not drawing:
        return f"{ran}; an example's result does not depend on the batch"
    return (
        f"{ran}; the random numbers of {', '.join(drawing)} were drawn for a whole batch, so that an"
        " example's result depends on those beside it"
    )
