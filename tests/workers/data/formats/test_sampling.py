from __future__ import annotations

import hashlib

import pytest

from assay.workers.data.formats.sampling import evaluation_order, example_key, gallery_ranks, held_out_split

IDS = [f"{index:04d}" for index in range(100)]


def test_key_is_the_documented_hash() -> None:
    assert example_key("digits", "0007") == hashlib.sha256(b"digits/0007").digest()


def test_limit_takes_the_smallest_hashes_sorted_by_id() -> None:
    order = evaluation_order("digits", IDS, 10)
    smallest = sorted(IDS, key=lambda i: hashlib.sha256(f"digits/{i}".encode()).hexdigest())[:10]
    assert [IDS[index] for index in order] == sorted(smallest)


def test_known_subset_never_changes() -> None:
    assert evaluation_order("digits", IDS, 5) == [34, 64, 76, 79, 99]


def test_smaller_limits_nest() -> None:
    assert set(evaluation_order("x", IDS, 10)) < set(evaluation_order("x", IDS, 40))


def test_without_a_limit_all_examples_come_sorted_by_id() -> None:
    ids = ["b/2", "a/1", "b/1"]
    assert evaluation_order("x", ids, None) == [1, 2, 0]
    assert evaluation_order("x", ids, 7) == [1, 2, 0]


def test_choice_depends_on_the_examples_not_on_their_order() -> None:
    forwards = {IDS[index] for index in evaluation_order("x", IDS, 10)}
    backwards = {IDS[::-1][index] for index in evaluation_order("x", IDS[::-1], 10)}
    assert forwards == backwards
    assert forwards != {IDS[index] for index in evaluation_order("y", IDS, 10)}


@pytest.mark.parametrize("limit", [0, -3])
def test_limits_below_one_are_refused(limit: int) -> None:
    with pytest.raises(ValueError, match=f"got {limit}"):
        evaluation_order("x", IDS, limit)


def test_split_holds_out_the_smallest_fifth_of_each_class() -> None:
    labels = [index % 3 for index in range(100)]  # 34, 33, 33
    train, test = held_out_split("x", IDS, labels)
    assert sorted(train + test) == list(range(100))
    for label in range(3):
        members = [index for index in range(100) if labels[index] == label]
        ranked = sorted(members, key=lambda index: example_key("x", IDS[index]))
        assert {index for index in test if labels[index] == label} == set(ranked[:6])


def test_split_of_small_classes() -> None:
    train, test = held_out_split("x", ["a", "b", "c", "d"], [0, 0, 1, 2])
    assert len(test) == 1  # one of the two examples of class 0
    assert test[0] in (0, 1)
    assert {2, 3} <= set(train)


def test_galleries_show_what_a_limit_would_leave_for_any_shards() -> None:
    ids = [f"{index:04d}" for index in range(2000)]
    order = evaluation_order("digits", ids, 1000)
    whole = gallery_ranks("digits", ids, order, 0, 1000)
    assert sorted(whole.values()) == list(range(256))
    assert sorted(order[row] for row in whole) == evaluation_order("digits", ids, 256)
    parts = [gallery_ranks("digits", ids, order, start, start + 125) for start in range(0, 1000, 125)]
    assert {
        row + 125 * number: rank for number, part in enumerate(parts) for row, rank in part.items()
    } == whole
    assert gallery_ranks("digits", ids[:3], [0, 1, 2], 1, 3).keys() == {0, 1}
