"""Repositories of the Hugging Face hub, as far as `assay pull` needs them: a listing, never code."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
from huggingface_hub import constants, get_token, try_to_load_from_cache

from assay.workers.weights.download import PullFailed, Remote, Unreachable, client, refused, unreachable

COMMIT = re.compile(r"[0-9a-f]{40}")
# Files that are fetched: weights as tensors, and texts that describe model, tokens and licence. No code.
ALLOWED = re.compile(
    r"config\.json|model(-\d+-of-\d+)?\.safetensors|model\.safetensors\.index\.json"
    r"|tokenizer\.json|tokenizer_config\.json|special_tokens_map\.json|added_tokens\.json|tokenizer\.model"
    r"|vocab\.(json|txt)|merges\.txt|spiece\.model|sentencepiece\.bpe\.model"
    r"|preprocessor_config\.json|README\.md|LICENSE(\.txt|\.md)?"
)
MAX_JSON_BYTES = 16 * 10**6


@dataclass(frozen=True)
class Repository:
    """A repository at a commit."""

    name: str  # ORG/NAME
    commit: str  # Its hash
    license: str | None  # As its card states it
    files: Mapping[str, Remote]  # Every file at the top, by name
    gated: bool = False  # Whether its files ask for an account that has accepted terms

    @property
    def url(self) -> str:
        """For people."""
        return f"{constants.ENDPOINT}/{self.name}"


def repository(name: str, revision: str) -> Repository:
    """A repository by its name and a branch, a tag or a commit; without a network from the hub's cache."""
    try:
        return _listed(name, revision)
    except Unreachable:
        cached = _cached(name, revision)
        if cached is None:
            raise
        return cached


def _listed(name: str, revision: str) -> Repository:
    url = f"{constants.ENDPOINT}/api/models/{name}/revision/{quote(revision, safe='')}"
    if constants.HF_HUB_OFFLINE:
        raise Unreachable(
            f"HF_HUB_OFFLINE is set: {name} is looked for in the hub's cache alone, and is not there"
        )
    try:
        with client() as http:
            response = http.get(url, params={"blobs": "true"}, headers=_headers())
    except httpx.TransportError as error:
        raise unreachable(url, error) from error
    if response.is_error:
        raise _refusal(name, revision, url, response)
    try:
        found = response.json()
        return _read(name, found)
    except (ValueError, KeyError, TypeError) as error:
        raise PullFailed(f"{url} answers with something else than a listing: {error}") from error


def _read(name: str, found: Mapping[str, Any]) -> Repository:
    commit = str(found["sha"])
    if COMMIT.fullmatch(commit) is None:
        raise ValueError(f"{commit!r} is no commit")
    files: dict[str, Remote] = {}
    for one in found["siblings"]:
        file, large = str(one["rfilename"]), one.get("lfs") or {}
        if "/" not in file:
            cached = try_to_load_from_cache(name, file, revision=commit)
            files[file] = Remote(
                url=f"{constants.ENDPOINT}/{name}/resolve/{commit}/{quote(file)}",
                name=file,
                size=one.get("size"),
                sha256=large.get("sha256"),
                blob=None if large else one.get("blobId"),
                headers=_headers(),
                cached=Path(cached) if isinstance(cached, str) else None,
            )
    card = found.get("cardData") or {}
    license_name = card.get("license") if isinstance(card, Mapping) else None
    if not license_name:
        tags = [str(tag) for tag in found.get("tags") or [] if str(tag).startswith("license:")]
        license_name = tags[0].removeprefix("license:") if tags else None
    return Repository(name, commit, license_name and str(license_name), files, bool(found.get("gated")))


def _headers() -> dict[str, str]:
    token = get_token()
    return {} if token is None else {"Authorization": f"Bearer {token}"}


