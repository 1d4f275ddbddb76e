"""Mutants that are no faults: they cannot be told from the reference, for the reason given."""

from __future__ import annotations

from .mutants import Mutant

Change = tuple[str, str, str]  # function, statement, statement in its place

ONE_ROUND_MORE = "in the round that comes on top no position is left that would send or receive"
FROM_THE_END = "the index is at least -N, and Python counts a negative one from the end: the modulo for free"
SAME_MEDIAN = "the median stays the same"
SAME_DIMENSIONS = "the same two dimensions"
ONE_DIMENSION = "a flat tensor has one dimension, the first and the last"
SAME_AGAIN = "all ranks get the same again; a checkpoint has no budget of messages"
ANY_STRIDES = "Gloo copies lists of tensors with any strides; NCCL wants contiguous ones"
WAITS_LONGER = "GPipe and 1F1B receive these, too, without anything more of this rank: it waits longer"
NO_MATTER_WHICH_FIRST = "neither needs the other"
PAST_AUTOGRAD = "a collective writes past autograd; detach() says so"
ATTRIBUTE_OF_THE_CLASS = "torch calls it as an attribute of the class, where it is a plain function"
ONLY_DIFFERENCES = "owners depend on how loads differ"
WITHIN_THE_BUDGET = "the same sums, with so many under way as the budget allows"
TO_NONE = "x.to(None) is x"
NO_GRAPH = "a message does not look at the graph; detach() says so"
DENSE = "Gloo adds up dense tensors of any strides; NCCL wants contiguous ones"
CONTIGUOUS = "these are contiguous already; contiguous() says that a message has to be"
NO_OTHER_PLACE = "without a GPU there is no other place"
LOSS_OF_STAGES = "dist.all_reduce(loss, group=mesh.pipeline_group)"
LOSS_OF_PARTS = "dist.all_reduce(loss, group=mesh.data_group)"
EXCHANGE_COUNTS = "dist.all_to_all_single(arriving, leaving, group=group)"
LOAD_NORM = "self.norm.load_state_dict(part_of(state_dict, 'norm'))"
RESTART = ("self._forward_order.restart()", "self._backward_order.restart()")
FINISH = "super().finish_gradient_synchronization()"
SETTLE, FREE_ALL = "self._settle(in_flight=0)", "self._free(self._by_shard.values())"
START = "sharded.start_reducing(gradient)"
AUTOGRAD_FUNCTIONS = (
    "_CopyToRanks",
    "_ReduceFromRanks",
    "_GatherFromRanks",
    "_ScatterToRanks",
    "_AllGather",
    "_ReduceScatter",
)


def _broadcast(what: str) -> str:
    call = f"dist.broadcast({what}, group_src=0, group=group, async_op=True)"
    return f"copies = [{call} for tensor in [*module.parameters(), *module.buffers()]]"


def _send_from_owner(what: str) -> str:
    call = f"dist.broadcast({what}, src=owner, async_op=True)"
    return f"copies = [{call} for parameter, owner in self._owner.items() if parameter.requires_grad]"


def _load(module: str) -> str:
    return f"self.{module}.load_full(part_of(state_dict, '{module}'))"


def _instead(function: str, statement: str, *changes: tuple[str, str], reason: str) -> dict[Change, str]:
    """Changes of one statement that are no fault, each as what is replaced, and by what."""
    return {(function, statement, statement.replace(*change, 1)): reason for change in changes}


def _plain(*names: str, reason: str = ATTRIBUTE_OF_THE_CLASS) -> dict[Change, str]:
    """Autograd functions whose methods are no static ones."""
    directions = ("forward", "backward")
    return {(f"{name}.{way}", "@staticmethod", "nothing"): reason for name in names for way in directions}


