# ruff: noqa: F821
FAILS_AS = {
    "synchronizes_each_time": ("SYNCHRONIZED_TOO_OFTEN", "no_sync()"),
    "sums_and_synchronizes_each_time": ("SYNCHRONIZED_TOO_OFTEN", "no_sync()"),
    "forward_outside_of_no_sync": ("SYNCHRONIZED_TOO_OFTEN", "their forward"),
    "backward_outside_of_no_sync": ("SYNCHRONIZED_TOO_OFTEN", "their backward"),
    "last_backward_inside": ("NEVER_SYNCHRONIZED", "its backward"),
    "never_synchronizes": ("NEVER_SYNCHRONIZED", "outside of no_sync()"),
    "last_forward_inside": ("NEVER_SYNCHRONIZED", "its forward as well"),
    "divides_by_the_ranks": ("SHARES_WRONG", "The wrapper divides"),
    "sums_losses": ("LOSSES_SUMMED", "a mean already"),
    "ignores_sizes": ("LOSSES_UNWEIGHTED", "len(inputs)"),
    "takes_all_for_as_large_as_the_last": ("SHARES_WRONG", "add up to 1"),
    "averages_what_is_averaged": ("SENT_BESIDE_THE_WRAPPER", "call no collective yourself"),
    "averages_the_loss": ("SENT_BESIDE_THE_WRAPPER", "this rank's own samples"),
    "forgets_to_finish": ("NOT_FINISHED", "finish_gradient_synchronization()"),
    "finishes_first": ("NOT_FINISHED", "finish_gradient_synchronization()"),
    "finishes_twice": ("FINISHED_TOO_OFTEN", "another call would send them all again"),
    "one_backward_for_all": ("GRAPHS_HELD", "before the forward of the next"),
    "puts_the_batch_together": ("GRAPHS_HELD", "put together"),
    "clears_gradients": ("EARLIER_MICROBATCHES_LOST", "no zero_grad()"),
    "returns_the_last_loss": ("WRONG_LOSS", "mean over all samples"),
    "returns_the_sum": ("WRONG_LOSS", "mean over all samples"),
    "returns_no_number": ("WRONG_LOSS", "mean over all samples"),
    "returns_a_graph": ("ATTACHED", "detach()"),
    "returns_nothing": ("WRONG_TYPE", "the task"),
    "skips_the_last": ("WRONG_GRADIENT or NEVER_SYNCHRONIZED", "e"),
    "pops_the_last": ("MODIFIED", "belongs to the caller"),
    "adds_up_losses_of_all_calls": ("FROM_AN_EARLIER_CALL", "default argument"),
    "takes_a_step": ("WEIGHTS_MOVED", "The optimizer"),
    "swaps_the_arguments_of_the_loss": ("WRONG_GRADIENT", "e"),
}


def run(model, microbatches, loss_fn, scale=None, before=lambda: None):
    """A right accumulation when `scale` is None; else `scale(size, total, count)` weighs a loss."""
    total, count = sum(len(inputs) for inputs, _ in microbatches), len(microbatches)
    scale = scale or (lambda size, total, count: size / total)
    losses = []
    for number, (inputs, targets) in enumerate(microbatches, 1):
        with nullcontext() if number == count else model.no_sync():
            before()
            loss = loss_fn(model(inputs), targets) * scale(len(inputs), total, count)
            loss.backward()
            losses.append(loss)
    return losses


def synchronizes_each_time(model, microbatches, loss_fn):
    total, mean = sum(len(inputs) for inputs, _ in microbatches), 0.0
    for inputs, targets in microbatches:
        loss = loss_fn(model(inputs), targets) * len(inputs) / total
        loss.backward()
        model.finish_gradient_synchronization()
        mean += loss.item()
    return mean


def sums_and_synchronizes_each_time(model, microbatches, loss_fn):
    for inputs, targets in microbatches:
        loss_fn(model(inputs), targets).backward()
    model.finish_gradient_synchronization()
    return 0.0


def forward_outside_of_no_sync(model, microbatches, loss_fn):
    total, mean = sum(len(inputs) for inputs, _ in microbatches), 0.0
    for number, (inputs, targets) in enumerate(microbatches, 1):
        loss = loss_fn(model(inputs), targets) * len(inputs) / total
        with nullcontext() if number == len(microbatches) else model.no_sync():
            loss.backward()
        mean += loss.item()
    model.finish_gradient_synchronization()
    return mean


def backward_outside_of_no_sync(model, microbatches, loss_fn):
    total, mean = sum(len(inputs) for inputs, _ in microbatches), 0.0
    for number, (inputs, targets) in enumerate(microbatches, 1):
        with nullcontext() if number == len(microbatches) else model.no_sync():
            loss = loss_fn(model(inputs), targets) * len(inputs) / total
        loss.backward()
        mean += loss.item()
    model.finish_gradient_synchronization()
    return mean


def last_backward_inside(model, microbatches, loss_fn):
    total, mean = sum(len(inputs) for inputs, _ in microbatches), 0.0
    for number, (inputs, targets) in enumerate(microbatches, 1):
        with nullcontext() if number == len(microbatches) else model.no_sync():
            loss = loss_fn(model(inputs), targets) * len(inputs) / total
        with model.no_sync():
            loss.backward()
        mean += loss.item()
    model.finish_gradient_synchronization()
    return mean


def never_synchronizes(model, microbatches, loss_fn):
    with model.no_sync():
        losses = run(model, microbatches, loss_fn)
    model.finish_gradient_synchronization()
    return sum(losses).item()


