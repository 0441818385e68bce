"""Outcome rows whose columns depend on the example ids alone."""

from __future__ import annotations

from typing import Any

from assay.service.store.rows import OutcomeRow


def rows(count: int, *, size: int = 4, evaluation: int = 0, **extra: Any) -> list[OutcomeRow]:
    """The outcomes of `count` shards of `size` examples each; the ids are not in order of their numbers."""
    return [
        OutcomeRow(
            evaluation=evaluation,
            number=number,
            n=size,
            columns=columns([f"{(7 * i) % 101:03d}" for i in range(number * size, (number + 1) * size)]),
            seconds=0.1 * (number + 1),
            forward_passes=3 * size,
            backward_passes=2 * size,
            extra={
                "attack": True,
                "evidence": {},
                "provenance": {"code": {"version": "1"}, "packages": {}, "device": {"type": "cpu"}},
                **extra,
            },
        )
        for number in range(count)
    ]


def columns(ids: list[str]) -> dict[str, list[Any]]:
    """Outcome columns that depend on the ids alone."""
    return {
        "id": list(ids),
        "label": [int(i) % 10 for i in ids],
        "prediction": [int(i) % 10 if int(i) % 3 else 9 - int(i) % 10 for i in ids],
        "correct": [bool(int(i) % 3) for i in ids],
        "correct5": [bool(int(i) % 5) for i in ids],
        "clean_correct": [bool(int(i) % 7) for i in ids],
        "loss": [0.1 * int(i) for i in ids],
        "forward": [3 for _ in ids],
        "backward": [2 for _ in ids],
    }
