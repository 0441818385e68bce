"""`assay sign` and `assay verify`: signed results saved to files, and checked wherever these are."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from assay.service.cli import output
from assay.service.cli.arguments import JOB, Subcommands, add, add_remote, job_argument
from assay.service.cli.commands import OK, UsageError, connected
from assay.service.contract.extras import require
from assay.service.files.job_files import RESULTS_FILE, SIGNATURE_FILE
from assay.service.fitted_text import say, tell
from assay.service.signing.wire import KeySet

if TYPE_CHECKING:
    from assay.service.signing.verify import Signed

DIFFERS = 1
MAX_KEY_BYTES = 1024 * 1024


def add_commands(subcommands: Subcommands) -> None:
    """Adds `sign` and `verify`."""
    summary = "save the results of a job with their signature"
    example = f"{JOB} --output paper/table-2 --files"
    parser = add_remote(subcommands, "sign", sign, summary, example, topic="results")
    job_argument(parser)
    parser.add_argument(
        "-o", "--output", help="folder for signature.json and results.json (default: the job's id)"
    )
    parser.add_argument("--files", action="store_true", help="save the job's files too")

    summary = "check results and files against their signature, without the service"
    examples = (
        "paper/table-2 --key assay.pub",
        "results.json --signature signature.json --url https://assay.example",
    )
    parser = add(subcommands, "verify", verify, summary, *examples, topic="results")
    parser.add_argument(
        "file", metavar="FILE", help="signature.json, its folder, saved results (JSON), or a file of the job"
    )
    parser.add_argument(
        "--signature", metavar="FILE", help="the signature (default: signature.json beside FILE)"
    )
    parser.add_argument(
        "--key",
        metavar="FILE",
        action="append",
        default=[],
        help="trust this public key (PEM), or these (JSON Web Key Set); may be repeated",
    )
    parser.add_argument("--url", help="trust the keys that this service shows (default: ASSAY_URL)")
    parser.add_argument("--job", help="the id of the job that the signature must be about")


def sign(options: argparse.Namespace) -> int:
    """Saves signature and results; the path of the signature is on standard output."""
    require("`assay sign`", "service")
    from assay.service.files.canonical_json import canonical
    from assay.service.signing import keys, verify

    folder = Path(options.output or options.job)
    with connected(options) as client:
        raw = client.signature(options.job)
        signed = _opened(raw, keys.public_keys(client.signing_keys()))
        if isinstance(signed, str):
            raise UsageError(f"the service's own keys do not verify its signature: {signed}")
        if signed.job != options.job:
            raise UsageError(f"the service sent the signature of job {signed.job}")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / SIGNATURE_FILE).write_bytes(raw)
        # In the form that is hashed and signed, so that other tools can check it as a file.
        (folder / RESULTS_FILE).write_bytes(canonical(signed.results))
        for name in sorted(signed.files) if options.files else ():
            if Path(name).name != name:
                tell(output.printable(f"{name}: not saved, it is no file name"))
                continue
            path = client.download(options.job, name, folder / name)
            problem = verify.file_problem(signed, path)
            if problem is not None:
                tell(output.printable(f"{name}: {problem}"))
    _say(str(folder / SIGNATURE_FILE))
    tell(f"signed {signed.signed_at} by key {signed.key_id}")
    return OK


def verify(options: argparse.Namespace) -> int:
    """Checks the signature and every file of it that is there; 1 where anything differs."""
    require("`assay verify`", "service")
    given = Path(options.file)
    if not given.exists():
        raise UsageError(f"{given}: no such file or folder")
    file = given / SIGNATURE_FILE if given.is_dir() else given
    is_signature = options.signature is None and _is_envelope(file)
    place = file if is_signature else Path(options.signature or file.parent / SIGNATURE_FILE)
    signed = _opened(_read(place), _trusted(options))
    if isinstance(signed, str):
        _say(f"{place}: {signed}")
        return DIFFERS
    failed = options.job is not None and signed.job != options.job
    wrong = f"; wanted is job {options.job}" if failed else ""
    _say(f"{place}: job {signed.job}, signed {signed.signed_at} by key {signed.key_id}{wrong}")
    found = _beside(signed, file.parent) if is_signature else _one(signed, file)
    for name, problems in found:
        for problem in problems or ["as signed"]:
            _say(f"{name}: {problem}")
        failed = failed or bool(problems)
    if is_signature:
        absent = [
            name for name in (RESULTS_FILE, *sorted(signed.files)) if not os.path.lexists(file.parent / name)
        ]
        if absent:
            _say(f"not here, and not checked: {', '.join(absent)}")
        expected = {file.name, RESULTS_FILE, *signed.files}
        others = sorted(path.name for path in file.parent.iterdir() if path.name not in expected)
        if others and given.is_dir():
            _say(f"here, but not signed: {', '.join(others)}")
    return DIFFERS if failed else OK


def _beside(signed: Signed, folder: Path) -> Iterator[tuple[str, list[str]]]:
    for name in (RESULTS_FILE, *sorted(signed.files)):
        path = folder / name
        if path.is_file():
            yield from _one(signed, path)
        elif os.path.lexists(path):
            yield str(path), ["is no regular file"]


def _one(signed: Signed, path: Path) -> Iterator[tuple[str, list[str]]]:
    from assay.service.signing import verify

    if path.name in signed.files:  # The job's own files come first: one of them may be JSON.
        problem = verify.file_problem(signed, path)
        yield str(path), [] if problem is None else [problem]
    elif path.name == RESULTS_FILE or path.suffix == ".json":
        yield str(path), verify.result_problems(signed, _read(path))
    else:
        yield str(path), ["not among the signed files"]


def _trusted(options: argparse.Namespace) -> dict[str, Any]:
    from assay.service.signing import keys

    url = options.url or (None if options.key else os.environ.get("ASSAY_URL"))
    if not options.key and not url:
        raise UsageError("whose key is trusted? Give --key FILE, or --url of the service (or ASSAY_URL)")
    found: dict[str, Any] = {}
    try:
        for file in options.key:
            data = _read(Path(file))[:MAX_KEY_BYTES]
            if data.lstrip().startswith(b"{"):
                found |= keys.public_keys(KeySet.model_validate_json(data))
            else:
                key = keys.public_from_pem(data)
                found[keys.key_id(key)] = key
    except ValidationError:
        raise UsageError(f"{file}: this is no JSON Web Key Set of an Assay service") from None
    except keys.BadKey as error:
        raise UsageError(f"{file}: {error}; allowed: a public key in PEM, or a JSON Web Key Set") from None
    if url:
        with connected(argparse.Namespace(url=url)) as client:
            found |= keys.public_keys(client.signing_keys())
    return found


def _opened(raw: bytes, trusted: dict[str, Any]) -> Signed | str:
    from assay.service.signing import verify

    try:
        return verify.opened(raw, trusted)
    except verify.BadSignature as error:
        return str(error)


def _is_envelope(file: Path) -> bool:
    if file.name == SIGNATURE_FILE:
        return True
    if file.suffix != ".json":
        return False
    try:
        content = json.loads(_read(file))
    except (ValueError, RecursionError):
        return False
    return isinstance(content, dict) and "payloadType" in content


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None


def _say(text: str) -> None:
    say(output.printable(text))
