"""`assay checkpoints` against the application."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from assay.service.cli import commands, main
from assay.service.client import AssayClient
from assay.service.client import transport as transport_module
from assay.service.contract.errors import InvalidState, NotFound
from assay.service.store.fleet.fair_queue import CHECKS
from tests.support.archives import archive
from tests.support.tensors import tensor_file

VERDICT = {"layout": "timm", "classes": 10, "channels": 1}


@pytest.fixture
def run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, transport: Any, tmp_path: Path
) -> Any:
    def run(*arguments: str) -> tuple[int, str, str]:
        code = main.main(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(commands, "AssayClient", lambda url: AssayClient(url, transport=transport))
    (tmp_path / "w.safetensors").write_bytes(tensor_file())
    return run


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch, app_store: Any) -> Any:
    """While the client waits, a worker gives this verdict."""

    def checked(error: str | None = None, **verdict: Any) -> None:
        def check(seconds: float) -> None:
            claim = app_store.shards.claim("worker", [CHECKS], lease_seconds=60)
            app_store.checkpoints.checked(claim, VERDICT | verdict, error)

        monkeypatch.setattr(transport_module.time, "sleep", check)

    return checked


def test_upload_waits_for_the_check(run: Any, checked: Any) -> None:
    checked()
    code, out, _ = run("checkpoints", "upload", "ours", "w.safetensors", "--model", "tiny_vit")
    assert code == 0
    assert out.startswith("ours ready\nmodel   tiny_vit")
    assert "classes 10, channels 1, names as in timm" in out
    code, out, _ = run("checkpoints", "list")
    assert [line.split()[:3] for line in out.splitlines()][1] == ["ours", "ready", "tiny_vit"]
    assert json.loads(run("checkpoints", "show", "ours", "--json")[1])["state"] == "ready"
    assert run("checkpoints", "delete", "ours")[0] == 0
    assert run("checkpoints", "list")[1] == "no checkpoints\n"


def test_a_program_needs_no_model_and_is_described(run: Any, checked: Any, tmp_path: Path) -> None:
    (tmp_path / "net.pt2").write_bytes(archive())
    facts = {"image_size": 32, "dtypes": ["float32", "bfloat16"], "random": True}
    checked(layout="program", program=facts)
    code, out, _ = run("checkpoints", "upload", "mine", "net.pt2")
    assert code == 0
    assert out.startswith("mine ready\nmodel   exported\n")
    wanted = (
        "program for classification, 10 classes, 1 channels, 32 x 32 pixels; runs in float32, bfloat16;"
        " it draws random numbers"
    )
    assert wanted in out
    facts = {"image_size": None, "length": 128, "dtypes": ["float32"], "random": False, "gradients": False}
    (tmp_path / "text.pt2").write_bytes(archive())
    checked(layout="program", program=facts | {"task": "sequence"}, channels=50, classes=2)
    code, out, _ = run("checkpoints", "upload", "text", "text.pt2")
    assert code == 0
    wanted = "program for sequence, 2 classes, 50 words, 128 tokens, vocabulary not stated; runs in float32"
    assert wanted in out
    assert "gradients" not in out


def test_upload_states_how_the_file_is_read(run: Any, checked: Any) -> None:
    checked(left_out=["encoder.head.bias"], resized=["pos_embed"])
    stated = ("--normalization", "inception", "--positions", "bilinear")
    code, out, _ = run("checkpoints", "upload", "ours", "w.safetensors", "--model", "tiny_vit", *stated)
    assert code == 0
    assert "normalization mean [0.5, 0.5, 0.5], std [0.5, 0.5, 0.5]" in out
    assert "left out   encoder.head.bias" in out
    assert "resized    pos_embed (bilinear)" in out


def test_upload_says_what_was_not_stated(run: Any, checked: Any) -> None:
    checked()
    out = run("checkpoints", "upload", "ours", "w.safetensors", "--model", "tiny_vit")[1]
    assert "normalization not stated: taken from the job's data, with a warning" in out
    checked(layout="assay")
    out = run("checkpoints", "upload", "own", "w.safetensors", "--model", "tiny_vit")[1]
    assert "normalization as in the file" in out


def test_a_rejected_upload_is_1_and_lists_the_keys(run: Any, checked: Any) -> None:
    shapes = [{"key": "head.weight", "given": [2, 3], "wanted": [2, 4]}]
    checked("it does not fit", missing=["norm.bias"], unexpected=["tail\x1b"], shapes=shapes)
    code, out, _ = run("checkpoints", "upload", "ours", "w.safetensors", "--model", "tiny_vit")
    assert code == 1
    assert "bad_weights: it does not fit" in out
    assert "missing    norm.bias" in out
    assert "unexpected tail\\x1b" in out
    assert "shape      head.weight: [2, 3], wanted [2, 4]" in out


def test_of_a_long_list_of_keys_the_first_are_shown(run: Any, checked: Any) -> None:
    checked("it does not fit", missing=[f"blocks.{number}.bias" for number in range(25)])
    out = run("checkpoints", "upload", "ours", "w.safetensors", "--model", "tiny_vit")[1]
    assert out.count("missing    blocks.") == 10
    assert "missing    and 15 more (--json lists them)" in out


def test_upload_need_not_wait(run: Any) -> None:
    arguments = ("upload", "ours", "w.safetensors", "--model", '{"name": "tiny_vit"}', "--no-wait", "--json")
    code, out, _ = run("checkpoints", *arguments)
    assert (code, json.loads(out)["state"]) == (0, "checking")


@pytest.mark.parametrize("file", ["nope", "."])
def test_a_file_that_is_none_is_2(run: Any, file: str) -> None:
    code, _, err = run("checkpoints", "upload", "ours", file)
    assert code == 2
    assert "it is no file" in err


def test_the_client_raises_the_services_errors(transport: Any, tmp_path: Path) -> None:
    file = tmp_path / "w"
    file.write_bytes(tensor_file())
    with AssayClient(transport=transport) as client:
        found = client.upload_checkpoint(
            "ours", file, model={"name": "tiny_vit", "params": {"width": 16, "heads": 2}}
        )
        assert found.model["params"]["width"] == 16
        assert [item.name for item in client.checkpoints()] == ["ours"]
        with pytest.raises(InvalidState):
            client.upload_checkpoint("ours", str(file), model="other_vit")
        with pytest.raises(TimeoutError):
            client.wait_for_checkpoint("ours", timeout_seconds=-1)
        client.delete_checkpoint("ours")
        with pytest.raises(NotFound):
            client.checkpoint("ours")


def test_import_pickle_becomes_the_worker_that_converts(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[list[str]] = []
    monkeypatch.setattr(os, "execve", lambda path, argv, env: called.append(argv))
    main.main(["import-pickle", "a.pth", "b.safetensors", "--key", "model_ema"])
    module = [sys.executable, "-P", "-m", "assay.workers.import_pickle"]
    assert called == [[*module, "a.pth", "b.safetensors", "--key", "model_ema"]]


def test_import_onnx_becomes_the_worker_that_converts(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[list[str]] = []
    monkeypatch.setattr(os, "execve", lambda path, argv, env: called.append(argv))
    given = ["a.onnx", "b.pt2", "--image-size", "32", "--task", "segmentation", "--mean", "0.5", "0.4", "0.3"]
    main.main(["import-onnx", *given])
    assert called == [[sys.executable, "-P", "-m", "assay.workers.import_onnx", *given]]
