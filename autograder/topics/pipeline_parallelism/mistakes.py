"""Hints of exercise 07: layers in stages, schedules and their bubbles, messages between neighbours."""

from __future__ import annotations

from typing import Any

from autograder.kit.mistakes import mistake, patterned
from autograder.kit.pattern import Pattern, Rule, single_rank, smaller_group

# assign_layers
NO_RANGE = mistake("""not a range
    Return `range(first, behind_the_last)`: it knows its length, and a list of layers can be cut with it.""")
LAYERS_MISSING = mistake("""layers that no stage has
    The remainder of num_layers // num_stages has to go somewhere: `divmod` gives both, and each of the
    first stages takes one layer of it.""")
LAYERS_TWICE = mistake("""layers that two stages have
    A stage begins where the one before it ends: at stage · size, and one layer later for each stage
    before it that has one more.""")
LAYERS_OUT_OF_ORDER = mistake("""layers that are not next to each other
    A stage has neighbouring layers, and stages come in the order of the model: else every layer would
    send to another rank.""")
LAYERS_UNEVEN = mistake("""stages of very different sizes
    The slowest stage sets the pace. Give the remainder to the first stages, one layer each, instead of
    all to one.""")
LONGER_STAGES_ELSEWHERE = mistake("""the longer stages are not the first
    The contract has it as `torch.tensor_split`: the first num_layers % num_stages stages get one more.""")
EMPTY_STAGES_ACCEPTED = mistake("""a stage without layers is accepted
    A rank without a layer would only pass on what it gets. Raise a ValueError when there are more stages
    than layers.""")
POSSIBLE_LAYERS_REFUSED = mistake("""a possible number of layers is refused
    Only more stages than layers are to be refused; layers need not divide by the stages.""")
REFUSAL_WITHOUT_NUMBERS = mistake("""a refusal that does not say why
    Tell the reader both numbers, and what to do.""")

# schedules
NO_SCHEDULE = mistake("""not a schedule
    A schedule is a list of pairs ("F", microbatch) and ("B", microbatch), microbatches from 0. Waiting is
    no step: a rank waits by itself for what it needs.""")
STEPS_MISCOUNTED = mistake("""steps that are missing, or there twice
    Each stage does a forward and a backward of each microbatch, however few there are: the warm-up cannot
    be longer than the number of microbatches, and what was begun has to come back.""")
BACKWARD_BEFORE_FORWARD = mistake("""a backward before its forward
    A stage can only go back through what it has gone through.""")
STAGES_STUCK = mistake("""stages that wait for one another
    Simulate it: a stage does its steps in their order, and this order can never go on. How many
    microbatches have to be under way before the first backward can come back to this stage?""")
TOO_MANY_IN_FLIGHT = mistake("""too many microbatches in flight
    The warm-up of a stage is as long as there are stages behind it, and then each forward is followed by
    a backward. Every forward beyond that keeps activations alive for nothing.""")
TOO_FEW_IN_FLIGHT = mistake("""too few microbatches in flight
    A backward that is done too early leaves the stages behind without work. Count from the last stage: it
    needs no warm-up, and each stage before it a longer one.""")
ANOTHER_ORDER_OF_STEPS = mistake("""another order
    Write down the steps of two stages for three microbatches, and compare with the drawing.""")
UNEVEN_ROUNDS_ACCEPTED = mistake("""a number of microbatches that leaves a round unfilled
    Microbatches go round in groups of as many as there are ranks: refuse a number that does not divide.""")

# bubble_fraction
POSSIBLE_SCHEDULES_REFUSED = mistake("""schedules that can run are refused
    Only when no rank can do its next step, and steps are left, do they wait for ever.""")
ENDLESS_WAIT_UNNOTICED = mistake("""ranks that wait for ever, unnoticed
    When steps are left and no rank can do its next one, raise a ValueError that says which waits.""")
SHARE_OF_THE_COMPUTATION = mistake("""the bubble relative to the computation
    Here it is a share of all time, computing and waiting together: with p stages and m microbatches (p −
    1)/(m + p − 1), not (p − 1)/m.""")
SHARE_OF_TIME_THAT_IS_BUSY = mistake("""the share in which ranks are busy
    The bubble is the rest: 1 minus this.""")
BUBBLE_IN_SECONDS = mistake("""seconds instead of a share
    Divide by all the time that there is: the number of ranks times the time until the last is done.""")
BUBBLE_IN_PERCENT = mistake("""a percentage
    Return a share between 0 and 1.""")
ALL_STEPS_ALIKE = mistake("""all steps take the same time
    A forward takes `forward` seconds and a backward `backward`.""")
DEFAULT_TIMES = mistake("""the times that were given are not used
    1 and 2 are only the defaults of `forward` and `backward`.""")
FORMULA_NOT_SIMULATION = mistake("""the formula instead of a simulation
    The formula holds for GPipe and 1F1B alone. Go through the schedules that you get, step by step.""")
WRONG_BUBBLE = mistake("""another bubble
    Try two stages and one microbatch on paper. A step begins when its rank is free and what it needs is
    there; the time is over when the last rank is done.""")

# run_pipeline
PIPELINE_DEADLOCK = patterned("""a deadlock
    Two neighbours wait for each other: one for the end of its send, or for what the other has not sent
    yet. Send with isend (or batch_isend_irecv), go on, and wait for a send only when its microbatch is
    through. What a stage receives, and in which order, follows from the schedule alone.""")
SENT_WITH_GAPS = mistake("""a tensor that is not contiguous
    Messages are whole pieces of memory, and not every output of a module is: send outputs.contiguous().""")
