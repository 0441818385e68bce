from __future__ import annotations

from workers.training.recipe import Recipe
from workers.training.recipes.segmenter import segmenter


def test_the_published_values() -> None:
    recipe = segmenter()
    assert recipe.optimisation == Recipe(
        epochs=64,
        learning_rate=1e-3,
        schedule="polynomial",
        minimum_learning_rate=1e-5,
        optimiser="sgd",
        momentum=0.9,
        weight_decay=0.0,
    )
    assert (recipe.crop_size, recipe.scales, recipe.batch_size) == (512, (0.5, 2.0), 8)
    assert (recipe.flip, recipe.photometric, recipe.ignore_index) == (True, True, 255)


def test_parameters_reach_the_recipe() -> None:
    recipe = segmenter(epochs=2, learning_rate=0.5, minimum_learning_rate=0.0, crop_size=64)
    assert (recipe.optimisation.epochs, recipe.optimisation.learning_rate, recipe.crop_size) == (2, 0.5, 64)