# by topic the reason for each
EQUIVALENTS: dict[str, dict[Change, str]] = {
    "01_hardware_hierarchy": {
        (
            "parse_topology",
            "for other, link in itertools.zip_longest(devices, links[:len(devices)], fillvalue=''):",
            "for other, link in itertools.zip_longest(devices, links[:len(devices)], fillvalue='_'):",
        ): "neither is a link",
        (
            "measure_copy_bandwidth",
            "destination.copy_(source)",
            "pass",
        ): "it is the warm-up; the median does not care for one slow copy among eleven",
        ("measure_copy_bandwidth", "for _ in range(11):", "for _ in range(12):"): SAME_MEDIAN,
        ("measure_copy_bandwidth", "for _ in range(11):", "for _ in range(10):"): SAME_MEDIAN,
    },
    "02_collectives": {
        ("broadcast", "while reach < world_size:", "while reach <= world_size:"): ONE_ROUND_MORE,
        ("reduce", "while distance < world_size:", "while distance <= world_size:"): ONE_ROUND_MORE,
        (
            "ring_reduce_scatter",
            "partial_sum = received + chunks[(rank - 1 - step) % world_size]",
            "partial_sum = received + chunks[rank - 1 - step]",
        ): FROM_THE_END,
        (
            "ring_all_gather",
            "pass_right(chunks[(rank - step) % world_size], chunks[(rank - step - 1) % world_size], group)",
            "pass_right(chunks[rank - step], chunks[(rank - step - 1) % world_size], group)",
        ): FROM_THE_END,
        (
            "ring_all_gather",
            "pass_right(chunks[(rank - step) % world_size], chunks[(rank - step - 1) % world_size], group)",
            "pass_right(chunks[(rank - step) % world_size], chunks[rank - step - 1], group)",
        ): FROM_THE_END,
    },
    "03_benchmarking": {
        (
            "benchmark",
            "synchronize(); dist.barrier(group)",
            "dist.barrier(group); synchronize()",
        ): "both are over when the clock starts",
        (
            "benchmark",
            "dist.all_reduce(slowest, dist.ReduceOp.MAX, group=group)",
            "dist.all_reduce(slowest, dist.ReduceOp.MAX, group=group); "
            "dist.all_reduce(slowest, dist.ReduceOp.MAX, group=group)",
        ): "the maximum of equal numbers; nothing is timed any more",
        (
            "benchmark",
            "slowest = torch.tensor(seconds, dtype=torch.float64, device=device)",
            "slowest = torch.tensor(seconds, device=device)",
        ): "seven digits are enough for the seconds of one call, as a hint of the exercise says",
        **_instead("verdict", "if right > link:", (">", ">="), reason="no line has just the link's speed"),
        **_instead(
            "verdict",
            "explained = (name for name, figure in figures.items() "
            "if math.isclose(figure, line['reported'], rel_tol=0.01))",
            ("figure, line['reported']", "line['reported'], figure"),
            reason="isclose is symmetric",
        ),
        **_instead(
            "measure_cluster",
            "to_first = {rank: typical(send, 0, rank, 8) for rank in range(1, num_ranks)}",
            ("rank, 8", "rank, 7"),
            ("rank, 8", "rank, 9"),
            reason="a small message as well",
        ),
        **_instead(
            "measure_cluster",
            "nodes = [[0, *(rank for rank, latency in to_first.items() if latency < limit)]]",
            ("<", "<="),
            reason="no latency is the limit",
        ),
        **_instead(
            "measure_cluster",
            "for rank in (rank for rank, latency in to_first.items() if latency > limit):",
            (">", ">="),
            reason="no latency is the limit",
        ),
        **_instead(
            "measure_cluster",
            "for node in nodes[1:]:",
            ("1:", ":"),
            ("1:", "0:"),
            reason="no rank left belongs to the first node; it costs messages, within the budget",
        ),
        **_instead(
            "measure_cluster",
            "if typical(send, node[0], rank, 8) < limit:",
            ("<", "<="),
            ("node[0]", "node[-1]"),
            ("rank, 8", "rank, 7"),
            ("rank, 8", "rank, 9"),
            reason="as small a message, to as near a rank",
        ),
        **_instead(
            "measure_cluster",
            "inside, across = (fitted(send, *pair) for pair in (nodes[0][:2], (nodes[0][0], nodes[1][0])))",
            ("nodes[0][:2]", "nodes[1][:2]"),
            ("nodes[0][:2]", "nodes[-1][:2]"),
            ("nodes[0][0]", "nodes[0][1]"),
            ("nodes[0][0]", "nodes[0][-1]"),
            ("nodes[1][0]", "nodes[1][1]"),
            ("nodes[1][0]", "nodes[1][-1]"),
            reason="any pair inside a node, and any across, is as good",
        ),
        **_instead(
            "typical",
            "send(source, destination, num_bytes)",
            ("send(source, destination, num_bytes)", "pass"),
            ("source, destination", "destination, source"),
            reason="it is the warm-up; the median does not care for one slow message among five",
        ),
        **_instead(
            "typical",
            "return statistics.median((send(source, destination, num_bytes) for _ in range(5)))",
            ("source, destination", "destination, source"),
            ("range(5)", "range(4)"),
            ("range(5)", "range(6)"),
            reason="the same median, of as many messages or of those the other way",
        ),
        **_instead(
            "fitted",
            "sizes = [8 * 8 ** exponent for exponent in range(9)]",
            ("8 *", "7 *"),
            ("8 *", "9 *"),
            ("* 8 **", "* 7 **"),
            ("* 8 **", "* 9 **"),
            ("range(9)", "range(8)"),
            ("range(9)", "range(10)"),
            reason="sizes from a few bytes to many megabytes as well",
        ),
    },
    "04_data_parallelism": {
        (
            "DistributedDataParallel.__init__",
            _broadcast("tensor.detach()"),
            _broadcast("tensor"),
        ): PAST_AUTOGRAD,
        (
            "BucketedDistributedDataParallel.__init__",
            "for bucket in self._buckets(int(bucket_size_mb * 2 ** 20)):",
            "for bucket in self._buckets(bucket_size_mb * 2 ** 20):",
        ): "sizes are whole numbers of bytes, and fit below the one as below the other",
        (
            "BucketedDistributedDataParallel.__init__",
            "flat = bucket[0].new_zeros(sum(numels))",
            "flat = bucket[-1].new_zeros(sum(numels))",
        ): "all of a bucket are of one dtype and device",
        (
            "save_checkpoint",
            "dist.broadcast_object_list(outcome, src=0)",
            "dist.broadcast_object_list(outcome)",
        ): "rank 0 is the default",
        (
            "save_checkpoint",
            "dist.all_gather_object(random_states, random_state())",
            "dist.all_gather_object(random_states, random_state()); "
            "dist.all_gather_object(random_states, random_state())",
        ): SAME_AGAIN,
        (
            "save_checkpoint",
            "dist.broadcast_object_list(outcome, src=0)",
            "dist.broadcast_object_list(outcome, src=0); dist.broadcast_object_list(outcome, src=0)",
        ): SAME_AGAIN,
        ("save_checkpoint", "if outcome[0]:", "if outcome[-1]:"): "it is a list of one",
        (
            "load_checkpoint",
            "checkpoint = torch.load(path, map_location='cpu', weights_only=True)",
            "checkpoint = torch.load(path, weights_only=True)",
        ): NO_OTHER_PLACE,
        (
            "load_checkpoint",
            "checkpoint = torch.load(path, map_location='cpu', weights_only=True)",
            "checkpoint = torch.load(path, map_location='cpu')",
        ): "the default since torch 2.6",
        (
            "TopKCompressor.average",
            "self.kept = wanted.index_fill(0, places, 0)",
            "self.kept = wanted.index_fill(-1, places, 0)",
        ): ONE_DIMENSION,
        (
            "TopKCompressor.average",
            "mean.index_add_(0, *sent)",
            "mean.index_add_(-1, *sent)",
        ): ONE_DIMENSION,
    },
    "05_sharded_data_parallelism": {
        **{
            (
                function,
                f"{loads} = [0] * dist.{ranks}",
                f"{loads} = [{number}] * dist.{ranks}",
            ): ONLY_DIFFERENCES
            for function, loads, ranks in (
                ("ShardedOptimizer.__init__", "self._loads", "get_world_size()"),
                ("ShardedGradients.__init__", "loads", "get_world_size(group)"),
            )
            for number in (1, -1)
        },
        (
            "ShardedOptimizer.step",
            _send_from_owner("parameter.detach()"),
            _send_from_owner("parameter"),
        ): PAST_AUTOGRAD,
        ("broadcast_from_first", _broadcast("tensor.detach()"), _broadcast("tensor")): PAST_AUTOGRAD,
        **{
            (
                f"{name}._reduce",
                "self._settle(in_flight=1)",
                f"self._settle(in_flight={number})",
            ): WITHIN_THE_BUDGET
            for name in ("ShardedGradients", "PrefetchingFullyShardedDataParallel")
            for number in (0, 2)
        },
        **{
            (f"PrefetchingFullyShardedDataParallel.{name}", f"{one}; {other}", f"{other}; {one}"): reason
            for name, one, other, reason in (
                ("forward", *RESTART, NO_MATTER_WHICH_FIRST),
                ("finish_gradient_synchronization", SETTLE, FREE_ALL, NO_MATTER_WHICH_FIRST),
                ("finish_gradient_synchronization", FINISH, SETTLE, NO_MATTER_WHICH_FIRST),
                ("_reduce", "sharded.free()", "self._settle(in_flight=1)", NO_MATTER_WHICH_FIRST),
                ("_reduce", "self._settle(in_flight=1)", START, WITHIN_THE_BUDGET),
                ("_reduce", START, "self._reducing.append(sharded)", NO_MATTER_WHICH_FIRST),
            )
        },
        (
            "FullyShardedDataParallel._reduce",
            "sharded.free(); super()._reduce(sharded, gradient)",
            "super()._reduce(sharded, gradient); sharded.free()",
        ): NO_MATTER_WHICH_FIRST,
        ("ShardedModule._replace", "elif self.compute_dtype is not None:", "elif True:"): TO_NONE,
        (
            "ShardedModule._cast",
            "return value.to(self.compute_dtype) if is_float and self.compute_dtype else value",
            "return value.to(self.compute_dtype) if is_float else value",
        ): TO_NONE,
        (
            "ShardedParameter.__init__",
            "self.dtype = compute_dtype or parameter.dtype",
            "self.dtype = compute_dtype",
        ): TO_NONE,
        (
            "ShardedModule._free",
            "self._in_use.pop(sharded, None); sharded.free()",
            "sharded.free(); self._in_use.pop(sharded, None)",
        ): NO_MATTER_WHICH_FIRST,
        **_plain("Gather"),
    },
    "06_tensor_parallelism": {
        **_plain(*AUTOGRAD_FUNCTIONS, reason="called on the class, a plain function is one"),
        (
            "ParallelMLP.load_full",
            f"{_load('up')}; {_load('down')}",
            f"{_load('down')}; {_load('up')}",
        ): NO_MATTER_WHICH_FIRST,
        (
            "SequenceParallelMLP.load_full",
            f"{_load('up')}; {_load('down')}",
            f"{_load('down')}; {_load('up')}",
        ): NO_MATTER_WHICH_FIRST,
        (
            "SequenceParallelMLP.load_full",
            f"{LOAD_NORM}; {_load('up')}",
            f"{_load('up')}; {LOAD_NORM}",
        ): NO_MATTER_WHICH_FIRST,
        (
            "ParallelAttention.forward",
            "return self.out(attended.transpose(1, 2).flatten(2))",
            "return self.out(attended.transpose(2, 1).flatten(2))",
        ): SAME_DIMENSIONS,
        ("put_together", "x = x.contiguous()", "x = x"): ANY_STRIDES,
        (
            "sum_of_own_part",
            "parts = [part.contiguous() for part in equal_parts(x, dim, group)]",
            "parts = [part for part in equal_parts(x, dim, group)]",
        ): ANY_STRIDES,
        (
            "sum_of_own_part",
            "total = torch.empty_like(parts[0])",
            "total = torch.empty_like(parts[-1])",
        ): "all parts are of one shape",
        (
            "vocab_parallel_cross_entropy",
            "found = shifted.gather(-1, place.where(is_here, 0).unsqueeze(-1)).squeeze(-1)",
            "found = shifted.gather(-1, place.where(is_here, 1).unsqueeze(-1)).squeeze(-1)",
        ): "whatever is found there is not used",
    },
    "07_pipeline_parallelism": {
        (
            "bubble_fraction",
            "kind, microbatch, stage = next((steps[0] for steps in waiting if steps))",
            "kind, microbatch, stage = next((steps[-1] for steps in waiting if steps))",
        ): "the last step that is left cannot begin either, and is named as well",
        (
            "with_stages",
            "num_chunks = Counter((microbatch for kind, microbatch in steps if kind == 'F'))",
            "num_chunks = Counter((microbatch for kind, microbatch in steps if kind != 'F'))",
        ): "a microbatch comes back as often as it goes",
        (
            "Stage.forward",
            "return outputs.detach().contiguous()",
            "return outputs.contiguous()",
        ): NO_GRAPH,
        (
            "Stage.backward",
            "for step in [step for step in self.sending if step == ('F', microbatch) or step[0] == 'B']:",
            "for step in [step for step in self.sending]:",
        ): WAITS_LONGER,
        (
            "Stage.backward",
            "for step in [step for step in self.sending if step == ('F', microbatch) or step[0] == 'B']:",
            "for step in [step for step in self.sending if step != ('F', microbatch) or step[0] == 'B']:",
        ): WAITS_LONGER,
        (
            "Stage.pass_loss_back",
            "dist.recv(loss, group=self.group, group_src=self.index + 1)",
            "dist.recv(loss, group=self.group)",
        ): "nothing else is on its way to this rank any more",
        (
            "Stage.pass_loss_back",
            "device = self.microbatches[0][0].device",
            "device = self.microbatches[-1][0].device",
        ): "all are on one device",
        (
            "Stage.pass_loss_back",
            "device = self.microbatches[0][0].device",
            "device = self.microbatches[0][1].device",
        ): "all are on one device",
        (
            "Stage.pass_loss_back",
            "device = self.microbatches[0][0].device",
            "device = self.microbatches[0][-1].device",
        ): "all are on one device",
        (
            "Stage.pass_loss_back",
            "loss = torch.as_tensor(self.loss, dtype=torch.float64, device=device)",
            "loss = torch.as_tensor(self.loss, dtype=torch.float64)",
        ): NO_OTHER_PLACE,
        **_plain("InputGradientOnly"),
    },
    "08_three_d_parallelism": {
        **_plain("CopyToRanks", "ReduceFromRanks", "PassOn", "AllToAll"),
        **_instead(
            "checkpointed",
            "with torch.enable_grad(), torch.random.fork_rng(devices=[]):",
            ("fork_rng(devices=[])", "fork_rng()"),
            reason="without a GPU there are no devices to leave out",
        ),
        **_instead(
            "checkpointed",
            "with torch.autograd.graph.saved_tensors_hooks("
            "lambda t: computed.append(t.detach()), lambda _: None):",
            ("t.detach()", "t"),
            reason="what is computed again is handed over and dropped; it is never differentiated",
        ),
        (
            "train_step",
            f"{LOSS_OF_STAGES}; {LOSS_OF_PARTS}",
            f"{LOSS_OF_PARTS}; {LOSS_OF_STAGES}",
        ): "the sum over both axes, in either order",
        (
            "train_step",
            "with torch.no_grad():",
            "nothing",
        ): "parameters are replaced, and no graph begins there",
        **_instead(
            "CopyToRanks.backward",
            "total = gradient.clone(memory_format=torch.contiguous_format)",
            ("memory_format=torch.contiguous_format", ""),
            reason=DENSE,
        ),
        **_instead(
            "ReduceFromRanks.forward",
            "total = x.clone(memory_format=torch.contiguous_format)",
            ("memory_format=torch.contiguous_format", ""),
            reason=DENSE,
        ),
        ("run_microbatches", "loss += y.detach()", "loss += y"): "the loss is only read",
        **_instead(
            "run_microbatches",
            "sending.append(send(y.detach(), group, at + 1))",
            ("y.detach()", "y"),
            reason=NO_GRAPH,
        ),
        ("send", "tensor = tensor.contiguous()", "tensor = tensor"): CONTIGUOUS,
        **_instead(
            "receive",
            "dist.recv(tensor, group=group, group_src=stage)",
            (", group_src=stage", ""),
            reason="all activations come before the first gradient, so only one neighbour is sending",
        ),
        **_instead(
            "refuse_what_does_not_divide",
            "for what, number, parts in (('layers', model.num_layers, plan.pipeline), "
            "('heads', model.num_heads, plan.tensor), "
            "('sequences', model.batch, plan.data * plan.num_microbatches)):",
            ("'layers'", "'layers_'"),
            ("'heads'", "'heads_'"),
            ("'sequences'", "'sequences_'"),
            reason="the refusal names the two numbers, and so tells which do not fit",
        ),
        **_instead(
            "best_plan",
            "fitting = [plan for plan, estimate in estimates.items() if estimate.memory <= cluster.memory]",
            ("<=", "<"),
            reason="that memory is exactly enough, to the last bit, depends on how it was added up",
        ),
        **_instead(
            "all_plans",
            "yield Plan(data, pipeline, tensor, num_microbatches, recompute=False)",
            (", recompute=False", ""),
            reason="False is the default",
        ),
        **_instead(
            "divisors",
            "return [size for size in range(1, number + 1) if number % size == 0]",
            ("number + 1", "number + 1 + 1"),
            ("number + 1", "number + 2"),
            reason="a number larger than it divides none",
        ),
        **_instead(
            "ring_attention",
            "places = torch.arange(q.shape[2], device=q.device)",
            (", device=q.device", ""),
            reason=NO_OTHER_PLACE,
        ),
        **_instead(
            "ring_attention",
            "scores = q @ block[0].transpose(-1, -2) / q.shape[-1] ** 0.5",
            ("transpose(-1, -2)", "transpose(-2, -1)"),
            ("transpose(-1, -2)", "transpose(-1, 2)"),
            reason=SAME_DIMENSIONS,
        ),
        **_instead(
            "ring_attention",
            "new_largest = torch.maximum(largest, scores.detach().amax(-1, keepdim=True))",
            (
                "largest, scores.detach().amax(-1, keepdim=True)",
                "scores.detach().amax(-1, keepdim=True), largest",
            ),
            ("scores.detach()", "scores"),
            reason="the larger of both; what is subtracted from all scores has no gradient in the end",
        ),
        **_instead(
            "passed_on",
            "arriving = torch.empty_like(tensor, memory_format=torch.contiguous_format)",
            (", memory_format=torch.contiguous_format", ""),
            reason=CONTIGUOUS,
        ),
        **_instead(
            "passed_on",
            "pair = [dist.P2POp(dist.isend, tensor.contiguous(), group=group, "
            "group_peer=(rank + by) % num_ranks), dist.P2POp(dist.irecv, arriving, group=group, "
            "group_peer=(rank - by) % num_ranks)]",
            ("tensor.contiguous()", "tensor"),
            reason=CONTIGUOUS,
        ),
        **_instead(
            "dispatch_to_experts",
            "order = assignment.argsort(stable=True)",
            ("stable=True", ""),
            ("stable=True", "stable=False"),
            reason="whatever the order in which an expert gets its tokens, they are put back",
        ),
        (
            "dispatch_to_experts",
            EXCHANGE_COUNTS,
            f"{EXCHANGE_COUNTS}; {EXCHANGE_COUNTS}",
        ): "the same counts again; the budget is of rows",
        **_instead(
            "exchanged",
            "dist.all_to_all_single(output, rows.contiguous(), arriving, leaving, group=group)",
            ("rows.contiguous()", "rows"),
            reason=CONTIGUOUS,
        ),
    },
}


def reason(mutant: Mutant) -> str:
    """Why a mutant does what the reference does; "" if it is not known to."""
    change = mutant.function, mutant.before, mutant.after
    return EQUIVALENTS.get(mutant.topic, {}).get(change, "")
