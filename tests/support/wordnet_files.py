"""A small WordNet, in WordNet's own format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

LETTER = {"noun": "n", "verb": "v", "adj": "a", "adv": "r"}
LEXNAMES = 45

SYNONYMS: Mapping[str, Sequence[str]] = {
    "noun": (
        "film movie picture motion_picture",
        "film celluloid",
        "story narrative tale",
        "actor player thespian",
        "mouse",
        "dog hound",
        "child kid youngster",
        "idea thought notion",
        "minute instant moment",
        "night dark",
        "director manager",
        "scene view",
        "heart centre",
        "job task chore",
        "city metropolis town",
    ),
    "verb": (
        "run race scamper",
        "love adore",
        "watch view see",
        "fall drop descend",
        "make create",
        "hate detest",
        "laugh express_joy",
        "go travel move",
        "work labour toil",
        "end finish stop",
        "write pen compose",
        "dance trip",
    ),
    "adj": (
        "good decent solid",
        "bad awful terrible",
        "funny amusing comical",
        "slow sluggish dull",
        "big large great",
        "old aged",
        "galore(ip) abounding",
        "warm cordial",
        "quiet still",
        "strange odd peculiar",
    ),
    "adv": ("slowly tardily", "well good", "never ne'er", "really truly genuinely"),
}
IRREGULAR: Mapping[str, Mapping[str, str]] = {
    "noun": {"mice": "mouse", "children": "child"},
    "verb": {"ran": "run", "fell": "fall", "made": "make", "wrote": "write", "went": "go"},
    "adj": {"better": "good", "worse": "bad"},
    "adv": {"better": "well"},
}


def write_wordnet(folder: Path) -> Path:
    """Write the files; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, sets in SYNONYMS.items():
        data, offsets = b"  1 A small WordNet for tests\n", dict[str, list[int]]()
        for entry in sets:
            words, offset = entry.split(), len(data)
            fields = " ".join(f"{word} 0" for word in words)
            line = f"{offset:08d} 00 {LETTER[part]} {len(words):02x} {fields} 000 "
            line += "00 " if part == "verb" else ""
            data += f"{line}| for tests  \n".encode()
            for word in words:
                offsets.setdefault(word.partition("(")[0].lower(), []).append(offset)
        (folder / f"data.{part}").write_bytes(data)
        lines = [
            f"{word} {LETTER[part]} {len(found)} 0 {len(found)} 0 {' '.join(f'{o:08d}' for o in found)}  \n"
            for word, found in sorted(offsets.items())
        ]
        (folder / f"index.{part}").write_text("  1 A small WordNet for tests\n" + "".join(lines))
        forms = "".join(f"{form} {entry}\n" for form, entry in sorted(IRREGULAR[part].items()))
        (folder / f"{part}.exc").write_text(forms)
    # What only other readers want.
    (folder / "lexnames").write_text("".join(f"{n:02d}\tname{n}\t1\n" for n in range(LEXNAMES)))
    for name in ("cntlist.rev", "index.sense"):
        (folder / name).write_text("")
    return folder
