import pytest
import torch

from manyhot import zlpr_loss
from manyhot.decisions.span_decoding import decode_spans
from manyhot.heads.global_pointer import EfficientGlobalPointer, GlobalPointer
from manyhot.heads.rotary_positions import rotary
from manyhot.labels.spans import SpanLabels

HEADS = {
    "GlobalPointer": lambda **settings: GlobalPointer(10, num_types=3, head_size=4, **settings),
    "hidden": lambda **settings: EfficientGlobalPointer(10, num_types=3, head_size=4, form="hidden", **settings),
    "projected": lambda **settings: EfficientGlobalPointer(10, num_types=3, head_size=4, form="projected", **settings),
}


@pytest.fixture(params=HEADS)
def make_head(request):
    def make(**settings):
        torch.manual_seed(0)
        return HEADS[request.param](**settings).double()

    with torch.random.fork_rng():
        yield make


def draw_hidden(rows=2, tokens=6, *, seed=0):
    return torch.randn(rows, tokens, 10, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_a_head_gives_lazy_scores_for_every_span(make_head):
    scores = make_head()(draw_hidden(), torch.tensor([6, 4]))
    assert scores.shape == (2, 3, 6, 6)
    assert scores.lengths.tolist() == [6, 4]
    assert scores.triangle
    assert not make_head(triangle=False)(draw_hidden()).triangle


def test_global_pointer_is_its_equation():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        head = GlobalPointer(10, num_types=3, head_size=4, triangle=False).double()
    hidden = draw_hidden()
    q_weight, k_weight = head.project.weight.reshape(2, 3, 4, 10)
    q_bias, k_bias = head.project.bias.reshape(2, 3, 4)
    q = rotary(torch.einsum("btd,hed->bhte", hidden, q_weight) + q_bias[:, None])
    k = rotary(torch.einsum("btd,hed->bhte", hidden, k_weight) + k_bias[:, None])
    torch.testing.assert_close(head(hidden).dense(), torch.einsum("bhie,bhje->bhij", q, k) / 2)


@pytest.mark.parametrize("form", ["hidden", "projected"])
def test_the_efficient_form_is_its_equation(form):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        head = EfficientGlobalPointer(10, num_types=3, head_size=4, form=form, triangle=False).double()
    hidden = draw_hidden()
    projected = head.project(hidden)
    q, k = projected[..., :4], projected[..., 4:]
    ends = head.type_ends(hidden if form == "hidden" else torch.cat([q, k], dim=-1))
    wanted = torch.einsum("bie,bje->bij", rotary(q), rotary(k)).unsqueeze(1) / 2
    wanted = wanted + ends[..., :3].mT.unsqueeze(3) + ends[..., 3:].mT.unsqueeze(2)
    torch.testing.assert_close(head(hidden).dense(), wanted)


def test_a_type_costs_what_is_said():
    def weights(head):
        return sum(part.numel() for name, part in head.named_parameters() if name.endswith("weight"))

    def cost(make):
        return weights(make(num_types=5)) - weights(make(num_types=4))

    assert cost(lambda **kw: GlobalPointer(100, head_size=8, **kw)) == 2 * 100 * 8
    assert cost(lambda **kw: EfficientGlobalPointer(100, head_size=8, form="hidden", **kw)) == 2 * 100
    assert cost(lambda **kw: EfficientGlobalPointer(100, head_size=8, form="projected", **kw)) == 4 * 8


def test_rotary_positions_tell_how_far_apart_tokens_are(make_head):
    same = draw_hidden(1, 1).expand(1, 6, 10)
    flat = make_head(rotary=False, triangle=False)(same).dense()
    assert torch.allclose(flat, flat[..., :1, :1].expand_as(flat))
    turned = make_head()(same).dense()
    assert (turned[..., 0, 1] - turned[..., 0, 4]).abs().max() > 1e-3
    torch.testing.assert_close(turned[..., 0, 2], turned[..., 3, 5])


def test_padding_changes_neither_loss_nor_gradient(make_head):
    head = make_head()
    labels = SpanLabels.from_lists([[(0, 0, 2), (1, 3, 3)]], num_types=3, lengths=[4])
    losses, grads = [], []
    for tokens in (4, 6):
        hidden = draw_hidden(1, 6)[:, :tokens].clone()
        hidden[:, 4:] = 1e6
        head.zero_grad()
        loss = zlpr_loss(head(hidden, [4]), labels)
        loss.backward()
        losses.append(loss.detach())
        grads.append([part.grad.clone() for part in head.parameters()])
    torch.testing.assert_close(losses[0], losses[1], rtol=1e-13, atol=1e-13)
    for short, long in zip(*grads, strict=True):
        torch.testing.assert_close(short, long, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_heads_run_in_half_precision(make_head, dtype):
    head = make_head().to(dtype)
    labels = SpanLabels.from_lists([[(0, 0, 2)], []], num_types=3, lengths=[6, 4])
    loss = zlpr_loss(head(draw_hidden().to(dtype), [6, 4]), labels)
    loss.backward()
    assert loss.dtype == torch.float32
    assert all(part.grad.isfinite().all() and part.grad.dtype == dtype for part in head.parameters())


def test_a_head_learns_nested_spans_from_scratch(make_head):
    head = make_head()
    hidden = draw_hidden(3, 8, seed=1)
    lists = [[(0, 0, 5), (1, 2, 3), (2, 2, 3)], [(0, 1, 1), (1, 0, 7)], []]
    labels = SpanLabels.from_lists(lists, num_types=3, lengths=[8, 8, 5])
    hidden.requires_grad_()
    optimizer = torch.optim.Adam([*head.parameters(), hidden], lr=0.05)
    for _ in range(150):
        optimizer.zero_grad()
        zlpr_loss(head(hidden, [8, 8, 5]), labels).backward()
        optimizer.step()
    found = decode_spans(head(hidden, [8, 8, 5]))
    assert [sorted(span[:3] for span in row) for row in found] == lists


def test_a_head_is_saved_and_loaded_by_its_state(make_head):
    head, other = make_head(), make_head()
    with torch.no_grad():
        other.project.weight.zero_()
    other.load_state_dict(head.state_dict())
    assert torch.equal(head(draw_hidden()).dense(), other(draw_hidden()).dense())
    assert "num_types=3" in repr(head)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"head_size": 5}, "`head_size` must be even, because rotary positions rotate pairs of features; got 5"),
        ({"num_types": 0}, "`num_types` must be a number >= 1; got 0"),
    ],
)
@pytest.mark.parametrize("kind", [GlobalPointer, EfficientGlobalPointer])
def test_wrong_sizes_are_named(kind, settings, message):
    with pytest.raises(ValueError, match=message):
        kind(10, **({"num_types": 3} | settings))
    kind(10, num_types=3, head_size=5, rotary=False)


