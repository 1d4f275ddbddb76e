"""Hints of exercise 07: layers in stages, schedules and their bubbles, messages between neighbours."""

from __future__ import annotations

from typing import Any

from autograder.kit.mistakes import mistake, patterned
from autograder.kit.pattern import Pattern, Rule, single_rank, smaller_group

# assign_layers
NO_RANGE = mistake("""not a range
    Return `range(first, last + 1)`: a range has a length, and you can slice a list of layers with it.""")
LAYERS_MISSING = mistake("""layers that no stage has
    Distribute the remainder of num_layers // num_stages, too: `divmod` gives both numbers, and each of
    the first stages takes one more layer.""")
LAYERS_TWICE = mistake("""layers that two stages have
    A stage begins where the previous one ends: at stage · size, plus one for each earlier stage with an
    extra layer.""")
LAYERS_OUT_OF_ORDER = mistake("""layers that are not next to each other
    A stage has neighbouring layers, and stages come in the order of the model: otherwise every layer
    would send to another rank.""")
LAYERS_UNEVEN = mistake("""stages of very different sizes
    The slowest stage sets the pace. Give the remainder to the first stages, one layer each, instead of
    all to one.""")
LONGER_STAGES_ELSEWHERE = mistake("""the longer stages are not the first
    Follow `torch.tensor_split`: the first num_layers % num_stages stages get one more layer.""")
EMPTY_STAGES_ACCEPTED = mistake("""a stage without layers is accepted
    A rank without a layer would only pass its input on. Raise a ValueError when there are more stages
    than layers.""")
POSSIBLE_LAYERS_REFUSED = mistake("""a possible number of layers is refused
    Refuse only more stages than layers; the layers need not divide by the stages.""")
REFUSAL_WITHOUT_NUMBERS = mistake("""a refusal that does not say why
    Name both numbers, and say what to do.""")

# schedules
NO_SCHEDULE = mistake("""not a schedule
    A schedule is a list of pairs ("F", microbatch) and ("B", microbatch), microbatches from 0. A schedule
    has no steps for waiting: a rank waits automatically for its input.""")
POSSIBLE_MICROBATCHES_REFUSED = mistake("""a possible number of microbatches is refused
    There may be fewer microbatches than stages, and also a single one. Only an interleaved schedule refuses
    numbers: those that are no multiple of the number of ranks. Any multiple will do, whatever the number of
    chunks, and on one rank any number.""")
STEPS_MISCOUNTED = mistake("""steps that are missing, or there twice
    Each stage does a forward and a backward of each microbatch, however few there are: the warm-up cannot
    be longer than the number of microbatches, and every forward needs a backward.""")
BACKWARD_BEFORE_FORWARD = mistake("""a backward before its forward
    The backward of a microbatch needs its forward on the same stage.""")
STAGES_STUCK = mistake("""stages that wait for one another
    Simulate it: with this order of steps the stages get stuck. How many microbatches have to be in flight
    before the first backward can come back to this stage?""")
TOO_MANY_IN_FLIGHT = mistake("""too many microbatches in flight
    After the warm-up each forward is followed by a backward. The warm-up of a stage has as many forwards as
    there are later stages; with v chunks on a rank, (v − 1) · p and two for each later rank. Every additional
    forward keeps activations in memory unnecessarily.""")
TOO_FEW_IN_FLIGHT = mistake("""too few microbatches in flight
    A backward that is done too early leaves the later stages without work. Under GPipe all forwards come
    first. Under 1F1B, count the warm-up from the last stage: it has none, and each earlier stage has one
    forward more; with v chunks on a rank it has (v − 1) · p, and each earlier rank has two more.""")
ANOTHER_ORDER_OF_STEPS = mistake("""a wrong order
    Write down the steps of two stages for three microbatches, and compare with the drawing.""")
UNEVEN_ROUNDS_ACCEPTED = mistake("""a number of microbatches that leaves a round unfilled
    Microbatches go round in groups of as many as there are ranks: refuse a number that does not divide.""")

# bubble_fraction
POSSIBLE_SCHEDULES_REFUSED = mistake("""schedules that can run are refused
    They wait forever only if steps are left and no rank can do its next step.""")
ENDLESS_WAIT_UNNOTICED = mistake("""ranks that wait forever, unnoticed
    When steps are left and no rank can do its next one, raise a ValueError that names a step that cannot
    begin.""")
ENDLESS_WAIT_UNNAMED = mistake("""ranks that wait forever, but for what?
    Name in the error's text a step that cannot begin, such as B0: its reader will look there first.""")
SHARE_OF_THE_COMPUTATION = mistake("""the bubble relative to the computation
    Here it is a share of all time, computing and waiting together: with p stages and m microbatches (p −
    1)/(m + p − 1), not (p − 1)/m.""")
SHARE_OF_TIME_THAT_IS_BUSY = mistake("""the share in which ranks are busy
    The bubble is the rest: 1 minus this.""")
BUBBLE_IN_SECONDS = mistake("""seconds instead of a share
    Divide by the time of all ranks: the number of ranks times the end of the last step.""")