def last_forward_inside(model, microbatches, loss_fn):
    total, mean = sum(len(inputs) for inputs, _ in microbatches), 0.0
    for inputs, targets in microbatches:
        with model.no_sync():
            loss = loss_fn(model(inputs), targets) * len(inputs) / total
        loss.backward()
        mean += loss.item()
    model.finish_gradient_synchronization()
    return mean


def sums_losses(model, microbatches, loss_fn):
    losses = run(model, microbatches, loss_fn, scale=lambda size, total, count: 1)
    model.finish_gradient_synchronization()
    return sum(losses).item() / len(losses)


def ignores_sizes(model, microbatches, loss_fn):
    losses = run(model, microbatches, loss_fn, scale=lambda size, total, count: 1 / count)
    model.finish_gradient_synchronization()
    return sum(losses).item()


def forgets_to_finish(model, microbatches, loss_fn):
    return sum(run(model, microbatches, loss_fn)).item()


def averages_what_is_averaged(model, microbatches, loss_fn):
    losses = run(model, microbatches, loss_fn)
    model.finish_gradient_synchronization()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad, dist.ReduceOp.AVG)
    return sum(losses).item()


def averages_the_loss(model, microbatches, loss_fn):
    losses = run(model, microbatches, loss_fn)
    model.finish_gradient_synchronization()
    loss = sum(losses).detach()
    dist.all_reduce(loss, dist.ReduceOp.AVG)
    return loss


def finishes_first(model, microbatches, loss_fn):
    model.finish_gradient_synchronization()
    return sum(run(model, microbatches, loss_fn)).item()


def finishes_twice(model, microbatches, loss_fn):
    losses = run(model, microbatches, loss_fn)
    model.finish_gradient_synchronization()
    model.finish_gradient_synchronization()
    return sum(losses).item()


def one_backward_for_all(model, microbatches, loss_fn):
    total = sum(len(inputs) for inputs, _ in microbatches)
    with model.no_sync():
        losses = [
            loss_fn(model(inputs), targets) * len(inputs) / total for inputs, targets in microbatches[:-1]
        ]
    inputs, targets = microbatches[-1]
    loss = sum(losses) + loss_fn(model(inputs), targets) * len(inputs) / total
    loss.backward()
    model.finish_gradient_synchronization()
    return loss.detach()


def puts_the_batch_together(model, microbatches, loss_fn):
    inputs, targets = (torch.cat(parts) for parts in zip(*microbatches, strict=True))
    loss = loss_fn(model(inputs), targets)
    loss.backward()
    model.finish_gradient_synchronization()
    return loss.detach()


def clears_gradients(model, microbatches, loss_fn):
    losses = run(model, microbatches, loss_fn, before=model.zero_grad)
    model.finish_gradient_synchronization()
    return sum(losses).item()


def returns_the_last_loss(model, microbatches, loss_fn):
    losses = run(model, microbatches, loss_fn)
    model.finish_gradient_synchronization()
    return losses[-1].item()


def returns_the_sum(model, microbatches, loss_fn):
    losses = run(model, microbatches, loss_fn)
    model.finish_gradient_synchronization()
    return sum(losses).item() * len(losses)


def returns_no_number(model, microbatches, loss_fn):
    run(model, microbatches, loss_fn)
    model.finish_gradient_synchronization()
    return float("nan")


def takes_all_for_as_large_as_the_last(model, microbatches, loss_fn):
    last = len(microbatches[-1][0])
    losses = run(model, microbatches, loss_fn, lambda size, total, count: size / (count * last))
    model.finish_gradient_synchronization()
    return sum(losses).item()


def returns_a_graph(model, microbatches, loss_fn):
    losses = run(model, microbatches, loss_fn)
    model.finish_gradient_synchronization()
    return sum(losses)


def returns_nothing(model, microbatches, loss_fn):
    run(model, microbatches, loss_fn)
    model.finish_gradient_synchronization()


def skips_the_last(model, microbatches, loss_fn):
    losses = run(model, microbatches[:-1] or microbatches, loss_fn)
    model.finish_gradient_synchronization()
    return sum(losses).item()


def returns_a_number(model, microbatches, loss_fn):  # which is right
    losses = run(model, microbatches, loss_fn)
    model.finish_gradient_synchronization()
    return sum(losses).item()


def takes_a_step(model, microbatches, loss_fn):
    losses = run(model, microbatches, loss_fn)
    model.finish_gradient_synchronization()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.1 * parameter.grad
    return sum(losses).item()


def pops_the_last(model, microbatches, loss_fn):
    every = [*microbatches]
    microbatches.pop()
    return returns_a_number(model, every, loss_fn)


def adds_up_losses_of_all_calls(model, microbatches, loss_fn, losses=[]):  # noqa: B006
    losses.extend(loss.detach() for loss in run(model, microbatches, loss_fn))
    model.finish_gradient_synchronization()
    return sum(losses)


def divides_by_the_ranks(model, microbatches, loss_fn):
    losses = run(model, microbatches, loss_fn, lambda size, total, _: size / total / dist.get_world_size())
    model.finish_gradient_synchronization()
    return sum(losses).item() * dist.get_world_size()


def swaps_the_arguments_of_the_loss(model, microbatches, loss_fn):
    losses = run(model, microbatches, lambda outputs, targets: loss_fn(targets, outputs))
    model.finish_gradient_synchronization()
    return sum(loss.item() for loss in losses)
