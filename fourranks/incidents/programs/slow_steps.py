"""Trains on documents of four sources, mixed one by one, so that each batch has something of everything."""

import time

import torch
import torch.distributed as dist

STEPS, PER_STEP, VOCABULARY, WIDTH = 12, 4, 512, 32
WORDS = {"news": 1000, "books": 20000, "chats": 300, "code": 1500}  # of a typical document

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()


def read(source: str, count: int) -> list[str]:
    """Return documents of a source."""
    generator = torch.Generator().manual_seed(WORDS[source])
    lengths = (WORDS[source] * (0.8 + 0.4 * torch.rand(count, generator=generator))).int().tolist()
    return [" ".join(f"w{number * 7919 % 9973}" for number in range(length)) for length in lengths]


def tokenize(text: str) -> torch.Tensor:
    """Return the number of each word."""
    return torch.tensor([sum(map(ord, word)) % VOCABULARY for word in text.split()])


count = STEPS * PER_STEP
sources = [read(source, count) for source in WORDS]
documents = [document for mixed in zip(*sources, strict=True) for document in mixed]

torch.manual_seed(0)
embedding = torch.nn.EmbeddingBag(VOCABULARY, WIDTH)
head = torch.nn.Linear(WIDTH, VOCABULARY)
weights = [*embedding.parameters(), *head.parameters()]
optimizer = torch.optim.SGD(weights, lr=0.1)
own = documents[rank::world_size]
began = time.perf_counter()

for step in range(STEPS):
    texts = own[step * PER_STEP : (step + 1) * PER_STEP]
    tokens = [tokenize(text) for text in texts]
    starts = torch.tensor([0, *(len(each) for each in tokens[:-1])]).cumsum(0)
    optimizer.zero_grad()
    scores = head(embedding(torch.cat(tokens), starts))
    torch.nn.functional.cross_entropy(scores, torch.stack([each[-1] for each in tokens])).backward()
    for weight in weights:
        dist.all_reduce(weight.grad, op=dist.ReduceOp.AVG)
    optimizer.step()

words = torch.tensor(float(sum(len(document.split()) for document in own)))
dist.all_reduce(words)
if rank == 0:
    seconds = time.perf_counter() - began
    print(f"{STEPS} steps in {seconds:.2f} s, {words.item() / seconds:,.0f} words a second on four ranks")
