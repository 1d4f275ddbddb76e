"""The model that lectures train: it learns, and it can be cut in each direction."""

import math

import pytest
import torch

from fourranks.learner.corpus import CONTEXT, Corpus, batch, course, write
from fourranks.learner.model import Config, TransformerBlock, joined, loss, share, transformer
from fourranks.learner.training import train

SMALL = Config(characters=7, width=16, heads=4, blocks=2)
CORPUS = Corpus.of("sharded " * 40)


@pytest.fixture(autouse=True)
def one_thread():
    """Tests run side by side, and threads that wait for each other's processor take many times as long."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def model():
    return transformer(SMALL)


@pytest.fixture
def inputs():
    return batch(CORPUS, step=3)[0] % SMALL.characters


def summed_over_ranks(shares, x):
    """Tensor parallelism computes partial sums of attention and MLP, added up before each goes on."""
    x = shares[0][0](x)
    for blocks in list(zip(*shares, strict=True))[1:-1]:
        x = x + sum(block.attention(block.norm_1(x)) for block in blocks)
        x = x + sum(block.mlp(block.norm_2(x)) for block in blocks)
    return shares[0][-1](x)


def test_the_loss_begins_at_guessing_and_falls_in_a_few_steps():
    model = transformer(Config(len(CORPUS.alphabet), width=16, blocks=1))
    losses = train(model, torch.optim.AdamW(model.parameters(), lr=3e-3), CORPUS, range(20))
    assert losses[0] == pytest.approx(math.log(len(CORPUS.alphabet)), abs=0.5)
    assert losses[-1] < losses[0] - 0.5


def test_the_default_model_has_between_one_and_three_million_parameters():
    model = transformer(Config(len(course().alphabet)))
    assert 1e6 < sum(parameter.numel() for parameter in model.parameters()) < 3e6


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_shares_of_heads_and_hidden_units_compute_what_the_whole_computes(model, inputs, ranks):
    shares = [share(model, SMALL, rank, ranks) for rank in range(ranks)]
    torch.testing.assert_close(summed_over_ranks(shares, inputs), model(inputs))


def test_a_share_has_its_part_of_each_block_and_all_of_the_rest(model):
    whole, quarter = (each.state_dict() for each in (model, share(model, SMALL, rank=1, ranks=4)))
    shapes = {name: (tuple(whole[name].shape), tuple(quarter[name].shape)) for name in whole}
    assert shapes["1.attention.qkv.weight"] == ((48, 16), (12, 16))
    assert shapes["1.mlp.down.weight"] == ((16, 64), (16, 16))
    assert shapes["1.norm_1.weight"] == ((16,), (16,))


def test_a_share_of_a_model_in_float64_is_in_float64_and_computes_the_same(inputs):
    model = transformer(SMALL).double()
    assert {weight.dtype for weight in share(model, SMALL, rank=1, ranks=2).parameters()} == {torch.float64}
    torch.testing.assert_close(share(model, SMALL, 0, 1)(inputs), model(inputs), rtol=0, atol=0)


def test_joined_shares_are_the_whole_model(model):
    state = joined([share(model, SMALL, rank, 2).state_dict() for rank in range(2)])
    assert all(torch.equal(state[name], weight) for name, weight in model.state_dict().items())


def test_what_enters_and_leaves_a_block_passes_its_two_functions(model, inputs):
    calls = []

    def note(name):
        return lambda x: calls.append(name) or x

    share(model, SMALL, 0, 1, enter=note("enter"), leave=note("leave"))(inputs)
    assert calls == ["enter", "leave"] * 2 * SMALL.blocks


def test_slices_of_the_layers_are_stages_whose_weights_keep_their_names(model, inputs):
    stages = [model[:2], model[2:]]
    torch.testing.assert_close(stages[1](stages[0](inputs)), model(inputs))
    assert [*stages[0].state_dict(), *stages[1].state_dict()] == [*model.state_dict()]


def test_no_character_sees_those_behind_it(model, inputs):
    changed = inputs.clone()
    changed[:, 40:] = 0
    torch.testing.assert_close(model(inputs)[:, :40], model(changed)[:, :40])


@pytest.mark.parametrize(("width", "heads", "ranks"), [(16, 3, 1), (16, 4, 3)])
def test_heads_that_do_not_divide_are_refused(width, heads, ranks):
    with pytest.raises(ValueError, match=f"{heads} heads must divide the width {width}, and {ranks} ranks"):
        TransformerBlock(Config(7, width, heads), ranks)


def test_the_same_seed_makes_the_same_model_and_another_one_another():
    one, same, other = (transformer(SMALL, seed)[1].mlp.up.weight for seed in (0, 0, 1))
    assert torch.equal(one, same) and not torch.equal(one, other)


def test_ranks_share_the_rows_that_one_process_would_read():
    whole = torch.cat(batch(CORPUS, 5), 1)
    parts = [torch.cat(batch(CORPUS, 5, rank, 4), 1) for rank in range(4)]
    assert torch.equal(torch.cat(parts), whole) and len(whole) == 16


def test_step_and_seed_decide_a_batch():
    one, same, later, other = (batch(CORPUS, *numbers)[0] for numbers in ((5,), (5,), (6,)) + ((5, 0, 1),))
    assert torch.equal(one, same) and torch.equal(one, other) and not torch.equal(one, later)
    assert not torch.equal(one, batch(CORPUS, 5, seed=1)[0])


def test_targets_are_the_characters_that_follow():
    inputs, targets = batch(CORPUS, 0)
    assert inputs.shape == (16, CONTEXT) and torch.equal(inputs[:, 1:], targets[:, :-1])


def test_rows_that_do_not_divide_over_ranks_are_refused():
    with pytest.raises(ValueError, match="16 rows do not divide over 3 ranks"):
        batch(CORPUS, 0, rank=0, ranks=3)


def test_the_loss_is_the_mean_over_all_characters():
    scores = torch.zeros(2, 3, 5)
    assert loss(scores, torch.ones(2, 3, dtype=torch.int64)).item() == pytest.approx(1.6094, abs=1e-4)


def test_what_is_written_goes_on_from_the_prompt_and_follows_from_the_seed():
    model = transformer(Config(len(CORPUS.alphabet), width=16))
    texts = [write(model, CORPUS, "shard", count=80, seed=seed) for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]
    assert texts[0].startswith("shard") and len(texts[0]) == 85


def test_a_prompt_loses_characters_that_the_text_does_not_have():
    model = transformer(Config(len(CORPUS.alphabet), width=16))
    assert write(model, CORPUS, "share: 4", count=0) == "share "


def test_a_prompt_without_a_known_character_is_refused():
    model = transformer(Config(len(CORPUS.alphabet), width=16))
    with pytest.raises(ValueError, match="no character of the text"):
        write(model, CORPUS, "XYZ", count=1)