def test_wrong_inputs_are_named(make_head):
    with pytest.raises(ValueError, match=r"`hidden` must be \[B, T, 10\], the last states of an encoder; got \[2, 6, 9\]"):
        make_head()(torch.zeros(2, 6, 9))
    with pytest.raises(ValueError, match="`lengths` must be integers"):
        make_head()(draw_hidden(), torch.ones(2, 6))
    with pytest.raises(ValueError, match="Did you mean 'hidden'"):
        EfficientGlobalPointer(10, num_types=3, form="hiden")


def test_without_scale_and_biases_the_efficient_form_is_the_equation_of_the_post():
    """``q_i . k_j + w_a . [q_i; k_i; q_j; k_j]``, rotary positions in the product alone."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        head = EfficientGlobalPointer(10, num_types=3, head_size=4, scaled=False, bias=False, triangle=False).double()
    assert sum(each.numel() for each in head.parameters()) == 2 * 10 * 4 + 3 * 4 * 4
    hidden = draw_hidden()
    both = head.project(hidden)
    q, k = rotary(both[..., :4]), rotary(both[..., 4:])
    first, second = head.type_ends.weight.reshape(2, 3, 8)
    types = torch.einsum("bie,he->bhi", both, first)[..., None] + torch.einsum("bje,he->bhj", both, second)[..., None, :]
    torch.testing.assert_close(head(hidden).dense(), torch.einsum("bie,bje->bij", q, k).unsqueeze(1) + types)


def test_without_scale_global_pointer_is_the_bare_product():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        bare, usual = (GlobalPointer(10, num_types=3, head_size=4, scaled=scaled).double() for scaled in (False, True))
        bare.load_state_dict(usual.state_dict())
    torch.testing.assert_close(bare(draw_hidden()).dense(), 2 * usual(draw_hidden()).dense())
