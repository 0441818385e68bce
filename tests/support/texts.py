"""Tiny files of text in the layouts of WikiText, SST and IMDB."""

from __future__ import annotations

from pathlib import Path

ARTICLE = " \n = {title} = \n \n {words} \n = = Section = = \n more words \n"


def write_wikitext(
    root: Path, folder: str = "wikitext-103", train: str = "a b c", test: str = "a b d"
) -> Path:
    """Three parts of two articles each, with these words; returns the folder."""
    where = root / folder
    where.mkdir(parents=True, exist_ok=True)
    for part, words in {"train": train, "valid": test, "test": test}.items():
        text = "".join(ARTICLE.format(title=title, words=words) for title in ("One", "Two"))
        (where / f"wiki.{part}.tokens").write_text(text, encoding="utf-8")
    return where


def write_sst(root: Path, folder: str = "sst", first: str = "a good film", label: int = 1) -> Path:
    """Two and five classes, three sentences in each part; returns the folder."""
    where = root / folder
    where.mkdir(parents=True, exist_ok=True)
    for part in ("train", "dev", "test"):
        rows = [(first, label), ("a bad  film .", 0), ("good , good", 1)]
        (where / f"sst2.{part}.tsv").write_text("".join(f"{text}\t{of}\n" for text, of in rows))
        (where / f"sst5.{part}.txt").write_text("".join(f"{4 * of} {text}\n" for text, of in rows))
    return where


def write_imdb(root: Path, folder: str = "aclImdb", first: str = "A good film.<br />It's fine!") -> Path:
    """Two reviews of each class in each part; returns the folder."""
    where = root / folder
    for part in ("train", "test"):
        for name in ("neg", "pos"):
            (where / part / name).mkdir(parents=True, exist_ok=True)
            (where / part / name / "0_1.txt").write_text(f"{first} {name}", encoding="utf-8")
            (where / part / name / "1_2.txt").write_text("bad film, bad film", encoding="utf-8")
    return where