def _refusal(name: str, revision: str, url: str, response: httpx.Response) -> PullFailed:
    code = response.headers.get("X-Error-Code", "")
    if code == "RevisionNotFound" or (
        response.status_code == httpx.codes.NOT_FOUND and code != "RepoNotFound"
    ):
        return PullFailed(f"{name} has no branch, tag or commit {revision!r}, or is not there")
    if code == "GatedRepo":
        return gated(name)
    if response.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN, httpx.codes.NOT_FOUND):
        known = "the account of HF_TOKEN" if os.environ.get("HF_TOKEN") else "someone without HF_TOKEN"
        return PullFailed(f"there is no repository {name} on the hub, or none for {known}")
    return refused(url, response)


def gated(name: str) -> PullFailed:
    """The failure of a repository with terms that have not been accepted."""
    where = f"{constants.ENDPOINT}/{name}"
    return PullFailed(
        f"{name} is gated: accept its terms at {where}, and set HF_TOKEN to a token of that account"
    )


def _cached(name: str, revision: str) -> Repository | None:
    for file in ("config.json", "model.safetensors"):
        path = try_to_load_from_cache(name, file, revision=revision)
        if isinstance(path, str) and COMMIT.fullmatch(Path(path).parent.name):
            folder = Path(path).parent
            files = {
                one.name: Remote(url=one.as_uri(), name=one.name, size=one.stat().st_size, cached=one)
                for one in folder.iterdir()
                if one.is_file()
            }
            return Repository(name, folder.name, license_of_card(folder), files)
    return None


def license_of_card(folder: Path) -> str | None:
    """The licence that the head of a folder's README.md states; None without one."""
    try:
        text = (folder / "README.md").read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None
    head = text.split("---")[1] if text.startswith("---") else ""
    found = re.search(r"^license:\s*(\S+)\s*$", head, re.MULTILINE)
    return found[1] if found else None


def facts_of(folder: Path) -> dict[str, Any]:
    """What a model of transformers says in its files: task, architecture, sizes, labels, preprocessing."""
    config, preprocessor = (_json(folder / name) for name in ("config.json", "preprocessor_config.json"))
    names = config.get("architectures")
    architecture = str(names[0]) if isinstance(names, list) and names else None
    facts: dict[str, Any] = {
        "architecture": architecture,
        "model_type": config.get("model_type"),
        "task": _task(architecture),
    }
    labels = config.get("id2label")
    if isinstance(labels, Mapping):
        facts["labels"] = [str(labels[key]) for key in sorted(labels, key=int)]
        facts["classes"] = len(labels)
    elif facts["task"] in ("image-classification", "text-classification"):
        facts["classes"] = int(config.get("num_labels", 2))  # as transformers assumes
    if facts["task"] == "image-classification":
        facts["image_size"] = _size(config.get("image_size")) or _size(preprocessor.get("size"))
        facts["channels"] = int(config.get("num_channels", 3))
    length = config.get("max_position_embeddings") or config.get("n_positions")
    kept = {
        "max_length": length,
        "mean": preprocessor.get("image_mean"),
        "std": preprocessor.get("image_std"),
    }
    return {key: value for key, value in {**facts, **kept}.items() if value is not None}


def _task(architecture: str | None) -> str | None:
    endings = {
        "ForImageClassification": "image-classification",
        "ForSequenceClassification": "text-classification",
        "ForCausalLM": "text-generation",
        "LMHeadModel": "text-generation",
    }
    return next((task for end, task in endings.items() if (architecture or "").endswith(end)), None)


def _size(stated: object) -> int | None:
    if isinstance(stated, Mapping):
        sides = {stated.get("height"), stated.get("width"), stated.get("shortest_edge")} - {None}
        stated = sides.pop() if len(sides) == 1 else None
    if isinstance(stated, list) and len(set(stated)) == 1:
        stated = stated[0]
    return stated if isinstance(stated, int) else None


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8")) if path.stat().st_size < MAX_JSON_BYTES else {}
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
