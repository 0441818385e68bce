"""`assay pull`: pretrained weights into the weights folder, by a process of the workers' environment."""

from __future__ import annotations

import argparse
import json

from assay.service.cli.arguments import Subcommands, add
from assay.service.cli.commands import run_module
from assay.service.contract.extras import require
from assay.service.contract.pulled_weights import FORMS, VARIABLE, PullRequest


def add_pull(subcommands: Subcommands[argparse.ArgumentParser]) -> None:
    """Adds `pull`."""
    parser = add(
        subcommands,
        "pull",
        pull,
        "fetch pretrained weights, which jobs then read without a network",
        "assay pull timm:resnet50",
        "assay pull torchvision:vit_b_16 hf:google/vit-base-patch16-224",
        "assay pull hf:me/tiny --from ./tiny",
        "assay pull --list",
    )
    parser.add_argument("reference", nargs="*", metavar="REFERENCE", help=FORMS)
    parser.add_argument("--list", action="store_true", help="what is pulled; fetches nothing")
    parser.add_argument(
        "--verify", action="store_true", help="compare all files, or those named, with their hashes"
    )
    parser.add_argument("--json", action="store_true", help="with --list or --verify: JSON")
    parser.add_argument(
        "--from",
        dest="local",
        metavar="PATH",
        help="take them from this machine: for hf: a folder of save_pretrained, else the published file",
    )
    parser.add_argument(
        "--weights-root", metavar="DIR", help=f"the weights folder (default: {VARIABLE}, or the cache)"
    )


def pull(options: argparse.Namespace) -> int:
    """Replaces this process by the download; listing and verifying need no extra."""
    if not options.list and not options.verify:
        require("`assay pull`", "worker")
    return run_module("assay.workers.weights.pull", [json.dumps(request_of(options))], {})


def request_of(options: argparse.Namespace) -> PullRequest:
    """What the process of the workers' environment is asked to do."""
    return {
        "references": options.reference,
        "list": options.list,
        "verify": options.verify,
        "json": options.json,
        "local": options.local,
        "weights_root": options.weights_root,
    }
