"""Inputs that are drawn are spread as they should be, come again for the same seed, and betray nothing."""

import pytest
import torch

from autograder import check
from autograder.grading.referee import _SecretChecks
from autograder.inside import wire
from autograder.inside.runs import RunFailed
from autograder.kit.draws import Draws
from autograder.kit.settings import settings
from autograder.kit.student import NotebookFunction
from autograder.kit.verdict import CheckFailed

SEED = 2**127 + 12345


def numbers(seed: int, many: int = 8) -> list[int]:
    return Draws(seed).randint(0, 1 << 40, (many,)).tolist()


def test_the_same_seed_draws_the_same_numbers_and_any_other_bit_draws_others():
    assert numbers(SEED) == numbers(SEED)
    for bit in (0, 31, 32, 63, 64, 127):  # torch's own generator tells no seeds apart beyond 32 bits
        assert set(numbers(SEED)).isdisjoint(numbers(SEED ^ 1 << bit))


def test_each_draw_is_another_and_what_is_split_off_does_not_depend_on_later_draws():
    draws, again = Draws(SEED), Draws(SEED)
    assert draws.randint(0, 1 << 40) != draws.randint(0, 1 << 40)
    again.rand((5,))
    again.randn((5,))
    apart, same = draws.split(), again.split()
    assert apart.randint(0, 1 << 40, (3,)).tolist() != draws.randint(0, 1 << 40, (3,)).tolist()
    assert same.seed("a") != again.seed("a") != again.seed("b")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64])
@pytest.mark.parametrize(("low", "high"), [(-16, 17), (0, 2), (-(2**30), 2**30 + 1)])
def test_integers_fill_their_range_evenly(dtype, low, high):
    drawn = Draws(SEED).randint(low, high, (50, 400), dtype)
    assert drawn.dtype == dtype and drawn.shape == (50, 400)
    if dtype != torch.bfloat16 or high < 100:
        assert drawn.min() >= low and drawn.max() < high
    assert abs((drawn.double() - low).mean() / (high - 1 - low) - 0.5) < 0.02


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_fractions_are_even_and_normal_numbers_are_normal(dtype):
    even, normal = Draws(SEED).rand((20_000,), dtype), Draws(SEED).randn((20_000,), dtype)
    assert even.dtype == normal.dtype == dtype
    assert even.min() >= 0 and even.max() < 1
    assert even.double().mean().sub(0.5).abs() < 0.02
    assert normal.double().mean().abs() < 0.05 and normal.double().var().sub(1).abs() < 0.05
    assert normal.double().abs().lt(1).double().mean().sub(0.683).abs() < 0.02
    assert normal.isfinite().all()


def test_empty_shapes_and_single_numbers_are_drawn_too():
    draws = Draws(0)
    assert draws.rand((0, 4)).shape == draws.randn((0, 4)).shape == (0, 4)
    assert draws.randint(3, 4).item() == 3


# --- in checks

DRAWING = [
    ("ring_all_reduce", {"world_sizes": (2,), "numels": (7,)}),
    ("shard_batch", {"world_sizes": (2,)}),
    ("average_gradients", {"world_sizes": (2,)}),
    ("local_sgd_round", {"world_sizes": (2,)}),
    ("top_k_compressor", {"world_sizes": (2,)}),
    ("sharded_optimizer", {"world_sizes": (2,)}),
    ("reduce_from_ranks", {"world_sizes": (2,)}),
    ("parallel_mlp", {"world_sizes": (2,)}),
    ("vocab_parallel_cross_entropy", {"world_sizes": (2,)}),
    ("run_pipeline", {"world_sizes": (2,)}),
    ("split_backward_linear", {}),
    ("algbw", {}),
]


class _Looking(NotebookFunction):
    """A handle that keeps what its ranks would get, in place of handing it to them."""

    def __init__(self) -> None:
        super().__init__(len)
        self.inputs: list[bytes] = []

    def run(self, inputs, **options):
        self.inputs.append(wire.encode([None if own is None else list(own) for own in inputs]))
        raise RunFailed("raised", "looked")


def drawn_by(operation: str, seed: int, limits: dict) -> list[bytes]:
    looking = _Looking()
    with pytest.raises(CheckFailed):
        getattr(check, operation)(looking, seed=seed, **limits)
    return looking.inputs


@pytest.mark.parametrize(("operation", "limits"), DRAWING, ids=[name for name, _ in DRAWING])
def test_all_bits_of_a_seed_count(operation, limits):
    """Torch's own generator ignores all bits but 32: so few can be tried out."""
    drawn = drawn_by(operation, SEED, limits)
    assert drawn == drawn_by(operation, SEED, limits)
    for bit in (32, 64, 127):
        assert drawn != drawn_by(operation, SEED ^ 1 << bit, limits)


def test_ranks_get_seeds_for_their_models_that_differ_and_do_not_contain_the_check_s():
    seeds = {setting.model_seed(rank) for setting in settings((2, 3, 5), SEED) for rank in setting.ranks}
    assert len(seeds) == 2 + 3 + 5 + 3
    assert not seeds & {SEED % 2**bits for bits in (16, 31, 32, 56)}


def test_the_referee_draws_from_128_bits_that_differ_by_secret_check_and_seed(monkeypatch):
    seen = []
    monkeypatch.setattr(check, "exchange", lambda *_, seed, **__: seen.append(seed))
    monkeypatch.setattr(check, "gather", lambda *_, seed, **__: seen.append(seed))
    for secret in ("a", "b", "a"):
        _SecretChecks(secret).exchange(len)
        _SecretChecks(secret).exchange(len, seed=1)
        _SecretChecks(secret).gather(len)
    assert len(set(seen)) == 6 and seen[:3] == seen[6:]
    assert max(seen).bit_length() > 120
