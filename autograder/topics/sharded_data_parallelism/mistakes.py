"""Hints of exercise 05: optimizer state, gradients and parameters of which every rank holds a shard."""

from __future__ import annotations

from typing import Any

from autograder.kit.mistakes import mistake, patterned
from autograder.kit.pattern import Pattern, of_model, single_rank, smaller_group

# training_bytes
EVERYTHING_SHARDED = mistake("""all 16 bytes are divided by the ranks
    Only stage 3 shards everything. Stage 1 shards the 12 bytes of master weight and moments, stage 2 the
    2 of the gradient, too.""")
NOTHING_SHARDED = mistake("""nothing is divided by the ranks
    From stage 1 on the 12 bytes of master weight and moments are divided by world_size.""")
STAGE_OFF_BY_ONE = mistake("""the bytes of another stage
    Stage 0 shards nothing, stage 1 master weights and moments, stage 2 gradients too, stage 3 everything.""")
FLOAT32_TRAINING = mistake("""the bytes of training in float32
    In mixed precision weights and gradients have 2 bytes each, and stage 1 also shards the master weight:
    2 + 2 + 12.""")
NO_MASTER_WEIGHTS = mistake("""a part of the optimizer's state is missing
    Three numbers of 4 bytes: the master weight in float32, and Adam's two moments.""")
GRADIENTS_IN_FLOAT32 = mistake("""gradients of 4 bytes
    In mixed precision gradients have 16 bits, as the weights they come from.""")
BYTES_OF_ALL_RANKS = mistake("""the bytes of all ranks together
    Return the bytes that one rank holds.""")
NOT_IN_BYTES = mistake("""not in bytes
    Return bytes. Use GB and GiB only for display.""")
ROUNDED_BYTES = mistake("""a rounded number
    Divide with /, not with //: the result is a float.""")
WRONG_BYTES = mistake("""a wrong number of bytes
    Add up three terms of 2, 2 and 12 bytes a parameter, and divide the ones that the stage shards by
    world_size.""")
UNKNOWN_STAGE = mistake("""no ValueError for a stage that does not exist
    There are stages 0 to 3. For others raise a ValueError that names them.""")

# ShardedOptimizer
NOT_CLEARED = mistake("""zero_grad() leaves gradients
    Call super().__init__(params, kwargs): it makes self.param_groups of all parameters, which are what
    zero_grad() clears.""")
LOSS_NOT_RETURNED = mistake("""step does not return the loss
    step(closure) calls the closure once, with gradients enabled, and returns its result; without a
    closure it returns None.""")
AVERAGED_AGAIN = mistake("""gradients are communicated in step()
    They have been averaged before step() is called. Send only the new parameters, from their owners.""")
ANOTHER_COLLECTIVE = mistake("""a collective outside the budget
    Read the budget of this part: it names the collectives that a step needs.""")
CLOSURE_WITHOUT_GRADIENTS = mistake("""the closure is called without gradients
    A closure makes gradients: call it under torch.enable_grad(), as every optimizer does, and the rest of
    step() without.""")
CLOSURE_CALLED_LATE = mistake("""the closure is called too late
    step(closure) calls the closure first, once: the gradients to update with are those that it makes.""")
CLOSURE_CALLED_AGAIN = mistake("""the closure is called more than once in a step
    A closure computes forward and backward: call it once, first, and the inner optimizer's step() without
    it.""")
ANOTHER_OWNER = mistake("""a different owner than assign_owner gives
    Call assign_owner(loads, parameter) for all parameters, frozen ones too, in their order, with loads
    that begin at 0, and go on with a group that is added later. Then a gradient ends up where the
    optimizer looks for it.""")
PARAMETERS_SENT_TWICE = mistake("""right, but more is sent than the parameters
    Each parameter is sent once, by its owner, and a frozen one never changes. Nothing else has to be
    sent: every rank can compute the owners itself. The padding of an all-gather counts, too.""")
LEARNING_RATE_MISSING = mistake("""a group without a learning rate
    Schedules change options in optimizer.param_groups, also those that were not given. Only the inner
    optimizer knows their defaults: when a group is added, copy the options of its group to yours.""")
