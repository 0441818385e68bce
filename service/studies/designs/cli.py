"""The actions of `assay studies` about registered designs."""

from __future__ import annotations

import re
import sys

from assay.service.cli import commands, output
from assay.service.cli.arguments import Subcommands, add_remote, json_argument
from assay.service.cli.commands import Options
from assay.service.cli.spec_kinds import check_kind
from assay.service.fitted_text import tell
from assay.service.studies.designs.wire import PATTERN, PREFIX, StudyFixing
from assay.service.studies.ready.ready_studies import read_study

DIGEST = PREFIX + "0a1b2c3d" * 8


def add_actions(actions: Subcommands) -> None:
    """Adds `register` and `designs`."""
    summary = "store the design of a study with its digest and the time, before it runs"
    parser = add_remote(actions, "register", register, summary, "docs/studies.study.json")
    parser.add_argument(
        "file",
        metavar="FILE",
        help="the study as JSON or YAML; - reads standard input; or a ready study's name",
    )
    json_argument(parser)
    summary = "list registered designs, or print the canonical JSON of a design"
    parser = add_remote(actions, "designs", designs, summary, "", f"{DIGEST} | sha256sum")
    parser.add_argument("digest", metavar="DIGEST", nargs="?", help="digest of a design")
    json_argument(parser)


def is_digest(text: str) -> bool:
    """Whether a text names a design and no file or study."""
    return re.match(PATTERN, text) is not None


def register(options: Options) -> int:
    """Registers the design of a study; prints its digest."""
    spec = read_study(options.file)
    with spec.pointing():
        check_kind(spec.value, "study", options.file)
    with commands.connected(options) as client, spec.pointing():
        found = client.register_study(spec.body)
    output.show(found.model_dump(mode="json"), PREFIX + found.digest, as_json=options.json)
    tell(f"registered at {found.registered_at}; run it with: assay studies run {PREFIX}{found.digest}")
    for text in found.earlier:
        tell(f"its results will say that it was fixed after the first run: {output.printable(text)}")
    return commands.OK


def designs(options: Options) -> int:
    """Lists registered designs, or prints the bytes that a digest is of."""
    with commands.connected(options) as client:
        if options.digest is None:
            listed = list(client.designs())
            rows = [
                (PREFIX + one.digest, one.registered_at, str(len(one.studies)), one.name) for one in listed
            ]
            table = output.table(("DIGEST", "REGISTERED", "STUDIES", "NAME"), rows)
            output.show([one.model_dump(mode="json") for one in listed], table, as_json=options.json)
        elif options.json:
            found = client.design(options.digest)
            output.show(found.model_dump(mode="json"), "", as_json=True)
        else:
            sys.stdout.write(client.canonical_design(options.digest).decode())
    return commands.OK


def tell_fixing(fixing: StudyFixing | None) -> None:
    """Says of a posted study that its design was registered, or what it gave up."""
    if fixing is not None and (fixing.registered_at is not None or fixing.remarks):
        tell(f"design {output.printable(fixing.text)}")
