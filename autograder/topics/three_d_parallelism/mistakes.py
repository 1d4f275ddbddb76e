"""Hints of exercise 08: meshes, training steps on them, recomputing, and plans on paper."""

from __future__ import annotations

from typing import Any

from autograder.kit.mistakes import mistake, patterned
from autograder.kit.pattern import Pattern, Rule

# build_mesh
NO_MESH = mistake("""no mesh is returned
    Return a `Mesh` with all its fields: three groups and three coordinates.""")
GROUPS_OUT_OF_STEP = mistake("""ranks do not make the same groups in the same order
    Every rank must call dist.new_group for every group of the mesh, even if it is not a member, and all
    ranks in the same order: loop over the whole mesh, not only over the groups of this rank.""")
NO_GROUP = mistake("""a group that does not contain this rank
    dist.new_group gives a group only to its members. Keep the one whose list has this rank in it.""")
NOT_A_GROUP = mistake("""something else than a process group
    The ranks of a group are not yet a group that a collective takes: dist.new_group(ranks) makes one of
    them. Keep what it returns.""")
COORDINATES_IN_ANOTHER_ORDER = mistake("""coordinates in the wrong order
    The tensor coordinate changes from each rank to the next, the data coordinate the slowest: rank =
    (data_rank · pipeline + pipeline_rank) · tensor + tensor_rank.""")
WRONG_COORDINATES = mistake("""wrong coordinates
    divmod splits a rank into coordinates, one axis after another, the tensor axis first.""")
ANOTHER_AXIS = mistake("""the group of another axis
    The ranks of a group differ in one coordinate, the one that the group is named for, and agree in the
    other two.""")
WRONG_MEMBERS = mistake("""the wrong ranks in a group
    A group has the ranks with the same two other coordinates as this rank: d, p or t of them.""")
TOO_MANY_GROUPS = mistake("""right, but more groups than the mesh has
    A mesh has p · t data groups, d · t pipeline groups and d · p tensor groups. Each costs all ranks a
    rendezvous, and connections: make each once.""")
WRONG_SIZE_ACCEPTED = mistake("""a mesh of the wrong size is accepted
    data · pipeline · tensor has to be the number of ranks: raise a ValueError if it is not.""")
VAGUE_SIZE = mistake("""a refusal that does not say why
    Name the size of the mesh and the number of ranks in the message.""")

# checkpointed
NOT_THE_RESULT = mistake("""a different result than the function's
    Return what the function returns, a tensor or a tuple of tensors, for the same arguments.""")
NO_GRAPH = mistake("""the result has no gradient
    Parameters that the function uses need their gradients even if no argument requires one: the first
    layer's input is data. A torch.autograd.Function is only recorded if an argument requires a gradient:
    pass one more argument that does.""")
GRAPH_WITHOUT_GRADIENTS = mistake("""a graph where autograd is off
    Under torch.no_grad() there is nothing to recompute, and nothing requires a gradient.""")
WRONG_ARGUMENT_GRADIENT = mistake("""another gradient of an argument
    In backward, run the function again on detached arguments that require gradients, and go back through
    that: their .grad is what backward returns.""")
WRONG_PARAMETER_GRADIENT = mistake("""another gradient of a parameter
    The recomputed forward must be recorded (torch.enable_grad), and torch.autograd.backward through it
    reaches the parameters, each of them once.""")
OTHER_RANDOM_NUMBERS = mistake("""recomputed with other random numbers
    Dropout must drop the same elements again. Keep torch.get_rng_state() from before the first forward,
    and set that state before the second.""")
RANDOM_STATE_LEFT_BEHIND = mistake("""backward changes the random numbers that follow
    After the second forward restore the state from before it: torch.random.fork_rng(devices=[]) does
    that.""")
RANDOM_STATE_OF_FORWARD = mistake("""forward changes the random numbers that follow
    Forward draws what the function draws, no more and no less.""")
CHECKPOINT_KEEPS_ACTIVATIONS = mistake("""right, but activations stay alive
    Only the arguments may stay in memory from forward to backward: run the function without a graph
    (torch.no_grad), or with a torch.autograd.graph.saved_tensors_hooks that keeps no tensor.""")
COMPUTED_AGAIN_TOO_OFTEN = mistake("""right, but computed too often
    Once in forward and once more in backward: no third time, and no second time without a backward.""")

# train_step
NO_STEP_LOSS = mistake("""no loss is returned
    Every rank returns the loss of the whole batch as a Python float: `.item()` makes one of a tensor.""")
MESH_DEADLOCK = patterned("""the ranks wait for one another
    Each axis has its own group and its own partners. Do all ranks of a tensor group make the same
    all-reduces, also in backward? Does each stage receive as many microbatches as the one before sends?
    And is the axis's group given to every call, with group_src= and group_dst= for positions in it?""")