LEARNING_RATE_UNCHANGED = mistake("""a schedule has no effect
    A schedule changes the lr in optimizer.param_groups. Copy the options of your groups to the inner
    optimizer's before each step.""")
LEARNING_RATE_LATE = mistake("""a schedule takes effect one step late
    A changed lr in optimizer.param_groups is for the next step: copy the options of your groups to the inner
    optimizer's before its step(), not after it.""")
GROUP_OPTIONS_LOST = mistake("""the options of a group are lost
    A group is a dict: besides its params it may have an lr of its own. Give the inner optimizer groups
    with the same options.""")
GROUP_NOT_ADDED = mistake("""a group that comes later is not trained
    add_param_group() may also be called in the middle of training: give the new parameters owners, and
    add them to the inner optimizer.""")
NOT_SENT_BY_ITS_OWNER = mistake("""a parameter stays as it was
    Its owner has updated it, and this rank has to get it: broadcast every parameter from its owner,
    src=owner, on all ranks in the same order. Or does it have no owner?""")
NOTHING_UPDATED = mistake("""no parameter changes, not even on its owner
    In each step every rank calls step() of its inner optimizer, which has the parameters that this rank owns:
    those that were passed, not copies of them.""")
WRONG_UPDATE = mistake("""a different update than in one process
    Each parameter is updated by exactly one optimizer with the options of its group, once a step, and one
    without a gradient is left alone.""")
STATE_NOT_SHARDED = mistake("""right, but a rank holds too much optimizer state
    The inner optimizer of a rank gets only the parameters that this rank owns, and owners are chosen by
    elements, not in turn: assign_owner(loads, parameter).""")

# ShardedGradients
ALL_REDUCED = mistake("""an all-reduce where a reduce is enough
    An all-reduce brings the sum to all ranks. Here only the rank that holds the parameter needs it:
    reduce, or reduce-scatter.""")
MORE_ALL_REDUCED = mistake("""right, but more is all-reduced than small gradients
    Only the gradients of small parameters go into an all-reduce, each once; a frozen parameter has none.
    Of a sharded parameter each rank needs its own shard of the gradient: reduce-scatter.""")
GRADIENTS_REDUCED_TWICE = patterned("""more is sent than the gradients
    A gradient travels once in a step. A tied parameter is one parameter, and a frozen one has no
    gradient.""")
NO_OWNER = patterned("""a gradient that no rank has
    The owner keeps its gradient after the reduce; only the others set theirs to None.""")
GRADIENT_KEPT = patterned("""right on its owner, but kept elsewhere
    A rank that does not own a parameter sets its grad to None, as soon as the reduce has finished.""")
UNFAIR_SHARE = mistake("""a rank owns too much
    Owners are chosen by elements, not in turn: assign_owner(loads, parameter), in the order of
    module.parameters().""")
TOO_MANY_GRADIENTS_AT_ONCE = mistake("""right, but too many gradients are alive at once
    Free gradients during backward: before a hook starts another reduce, wait for an earlier one, and set
    parameter.grad = None if this rank is not the owner. A list of handles or copies must not keep it
    alive, either.""")

# ShardedParameter
NO_PARAMETER = mistake("""no parameter in .shard
    .shard is an nn.Parameter, and has requires_grad=False if the whole parameter has.""")
ANOTHER_SHARD = patterned("""a shard with other contents
    Flatten the parameter, append zeros until N parts of ⌈numel / N⌉ elements come out, and keep the part at
    this rank's position in the group.""")
VIEW_OF_THE_WHOLE = mistake("""right, but the whole parameter is kept alive
    A part of a tensor is a view, which keeps the memory of the whole: clone() makes a shard of it. Keep
    neither the parameter itself nor memory to gather into.""")
ANOTHER_WHOLE = patterned("""a different parameter than the one that was sharded
    Gather the shards in the order of the ranks, cut the padding off, and give the rest its shape.""")
OLD_VALUES = mistake("""old values are gathered
    An optimizer changes .shard. The next gather after free(), and every full(), must send its new
    values.""")
