"""The classes of ImageNet and of the sets made for its models."""

from __future__ import annotations

import re

import pytest

from assay.service.catalog.class_lists import class_list

SETS = {"imagenet": 1000, "imagenet_a": 200, "imagenet_o": 200, "imagenet_r": 200}


@pytest.mark.parametrize(("name", "count"), SETS.items())
def test_a_set_has_its_published_number_of_classes_in_label_order(name: str, count: int) -> None:
    """Hendrycks et al. 2021: A, O and R have 200 of the 1,000 classes; labels follow the WordNet ids."""
    found = class_list(name)
    assert len(found) == len(set(found)) == count
    assert list(found) == sorted(found)
    assert all(re.fullmatch(r"n\d{8}", one) for one in found)
    assert set(found) <= set(class_list("imagenet"))


def test_known_labels_have_their_synsets() -> None:
    """As in the mapping file of the challenge: tench, goldfish and toilet paper."""
    found = class_list("imagenet")
    assert (found[0], found[1], found[999]) == ("n01440764", "n01443537", "n15075141")
    assert found.index("n02123045") == 281, "tabby"


def test_an_unknown_set_is_a_defect() -> None:
    with pytest.raises(KeyError):
        class_list("imagenet_z")
