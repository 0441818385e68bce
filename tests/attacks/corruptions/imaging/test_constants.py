"""The script that is followed: by name, or by the size of the images."""

from __future__ import annotations

import pytest

from assay.attacks.corruptions.imaging.constants import Constants, constant, constants_for


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("side", "constants"),
    [
        *((side, "cifar_c") for side in (1, 8, 28, 32, 45)),
        *((side, "tiny_imagenet_c") for side in (46, 64, 119)),
        *((side, "imagenet_c") for side in (120, 224, 384)),
    ],
)
def test_the_script_for_the_nearest_size_is_the_default(side: int, constants: Constants) -> None:
    assert constants_for(side) == constants


def test_the_fork_has_imagenet_c_s_constants_where_it_has_none_of_its_own() -> None:
    table: dict[Constants, tuple[int, ...]] = {"imagenet_c": (1, 2, 3, 4, 5), "cifar_c": (6, 7, 8, 9, 10)}
    assert constant("imagecorruptions", 2, table) == 2
    assert constant("cifar_c", 5, table) == 10
    with pytest.raises(ValueError, match="must be one of imagenet_c, cifar_c, tiny_imagenet_c, imagecorr"):
        constant("cifar10_c", 2, table)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="from 1 to 5"):
        constant("cifar_c", 6, table)
