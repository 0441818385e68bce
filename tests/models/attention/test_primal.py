"""Primal-Attention against the authors' modules, its formulas written out, and its identities."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from assay.attacks.adversarial.pgd import pgd
from assay.attacks.kernel import frozen
from assay.attacks.randomness import Randomness
from assay.models.attention.primal import PrimalAttention, running_mean, sampled_places
from assay.models.layers.auxiliary import add_loss, collected, wanted
from assay.models.layers.layers import Classifier
from assay.models.vit import vit
from assay.service.catalog.catalog import load
from assay.service.contract.errors import InvalidSpec
from assay.service.submission.validate import validate
from assay.workers.evaluation.clean import clean
from assay.workers.evaluation.engine.protocols import attack_pixel
from tests.support.shards import Given, shard

# The released modules for time series, control and language, and for Long Range Arena, name their weights so.
NAMES = {
    "We": "we",
    "Wr": "wr",
    "out_projection.weight": "proj.weight",
    "out_projection.bias": "proj.bias",
    "ff.weight": "proj.weight",
    "ff.bias": "proj.bias",
    "attn.Lambda": "Lambda",
    "attn.concate_weight.weight": "concate_weight.weight",
    "attn.concate_weight.bias": "concate_weight.bias",
}
FLOATS = (torch.float32, torch.float64)
FUSED = (("query_projection", "key_projection"), ("W_q", "W_k"))


def state_of(stored: Any) -> dict[str, Tensor]:
    """The stored weights by the names of the image models."""
    weights = {key[2:]: value for key, value in stored.numbers.items() if key.startswith("w.")}
    state = {NAMES.get(key, key): value for key, value in weights.items()}
    for queries, keys in FUSED:
        if f"{queries}.weight" in state:
            for part in ("weight", "bias"):
                state[f"qk.{part}"] = torch.cat([state.pop(f"{one}.{part}") for one in (queries, keys)])
    return state


def loaded(stored: Any, **parameters: Any) -> PrimalAttention:
    attention = PrimalAttention(12, 3, rank=2, **parameters).double()
    attention.load_state_dict(state_of(stored))
    return attention.eval()


def loss_of(attention: PrimalAttention, x: Tensor, mask: Tensor | None = None) -> Tensor:
    with collected() as losses:
        attention(x, mask=mask)
    (loss,) = losses
    return loss


def random_one(**parameters: Any) -> PrimalAttention:
    torch.manual_seed(0)
    return PrimalAttention(12, 3, **{"rank": 2, "rank_multi": 2, **parameters}).double().eval()


def tokens(batch: int = 2, count: int = 7, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, count, 12, generator=generator, dtype=torch.float64)


RELEASED: Mapping[str, dict[str, Any]] = {
    "primal_cv_sampled": {"rank_multi": 2, "ksvd_reduction": "batch"},
    "primal_causal_indep": {"causal": True, "ksvd_reduction": "example"},
    "primal_indep_noncausal": {"projection": "data_independent", "ksvd_reduction": "batch"},
}


@pytest.mark.parametrize("name", RELEASED)
def test_output_and_scores_equal_the_authors_module(vector: Callable[[str], Any], name: str) -> None:
    stored = vector(name)
    attention = loaded(stored, eta=1.0, **RELEASED[name])
    torch.testing.assert_close(attention(stored["x"]), stored["out64"], rtol=0, atol=1e-12)
    expected = stored["ksvd64"] if "ksvd64" in stored.numbers else stored["ksvd"]
    tolerance = 1e-14 if "ksvd64" in stored.numbers else 2e-8  # the other is stored in float32
    torch.testing.assert_close(loss_of(attention, stored["x"]), expected, rtol=0, atol=tolerance)
    queries, keys = attention._features(stored["x"], None)
    rows = attention._rows(stored["x"], None)
    for features, weights, scores in ((queries, attention.we, "escore"), (keys, attention.wr, "rscore")):
        matrix = weights if rows is None else rows.transpose(-2, -1) @ weights
        torch.testing.assert_close(features @ matrix, stored[scores], rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("name", RELEASED)
def test_the_other_reduction_has_another_loss(vector: Callable[[str], Any], name: str) -> None:
    stored = vector(name)
    other = {"batch": "example", "example": "batch"}[RELEASED[name]["ksvd_reduction"]]
    attention = loaded(stored, eta=1.0, **{**RELEASED[name], "ksvd_reduction": other})
    assert not torch.isclose(loss_of(attention, stored["x"]), stored["ksvd"], rtol=1e-5, atol=0)


LRA: dict[str, Any] = {"rank_multi": 5, "tokens": 7, "sampled_rows": "uncapped", "padding": "included"}


def test_long_range_arena_form_equals_the_authors_module(vector: Callable[[str], Any]) -> None:
    stored = vector("primal_lra_masked")
    mask = stored["mask"].bool()
    assert not mask.all()
    attention = loaded(stored, **LRA, eta=1.0, ksvd_reduction="batch")
    torch.testing.assert_close(attention(stored["x"], mask=mask), stored["out"], rtol=3e-7, atol=1e-6)
    padded = attention(stored["x"], mask=mask)[~mask]
    torch.testing.assert_close(padded, stored["w.ff.bias"].expand_as(padded), rtol=0, atol=0)
    loss = loss_of(attention, stored["x"], mask)
    torch.testing.assert_close(loss, stored["ksvd"], rtol=0, atol=5e-7)
    attention.ksvd_reduction = "example"
    assert (loss_of(attention, stored["x"], mask) - stored["ksvd"]).abs() > 5e-7


def test_rows_are_capped_by_the_longest_sequence_or_not() -> None:
    assert PrimalAttention(12, 3, rank=2, rank_multi=5, tokens=7).we.shape == (3, 7, 2)
    assert PrimalAttention(12, 3, rank=2, rank_multi=5, tokens=11).we.shape == (3, 10, 2)
    assert PrimalAttention(12, 3, rank=2, rank_multi=5, tokens=7, sampled_rows="uncapped").we.shape[1] == 10
    assert PrimalAttention(12, 3, rank=2, projection="data_independent").we.shape == (3, 4, 2)


@pytest.mark.parametrize(("count", "rows"), [(1024, 64), (197, 197), (7, 10), (1, 3), (5, 1), (4096, 300)])
def test_places_are_evenly_spaced_whole_numbers(count: int, rows: int) -> None:
    expected = [number * (count - 1) // max(rows - 1, 1) for number in range(rows)]
    assert sampled_places(torch.zeros(2, count, 1), rows, None).tolist() == [expected, expected]
    seen = torch.zeros(2, count + 4, dtype=torch.bool)
    seen[0, :count] = True
    seen[1, 2 : 2 + count] = True  # padding on both sides
    places = sampled_places(torch.zeros(2, count + 4, 1), rows, seen)
    assert places.tolist() == [expected, [2 + place for place in expected]]


def test_places_are_not_those_of_linspace_in_single_precision() -> None:
    exact = sampled_places(torch.zeros(1, 1024, 1), 64, None)[0]
    rounded = {dtype: torch.linspace(0, 1023, 64, dtype=dtype).floor().long() for dtype in FLOATS}
    assert not torch.equal(rounded[torch.float32], rounded[torch.float64])
    assert exact.tolist() == [number * 1023 // 63 for number in range(64)]


def written_out(
    attention: PrimalAttention, x: np.ndarray, *, form: str, trace: str
) -> tuple[np.ndarray, np.ndarray]:
    """Output (B, N, C) and J (B,), token by token, of the data-dependent form with n = N rows."""
    weights = {name: value.detach().numpy() for name, value in attention.state_dict().items()}
    batch, count, width = x.shape
    heads, size = attention.heads, width // attention.heads
    projected = x @ weights["qk.weight"].T + weights["qk.bias"]
    merged, objectives = np.zeros_like(x), np.zeros(batch)
    for image in range(batch):
        for head in range(heads):
            columns = slice(head * size, (head + 1) * size)
            own = x[image][:, columns]
            we, wr, diagonal = weights["we"][head], weights["wr"][head], np.diag(weights["Lambda"][head])
            left, right = own.T @ we, own.T @ wr
            total = 0.0
            for token in range(count):
                q = projected[image, token, :width][columns]
                k = projected[image, token, width:][columns]
                e, r = left.T @ (q / np.linalg.norm(q)), right.T @ (k / np.linalg.norm(k))
                joined = np.concatenate([e, r]) if attention.r_scores else e
                merged[image, token, columns] = (
                    weights["concate_weight.weight"] @ joined + weights["concate_weight.bias"]
                )
                if form == "paper":
                    total += e @ diagonal @ e / 2 + r @ diagonal @ r / 2
                else:
                    total += (np.sum((diagonal @ e) ** 2) + np.sum((diagonal @ r) ** 2)) / (2 * count)
            of_trace = (we, wr) if trace == "parameters" else (left, right)
            objectives[image] += (total - np.trace(of_trace[0].T @ of_trace[1])) / heads
    return merged @ weights["proj.weight"].T + weights["proj.bias"], objectives


@pytest.mark.parametrize("r_scores", [True, False])
@pytest.mark.parametrize("trace", ["parameters", "projected"])
@pytest.mark.parametrize("form", ["code", "paper"])
def test_equals_the_formulas(form: str, trace: str, r_scores: bool) -> None:
    attention = random_one(
        rank_multi=5, tokens=7, eta=0.3, ksvd_form=form, ksvd_trace=trace, r_scores=r_scores
    )
    x = tokens()
    output, objectives = written_out(attention, x.numpy(), form=form, trace=trace)
    np.testing.assert_allclose(attention(x).detach(), output, atol=1e-12)
    assert loss_of(attention, x).item() == pytest.approx(0.3 * np.mean(objectives**2), rel=1e-12)
    attention.ksvd_reduction = "batch"
    assert loss_of(attention, x).item() == pytest.approx(0.3 * np.mean(objectives) ** 2, rel=1e-12)


FORMS: Mapping[str, dict[str, Any]] = {
    "dependent": {},
    "independent": {"projection": "data_independent"},
    "causal": {"causal": True},
    "ablation": {"r_scores": False},
}


@pytest.mark.parametrize(
    "loss", [{}, {"ksvd_form": "paper", "ksvd_trace": "projected"}], ids=["code", "paper"]
)
@pytest.mark.parametrize("form", FORMS)
def test_gradients_of_output_and_loss_equal_finite_differences(form: str, loss: dict[str, Any]) -> None:
    attention = random_one(**FORMS[form], **loss, eta=0.7)
    names = [name for name, _ in attention.named_parameters()]
    mask = torch.tensor([[True] * 4 + [False], [True] * 5])

    def both(x: Tensor, *parameters: Tensor) -> tuple[Tensor, Tensor]:
        with collected() as losses:
            given = (x,), {"mask": mask}
            output = torch.func.functional_call(attention, dict(zip(names, parameters, strict=True)), *given)
        return output, losses[0]

    x = tokens(count=5).requires_grad_()
    assert torch.autograd.gradcheck(both, (x, *attention.parameters()), fast_mode=True)


@pytest.mark.parametrize("form", FORMS)
def test_padding_changes_neither_output_nor_loss(form: str) -> None:
    attention = random_one(**FORMS[form])
    x = tokens()
    mask = (torch.arange(10) < 7).expand(2, -1)
    padded = torch.cat([x, 9 * tokens(count=3, seed=3)], dim=1)
    torch.testing.assert_close(attention(padded, mask=mask)[:, :7], attention(x), rtol=0, atol=1e-12)
    torch.testing.assert_close(loss_of(attention, padded, mask), loss_of(attention, x), rtol=1e-12, atol=0)


def test_padding_before_the_tokens_changes_nothing_either() -> None:
    for form in FORMS.values():
        attention, x = random_one(**form), tokens()
        padded, mask = (
            torch.cat([9 * tokens(count=3, seed=3), x], dim=1),
            (torch.arange(10) >= 3).expand(2, -1),
        )
        torch.testing.assert_close(attention(padded, mask=mask)[:, 3:], attention(x), rtol=0, atol=1e-12)


@pytest.mark.parametrize("form", ["dependent", "causal"])
def test_padding_takes_part_in_the_released_form(form: str) -> None:
    attention = random_one(**FORMS[form], padding="included")
    x, mask = tokens(), torch.ones(2, 7, dtype=torch.bool)
    mask[:, :2] = False
    changed = x.clone()
    changed[:, :2] += 1
    assert not torch.allclose(attention(changed, mask=mask)[:, 2:], attention(x, mask=mask)[:, 2:])
    torch.testing.assert_close(attention(x, mask=mask)[:, 2:], attention(x)[:, 2:], rtol=0, atol=0)
    assert loss_of(attention, x, mask) == loss_of(attention, x)


def test_causal_form_is_the_mean_of_all_tokens_up_to_each() -> None:
    values = torch.randn(2, 3, 6, 4, dtype=torch.float64)
    expected = torch.stack([values[..., : n + 1, :].mean(dim=-2) for n in range(6)], dim=-2)
    torch.testing.assert_close(running_mean(values, None), expected)
    seen = torch.tensor([[True] * 6, [False, True, False, True, True, True]])
    masked = running_mean(values, seen)
    torch.testing.assert_close(masked[1, :, 3], values[1][:, [1, 3]].mean(dim=1))
    assert not masked[1, :, 0].any()


def test_independent_weights_without_the_causal_form_mix_no_tokens() -> None:
    attention = random_one(projection="data_independent")
    x = tokens()
    alone = torch.cat([attention(x[:, n : n + 1]) for n in range(7)], dim=1)
    torch.testing.assert_close(attention(x), alone, rtol=0, atol=1e-12)
    assert attention.permutation_equivariant
    small: dict[str, Any] = {"image_size": 16, "patch_size": 8, "width": 12, "depth": 2}
    factory = functools.partial(PrimalAttention, projection="data_independent")
    assert vit(10, 1, **small, attention=factory, layers="last").blocks[1].attn.we.shape == (3, 4, 32)
    with pytest.raises(ValueError, match="one that mixes no tokens, must not be in every layer"):
        vit(10, 1, **small, attention=factory, layers="all")


def test_kernel_matrix_is_that_of_the_mapped_features() -> None:
    attention = random_one(rank_multi=3, tokens=9)
    x = tokens()
    left, right = attention.kernel_factors(x)
    queries, keys = attention._features(x, None)
    rows = attention._rows(x, None)
    assert rows is not None
    mapped = [features @ rows.transpose(-2, -1) for features in (queries, keys)]  # f(X) phi, (B, H, N, n)
    expected = mapped[0] @ mapped[1].transpose(-2, -1)
    torch.testing.assert_close(left @ right.transpose(-2, -1), expected, rtol=0, atol=1e-12)
    independent = random_one(projection="data_independent")
    left, right = independent.kernel_factors(x)
    queries, keys = independent._features(x, None)
    torch.testing.assert_close(left @ right.transpose(-2, -1), queries @ keys.transpose(-2, -1))


def test_losses_are_of_training_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    strong, none = random_one(eta=100.0), random_one(eta=0.0)
    x = tokens().requires_grad_()
    monkeypatch.setattr(PrimalAttention, "_add_loss", lambda *_: pytest.fail("computed outside training"))
    assert not wanted()
    gradients = []
    for attention in (strong, none):
        with frozen(attention):
            gradients.append(torch.autograd.grad(attention(x).square().sum(), x)[0])
    assert torch.equal(*gradients)
    with collected() as losses:
        none(x)
    assert losses == []


def test_evaluations_do_not_compute_the_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PrimalAttention, "_add_loss", lambda *_: pytest.fail("computed in an evaluation"))
    backbone = vit(4, 1, image_size=8, patch_size=4, width=12, depth=2, attention="primal")
    model = Classifier(backbone, [0.5], [1.0])
    images, labels = torch.rand(5, 1, 8, 8), torch.arange(5) % 4
    data = Given([*"abcde"], classes=4, images=lambda rows: images[list(rows)], labels=labels)
    assert len(clean().measure(shard(model, data)).columns()["id"]) == 5
    randomness, attack = Randomness(0, "pgd"), pgd(epsilon=0.1, steps=2)
    attacked = attack_pixel(
        attack, model, lambda rows: images[list(rows)], labels, data.ids, randomness=randomness, batch_size=4
    )
    assert attacked.columns()["backward"] != [0] * 5
    with pytest.raises(pytest.fail.Exception, match="computed in"), collected():
        model(images)


def test_layers_are_averaged_as_released_and_summed_as_printed() -> None:
    x = tokens()
    for form, divisor in (("code", 2), ("paper", 1)):
        first, second = random_one(ksvd_form=form, eta=1.0), random_one(ksvd_form=form, eta=1.0)
        with torch.no_grad():
            second.we.mul_(2)
        separate = loss_of(first, x) + loss_of(second, x)
        with collected() as losses:
            first(x)
            second(x)
            add_loss(torch.tensor(3.0, dtype=torch.float64))
        torch.testing.assert_close(sum(losses), separate / divisor + 3.0)


def test_loss_is_computed_in_single_precision_under_autocast() -> None:
    attention = random_one().float()
    x = tokens().float()
    with torch.autocast("cpu", torch.bfloat16):
        loss = loss_of(attention, x)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, loss_of(attention, x), rtol=0.1, atol=0)


def test_dropout_drops_outputs_in_training() -> None:
    attention = random_one(dropout=0.5).train()
    x = tokens(batch=8, count=50)
    share = (attention(x) == 0).double().mean().item()
    assert 0.4 < share < 0.6
    assert not (attention.eval()(x) == 0).any()


def test_initial_weights_are_the_authors() -> None:
    torch.manual_seed(0)
    attention = PrimalAttention(12, 3, rank=4, rank_multi=2)
    flat = attention.we.flatten(1)
    torch.testing.assert_close(flat @ flat.T, torch.eye(3), rtol=0, atol=1e-6)
    assert not torch.allclose(attention.we[0].T @ attention.we[0], torch.eye(4), atol=1e-2)
    assert 0 <= attention.Lambda.min() < attention.Lambda.max() < 1


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"rank": 0}, "rank must be at least 1: got 0"),
        ({"rank_multi": 0}, "rank_multi must be at least 1: got 0"),
        ({"eta": -0.1}, "eta must be at least 0: got -0.1"),
        ({"projection": "both"}, "projection must be 'data_dependent' or 'data_independent': got 'both'"),
        ({"ksvd_form": "text"}, "ksvd_form must be 'code' or 'paper': got 'text'"),
        ({"causal": True, "projection": "data_dependent"}, "would leak; got 'data_dependent'"),
    ],
)
def test_refuses_by_name(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PrimalAttention(12, 3, **parameters)


def job(model: str, projection: str | None, **params: Any) -> dict[str, Any]:
    attention = {"name": "primal", "params": {"projection": projection}}
    body: dict[str, Any] = {
        "kind": "train",
        "model": {"name": model, "params": {"attention": attention, **params}},
    }
    recipe, data = ("small_lm", "pydoc") if model == "lm" else ("small_vit", "digits")
    return body | {"data": {"name": data}, "recipe": {"name": recipe}}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (job("lm", "data_dependent"), "must be data_independent in a causal model"),
        (job("lm", "data_independent"), None),
        (job("lm", None), None),
        (job("vit", "data_independent", layers="all"), "must not be data_independent in every layer"),
        (job("vit", "data_independent", layers="last"), None),
        (job("vit", "data_dependent", layers="all"), None),
        (job("fan_vit", "data_independent", layers="all"), None),
    ],
)
def test_rules_of_the_service(body: dict[str, Any], message: str | None) -> None:
    if message is None:
        assert validate(load(), body)
    else:
        with pytest.raises(InvalidSpec, match=message):
            validate(load(), body)
