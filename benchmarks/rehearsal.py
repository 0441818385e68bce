"""The papers' image tables in small, on images of ImageNet: `python -m benchmarks.rehearsal --data ROOT`.

Every model of the tables at full size, with random weights, makes one batch of each evaluation of
`rpc_table1` and `rpc_table2` by the workers' code, and prints a line each: model, evaluation, seconds. ROOT
has imagenet/val/WNID/IMAGE of all 1000 classes. The same images, under their own names, stand in for
ImageNet-R, -A and -O, and for the stored files of ImageNet-C at severity 3; the 19 corruptions are also
generated at severity 3.

Cut, as whole they take a CPU hours: SPSA to a step of 8 directions, Carlini-Wagner to 5 iterations a search,
AutoAttack to APGD-CE and 50 queries of Square. After `clean` the labels are the model's own answers: random
weights are right on one image of a thousand, and AutoAttack skips the others.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from assay.attacks.corruptions.imaging.imagenet_c import FIFTEEN
from assay.service.catalog.catalog import load
from assay.service.catalog.class_lists import class_list
from assay.service.studies.ready.ready_studies import ready_studies
from assay.service.submission.validate import validate
from assay.workers.jobs import evaluate, plan
from assay.workers.jobs.session import Session, configure

TABLES = ("rpc_table1", "rpc_table2")
ALL = {"rpc_layers": "all", "iterations": 2, "regularization": 3}
# The models of the papers' image tables that are no arms of the ready studies.
OTHERS: dict[str, dict[str, Any]] = {
    "SymViT-base": {"name": "symvit_base"},
    "RPC-SymViT-base (2iter/all-layer)": {"name": "rpc_symvit_base", "params": ALL},
    "ViT": {"name": "deit_tiny"},
    "RPC-AsymViT (4iter/layer1)": {"name": "rpc_asymvit_tiny"},
    "RPC-AsymViT (Sym/Asym)": {"name": "rpc_asymvit_tiny", "params": {"rpc_form": "rpc"}},
    "FAN-tiny": {"name": "fan_vit_tiny"},
    "RPC-FAN-tiny (4iter/layer1)": {"name": "rpc_fan_vit_tiny"},
    "Scaled attention S": {"name": "vit", "params": {"attention": {"name": "scaled_learned"}}},
    "Scaled attention alpha x Asym": {"name": "vit", "params": {"attention": {"name": "scaled_alpha"}}},
    "DeiT-Small/16": {"name": "deit_small"},
    "Primal.+DeiT-Small/16": {"name": "primal_plus_deit_small"},
    "DeiT with 4 heads": {"name": "deit_tiny_4heads"},
    "DeiT with Conv2D": {
        "name": "deit_tiny_4heads",
        "params": {"attention": {"name": "conv2d_attention", "params": {"size": 2}}},
    },
    "DeiT with BN": {"name": "deit_tiny_4heads", "params": {"attention": {"name": "attention_bn"}}},
    "DeiT with SH": {"name": "deit_tiny_4heads", "params": {"attention": {"name": "attention_sh"}}},
    "DeiT with BN and SH": {"name": "deit_tiny_4heads", "params": {"attention": {"name": "attention_bn_sh"}}},
}
SEVERITY = 3
CUTS: dict[str, dict[str, Any]] = {
    "spsa": {"steps": 1, "samples": 8},
    "carlini_wagner": {"iterations": 5},
    "autoattack": {"version": "custom", "stages": ["apgd_ce", "square"], "queries": 50},
    "corruptions": {"severities": [SEVERITY]},
}


def models() -> dict[str, dict[str, Any]]:
    """The models of the tables by name."""
    arms = [arm for table in TABLES for arm in ready_studies()[table]["arms"]]
    return {arm["name"]: arm["model"] for arm in arms} | OTHERS


def evaluations(table: str) -> list[dict[str, Any]]:
    """The evaluations of a table, cut; with the first table the 19 generated corruptions."""
    found = load().find("suite", table).evaluations or []
    cut = [{**one, "params": one.get("params", {}) | CUTS.get(one["name"], {})} for one in found]
    every = {"corruptions": [*load().names("corruption")], **CUTS["corruptions"]}
    return [*cut, {"name": "corruptions", "params": every}] if table == TABLES[0] else cut


def write_trees(source: Path, root: Path) -> None:
    """The folders of the tables' data sets, links to the images of `source`."""
    shutil.copytree(source, root / "imagenet", copy_function=os.link)
    for name in ("imagenet_r", "imagenet_a", "imagenet_o"):
        for wnid in class_list(name):
            folder = root / name.replace("_", "-") / wnid
            shutil.copytree(source / "val" / wnid, folder, copy_function=os.link)
    for corruption in FIFTEEN:
        folder = root / "imagenet-c" / corruption / str(SEVERITY)
        shutil.copytree(source / "val", folder, copy_function=os.link)


def job_of(model: dict[str, Any], table: str, examples: int) -> dict[str, Any]:
    """The job that asks a model for a table's evaluations."""
    return {
        "kind": "evaluate",
        "model": model,
        "data": {"name": "imagenet"},
        "protocol": ready_studies()[table].get("protocol", "pixel"),
        "limit": examples,
        "evaluations": evaluations(table),
        "execution": {"device": "cpu", "batch_size": examples},
    }


def rehearse(
    model: dict[str, Any], table: str, examples: int, folder: Path
) -> Iterator[tuple[str, float, str]]:
    """Each evaluation of a table with its seconds and its error, empty without any."""
    spec: Any = validate(load(), job_of(model, table, examples)).spec
    request: Any = {"spec": spec, "weights": None, "folder": str(folder)}
    session = Session()
    made = plan.run(request | {"shard_seconds": 1e9}, session, lambda _: None)["plan"]
    for shard in made["shards"]:
        item = spec["evaluations"][shard["evaluation"]]
        where = "" if item["data"] is None else f" on {item['data']['name']}"
        begun, error = time.perf_counter(), ""
        try:
            found = evaluate.run(request | {"plan": made} | shard, session, lambda _: None)
            if item["name"] == "clean":
                _answer_as_labels(session.data(spec["data"], "test"), found["columns"])
        except Exception:
            error = traceback.format_exc()
        yield item["name"] + where, time.perf_counter() - begun, error


def _answer_as_labels(data: Any, columns: Any) -> None:
    places = {identifier: place for place, identifier in enumerate(data.ids)}
    for identifier, answer in zip(columns["id"], columns["prediction"], strict=True):
        data.labels[places[identifier]] = int(answer)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the lines; 1 where an evaluation failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, metavar="ROOT", help="folder of imagenet/val")
    parser.add_argument("--models", nargs="+", choices=list(models()), metavar="MODEL", help="default: all")
    parser.add_argument("--examples", type=int, default=2, help="images of the batch (default: 2)")
    options = parser.parse_args(arguments)
    configure(1)
    failed = 0
    with tempfile.TemporaryDirectory(dir=options.data) as name:
        root = Path(name)
        write_trees(options.data / "imagenet", root)
        os.environ["ASSAY_DATA_ROOT"] = str(root)
        for model in options.models or models():
            for table in TABLES:
                for evaluation, seconds, error in rehearse(models()[model], table, options.examples, root):
                    failed += bool(error)
                    told = f"FAILED\n{error}" if error else f"{seconds:.1f} s"
                    sys.stdout.write(f"{model}: {table}, {evaluation}: {told}\n")
                    sys.stdout.flush()
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
