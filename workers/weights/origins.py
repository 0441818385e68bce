"""Where the weights of a reference come from: files, licence and facts, by source."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn

from assay.service.contract.problems import nearest
from assay.service.contract.weights.pulled import PulledReference
from assay.workers.weights import hub
from assay.workers.weights.download import PullFailed, Remote

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
# The beginning of a hash in the name of a file, as torch's hub has it.
HASH_IN_NAME = re.compile(r"-([a-f0-9]{6,64})\.")
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".h5", ".msgpack")
_CONVERTED = "A branch with converted weights can be named: hf:ORG/NAME@refs/pr/1"


@dataclass(frozen=True)
class Origin:
    """What is to be fetched."""

    reference: PulledReference  # The whole one, with the tag or the commit
    files: tuple[Remote, ...]  # Of the network, or of the hub's cache
    license: str | None  # As stated; None where it is not
    repository: str | None  # A URL for people
    # Facts; a repository of transformers has them in its files
    config: Mapping[str, Any] = field(default_factory=dict)
    revision: str | None = None  # The commit, of a repository
    aliases: tuple[str, ...] = ()  # Other references that mean these weights
    refs: str | None = None  # The branch or tag by which a repository of transformers was named
    convert: Callable[[Path, Path], None] | None = None  # Makes `model.safetensors` of a pickle, path to path
    gated: bool = False  # Whether the files ask for an account


def origin_of(reference: PulledReference) -> Origin:
    """Find out where the weights of a reference are."""
    return {"timm": _timm, "torchvision": _torchvision, "hf": _transformers}[reference.source](reference)


def default_of(reference: PulledReference) -> PulledReference:
    """The reference with the default tag, for timm or torchvision; an unknown name is a ValueError."""
    if reference.revision is not None or reference.source == "hf":
        return reference
    if reference.source == "timm":
        return replace(reference, revision=_timm_config(reference).tag or None)
    from assay.models.from_torchvision import published

    return replace(reference, revision=published(reference.name, None).name)


def _aliases(reference: PulledReference) -> tuple[str, ...]:
    plain = replace(reference, revision=None)
    return (str(plain),) if default_of(plain) == reference and reference.revision is not None else ()


def _timm_config(reference: PulledReference) -> Any:
    from timm import list_models
    from timm.models import get_arch_pretrained_cfgs, get_pretrained_cfg

    known = list_models()
    if reference.name not in known:
        raise ValueError(f"timm has no architecture {reference.name!r}{_hint(reference.name, known)}")
    tags = sorted(name.partition(".")[2] for name in get_arch_pretrained_cfgs(reference.name))
    if reference.revision is not None and reference.revision not in tags:
        there = ", ".join(tags) or "none"
        raise ValueError(
            f"timm has no weights {reference.revision!r} for {reference.name}"
            f"{_hint(reference.revision, tags)} (there are: {there})"
        )
    config = get_pretrained_cfg(str(reference).partition(":")[2])
    if config is None or not config.has_weights:
        raise ValueError(f"timm has no pretrained weights for {reference.name}")
    return config


def _timm(given: PulledReference) -> Origin:
    reference = default_of(given)
    stated = _timm_config(reference)
    if not stated.num_classes or stated.num_classes < 1:
        raise PullFailed(f"{reference} has no classifier: jobs cannot measure it")
    _, height, width = stated.input_size
    config = {
        "classes": stated.num_classes,
        "channels": stated.input_size[0],
        "image_size": height if height == width else None,
        "input_size": [*stated.input_size],
        "mean": [*stated.mean],
        "std": [*stated.std],
        "interpolation": stated.interpolation,
        "crop_pct": stated.crop_pct,
    }
    aliases = _aliases(reference)
    if not stated.hf_hub_id:
        file = _pickle_at(stated.url)
        return Origin(
            reference, (file,), stated.license, stated.url, config, None, aliases, None, _state_dict
        )
    name, _, revision = str(stated.hf_hub_id).partition("@")
    found = hub.repository(name, revision or "main")
    wanted = [WEIGHTS]
    if stated.hf_hub_filename:
        wanted.insert(0, str(PurePosixPath(stated.hf_hub_filename).with_suffix(".safetensors")))
    published = next((found.files[one] for one in wanted if one in found.files), None)
    if published is None:
        _no_safetensors(found.name, found.files, _CONVERTED)
    return Origin(
        reference,
        (replace(published, name=WEIGHTS),),
        found.license or stated.license,
        found.url,
        config,
        found.commit,
        aliases,
        gated=found.gated,
    )


def _torchvision(given: PulledReference) -> Origin:
    from assay.models.from_torchvision import CHANNELS, build, load, published

    weights = published(given.name, given.revision)
    reference = replace(given, revision=weights.name)
    transforms = weights.transforms()
    classes, size = len(weights.meta["categories"]), int(transforms.crop_size[0])
    config = {
        "classes": classes,
        "channels": CHANNELS,
        "image_size": size,
        "mean": [*transforms.mean],
        "std": [*transforms.std],
        "interpolation": transforms.interpolation.value,
        "resize_size": int(transforms.resize_size[0]),
    }

    def convert(pickle: Path, target: Path) -> None:
        from assay.workers.import_pickle import read_pickle, state_dict
        from assay.workers.training.files import save_weights

        tensors, _ = state_dict(read_pickle(pickle), None)
        model = build(given.name, classes, size, pretrained=True)
        load(model, tensors, given.name)
        save_weights(model, target, {"imported_from": PurePosixPath(weights.url).name})

    stated, home = weights.meta.get("license"), "https://github.com/pytorch/vision"
    files = (_pickle_at(weights.url),)
    return Origin(reference, files, stated, home, config, None, _aliases(reference), None, convert)


def _transformers(reference: PulledReference) -> Origin:
    named = reference.revision or "main"
    found = hub.repository(reference.name, named)
    return Origin(
        replace(reference, revision=found.commit),
        files_of_model(found.name, found.files, _CONVERTED),
        found.license,
        found.url,
        {},
        found.commit,
        refs=None if named == found.commit else named,
        gated=found.gated,
    )


def files_of_model(where: str, files: Mapping[str, Remote], remedy: str) -> tuple[Remote, ...]:
    """The read files of a model of transformers; PullFailed without config.json or safetensors."""
    wanted = {name: file for name, file in files.items() if hub.ALLOWED.fullmatch(name)}
    if WEIGHTS in wanted:
        wanted = {
            name: file for name, file in wanted.items() if name != INDEX and not name.startswith("model-")
        }
    elif INDEX not in wanted:
        _no_safetensors(where, files, remedy)
    if "config.json" not in wanted:
        raise PullFailed(f"{where} has no config.json: it is no model of transformers")
    return tuple(wanted[name] for name in sorted(wanted))


def _no_safetensors(where: str, files: Mapping[str, Remote], remedy: str) -> NoReturn:
    others = ", ".join(sorted(name for name in files if name.endswith(PICKLES))[:5])
    instead = f" (it has {others})" if others else ""
    raise PullFailed(
        f"{where} has no {WEIGHTS}{instead}: pickles can run code when read, and are not fetched. {remedy}"
    )


def _pickle_at(url: str) -> Remote:
    name = PurePosixPath(url).name
    found = HASH_IN_NAME.search(name)
    return Remote(url=url, name=name, sha256=found[1] if found else None)


def _state_dict(pickle: Path, target: Path) -> None:
    from assay.workers.import_pickle import read_pickle, state_dict
    from assay.workers.training.files import save_tensors

    tensors, _ = state_dict(read_pickle(pickle), None)
    save_tensors(tensors, target, {"imported_from": pickle.name})


def _hint(given: str, known: list[str]) -> str:
    near = nearest(given, known)
    return f"; did you mean {near!r}?" if near else ""