DATA_OF_ANOTHER_RANK = patterned("""tokens of another stage are used
    Only the first stage has the inputs and only the last one the targets; on other stages they are filled
    with −1.""")
WRONG_FIRST_LOSS = patterned("""a wrong loss before the first update
    The first step's loss is that of the untrained model. Does each rank have its part of the parameters
    that whole_model(model_config) makes, and no other part, which a check fills with other numbers? Is the
    loss a mean over all microbatches and all data ranks?""")
ROUNDED_LOSS = mistake("""a loss that was rounded to float32
    Only late digits differ. The model is float64, and so are activations, gradients and losses: make every
    buffer in this dtype. torch.tensor([loss]) is float32.""")
LOSS_OF_ONE_PART = mistake("""the loss of a part of the batch
    Average the losses over the data-parallel ranks, so that each rank returns that of the whole batch.""")
LOSS_NOT_EVERYWHERE = mistake("""the loss stays on the last stage
    All ranks return it: sum it over the pipeline group, where all other stages add a zero.""")
NOTHING_LEARNED = mistake("""the parameters do not change
    Take a step: parameter -= learning_rate · gradient, under torch.no_grad(), and keep the parameters in
    `mesh.state`, so that the next call goes on with them.""")
ANOTHER_LEARNING_RATE = mistake("""another learning rate than the config's
    The step is learning_rate · gradient, with model_config.learning_rate: it is 0.3 by default, and another
    number in a check.""")
GRADIENTS_PILE_UP = mistake("""gradients of earlier steps are added in
    Set every gradient to None before the next step's first backward.""")
SUMMED_OVER_DATA = mistake("""gradients summed over the data ranks
    The loss is a mean over the whole batch: divide the sum of the d gradients by d.""")
SUMMED_OVER_MICROBATCHES = mistake("""gradients summed over the microbatches
    Each microbatch's loss is a mean already: divide it by the number of microbatches before its
    backward.""")
EACH_DATA_RANK_ALONE = mistake("""the data ranks train separately
    Average the gradients over the data group before the step: otherwise the ranks diverge.""")
WRONG_LATER_LOSS = patterned("""a wrong loss after the first step
    The first loss is right, so forward is right, but a gradient is wrong, or the step is not plain SGD. Look
    at the communication in backward: the sum over the tensor group where a column-parallel layer begins, the
    gradient that goes back to the previous stage, the average over the data group.""")
WHOLE_MODEL_HELD = mistake("""right, but a rank holds parameters of others
    Keep only the layers of this rank's stage, and only its shard of their weights. Make a parameter from
    a copy (clone) of the shard: a view keeps the whole weight.""")
ACROSS_AXES = mistake("""right, but data travels outside the three groups
    Activations stay within a tensor group and pass along a pipeline group, gradients are averaged over a
    data group. Nothing large needs all ranks.""")
TENSOR_BYTES = mistake("""right, but too many bytes over the tensor group
    Two all-reduces of the activations a layer and microbatch forward, and two backward. Gradients of
    replicated parameters are the same on all ranks of the group already.""")
PIPELINE_BYTES = mistake("""right, but too many bytes over the pipeline group
    Each microbatch's activations go to the next stage once, and their gradient comes back once.""")
DATA_BYTES = mistake("""right, but too many bytes over the data group
    Each rank averages the gradients of its own parameters, once a step, after the last microbatch.""")

# estimate_step and best_plan
NO_ESTIMATE = mistake("""no StepEstimate is returned
    Return a StepEstimate with all its fields.""")
NOT_A_NUMBER = mistake("""a field that is not a number
    Each field is a Python float: seconds, or bytes. A tensor of one element becomes one by `.item()`.""")
POSSIBLE_PLAN_REFUSED = mistake("""a possible plan is refused
    Refuse a plan only if it has the wrong number of GPUs, or if a size does not divide.""")
IMPOSSIBLE_PLAN_ACCEPTED = mistake("""an impossible plan is accepted
    data · pipeline · tensor has to be the number of GPUs; the layers must divide by pipeline, the heads
    by tensor, and the batch by data · num_microbatches. Otherwise raise a ValueError.""")
REFUSED_WITHOUT_NUMBERS = mistake("""a refusal that does not say why
    Name the two numbers that do not fit together in the message.""")
WRONG_COMPUTE = mistake("""wrong seconds of computation
    FLOPs of the whole batch, over all GPUs' FLOP/s. A forward counts once and a backward twice; recompute
    adds one more forward of the layers, not of the head.""")
WRONG_BUBBLE_TIME = mistake("""a wrong bubble
    It is (p − 1)/m of the time that a stage spends on computation and on tensor-parallel traffic.""")
