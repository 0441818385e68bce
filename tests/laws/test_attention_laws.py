"""Laws of every attention mechanism; new files in `models/attention` are covered automatically.

A mechanism that depends on the order or the number of tokens says so with the class attributes
`permutation_equivariant = False` and `padding_invariant = False`. One whose constructor takes `causal` is
held to the laws in both forms; what was made with a causal mask says so by `causal`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn

from assay.models.layers.attention.lookup import attentions
from assay.models.layers.auxiliary import collected
from assay.models.layers.heads import has_causal_form
from assay.service.catalog.catalog import load
from tests.support.components import foreign

WIDTH, HEADS, GRID = 24, 3, (3, 5)
TOKENS = 1 + GRID[0] * GRID[1]
DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()
MECHANISMS = {**attentions(), **foreign("attention")}
FORMS = [(name, form) for name in sorted(MECHANISMS) for form in ("own", "causal")]
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5, torch.bfloat16: 0.05}  # share of the largest value


def other_form(name: str) -> bool:
    """Whether a mechanism is causal on request only."""
    causal = inspect.signature(MECHANISMS[name]).parameters.get("causal")
    return causal is not None and causal.default is False


Make = Callable[[], nn.Module]


@pytest.fixture(params=[one for one in FORMS if one[1] == "own" or other_form(one[0])], ids="-".join)
def make(request: pytest.FixtureRequest) -> Make:
    name, form = request.param
    return functools.partial(
        MECHANISMS[name], WIDTH, HEADS, prefix_tokens=1, **({"causal": True} if form == "causal" else {})
    )


@pytest.fixture
def attention(make: Make) -> Iterator[nn.Module]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        made = make().double().eval()
        with torch.no_grad():
            for parameter in made.parameters():
                if not parameter.any():  # what begins at zero is not there yet
                    parameter.normal_(std=0.1)
        yield made


def tokens(batch: int = 2, grid: tuple[int, int] = GRID, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, 1 + grid[0] * grid[1], WIDTH, generator=generator, dtype=torch.float64)


def assert_near(actual: Tensor, expected: Tensor, tolerance: float) -> None:
    error = (actual.double() - expected.double()).abs().max() / expected.double().abs().max()
    assert error <= tolerance, f"relative error {error:.2g}"


@pytest.mark.sampled
def test_states_its_name(attention: nn.Module) -> None:
    assert MECHANISMS[attention.name] is type(attention)  # type: ignore[index]


@pytest.mark.sampled
@pytest.mark.parametrize("grid", [(0, 0), (1, 1), (1, 2), (3, 5), (7, 1), (8, 8)])
def test_keeps_the_shape_at_any_length(attention: nn.Module, grid: tuple[int, int]) -> None:
    output = attention(tokens(grid=grid), grid=grid)
    assert output.shape == (2, 1 + grid[0] * grid[1], WIDTH)
    assert torch.isfinite(output).all()


@pytest.mark.sampled
@pytest.mark.parametrize("scale", [0.0, 1.0, 30.0])
def test_gradients_are_finite(attention: nn.Module, scale: float) -> None:
    x = (scale * tokens()).requires_grad_()
    with collected() as losses:  # some parameters are in the auxiliary losses alone
        total = attention(x, grid=GRID).square().sum()
    gradients = torch.autograd.grad(sum(losses, total), [x, *attention.parameters()])
    assert all(torch.isfinite(gradient).all() for gradient in gradients)


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_input_gradient_needs_no_trainable_parameters(attention: nn.Module, dtype: torch.dtype) -> None:
    x = tokens().to(dtype).requires_grad_()
    attention = attention.to(dtype)
    (trainable,) = torch.autograd.grad(attention(x, grid=GRID).square().sum(), x)
    attention.requires_grad_(False)
    (frozen,) = torch.autograd.grad(attention(x, grid=GRID).square().sum(), x)
    assert frozen.abs().max() > 0
    assert torch.equal(frozen, trainable)
    assert all(parameter.grad is None for parameter in attention.parameters())


@pytest.mark.sampled
def test_state_dict_round_trip(attention: nn.Module, make: Make) -> None:
    torch.manual_seed(99)
    copy = make().double().eval()
    assert not torch.equal(copy(tokens(), grid=GRID), attention(tokens(), grid=GRID))
    copy.load_state_dict(attention.state_dict())
    assert torch.equal(copy(tokens(), grid=GRID), attention(tokens(), grid=GRID))


@pytest.mark.sampled
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_any_device_and_dtype(attention: nn.Module, dtype: torch.dtype, device: str) -> None:
    x = 0.5 * tokens()
    expected = attention(x, grid=GRID)
    output = attention.to(device, dtype)(x.to(device, dtype), grid=GRID)
    assert output.dtype == dtype
    assert output.device.type == device
    assert_near(output.cpu(), expected, TOLERANCE[dtype])


@pytest.mark.sampled
@pytest.mark.parametrize("device", DEVICES)
def test_automatic_mixed_precision(attention: nn.Module, device: str) -> None:
    x = 0.5 * tokens()
    expected = attention(x, grid=GRID)
    with torch.autocast(device, torch.bfloat16):
        output = attention.float().to(device)(x.float().to(device), grid=GRID)
    assert_near(output.cpu(), expected, TOLERANCE[torch.bfloat16])


@pytest.mark.sampled
def test_is_deterministic_in_eval_mode(attention: nn.Module) -> None:
    first = attention(tokens(), grid=GRID)
    torch.manual_seed(7)
    assert torch.equal(attention(tokens(), grid=GRID), first)


@pytest.mark.sampled
def test_examples_of_a_batch_are_independent(attention: nn.Module) -> None:
    x = tokens(batch=3)
    together = attention(x, grid=GRID)
    for example in range(3):
        assert_near(attention(x[example : example + 1], grid=GRID), together[example : example + 1], 1e-10)


@pytest.mark.sampled
def test_permuting_the_patches_permutes_the_output(attention: nn.Module) -> None:
    if not getattr(attention, "permutation_equivariant", True) or getattr(attention, "causal", False):
        pytest.skip("depends on the order of the patches")
    patches = 1 + torch.randperm(TOKENS - 1, generator=torch.Generator().manual_seed(3))
    order = torch.cat([torch.zeros(1, dtype=torch.int64), patches])
    x = tokens()
    assert_near(attention(x[:, order], grid=GRID), attention(x, grid=GRID)[:, order], 1e-10)


@pytest.mark.sampled
def test_masked_padding_changes_nothing(attention: nn.Module) -> None:
    if not getattr(attention, "padding_invariant", True):
        pytest.skip("depends on the number of tokens")
    x = tokens()
    padding = 10 * tokens(seed=4)[:, :3]
    mask = torch.arange(TOKENS + 3).expand(2, -1) < TOKENS
    padded = attention(torch.cat([x, padding], dim=1), mask=mask)
    assert_near(padded[:, :TOKENS], attention(x, mask=torch.ones(2, TOKENS, dtype=torch.bool)), 1e-10)
    assert_near(padded[:, :TOKENS], attention(x), 1e-10)


@pytest.mark.sampled
def test_later_tokens_change_the_earlier_ones_unless_it_is_causal(attention: nn.Module) -> None:
    x, changed = tokens(), tokens()
    changed[:, -1] = 3 * tokens(seed=5)[:, -1]
    before, after = attention(x, grid=GRID)[:, :-1], attention(changed, grid=GRID)[:, :-1]
    if getattr(attention, "causal", False):
        assert_near(after, before, 1e-10)
    else:
        assert (after - before).abs().amax(dim=(0, 2)).min() > 1e-6


@pytest.mark.sampled
def test_a_causal_sequence_begins_as_its_beginnings_do(attention: nn.Module) -> None:
    if not getattr(attention, "causal", False):
        pytest.skip("every token sees every other")
    x = tokens()
    whole = attention(x)
    for count in (1, 2, TOKENS - 1):
        assert_near(attention(x[:, :count]), whole[:, :count], 1e-10)


def holes(count: int) -> Tensor:
    """Masks (4, N): padding at the end, at the beginning, in the middle, and at every third token."""
    places = torch.arange(count)
    middle = (places > 0.3 * count) & (places < 0.6 * count)
    return torch.stack([places < 0.7 * count, places > 0.3 * count, ~middle, places % 3 != 1])


@pytest.mark.sampled
@pytest.mark.parametrize("count", [7, 33])
def test_what_padding_holds_changes_nothing_wherever_it_is(attention: nn.Module, count: int) -> None:
    if not getattr(attention, "padding_invariant", True):
        pytest.skip("sees padding")
    grid, mask = (1, count - 1), holes(count)
    x, other = tokens(4, grid), 10 * tokens(4, grid, seed=4)
    changed = torch.where(mask[..., None], x, other)
    before, after = attention(x, grid=grid, mask=mask), attention(changed, grid=grid, mask=mask)
    assert torch.isfinite(after).all()
    assert_near(after[mask], before[mask], 1e-10)


@pytest.mark.sampled
@pytest.mark.parametrize("count", [7, 33])
def test_masked_tokens_are_as_if_they_were_not_there(attention: nn.Module, count: int) -> None:
    invariant = getattr(attention, "padding_invariant", True)
    if not invariant or not getattr(attention, "permutation_equivariant", True):
        pytest.skip("depends on the place or the number of tokens")
    grid, mask = (1, count - 1), holes(count)
    x = tokens(4, grid)
    together = attention(x, grid=grid, mask=mask)
    for row in range(4):
        alone = attention(x[row : row + 1, mask[row]], grid=(1, int(mask[row].sum()) - 1))
        assert_near(together[row : row + 1, mask[row]], alone, 1e-10)


@pytest.mark.sampled
def test_masks_differ_by_example_without_mixing_them(attention: nn.Module) -> None:
    x, mask = tokens(4), holes(TOKENS)
    together = attention(x, grid=GRID, mask=mask)
    for row in range(4):
        part = slice(row, row + 1)
        assert_near(
            attention(x[part], grid=GRID, mask=mask[part])[:, mask[row]], together[part, mask[row]], 1e-10
        )


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_masks_in_shorter_types(attention: nn.Module, dtype: torch.dtype) -> None:
    x, mask = 0.5 * tokens(4), holes(TOKENS)
    expected = attention(x, grid=GRID, mask=mask)
    output = attention.to(dtype)(x.to(dtype), grid=GRID, mask=mask)
    assert output.dtype == dtype
    assert torch.isfinite(output).all()
    assert_near(output[mask], expected[mask], TOLERANCE[dtype])


@pytest.mark.sampled
@pytest.mark.parametrize("masked", [False, True], ids=["all", "masked"])
def test_gradient_equals_finite_differences(attention: nn.Module, masked: bool) -> None:
    grid = (2, 3)
    x = tokens(2, grid).requires_grad_()
    mask = holes(7)[1:3] if masked else None
    attention.requires_grad_(False)

    def present(given: Tensor) -> Tensor:
        output: Tensor = attention(given, grid=grid, mask=mask)
        return output if mask is None else output[mask]

    assert torch.autograd.gradcheck(present, (x,), fast_mode=True, atol=1e-6)


@pytest.mark.sampled
@pytest.mark.parametrize("masked", [False, True], ids=["all", "masked"])
@pytest.mark.parametrize("count", [TOKENS, 131])
def test_no_gradient_reaches_later_tokens_in_a_causal_form(
    attention: nn.Module, count: int, masked: bool
) -> None:
    if not getattr(attention, "causal", False):
        pytest.skip("every token sees every other")
    mask = holes(count)[:2] if masked else None
    x = tokens(2, (1, count - 1)).requires_grad_()
    output = attention(x, mask=mask)
    for last in (0, 1, count // 2, count - 2):
        rows = output[:, : last + 1] if mask is None else output[:, : last + 1][mask[:, : last + 1]]
        if not len(rows):
            continue
        (gradient,) = torch.autograd.grad(rows.square().sum(), x, retain_graph=True)
        assert gradient[:, : last + 1].abs().max() > 0
        assert not gradient[:, last + 1 :].any()


@pytest.mark.sampled
@pytest.mark.parametrize("count", [TOKENS, 131])
def test_no_causal_output_depends_on_a_later_token(attention: nn.Module, count: int) -> None:
    if not getattr(attention, "causal", False):
        pytest.skip("every token sees every other")
    grid = (1, count - 1)
    x, other = tokens(1, grid), 3 * tokens(1, grid, seed=6)
    before = attention(x)
    for last in (0, 1, count // 2, count - 2):
        changed = torch.cat([x[:, : last + 1], other[:, last + 1 :]], dim=1)
        assert_near(attention(changed)[:, : last + 1], before[:, : last + 1], 1e-10)


@pytest.mark.sampled
@pytest.mark.parametrize("name", sorted(MECHANISMS))
def test_the_catalog_says_which_mechanisms_have_a_causal_form(name: str) -> None:
    stated = (load().find("attention", name).facts or {}).get("causal_form", False)
    assert stated is has_causal_form(MECHANISMS[name])


def test_mechanisms_of_one_layout_have_the_same_weights() -> None:
    shapes: dict[str, set[frozenset[tuple[str, torch.Size]]]] = {}
    for name, mechanism in MECHANISMS.items():
        layout = (load().find("attention", name).facts or {}).get("layout")
        if layout is not None:
            state = mechanism(WIDTH, HEADS).state_dict()
            own = frozenset((key, tensor.shape) for key, tensor in state.items())
            shapes.setdefault(layout, set()).add(own)
    assert set(shapes) >= {"kv", "qkv"}
    assert all(len(different) == 1 for different in shapes.values())


@pytest.mark.sampled
@pytest.mark.parametrize("heads", [5, 0])
def test_refuses_heads_that_do_not_divide_the_width(attention: nn.Module, heads: int) -> None:
    with pytest.raises(ValueError, match="heads must divide width"):
        type(attention)(WIDTH, heads)
