"""CSV and TSV files: every row is read, or the line that is wrong is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.workers.data.document_table import document_table
from assay.workers.data.formats.dataset import CorruptData
from assay.workers.data.formats.delimited import header_of, read_delimited, typed
from assay.workers.data.text_table import text_table

# As GLUE writes TSV: a text may begin with a double quote.
GLUE = [
    ("Good film", 1),
    ('"Awful, he said.', 0),
    ("The plot is thin", 0),
    ('A "classic" they say', 1),
    ("bad", 0),
    ('"Quoted whole"', 1),
    ("weak end", 0),
    ("nice", 1),
]


def write(root: Path, name: str, content: str | bytes) -> Path:
    path = root / "d" / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def table(rows: list[tuple[str, int]], delimiter: str = "\t", end: str = "\n") -> str:
    lines = [f"text{delimiter}label", *(f"{text}{delimiter}{label}" for text, label in rows)]
    return end.join(lines) + end


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_tsv_text_that_begins_with_a_quote_swallows_no_row(tmp_path: Path, end: str, mark: str) -> None:
    write(tmp_path, "test.tsv", mark + table(GLUE, end=end))
    data = text_table(tmp_path, "test", folder="d")
    assert list(data.sentences) == [text for text, _ in GLUE]
    assert data.labels.tolist() == [label for _, label in GLUE]
    assert data.files_read == [{"file": "test.tsv", "rows": 8, "lines": 9}]


def test_a_tsv_file_is_quoted_on_request_and_then_the_line_of_the_open_quote_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, "test.tsv", table(GLUE))
    with pytest.raises(CorruptData, match=r"test\.tsv line 5: .*the row begins in line 3.*\"none\""):
        text_table(tmp_path, "test", folder="d", quoting="double")
    path.write_text('text\tlabel\n"a ""b"""\t1\nc\t0\n')
    data = text_table(tmp_path, "test", folder="d", quoting="double")
    assert list(data.sentences) == ['a "b"', "c"]
    path.write_text('text\tlabel\n"a\t1\nb\t0\nc"\t1\nd\t0\n')
    with pytest.raises(CorruptData, match=r"test\.tsv line 2: .*the rows of 3 lines"):
        text_table(tmp_path, "test", folder="d", quoting="double")


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        ('a,1\n"b,0\nc,1\nd,0\n', r"line 3: a double quote is opened and never closed"),
        ('a,1\n"b,0\nc "d",1\n', r"line 4: .*goes on behind its closing quote \(the row begins in line 3\)"),
        ('a,1\nx,0\n"b,0\nc,1\nd",0\ne,1\n', r"line 4: .*the rows of 3 lines"),
        ("a,1\nb\n", r"line 3 has 1 cell, the first line names 2 columns"),
        ("a,1\nb,c,0\n", r"line 3 has 3 cells, .*must be in double quotes"),
        ("a,1,\nb,0,\n", r"line 2 has 3 cells \(the last is empty: the line ends with the delimiter\)"),
        ('"a,\nb",1\n\nc,d,0\n', r"line 5 has 3 cells"),
    ],
)
def test_the_line_of_a_wrong_row_is_named(tmp_path: Path, rows: str, line: str) -> None:
    write(tmp_path, "test.csv", "text,label\n" + rows)
    with pytest.raises(CorruptData, match=rf"test\.csv {line}"):
        text_table(tmp_path, "test", folder="d")


def test_texts_of_several_lines_with_commas_are_read(tmp_path: Path) -> None:
    """A line of a text alone has as many cells as a row, and no label of the column."""
    text = "First, fine\nsecond, too"
    write(tmp_path, "test.csv", f'text,label\n"{text}",1\nbad,0\n"{text}",0\ngood,1\n')
    data = text_table(tmp_path, "test", folder="d")
    assert list(data.sentences) == [text, "bad", text, "good"]
    assert data.files_read == [{"file": "test.csv", "rows": 4, "lines": 7}]