WRONG_TENSOR_TIME = mistake("""wrong seconds of tensor-parallel traffic
    For each layer of the stage and each microbatch 4 all-reduces (6 with recompute) of 2 · b · s · h
    bytes, where b counts the sequences of one microbatch; an all-reduce takes 2(t − 1) · (α + S/(t·B)).""")
WRONG_PIPELINE_TIME = mistake("""wrong seconds of messages between stages
    Two messages of 2 · b · s · h bytes for each microbatch, there and back; none with one stage.""")
WRONG_DATA_TIME = mistake("""wrong seconds of the gradients' all-reduce
    2(d − 1) · (α + S/(d·B)), where S is 2 bytes for each parameter of a rank: layers divided by p and t,
    the embedding by t alone.""")
ANOTHER_LINK = mistake("""the bandwidth of the wrong link
    Ranks are numbered with tensor the fastest: a tensor group spans t GPUs, neighbours in a pipeline are
    within p · t, a data group spans all. If that many fit into a node the link is the node's, otherwise
    the network's.""")
WITHOUT_THE_RING = mistake("""an all-reduce of two messages
    In a ring each rank sends 2(n − 1) messages of S/n bytes: 2(n − 1) · (α + S/(n·B)). With 2 ranks an S
    that is twice too large comes to the same: activations and gradients take 2 bytes an element.""")
WITHOUT_LATENCY = mistake("""messages without latency
    Each message costs α before its first byte; an all-reduce has 2(n − 1) messages.""")
BATCH_NOT_DIVIDED = mistake("""the whole batch instead of a microbatch
    A microbatch has batch / (data · num_microbatches) sequences.""")
WRONG_MEMORY = mistake("""wrong bytes of memory
    4 bytes a parameter for weights and gradients, 12 for the optimizer's state, divided over the data
    ranks; and min(p, m) microbatches' activations, for each layer of the stage b · s · h · (10 + 24/t)
    bytes. With recompute 2 · b · s · h each, and one layer's in full.""")
STATE_NOT_SHARDED = mistake("""the optimizer's state is not divided
    ZeRO-1: of the 12 bytes a parameter each data rank keeps 1/d.""")
ALL_MICROBATCHES_ALIVE = mistake("""all microbatches are alive
    Under 1F1B the first stage has at most p microbatches in flight: min(p, m).""")
NO_PLAN = mistake("""no Plan is returned
    Return the plan, a Plan.""")
PLAN_REFUSED = mistake("""no plan is found where there is one
    Go through all plans: sizes of the axes whose product is the number of GPUs, numbers of microbatches
    that divide, even if they are fewer than the stages, with and without recompute. A tensor group may span
    nodes: it is slow, and may be all that fits.""")
IMPOSSIBLE_PLAN = mistake("""an impossible plan
    estimate_step refuses it: leave out plans that raise a ValueError.""")
PLAN_TOO_LARGE = mistake("""a plan that does not fit
    Its memory is more than a GPU of the cluster has: leave out such plans before you compare seconds.""")
SLOWER_PLAN = mistake("""a slower plan than there is
    Compare `seconds`, the sum of all parts, of every plan that fits: each size of each axis, each number
    of microbatches that divides, with and without recompute. If you do, does estimate_step pass its own
    check? A search cannot be better than the estimates that it compares.""")
UNFIT_ACCEPTED = mistake("""a plan where none fits
    If no plan fits into a GPU's memory, raise a ValueError.""")
UNFIT_WITHOUT_NUMBERS = mistake("""a refusal that does not say how much is missing
    Name the memory of a GPU, and the least that a plan takes, in GB of 10⁹ bytes.""")
REFUSED_WITHOUT_GPUS = mistake("""a refusal that does not name the GPUs
    Nothing divides, so there is no plan whose memory could be compared. Raise a ValueError that names the
    number of GPUs.""")

# ring_attention
UNEVEN_RING = patterned("""the ranks of the ring do not do the same
    Each rank sends a block and receives one at the same time: a blocking send waits until its receiver
    asks. And with a causal mask rank 0 needs only its own block, but all blocks must go round the ring, and
    so must their gradients. Autograd skips the backward of tensors that were never used: use every block,
    masked.""")
ATTENTION_CUT = mistake("""the graph is cut
    Tensors received by torch.distributed have no history. Write a torch.autograd.Function that passes a
    tensor on: in backward the gradient goes round in the other direction.""")
NO_OUTPUT = mistake("""a wrong shape or dtype
    The output has the shape and dtype of q: this rank's part of the sequence.""")
OWN_BLOCK_ONLY = patterned("""attention to this rank's block only
    Every query of this rank may also attend to keys of earlier ranks, and without the mask to all keys.""")
MASK_OF_THE_BLOCK = patterned("""a wrong mask
    Rank r's queries stand at positions r · s to (r + 1) · s − 1 of the sequence, and the block that
    arrives after i turns is that of rank r − i: queries see all keys of earlier blocks, and none of later
    blocks.""")
