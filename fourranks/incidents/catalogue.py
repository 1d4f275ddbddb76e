"""The eight incidents. Players read their programs, not this file: it has the answers."""

from __future__ import annotations

from .incident import RANKS, Cause, Incident

INCIDENTS = (
    Incident(
        name="Hang at step 37",
        alarm="The training of the sensor classifier stops after step 36. Every time. The processes are "
        "alive, the loss was fine.",
        program="hang_at_step_37.py",
        minutes=8,
        ranks=frozenset({2}),
        faulty=(
            "num_steps = len(readings) // BATCH",
            "is_fine = readings.isfinite().all(dim=1)",
            "readings, labels = readings[is_fine], labels[is_fine]",
            "for step in range(num_steps):",
        ),
        cause=Cause.C,
        seen="The explanation of the deadlock says that rank 2 waits in the barrier behind the loop, and the"
        " others in an all-reduce inside it. `num_steps` in a %%ranks cell shows why: rank 2's site has"
        " lost more readings than the others, and has 37 batches left.",
        prevented="Agree on the number of steps before the loop, for example by an all-reduce with "
        "ReduceOp.MIN, or use a DistributedSampler, which gives each rank the same number of "
        "samples.",
    ),
    Incident(
        name="Slow steps",
        alarm="The new mixture of sources has six times as many words as news alone. A step takes far more "
        "than six times as long, and three of four GPUs are idle most of the time. Is it the network?",
        program="slow_steps.py",
        minutes=8,
        ranks=frozenset({1}),
        faulty=(
            "own = documents[rank::world_size]",
            "documents = [document for mixed in zip(*sources, strict=True) for document in mixed]",
        ),
        cause=Cause.L,
        seen="A trace shows rank 1 computing while the others wait in their first all-reduce, step after "
        "step. There are four sources and four ranks, so every fourth document is a book, and all books"
        " go to rank 1.",
        prevented="Shuffle before dividing, and give ranks tokens instead of documents. A progress bar that "
        "names the slowest rank shows it from the first step.",
    ),
    Incident(
        name="Unseen samples",
        alarm="The validation loss is worse than it was on one rank, with the same data. A check at the end "
        "of the epoch says that some samples were never seen.",
        program="unseen_samples.py",
        minutes=10,
        ranks=frozenset({0}),
        faulty=(
            "answer = model(torch.randn(BATCH, FEATURES))",
            "print(describe(model))",
            "order = torch.randperm(SAMPLES)",
        ),
        cause=Cause.D,
        seen="`order[:5]` in a %%ranks cell is merged for ranks 1 to 3, and differs on rank 0. All had the "
        "same seed, but rank 0 alone has drawn noise for its log line before the shuffle.",
        prevented="Give the shuffle a generator of its own, seeded with the epoch. That is what "
        "DistributedSampler does.",
    ),
    Incident(
        name="Copies that drift",
        alarm="Loss falls nicely under tensor parallelism. But a checkpoint of rank 0 and one of rank 3 do "
        "not agree in the weights of the norm, which should be replicated.",
        program="copies_that_drift.py",
        minutes=12,
        ranks=RANKS,
        faulty=("hidden = gate * self.up(normed)",),
        cause=Cause.F,
        seen="A trace has two all-reduces a step: one of the forward pass, one of the backward pass. The "
        "input is used twice, by gate and by up, and only the path through gate is summed. The gradient"
        " of the norm therefore differs on all ranks: compare `block.norm.weight.grad`.",
        prevented="Make one shared copy of the input and use it for both weights. A test that compares "
        "gradients with those of the unsharded block finds it at once; so does an assertion that "
        "replicated gradients agree.",
    ),
    Incident(
        name="Memory that climbs",
        alarm="After two days the machines run out of memory. Somebody restarts the job every night now. "
        "Strangely, the rank that writes the log is fine.",
        program="memory_that_climbs.py",
        minutes=8,
        ranks=frozenset({1, 2, 3}),
        faulty=(
            "if step % LOG_EVERY == LOG_EVERY - 1 and rank == 0:",
            "histograms.append((dist.all_reduce(counts, async_op=True), counts))",
            "histograms.clear()",
        ),
        cause=Cause.I,
        seen="%ranks and the dashboard show the memory of ranks 1 to 3 climb, and `len(histograms)` in a "
        "%%ranks cell is 0 on rank 0 and 80 on the others. They start as many all-reduces as rank 0, "
        "and never wait for them.",
        prevented="Wait on every rank, and only print on one. Keep a bounded number of handles: wait for the"
        " oldest before starting the next.",
    ),
    Incident(
        name="Out of memory",
        alarm="One of the four containers is killed for its memory within a minute. All have the same model "
        "and the same batch, and the others use a fraction of it.",
        program="out_of_memory.py",
        minutes=10,
        ranks=frozenset({0}),
        faulty=("curve.append(loss_of(held_out))",),
        cause=Cause.J,
        seen="The error names the line that asked for memory last, which is often the training step. The "
        "dashboard shows rank 0 climbing with each validation. `curve[0].grad_fn` is there: each loss "
        "in the list keeps all activations of its forward pass, as no backward has ever freed them.",
        prevented="Validate under torch.no_grad() and keep `loss.item()`, a plain number.",
    ),
    Incident(
        name="Worse on four ranks",
        alarm="A trained mixture of experts does well in one process. On four ranks the same weights give "
        "other results for half of the tokens. No error, no warning.",
        program="worse_on_four_ranks.py",
        minutes=12,
        ranks=frozenset({1, 2}),
        faulty=(
            "expert_group = dist.new_group(PLACEMENT)",
            "own_expert = PLACEMENT.index(rank)",
        ),
        cause=Cause.G,
        seen="`dist.get_process_group_ranks(expert_group)` is [0, 1, 2, 3]: new_group sorts the ranks that "
        "it is given. So tokens for expert 1 go to position 1 of the group, which is rank 1, and rank 1"
        " holds expert 2.",
        prevented="Take a rank's expert from its position in the group, dist.get_rank(expert_group), or send"
        " the expert's number along with the first batch and compare.",
    ),
    Incident(
        name="Too good to be true",
        alarm="The new cluster is accepted: our benchmark reports a busbw that is several times what its "
        "memory can carry. The vendor is pleased. You are not.",
        program="too_good_to_be_true.py",
        minutes=6,
        ranks=RANKS,
        faulty=("elapsed = torch.tensor(time.perf_counter() - began)", "works = repeat(buffer, ITERATIONS)"),
        cause=Cause.N,
        seen="busbw grows with the size without an end, as the time hardly grows: the measured time is how "
        "long it takes to ask. A trace shows the all-reduces running on after the clock has stopped.",
        prevented="Stop the clock after wait(), and on a GPU after a synchronize. Compare with the bandwidth"
        " of the slowest part on the way: no busbw can exceed it.",
    ),
)
