"""The model trained on a mesh has the losses of one process, whichever axes the mesh has."""

import pytest
import torch

import fourranks
from fourranks.learner import corpus
from fourranks.learner.model import Config, transformer
from fourranks.learner.training import train

STEPS = 4
SMALL = {"width": 32, "heads": 4, "blocks": 4}


@pytest.fixture(scope="module")
def losses_of_one_process():
    text = corpus.course()
    model = transformer(Config(len(text.alphabet), **SMALL))
    return train(model, torch.optim.AdamW(model.parameters(), lr=3e-3), text, range(STEPS))


@pytest.fixture(scope="module")
def world():
    with fourranks.start(world_size=4, backend="gloo") as group:
        yield group


def train_on(sizes, steps, small):
    from fourranks.learner import corpus, on_mesh
    from fourranks.learner.model import Config

    text = corpus.course()
    training = on_mesh.MeshTraining(Config(len(text.alphabet), **small), sizes, microbatches=2)
    return [training.step(text, number) for number in range(steps)]


train_on.__module__ = "__main__"  # so that ranks get it by value


@pytest.mark.parametrize("sizes", [(4, 1, 1), (1, 4, 1), (1, 1, 4), (2, 2, 1), (2, 1, 2), (1, 2, 2)])
def test_the_losses_on_every_rank_are_those_of_one_process(world, sizes, losses_of_one_process):
    for losses in world.run(train_on, sizes, STEPS, SMALL):
        assert losses == pytest.approx(losses_of_one_process, abs=1e-3)


def test_blocks_that_do_not_divide_into_stages_are_refused(world):
    with pytest.raises(fourranks.RankError, match="3 blocks do not divide into 2 stages"):
        world.run(train_on, (2, 2, 1), 1, SMALL | {"blocks": 3})