BUBBLE_IN_PERCENT = mistake("""a percentage
    Return a share between 0 and 1.""")
ALL_STEPS_ALIKE = mistake("""all steps take the same time
    A forward takes `forward` seconds and a backward `backward`.""")
DEFAULT_TIMES = mistake("""the times that were given are not used
    1 and 2 are only the defaults of `forward` and `backward`.""")
FORMULA_NOT_SIMULATION = mistake("""the formula instead of a simulation
    The formula holds for GPipe and 1F1B alone. Go through the schedules that you get, step by step.""")
ROUNDED_BUBBLE = mistake("""a bubble that was rounded
    Only late digits differ. Compute with Python's numbers: a tensor of clocks, as torch.zeros makes one, is
    float32.""")
WRONG_BUBBLE = mistake("""a wrong bubble
    Try two stages and one microbatch on paper. A step begins when its rank is free and the step that it
    needs is done; the time ends with the last step of any rank.""")

# run_pipeline
PIPELINE_DEADLOCK = patterned("""a deadlock
    Two neighbours wait for each other: one for the end of its send, or for a message that the other has
    not sent yet. Send with isend (or batch_isend_irecv), go on, and wait for a send only when its
    microbatch is done. The schedule alone determines which messages a stage receives, and in which order.""")
SENT_WITH_GAPS = mistake("""a tensor that is not contiguous
    A message must be contiguous in memory, and so must the buffer for it, but not every output of a module
    is: send outputs.contiguous(), and receive into torch.empty_like(inputs), not into
    empty_like(outputs).""")
COLLECTIVE_IN_A_PIPELINE = mistake("""a collective in the pipeline
    All data goes from neighbour to neighbour, including the loss: use isend, irecv, send, recv or
    batch_isend_irecv.""")
NOT_NEXT_DOOR = mistake("""a message past the neighbours
    Send activations to the next stage and gradients to the previous one. Send the loss back like the
    gradients.""")
NO_LOSS = mistake("""no loss is returned
    Every rank returns the mean loss as a Python float: `.item()` makes one of a tensor.""")
WRONG_MEAN_LOSS = mistake("""a wrong loss
    The mean over all samples is the sum of the microbatches' losses, each times its share of the samples.
    The arguments of loss_fn are outputs and targets, in this order.
    If only the last digits differ, the loss was rounded on its way: torch.tensor([loss]) is float32.""")
LOSS_NOT_PASSED_BACK = patterned("""the loss of the last stage does not get to the others
    Only the last stage can compute it. Send it from stage to stage after the last gradient: receive it
    from the next stage, and send it to the previous one.""")
DATA_OF_ANOTHER_STAGE = patterned("""not a number: data of another stage
    Only the first stage may read inputs, and only the last one targets: on other stages they are filled
    with NaN. Or a buffer was read before its wait().""")
STAGE_WITHOUT_GRADIENTS = patterned("""a stage without gradients
    A received activation begins a new graph: call `requires_grad_()` on it before the forward, and
    `outputs.backward(gradient)` with the gradient that comes back from the next stage.""")
NOTHING_TO_SEND = patterned("""None in the place of a message
    Look at what is sent in that line. `inputs.grad` is None before the backward, and it stays None if
    `requires_grad_()` was not called on the received activation before the forward.""")
FROZEN_STAGE_TRAINED = mistake("""a frozen stage has gradients
    If nothing in a stage requires a gradient, only receive the gradient.""")
LOSSES_OF_MICROBATCHES_SUMMED = mistake("""gradients of the sum of the losses
    Each microbatch's loss is a mean already: scale it by the microbatch's share of all samples before its
    backward.""")
MICROBATCHES_COUNT_THE_SAME = mistake("""microbatches of different sizes count the same
    Scale each loss by len(inputs) over all samples, not by 1 over the number of microbatches.""")
ONE_MICROBATCH_ONLY = mistake("""gradients of one microbatch
    Gradients of all microbatches add up in .grad: do not clear them in between.""")
WRONG_STAGE_GRADIENTS = patterned("""wrong gradients
    Does each gradient that arrives meet the outputs of its own microbatch? Is a buffer overwritten while
    its contents are still needed, or read before its wait()? Only the last stage scales, its losses and
    nothing else.""")
ANOTHER_SCHEDULE = patterned("""a different schedule than the given one
    Do the steps in the order of the list, each of them once. It is not always GPipe or 1F1B.""")
COMPUTED_AGAIN = mistake("""right, but the stage is called more than once for a microbatch
    Keep the outputs of a forward until its backward, instead of computing them again: the schedule has room
    for them. Lecture 08 shows what recomputation is for.""")
ACTIVATIONS_ALIVE = mistake("""right, but too many activations are alive
    A backward frees its graph. Is the graph kept by retain_graph=True, or does a forward run twice?""")
ACTIVATIONS_KEPT = mistake("""right, but inputs, outputs or gradients are kept
    A dict, a list or the handle of a send still holds them: take a microbatch out (`pop`) in its
    backward, and wait for the send of its outputs there. Its gradient has come back, so the outputs have
    been received. Before you send a gradient, wait for the previous one. And losses that are added up
    without detach() hold all that they were made of.""")