@pytest.mark.parametrize("delimiter", [";", "|", "\t"])
def test_another_delimiter_is_named(tmp_path: Path, delimiter: str) -> None:
    write(tmp_path, "test.csv", table(GLUE[:1], delimiter))
    shown = "tabs" if delimiter == "\t" else rf"\{delimiter}"
    with pytest.raises(CorruptData, match=rf"is separated by {shown}, a \.csv file is by ,: save it with ,"):
        text_table(tmp_path, "test", folder="d")
    write(tmp_path, "test.csv", table(GLUE[:1], delimiter).replace("text", '"text"'))
    with pytest.raises(CorruptData, match=rf"is separated by {shown}"):
        text_table(tmp_path, "test", folder="d")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"text,label\ncaf\xe9 good,1\nbad,0\n", r"is not UTF-8 \(line 2: byte 0xe9\)"),
        ("text,label\na,1\nb,0\n".encode("utf-16"), "is UTF-16: save it as UTF-8"),
        ("text,label\na,1\nb,0\n".encode("utf-16-le"), r"has a NUL character \(line 1\)"),
        (b"text,label\na,1\nb\0,0\n", r"has a NUL character \(line 3\)"),
    ],
)
@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl"])
def test_what_is_no_utf8_is_named_with_its_line(
    tmp_path: Path, suffix: str, content: bytes, message: str
) -> None:
    write(tmp_path, f"test.{suffix}", content)
    with pytest.raises(CorruptData, match=message):
        text_table(tmp_path, "test", folder="d")


def test_a_column_that_is_there_twice_is_refused_where_it_is_read(tmp_path: Path) -> None:
    write(tmp_path, "test.csv", "text,label,text\na,1,b\nc,0,d\n")
    with pytest.raises(CorruptData, match="has 2 columns 'text'; one is wanted"):
        text_table(tmp_path, "test", folder="d")
    write(tmp_path, "test.csv", "text,label,x,x\na,1,b,b\nc,0,d,d\n")
    assert text_table(tmp_path, "test", folder="d").labels.tolist() == [1, 0]


@pytest.mark.parametrize("labels", [["1", ""], ["pos", ""], ["1", "NA"]])
def test_a_row_without_a_label_is_refused(tmp_path: Path, labels: list[str]) -> None:
    write(tmp_path, "test.csv", "text,label\n" + "".join(f"a,{one}\n" for one in [*labels, labels[0], "0"]))
    with pytest.raises(CorruptData, match=r"row 1 .*column 'label' is .*none of the \d classes"):
        text_table(tmp_path, "test", folder="d")


def test_texts_of_numbers_are_texts_and_long_ones_are_read(tmp_path: Path) -> None:
    long = "word " * 100_000
    write(tmp_path, "test.csv", f"text,label\n007,1\n{long},0\n,1\n")
    data = text_table(tmp_path, "test", folder="d")
    assert list(data.sentences) == ["007", long, ""]
    write(tmp_path, "test.csv", "text\n12\n34\n")
    assert [document_table(tmp_path, "test", folder="d").text(n) for n in range(2)] == ["12\n\n", "34\n\n"]


def test_columns_have_the_type_of_all_their_cells() -> None:
    assert typed(["1", "+2", "", "NA"]) == [1, 2, None, None]
    assert typed(["true", "FALSE"]) == [True, False]
    assert typed(["1", "2.5"]) == [1.0, 2.5]
    assert typed(["1", "x"]) == ["1", "x"]
    assert typed(["12345678901234567890", "x"]) == ["12345678901234567890", "x"]
    assert typed(["", ""]) == ["", ""]


def test_empty_lines_are_no_rows_and_all_columns_can_be_read(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", '\na,b\n\n1,"2\n3"\n\n')
    found = read_delimited(path, None)
    assert (found.columns, found.rows, found.lines) == ({"a": ["1"], "b": ["2\n3"]}, 1, 5)
    assert header_of(path) == ["a", "b"]
    assert header_of(write(tmp_path, "b.csv", "")) == []
