from __future__ import annotations

from assay.workers.training.recipe import Crops, Recipe
from assay.workers.training.recipes.segmenter import segmenter


def test_the_published_values() -> None:
    assert segmenter() == Recipe(
        epochs=64,
        learning_rate=1e-3,
        schedule="polynomial",
        minimum_learning_rate=1e-5,
        optimiser="sgd",
        momentum=0.9,
        nesterov=True,
        weight_decay=0.0,
        total_batch=8,
        published_batch=8,
        crops=Crops(size=512, short_side=512, scales=(0.5, 2.0), flip=True, photometric=True),
    )


def test_parameters_reach_the_recipe() -> None:
    recipe = segmenter(
        epochs=2,
        learning_rate=0.5,
        minimum_learning_rate=0.0,
        crop_size=64,
        short_side=None,
        smallest_scale=0.75,
        largest_scale=1.5,
        flip=False,
        photometric=False,
    )
    assert (recipe.epochs, recipe.learning_rate, recipe.minimum_learning_rate) == (2, 0.5, 0.0)
    assert recipe.crops == Crops(64, None, (0.75, 1.5), flip=False, photometric=False)