START_WAITS = mistake("""the start waits for the end
    start_gathering() and start_reducing() return while the data is in flight: use async_op=True, and
    wait() in gathered(), free() and finish_reducing().""")
NOT_FREED = mistake("""right, but free() keeps what was gathered
    When free() returns, nothing may refer to the gathered memory any more, neither an attribute nor a
    handle.""")
WHOLE_GRADIENT_KEPT = mistake("""right, but the whole gradient is kept
    When finish_reducing() returns, only the shard's gradient may be left: forget the gradient that was sent
    and the handle. A view keeps the memory of the whole.""")
FULL_IS_GATHERED = mistake("""full() returns what free() frees
    The result of full() must outlast free(). Gather into memory of its own, or return a clone.""")
GRADIENT_NOT_ADDED = mistake("""gradients do not add up
    finish_reducing() adds to what .shard.grad holds already, as backward does.""")
ANOTHER_GRADIENT = patterned("""a shard of the gradient with other contents
    A reduce-scatter with ReduceOp.AVG, of the gradient flattened and padded as the parameter is, gives this
    rank's shard of the mean.""")

# ShardedModule, FullyShardedDataParallel
MASTERS_NOT_KEPT = mistake("""parameters or gradients in another dtype
    Shards and their gradients stay in the parameter's own dtype. Cast a shard to compute_dtype before it
    is gathered, and cast the reduced gradient back. What is whole in the parameter's own dtype is gathered
    in it: casting it back later does not bring back the digits.""")
ADDED_IN_COMPUTE_DTYPE = mistake("""gradients are added up in compute_dtype
    Each sum is rounded to the few digits of compute_dtype, so small gradients are lost. Cast the mean to the
    shard's dtype first, then add it to .shard.grad.""")
SMALL_PARAMETER_SHARDED = mistake("""a small parameter is sharded
    A parameter of fewer than min_shard_numel elements stays whole on every rank: gathering it would cost
    a latency for a few bytes. An empty one does, too, whatever min_shard_numel is.""")
NOT_SHARDED = patterned("""right, but a rank holds more than its shards
    parameters() must give shards of ⌈numel / N⌉ elements; the whole parameter must not be registered
    anywhere.""")
WHOLE_PARAMETERS_HELD = mistake("""right, but a rank holds whole parameters
    A part of a tensor is a view, which keeps the memory of the whole: clone() makes a shard of it. A
    buffer that is kept for gathering counts all the time. And nothing may be gathered before a forward.""")
NAMES_OF_THE_STATE = mistake("""a state dict with other names
    full_state_dict() has the names of the wrapped module's own state_dict(), without a prefix, with both
    names of a tied parameter, and with its buffers.""")
NOT_THE_WHOLE_STATE = mistake("""a state dict with other tensors
    full_state_dict() gathers every shard, in its own dtype, cuts the padding off and gives it its shape.""")
GATHERED_TWICE = patterned("""right, but gathered more than once
    A module reads self.weight several times in one forward. Keep a gathered parameter until its forward,
    or its backward, is over. A prefetched parameter has to be used.""")
ALL_AT_ONCE = mistake("""right, but all layers are gathered at once
    Gather layer by layer: free the parameters of one layer before you gather those of the layer after the
    next.""")
NOT_IN_COMPUTE_DTYPE = mistake("""the wrong dtype is sent
    Cast the shard before it is gathered, not afterwards: that is what halves the traffic. Gradients are
    reduced in this dtype, too.""")
NOT_FREED_IN_FORWARD = mistake("""right, but layers are not freed in forward
    When a layer's forward is over, drop every reference to its gathered parameter: in your own lists and
    dicts, and in the tensors that autograd saves for backward (saved_tensors_hooks).""")
KEPT_FOR_BACKWARD = mistake("""right, but parameters are kept for backward
    Autograd saves the weight of every matrix product. Let pack return something small for a gathered
    parameter and its views, and let unpack gather it again.""")
NOT_FREED_IN_BACKWARD = mistake("""right, but layers are not freed in backward
    When a parameter's gradient arrives, its last use is over: free the parameter, and start the
    reduce-scatter. Wait for an earlier one first, so that full gradients do not accumulate. The last use
    of a frozen parameter is over as soon as it is unpacked.""")