BLOCKS_AVERAGED = patterned("""blocks are not weighted
    A softmax over the whole sequence weights each block by the sum of its exponentials: keep the largest
    score and that sum for each query, and rescale when a block brings a larger score.""")
ATTENTION_NOT_FINITE = patterned("""numbers that are not finite
    exp of a large score is infinite. Subtract the largest score so far from every score, and rescale both
    sums when a block brings a larger one; the largest of the first block is not enough.""")
ROUNDED_ATTENTION = mistake("""an output that was rounded to float32
    Only late digits differ. q, k and v are float64: compute in their dtype, without .float(), and make every
    buffer in it, too.""")
WRONG_ATTENTION = patterned("""a wrong output
    Are the scores divided by the root of a head's width? Then try it on two ranks with one token each,
    without a mask. What do the two weights of a query sum up to? If only a mask goes wrong: whose block is
    it after each turn? What arrives comes from the rank before.""")
WRONG_RING_GRADIENT = patterned("""another gradient
    The output is right. Every rank that a block of keys and values visited contributes to its gradient;
    the contributions are added up on the way back to the block's own rank.""")
WHOLE_SEQUENCE_HELD = mistake("""right, but more than a block at a time
    Nothing may be larger than the scores of one block of queries with one block of keys, or than k and v
    of one block.""")
RING_COLLECTIVE = mistake("""right, but not in a ring
    Each rank sends to the next and receives from the previous one; no collective may gather all keys.""")
RING_BYTES = mistake("""right, but too many bytes round the ring
    Forward: N − 1 times a block of k and one of v. Backward: at most twice as much, and one more block of
    each.""")

# dispatch_to_experts
NO_PAIR = mistake("""not a tensor and a function
    Return the tokens of this rank's expert, and a function that sends the expert's outputs back.""")
WRONG_TOKENS = patterned("""the wrong tokens for this expert
    A rank gets the tokens that are assigned to its position in the group: those of rank 0 first, each
    rank's in the order in which it has them.""")
TOKENS_IN_ANOTHER_ORDER = mistake("""the right tokens in another order
    Those of rank 0 first, then those of rank 1; each rank's in the order in which it has them: sort by
    expert with stable=True.""")
ROUNDED_ROWS = mistake("""rows that were rounded to float32
    Only late digits differ. Tokens and results are float64: send them in their dtype, without .float(), and
    make every buffer in it, too.""")
WRONG_COMBINED = patterned("""different results than the experts'
    Row i of what combine returns is the expert's output for token i.""")
COMBINED_IN_ANOTHER_ORDER = mistake("""results in the order of the experts
    They come back sorted by expert: put each into the row that its token came from.""")
EXPERTS_CUT = mistake("""the graph is cut
    all_to_all_single has no gradient of its own. Its backward is an all_to_all_single, with the two lists
    of sizes swapped: write a torch.autograd.Function.""")
WRONG_TOKEN_GRADIENT = patterned("""another gradient of the tokens
    The gradient goes back from the rank of the expert into the row of its token.""")
WRONG_EXPERT_GRADIENT = patterned("""another gradient of an expert
    All tokens that were sent to this rank count once, including those of other ranks.""")
EXPERTS_OUT_OF_STEP = patterned("""the ranks are not in the same all-to-all
    Every rank takes part in every all-to-all, even without tokens, and must send as much as the others
    expect. Exchange the numbers of tokens first.""")
EXPERTS_BYTES = mistake("""right, but too many bytes
    A token goes only to the rank of its expert, and its result comes back; the same holds in backward.
    Numbers of tokens are N integers a rank.""")
EXPERTS_COLLECTIVES = mistake("""right, but too many collectives
    One for the numbers of tokens, one for the tokens, one for the results, and two in backward.""")


def _beyond(axis: int) -> Rule:
    return lambda case: case.sizes[axis] > 1


def _without(axis: int) -> Rule:
    return lambda case: case.sizes[axis] == 1


MESH_PATTERNS: tuple[Pattern[Any], ...] = (
    Pattern(
        _beyond(2),
        "Only meshes with a tensor axis go wrong: look at what each block sums over that group, "
        "forward and backward.",
        controls=_without(2),
    ),
    Pattern(
        _beyond(1),
        "Only meshes with a pipeline go wrong: look at what goes to the next stage and what comes back.",
        controls=_without(1),
    ),
    Pattern(
        _beyond(0),
        "Only meshes with a data axis go wrong: look at what is averaged over that group.",
        controls=_without(0),
    ),
    Pattern(
        lambda case: sum(size > 1 for size in case.sizes) > 1,
        "Each axis alone is right. Together: is each call given the group of its own axis?",
        controls=lambda case: sum(size > 1 for size in case.sizes) == 1,
    ),
)
