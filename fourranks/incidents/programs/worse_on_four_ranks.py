"""Evaluates a trained mixture of experts on four ranks, one expert on each, and in one process."""

import torch
import torch.distributed as dist

WIDTH, TOKENS_PER_EXPERT = 16, 64

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()

# Experts 1 and 2 are called together most often, so they are kept on different nodes: ranks 0 and 1 share
# one, ranks 2 and 3 the other.
PLACEMENT = [0, 2, 1, 3]  # the rank of each expert
expert_group = dist.new_group(PLACEMENT)
own_expert = PLACEMENT.index(rank)


def load_expert(number: int) -> torch.nn.Linear:
    """Return a trained expert from its checkpoint."""
    torch.manual_seed(70 + number)
    return torch.nn.Linear(WIDTH, WIDTH, bias=False)


def sample(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return tokens, as many for each expert, and the number of the expert that the router chose."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randn(world_size * TOKENS_PER_EXPERT, WIDTH, generator=generator)
    chosen = torch.arange(world_size).repeat(TOKENS_PER_EXPERT)
    return tokens, chosen[torch.randperm(len(chosen), generator=generator)]


@torch.no_grad()
def on_four_ranks(tokens: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    """Send each token to its expert's rank and bring the result back to the token's place."""
    by_expert = chosen.argsort(stable=True)
    arrived, returned = torch.empty_like(tokens), torch.empty_like(tokens)
    dist.all_to_all_single(arrived, tokens[by_expert], group=expert_group)
    dist.all_to_all_single(returned, expert(arrived), group=expert_group)
    result = torch.empty_like(tokens)
    result[by_expert] = returned
    return result


@torch.no_grad()
def in_one_process(tokens: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    """Do the same without communication, with all experts here."""
    result = torch.empty_like(tokens)
    for number in range(world_size):
        mine = chosen == number
        result[mine] = load_expert(number)(tokens[mine])
    return result


expert = load_expert(own_expert)
tokens, chosen = sample(seed=rank)
expected = in_one_process(tokens, chosen)
error = (on_four_ranks(tokens, chosen) - expected).norm() / expected.norm()
dist.all_reduce(error, op=dist.ReduceOp.AVG)
if rank == 0:
    print(f"difference from the evaluation in one process: {error.item():.0%}")