LEFT_OVER_AFTER_THE_STEP = mistake("""memory that is left over after the step
    After the step, a rank may hold only its shards and their gradients. Drop handles, gathered parameters
    and full gradients.""")

NO_SHARDED_GRADIENT = patterned("""a shard without a gradient
    What torch.distributed has gathered has no history: it needs a torch.autograd.Function that takes the
    shard. Its backward gets the gradient of the whole parameter, and reduces it.""")
WRONG_SHARDED_GRADIENT = patterned("""wrong gradients
    A parameter that is used in several places, or in several backwards, has a gradient from each: add the
    mean of each to what .shard.grad holds, and replace nothing. If gradients differ a little from run to
    run, a tensor is read before its wait(), or changed while it is in flight. Does each gradient go to the
    shard of its own parameter? And does each unpack make the view that was packed, of the same parameter,
    with its size, stride and storage offset?""")
WRONG_AFTER_THE_FIRST_STEP = patterned("""wrong gradients, but not in the first step
    The first step is right, so look for what is left over from it. A parameter that is not freed keeps the
    values from before the optimizer's step: free it when the forward of the module that reads it is over,
    even if it belongs to a child, and in backward after its last use. Is a gradient left over, too, or a
    tensor read before its wait()?""")

# PrefetchingFullyShardedDataParallel
NOT_PREFETCHED = mistake("""a layer is not gathered ahead
    Remember the order in which parameters were needed in the last step, one for forward and one for
    backward. When one is needed, start the all-gather of the next, before the layer computes.""")
OLD_ORDER = mistake("""layers are gathered ahead in an old order
    All is right until a step uses the layers in another order, and wrong in the step after that. Remember
    the order again in every step.""")
TOO_FAR_AHEAD = mistake("""right, but too many layers are held at once
    A parameter counts from the start of its all-gather: start that of the next one or two, not of all that
    follow. Free each after its last use, and have no more than one or two reduce-scatters in flight.""")
PREFETCH_WAITED_FOR = mistake("""a layer is gathered ahead, and waited for
    To prefetch is to start the all-gather (async_op=True, start_gathering()) and go on. Wait when the
    parameter is read, not before.""")


PATTERNS: tuple[Pattern[Any], ...] = (
    smaller_group("every call, and use positions in the group: dist.get_rank(group), group_src, group_dst."),
    single_rank("Only a single rank goes wrong: it owns everything."),
    Pattern(
        lambda case: "backwards" in case.title,
        "Only several backwards in a step, not all of the same layers, go wrong: a finish adds to what .grad "
        "holds from an earlier one, and an unused gathered parameter is freed before its shard changes.",
    ),
    of_model(
        "tied",
        "Only tied parameters go wrong: module.parameters() lists each once, but it has several names, in "
        "several modules.",
    ),
    of_model(
        "names",
        "Only tied parameters go wrong: module.parameters() lists each once, but it has several names, in "
        "several modules or in one: named_parameters(remove_duplicate=False) lists all.",
    ),
    of_model(
        "frozen",
        "Only frozen parameters go wrong: they have requires_grad=False and no gradient, but are used like "
        "all others.",
    ),
    of_model(
        "unused",
        "Only unused parameters go wrong: on a rank that did not use one its hook is not called, while "
        "another rank reduces it.",
    ),
    of_model(
        "sizes",
        "Only empty and tiny parameters go wrong: 0 elements are legal, and so are 1 element and no "
        "dimension.",
    ),
    of_model(
        "frozen stack",
        "Only frozen parameters go wrong: no gradient shows when backward has used one for the last time.",
    ),
    of_model("mixed", "Only several dtypes go wrong: each parameter keeps its own."),
    of_model(
        "buffers",
        "Only the model with buffers goes wrong: they can be of any dtype, and are not sharded. Its "
        "forward takes one more argument, too.",
    ),
    of_model(
        "attention",
        "Only attention goes wrong: nn.MultiheadAttention uses the parameters of its child out_proj itself, "
        "and never calls it; an embedding is indexed, not multiplied, by integers "
        "that stay as they are. Gather whenever a parameter is read.",
    ),
)