COLLECTIVE_IN_A_PIPELINE = mistake("""a collective in the pipeline
    Everything here goes from neighbour to neighbour, the loss as well: with isend, irecv, send, recv or
    batch_isend_irecv.""")
NOT_NEXT_DOOR = mistake("""a message past the neighbours
    Activations go to the next stage and gradients to the one before. The loss takes the way of the
    gradients.""")
NO_LOSS = mistake("""no loss is returned
    Every rank returns the mean loss as a Python float: `.item()` makes one of a tensor.""")
WRONG_MEAN_LOSS = mistake("""another loss
    The mean over all samples is the sum of the microbatches' losses, each times its share of the samples.""")
LOSS_NOT_PASSED_BACK = patterned("""the loss of the last stage does not get to the others
    Only the last stage can compute it. Let it travel from stage to stage behind the last gradient:
    receive it from the next stage, send it to the one before.""")
DATA_OF_ANOTHER_STAGE = patterned("""not a number: data of another stage
    Only the first stage may read inputs, and only the last one targets: elsewhere they hold no numbers.
    Or a buffer was read before its wait().""")
STAGE_WITHOUT_GRADIENTS = patterned("""a stage without gradients
    What arrives begins a new graph: `requires_grad_()` before the forward, and
    `outputs.backward(gradient)` with what comes back from the next stage.""")
FROZEN_STAGE_TRAINED = mistake("""a frozen stage has gradients
    Where nothing requires a gradient, there is nothing to do but to receive.""")
LOSSES_OF_MICROBATCHES_SUMMED = mistake("""gradients of the sum of the losses
    Each microbatch's loss is a mean already: scale it by the microbatch's share of all samples before its
    backward.""")
MICROBATCHES_COUNT_THE_SAME = mistake("""microbatches of different sizes count the same
    Scale each loss by len(inputs) over all samples, not by 1 over the number of microbatches.""")
ONE_MICROBATCH_ONLY = mistake("""gradients of one microbatch
    Gradients of all microbatches add up in .grad: do not clear them in between.""")
WRONG_STAGE_GRADIENTS = patterned("""wrong gradients
    Does each gradient that arrives meet the outputs of its own microbatch? Is a buffer received into
    while the one that is in it is still needed, or read before its wait()?""")
ANOTHER_SCHEDULE = patterned("""another schedule than the one that was given
    Do the steps in the order of the list, whatever it is. It is not always GPipe or 1F1B.""")
ACTIVATIONS_ALIVE = mistake("""right, but too many activations are alive
    A graph is freed by its backward. Is it kept by retain_graph=True, or is something run twice?""")
ACTIVATIONS_KEPT = mistake("""right, but inputs, outputs or gradients are kept
    A dict, a list or the handle of a send still holds them: take a microbatch out (`pop`) in its
    backward, and wait for the send of its outputs there. Its gradient has come back, so it was received.
    Before you send a gradient, wait for the one before.""")
BUFFERS_AHEAD = mistake("""right, but too many buffers at once
    A buffer for each microbatch is as much memory as GPipe takes. Ask for an activation when its forward
    is next, and for a gradient when its backward is.""")
MORE_MESSAGES_THAN_MICROBATCHES = mistake("""right, but too many messages
    The shape need not be sent, it is that of the inputs. Each microbatch takes one message forward and
    one back, and the loss takes one.""")
MORE_THAN_ACTIVATIONS = mistake("""right, but too many bytes
    What goes on is the output of the stage, what goes back is the gradient of its input: no more.""")
SENT_LATE = mistake("""right, but sent too late
    The next stage is waiting: send what was computed before the next step begins.""")
BLOCKING_SEND = mistake("""right, but a send blocks
    isend returns at once. Keep what it returns, go on with the schedule, and call wait() when the
    microbatch is through.""")
AWAITED_EARLY = mistake("""right, but a rank waits too early
    Wait for a message right before the step that needs it; until then there are others to do.""")

# SplitBackwardLinear
OTHER_PARAMETERS = mistake("""other parameters than nn.Linear's
    Inherit from nn.Linear, and register nothing: a state dict then fits both.""")
WRONG_OUTPUTS = mistake("""wrong outputs
    The forward is nn.Linear's: `functional.linear`.""")
WRONG_INPUT_GRADIENTS = mistake("""wrong gradients of the input
    The output's gradient times the weight, of the shape of the input.""")
NOT_SPLIT = mistake("""the backward makes all gradients
    In backward, return None for weight and bias, and note what their gradients need.""")
WRONG_WEIGHT_GRADIENTS = mistake("""wrong gradients of weight or bias
    backward_weight() is for one microbatch, the one whose backward was first: weight.grad grows by the
    transposed output's gradient times the input, with all dimensions but the last flattened into one;
    bias.grad by its sum over the same. It adds to what is there.""")
COMPUTED_TWICE = mistake("""right, but multiplied more than once
    Forward, backward and backward_weight take one matrix multiplication each for a microbatch:
    nn.Linear's backward, cut into two.""")
INPUTS_KEPT = mistake("""right, but inputs stay in memory
    Forget what a microbatch needed once its backward_weight() is done.""")
NOTHING_LEFT_TO_DO = mistake("""a call too many is accepted
    When no microbatch waits, backward_weight() raises a RuntimeError.""")


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
        "Only a frozen first stage goes wrong: its outputs require no gradient, but a gradient comes all "
        "the same.",
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
        "With 2 stages all is well: it is those in the middle, which have two neighbours, that go wrong.",
        controls=lambda case: case.world_size == 2,
    ),
)