BUFFERS_AHEAD = mistake("""right, but too many buffers at once
    A buffer for each microbatch takes as much memory as GPipe. Start to receive an activation when its
    forward is next, and a gradient when its backward is next.""")
MORE_MESSAGES_THAN_MICROBATCHES = mistake("""right, but too many messages
    The shape need not be sent, it is that of the inputs. Each microbatch takes one message forward and
    one back, and the loss takes one.""")
MORE_THAN_ACTIVATIONS = mistake("""right, but too many bytes
    Send only the output of the stage to the next one, and the gradient of its input to the previous one.""")
STAGE_CHANGED = mistake("""the weights were changed
    Leave the gradients in .grad. The optimizer changes the weights later, when the gradients of all
    microbatches are there.""")
SENT_LATE = mistake("""right, but sent too late
    The next stage is waiting: send what was computed before the next step begins.""")
BLOCKING_SEND = mistake("""right, but a send blocks
    isend returns immediately. Keep its handle, go on with the schedule, and call wait() when the
    microbatch is done.""")
AWAITED_EARLY = mistake("""right, but a rank waits too early
    Wait for a message right before the step that needs it; until then do other steps.""")

# SplitBackwardLinear
OTHER_PARAMETERS = mistake("""other parameters than nn.Linear's
    Inherit from nn.Linear, and register nothing: a state dict then fits both.""")
WRONG_OUTPUTS = mistake("""wrong outputs
    The forward is nn.Linear's: `functional.linear`.""")
WRONG_INPUT_GRADIENTS = mistake("""wrong gradients of the input
    The output's gradient times the weight, of the shape of the input. If only late digits differ, something
    is rounded: compute in the dtype of the input.""")
NOT_SPLIT = mistake("""the backward makes all gradients
    In backward, return None for weight and bias, and keep the tensors from which their gradients are
    computed.""")
WRONG_WEIGHT_GRADIENTS = mistake("""wrong gradients of weight or bias
    backward_weight() is for one microbatch, the pending one with the earliest backward: weight.grad grows
    by the transposed output's gradient times the input, with all dimensions but the last flattened into
    one; bias.grad by its sum over the same. It adds to existing gradients. If only late digits differ,
    something is rounded: compute in the dtype of the input.""")
SHARED_BY_LAYERS = mistake("""layers share what is pending
    backward_weight() of one layer has used a microbatch of another. Each layer keeps its own: make the list
    in __init__. A list in the body of the class, or outside of the class, is one for all layers.""")
COMPUTED_TWICE = mistake("""right, but multiplied more than once
    Forward, backward and backward_weight take one matrix multiplication each for a microbatch:
    nn.Linear's backward, cut into two.""")
FROZEN_COMPUTED = mistake("""right, but gradients of a frozen layer are computed
    Nobody needs them, and a matrix multiplication is what they cost: ask for requires_grad before you
    multiply.""")
INPUTS_KEPT = mistake("""right, but inputs stay in memory
    Free the tensors of a microbatch once its backward_weight() is done, and compute under torch.no_grad():
    otherwise weight.grad has a graph, which keeps them.""")
NOTHING_LEFT_TO_DO = mistake("""no RuntimeError for one call too many
    When no microbatch is pending, backward_weight() must raise a RuntimeError.""")


def _special(name: str) -> Rule:
    return lambda case: case.special == name


PATTERNS: tuple[Pattern[Any], ...] = (
    smaller_group(
        "every call. The stage is the "
        "position in the group, and its neighbours are group_src= and group_dst=."
    ),
    single_rank("Only a single rank goes wrong: it is the first stage and the last, and has no neighbours."),
    Pattern(
        _special("a frozen first stage"),
        "Only a frozen first stage goes wrong: its outputs require no gradient, but a gradient still "
        "arrives.",
    ),
    Pattern(
        _special("a frozen last stage"),
        "Only a frozen last stage goes wrong: its own parameters need no gradient, but its inputs do.",
    ),
    Pattern(
        lambda case: 1 < case.world_size > case.num_microbatches,
        "Only fewer microbatches than stages go wrong.",
    ),
    Pattern(
        lambda case: case.world_size > 2,
        "With 2 stages all is well: stages in the middle, which have two neighbours, go wrong.",
        controls=lambda case: case.world_size == 2,
    ),
)

SPLIT_PATTERNS: tuple[Pattern[Any], ...] = (
    Pattern(
        _special("inputs without a gradient"),
        "Only inputs that require no gradient go wrong, as those of a model's first layer: its outputs "
        "still require one, for the weight and the bias.",
    ),
    Pattern(
        _special("frozen"),
        "Only a frozen layer goes wrong: its microbatches are pending, too, and backward_weight() takes one, "
        "and adds nothing.",
    ),
    Pattern(lambda case: not case.bias, "Only a layer without a bias goes wrong: its `bias` is None."),
)
