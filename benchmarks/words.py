"""Speed of the word swap of language models against TextAttack's augmenter: `python -m benchmarks.words`.

    python -m benchmarks.words --textattack /tmp/textattack/bin/python

Ours swaps 250 000 words in 60 documents, in this process; the time is from lists of words to lists of words,
and the slowest turn counts. The augmenter swaps the same share of fewer words in its own environment
(`tests/support/textattack_reference.py` describes it); its import is not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from assay.attacks.words.fixed_word import fixed_word
from assay.attacks.words.search.stop_words import ENGLISH
from assay.attacks.words.search.word_swap import WordSwap

WORDS, DOCUMENTS = 250_000, 60
RATE = 0.05
AUGMENTER = """
import json, sys, time
from textattack.augmentation import Augmenter
from textattack.transformations.word_swaps import WordSwap

class Fixed(WordSwap):
    def _get_replacement_words(self, word):
        return ["AAA"]

augmenter = Augmenter(Fixed(), pct_words_to_swap=float(sys.argv[1]), transformations_per_example=1)
for count in map(int, sys.argv[2:]):
    text = " ".join(f"word{number % 977}" for number in range(count))
    start = time.perf_counter()
    (swapped,) = augmenter.augment(text)
    seconds = time.perf_counter() - start
    print(json.dumps([count, swapped.split().count("AAA"), seconds]), flush=True)
"""


def ours(turns: int) -> float:
    """Seconds for all documents, the slowest of the turns."""
    length = WORDS // DOCUMENTS + 1
    text = [f"word{number % 30_011}" if number % 9 else "," for number in range(WORDS)]
    documents = [text[start : start + length] for start in range(0, WORDS, length)]
    slowest = 0.0
    for _ in range(turns):
        start = time.perf_counter()
        swap = WordSwap(RATE, fixed_word(), seed=0)
        found = [swap(words, str(number)) for number, words in enumerate(documents)]
        slowest = max(slowest, time.perf_counter() - start)
        assert sum(len(one.words) for one in found) == WORDS
    return slowest


def main() -> None:
    """Print one line per size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--textattack", type=Path, help="Python of an environment with TextAttack")
    parser.add_argument("--sizes", type=int, nargs="+", default=[84, 168, 336])
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    sys.stdout.write(f"ours        {WORDS:>7} words  {ours(options.turns):8.3f} s\n")
    if options.textattack is None:
        return
    command = [str(options.textattack), "-c", AUGMENTER, str(RATE), *map(str, options.sizes)]
    with tempfile.TemporaryDirectory() as folder:
        stop_words = Path(folder) / "corpora" / "stopwords" / "english"  # otherwise it downloads them
        stop_words.parent.mkdir(parents=True)
        stop_words.write_text("\n".join(sorted(ENGLISH)))
        here = {**os.environ, "NLTK_DATA": folder}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=here)  # noqa: S603
    for line in filter(lambda line: line.startswith("["), done.stdout.splitlines()):
        count, swapped, seconds = json.loads(line)
        sys.stdout.write(f"TextAttack  {count:>7} words  {seconds:8.3f} s  ({swapped} swapped)\n")
    if done.returncode:
        sys.exit(done.stderr[-2000:])


if __name__ == "__main__":
    main()
