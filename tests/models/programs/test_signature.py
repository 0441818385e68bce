"""Programs for texts: what they take and give, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.models.exported import exported
from assay.models.programs.program import NOTES, TextProgram, load_program
from assay.models.programs.reading import UnsafeProgram
from assay.service.files.program_file import open_program
from tests.support.archives import GRAPH, archive, entries_of
from tests.support.programs import (
    CLASSES,
    TEXT_LENGTH,
    TEXT_WORDS,
    Words,
    edited,
    export_inputs,
    export_texts,
    load,
)

IDS = torch.tensor([[3, 1, 4], [1, 5, 0], [2, 0, 0]])
FULL = torch.ones(2, TEXT_LENGTH, dtype=torch.int64)


def test_a_text_is_padded_and_the_answer_cut(tmp_path: Path) -> None:
    program = load(export_texts(tmp_path, predicts=True))
    signature = program.signature
    assert (signature.task, signature.channels, signature.classes) == ("language", TEXT_WORDS, TEXT_WORDS)
    assert (signature.length, signature.image_size, signature.mask) == (TEXT_LENGTH, None, None)
    model = exported(TEXT_WORDS, TEXT_WORDS, program=program)
    assert isinstance(model, TextProgram)
    assert model.sequence_length == TEXT_LENGTH
    net = Words(lambda net, ids: net.predict(net.embedding(ids))).eval()
    for ids in (IDS, IDS[:1], IDS[:, :1]):
        torch.testing.assert_close(model(ids), net(ids), rtol=0, atol=1e-6)


def test_other_classes_and_words_are_refused(tmp_path: Path) -> None:
    program = load(export_texts(tmp_path))
    assert program.signature.task == "sequence"
    with pytest.raises(ValueError, match="the exported program has 9 words, the data 30522"):
        exported(CLASSES, 30522, program=program)
    with pytest.raises(ValueError, match="the exported program has 4 classes, the data 2"):
        exported(2, TEXT_WORDS, program=program)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64])
def test_the_mask_has_the_first_token_and_all_that_are_no_padding(dtype: torch.dtype, tmp_path: Path) -> None:
    def seen(net: Words, ids: Tensor, mask: Tensor) -> Tensor:
        return net.embedding(ids).sum(-1)[:, :1] * 0 + mask.float()

    path = export_inputs(Words(seen), tmp_path / "masked.pt2", FULL, FULL.clone().to(dtype))
    program = load(path)
    assert program.signature.mask == dtype
    found = TextProgram(program)(torch.tensor([[0, 0, 0], [3, 0, 2]]))
    assert found.tolist() == [[1, 0, 0, 0, 0], [1, 0, 1, 0, 0]]


def test_batches_beyond_the_exported_limit_are_cut(tmp_path: Path) -> None:
    limited = {0: torch.export.Dim("batch", min=1, max=2)}

    def plain(net: Words, ids: Tensor, mask: Tensor) -> Tensor:
        logits: Tensor = net.head((net.embedding(ids) * mask[..., None]).sum(1))
        return logits

    path = export_inputs(Words(plain), tmp_path / "net.pt2", FULL, FULL.clone(), batch=limited)
    program = load(path)
    assert program.signature.largest_batch == 2
    found = TextProgram(program)(IDS)
    assert torch.equal(found[2:], TextProgram(program)(IDS[2:]))


def test_words_are_the_rows_of_the_smallest_table_that_takes_the_ids(tmp_path: Path) -> None:
    def twice(net: Words, ids: Tensor) -> Tensor:
        same = ids.clone().view(-1, TEXT_LENGTH)[:, :3].to(torch.int32)
        few = net.head.weight[same.long()]  # 4 rows
        logits: Tensor = net.head(net.embedding(ids).mean(1) + few.mean(1))
        return logits

    assert load(export_texts(tmp_path, answer=twice)).signature.channels == CLASSES


def _counts(net: Words, ids: Tensor) -> Tensor:
    logits: Tensor = net.head(ids[:, :1].float().expand(-1, 6))
    return logits


def _short(net: Words, ids: Tensor) -> Tensor:
    logits: Tensor = net.predict(net.embedding(ids))[:, 1:]
    return logits


def _other_words(net: Words, ids: Tensor) -> Tensor:
    logits: Tensor = net.head(net.embedding(ids))
    return logits


def _summed(net: Words, ids: Tensor) -> Tensor:
    logits: Tensor = net.head(net.embedding(ids)).sum((1, 2))
    return logits


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (_counts, "its ids are looked up in none of its tables"),
        (_short, "(s[0-9]+, 4, 9); logits of texts are"),
        (_other_words, "(s[0-9]+, 5, 4); logits of texts are .* or .*, 5, 9) for a language model"),
        (_summed, "its result has the shape (s[0-9]+); logits of texts are"),
    ],
)
def test_what_is_no_model_of_texts_is_refused(
    answer: Callable[..., Any], reason: str, tmp_path: Path
) -> None:
    pattern = reason.replace("(s[", r"\(s[").replace(")", r"\)")
    with pytest.raises(UnsafeProgram, match=pattern):
        load(export_texts(tmp_path, answer=answer))


def test_inputs_that_are_no_ids_and_mask_are_refused(tmp_path: Path) -> None:
    def plain(net: Words, ids: Tensor, *more: Tensor) -> Tensor:
        extra = sum((one.float().mean() for one in more), torch.zeros(()))
        logits: Tensor = net.head(net.embedding(ids.long()).mean(1)) + extra
        return logits

    path = tmp_path / "net.pt2"
    for inputs, reason in (
        ((FULL, FULL.float()), "type number 7; a mask of the tokens is bool or int64"),
        ((FULL, FULL[:, :2]), r"\(s[0-9]+, 2\) and the type number 5; a mask"),
        ((FULL, FULL, FULL), "it takes 3 tensors; a program takes one: images .* or ids"),
        ((FULL.int(),), "it takes images of the type int32: .*; ids of tokens are int64"),
    ):
        with pytest.raises(UnsafeProgram, match=reason):
            load(export_inputs(Words(plain), path, *inputs))
    with pytest.raises(UnsafeProgram, match="it takes batches of exactly 2; give it a dynamic batch"):
        load(export_inputs(Words(plain), path, FULL, batch=None))
    export_inputs(Words(plain), path, FULL)

    def dynamic(content: Any) -> None:
        for value in content["graph_module"]["graph"]["tensor_values"].values():
            if len(value["sizes"]) == 2 and value["dtype"] == 5:
                value["sizes"][1] = value["sizes"][0]

    with pytest.raises(UnsafeProgram, match=r"it takes texts of s[0-9]+ tokens; allowed: one length"):
        load(edited(path, tmp_path / "dynamic.pt2", dynamic))


def test_an_embedding_that_claims_more_rows_than_it_has_does_not_read_beyond_them(tmp_path: Path) -> None:
    def claim(content: Any) -> None:
        for value in content["graph_module"]["graph"]["tensor_values"].values():
            if value["sizes"] == [{"as_int": TEXT_WORDS}, {"as_int": 6}]:
                value["sizes"][0] = {"as_int": 10**6}

    path = edited(export_texts(tmp_path), tmp_path / "claims.pt2", claim)
    assert load(path).signature.channels == TEXT_WORDS


@pytest.mark.parametrize(
    ("notes", "reason"),
    [
        (b'{"vocabulary": "0"}', "allowed: a sha256 in 64 hexadecimal digits"),
        (b'{"vocabulary": 1}', "'vocabulary' must be str"),
        (b"no JSON", "its extra/assay.json is no JSON"),
        (b'{"class_names": "abcd"}', "'class_names' must be list"),
        (b'{"class_names": ["a", "b", "c", 1]}', "'class_names' must be str"),
        (b'{"class_names": ["a", "b", "c"]}', r"names 3 classes \(3 different ones\), and it has 4 logits"),
        (b'{"class_names": ["a", "b", "c", "a"]}', r"names 4 classes \(3 different ones\)"),
        (b'{"class_names": ["a", "b", "c", ""]}', "allowed: 1 to 200 printable characters"),
        (b'{"class_names": ["a", "b", "c", "\\ud800"]}', "allowed: 1 to 200 printable characters"),
    ],
)
def test_notes_are_read_as_data(notes: bytes, reason: str, tmp_path: Path) -> None:
    path = noted(export_texts(tmp_path), notes)
    with pytest.raises(UnsafeProgram, match=reason):
        read_noted(path)


def test_notes_state_the_vocabulary(tmp_path: Path) -> None:
    stated = json.dumps({"vocabulary": "a" * 64, "other": [1]}).encode()
    assert read_noted(noted(export_texts(tmp_path), stated)).vocabulary == "a" * 64
    assert load(export_texts(tmp_path)).vocabulary is None


def test_notes_state_the_names_of_the_logits(tmp_path: Path) -> None:
    stated = json.dumps({"class_names": ["d", "a", "ç", "b c"]}).encode()
    found = read_noted(noted(export_texts(tmp_path), stated))
    assert (found.class_names, found.vocabulary) == (("d", "a", "ç", "b c"), None)
    assert load(export_texts(tmp_path)).class_names is None


def noted(path: Path, notes: bytes) -> Path:
    entries = entries_of(path)
    root = GRAPH.partition("/")[0]
    name = NOTES if GRAPH.startswith("models/") else f"{root}/{NOTES}"
    path.write_bytes(archive({**entries, name: notes}))
    return path


def read_noted(path: Path) -> Any:
    file = open_program(path)
    with file.reading() as read:
        return load_program(read, file.graph, file.model, notes=NOTES in file.sizes)
