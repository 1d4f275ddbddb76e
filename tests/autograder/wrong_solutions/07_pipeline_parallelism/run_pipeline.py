# ruff: noqa: F821
FAILS_AS = {
    "sends_and_waits": ("PIPELINE_DEADLOCK", "isend"),
    "waits_at_once": ("PIPELINE_DEADLOCK", "isend"),
    "asks_first_and_then_sends": ("BLOCKING_SEND", "isend returns immediately"),
    "sends_a_step_late": ("SENT_LATE", "The next stage is waiting"),
    "waits_for_two_at_once": ("AWAITED_EARLY", "right before the step"),
    "asks_for_everything_first": ("BUFFERS_AHEAD", "A buffer for each microbatch"),
    "asks_for_all_gradients_first": ("BUFFERS_AHEAD", "and a gradient"),
    "always_gpipe": ("ANOTHER_SCHEDULE", "the order of the list"),
    "always_from_the_first": ("ANOTHER_SCHEDULE", "the order of the list"),
    "takes_a_step_of_sgd": ("STAGE_CHANGED", "The optimizer"),
    "takes_steps_off_the_schedule": ("MODIFIED", "belongs to the caller"),
    "keeps_every_microbatch": ("ACTIVATIONS_KEPT", "`pop`"),
    "keeps_every_handle": ("ACTIVATIONS_KEPT", "handle of a send"),
    "keeps_every_graph": ("ACTIVATIONS_ALIVE", "retain_graph=True"),
    "adds_up_losses_with_their_graphs": ("ACTIVATIONS_KEPT", "without detach()"),
    "waits_for_gradients_at_the_end": ("ACTIVATIONS_KEPT", "wait for the previous one"),
    "keeps_copies_of_activations": ("ACTIVATIONS_KEPT", "handle of a send"),
    "keeps_copies_of_gradients": ("ACTIVATIONS_KEPT", "wait for the previous one"),
    "never_waits_for_gradients": ("UNWAITED", "Keep the handles"),
    "sums_the_losses": ("WRONG_MEAN_LOSS", "share of the samples"),
    "scales_the_loss_only": ("LOSSES_OF_MICROBATCHES_SUMMED", "scale it"),
    "all_microbatches_alike": ("MICROBATCHES_COUNT_THE_SAME", "len(inputs)"),
    "swaps_outputs_and_targets": ("WRONG_MEAN_LOSS", "in this order"),
    "loss_of_the_last_microbatch": ("WRONG_MEAN_LOSS", "share of the samples"),
    "scales_gradients_again": ("WRONG_STAGE_GRADIENTS", "Only the last stage scales"),
    "clears_gradients": ("ONE_MICROBATCH_ONLY", "do not clear them"),
    "loss_stays": ("LOSS_NOT_PASSED_BACK", "after the last gradient"),
    "broadcasts_the_loss": ("COLLECTIVE_IN_A_PIPELINE", "including the loss"),
    "returns_a_tensor": ("NO_LOSS", "`.item()`"),
    "reads_the_inputs": ("DATA_OF_ANOTHER_STAGE", "Only the first stage may read inputs"),
    "does_not_wait_for_messages": ("UNWAITED", "wait()"),
    "sends_what_has_gaps": ("SENT_WITH_GAPS", "contiguous()"),
    "receives_into_gaps": ("SENT_WITH_GAPS", "torch.empty_like(inputs)"),
    "cannot_be_frozen": ("RAISED", "Only a frozen first stage"),
    "skips_the_backward_of_frozen_layers": ("NOTHING_TO_SEND", "Only a frozen last stage"),
    "begins_no_graph": ("NOTHING_TO_SEND", "`requires_grad_()` was not called"),
    "sends_before_the_backward": ("NOTHING_TO_SEND", "None before the backward"),
    "goes_back_without_a_gradient": ("STAGE_WITHOUT_GRADIENTS", "that comes back from the next stage"),
    "expects_equal_sizes": ("MISMATCH", "shape and dtype"),
    "receives_as_float32": ("MISMATCH", "a tensor's own dtype"),
    "sends_the_shape_first": ("MORE_MESSAGES_THAN_MICROBATCHES", "need not be sent"),
    "sends_padding": ("MORE_THAN_ACTIVATIONS", "Send only the output"),
    "positions_as_ranks": ("RAISED or PIPELINE_DEADLOCK or NOT_NEXT_DOOR", "Only a group"),
    "adds_up_losses_of_all_calls": ("FROM_AN_EARLIER_CALL", "global variable"),
    "counts_microbatches_of_all_calls": ("FROM_AN_EARLIER_CALL", "global variable"),
    "computes_again": ("COMPUTED_AGAIN", "Keep the outputs"),
    "calls_torch_s": ("FORBIDDEN_LIBRARY", "cell of your own"),
}


class sends_and_waits(Pipeline):
    def send(self, tensor, destination):
        dist.send(tensor, group=self.group, group_dst=destination)

    def wait(self, work):
        pass

    def end(self):
        pass


class waits_at_once(Pipeline):
    def send(self, tensor, destination):
        work = super().send(tensor, destination)
        work.wait()
        return work


class AsksAhead(Pipeline):
    """Asks for what the next step needs before it sends what this one has made."""

    def run(self):
        self.coming = {}
        self.ask(self.schedule[0])
        return super().run()

    def ask(self, step):
        kind, microbatch = step
        source = self.index - 1 if kind == "F" else self.index + 1
        if 0 <= source < self.size:
            buffer = self.buffer(microbatch)
            self.coming[step] = buffer, dist.irecv(buffer, group=self.group, group_src=source)

    def send(self, tensor, destination):
        if tensor is not None and self.schedule[-1] != self.current:
            self.ask(self.schedule[self.schedule.index(self.current) + 1])
        return super().send(tensor, destination)

    def do(self, kind, microbatch):
        self.current = kind, microbatch
        super().do(kind, microbatch)

    def receive(self, kind, microbatch):
        if (kind, microbatch) not in self.coming:
            self.ask((kind, microbatch))
        buffer, work = self.coming.pop((kind, microbatch))
        work.wait()
        return buffer


class AsksForGradientsAtOnce(Pipeline):
    """Right: asks for a gradient as soon as a forward is done; those in flight are as many as activations."""

    def run(self):
        self.order = [microbatch for kind, microbatch in self.schedule if kind == "B"]
        self.coming = {}
        return super().run()

    def send_on(self, microbatch, outputs):
        super().send_on(microbatch, outputs)
        following = self.order.pop(0)
        buffer = self.buffer(following)
        self.coming[following] = buffer, dist.irecv(buffer, group=self.group, group_src=self.index + 1)

    def receive(self, kind, microbatch):
        if kind == "F":
            return super().receive(kind, microbatch)
        buffer, work = self.coming.pop(microbatch)
        work.wait()
        return buffer


class UsesBuffersAgain(Pipeline):
    """Right: as many buffers for activations as are in flight, and one for gradients, serve all of them."""

    def run(self):
        self.in_flight = max(itertools.accumulate(1 if kind == "F" else -1 for kind, _ in self.schedule))
        self.buffers = {}
        return super().run()

    def receive(self, kind, microbatch):
        self.slot = kind, microbatch % self.in_flight if kind == "F" else 0
        return super().receive(kind, microbatch).detach()

    def buffer(self, microbatch):
        new = super().buffer(microbatch)
        return self.buffers.setdefault((*self.slot, new.shape), new)


class waits_for_both(Pipeline):
    """Right, as torch does it: what was computed and what is needed next go together, and are waited for."""

    def run(self):
        self.arrived, self.under_way, self.outbox = None, [], []
        self.exchange([], 0)
        for place, (kind, microbatch) in enumerate(self.schedule):
            self.do(kind, microbatch)
            self.exchange(self.outbox, place + 1)
        return self.share_loss()

    def do(self, kind, microbatch):
        self.outbox = []
        super().do(kind, microbatch)

    def exchange(self, messages, place):
        if place < len(self.schedule):
            kind, microbatch = self.schedule[place]
            source = self.index - 1 if kind == "F" else self.index + 1
            if 0 <= source < self.size:
                self.arrived = self.buffer(microbatch)
                receive = dist.P2POp(dist.irecv, self.arrived, group=self.group, group_peer=source)
                messages = [*messages, receive]
        for work in self.under_way:
            work.wait()
        self.under_way = dist.batch_isend_irecv(messages) if messages else []
        if len(messages) > len(self.outbox) or place == len(self.schedule):
            for work in self.under_way:
                work.wait()
            self.under_way = []

    def send(self, tensor, destination):
        self.outbox = [dist.P2POp(dist.isend, tensor, group=self.group, group_peer=destination)]

    def receive(self, kind, microbatch):
        return self.arrived

    def wait(self, work):
        pass


class NamesTheHandles(Pipeline):
    """Right: a loop's variable keeps a handle that was waited for, and with it a gradient that was sent."""

    handle = None

    def wait(self, work):
        self.handle = work
        work.wait()


class WaitsForItsSendBeforeTheBackward(AsksAhead):
    """Right: waits for the gradient that it has asked for ahead, and then for the send, over by then."""

    def receive(self, kind, microbatch):
        arrived = super().receive(kind, microbatch)
        if kind == "B":
            self.activations[microbatch].wait()
        return arrived


class GoesBackToTheInputs(Pipeline):
    """Right, if needless: also the first stage's inputs get gradients, where that stage is frozen, too."""

    def forward(self, microbatch):
        inputs, targets = self.microbatches[microbatch]
        self.microbatches = list(self.microbatches)
        self.microbatches[microbatch] = inputs.clone().requires_grad_(self.first), targets
        super().forward(microbatch)


class asks_first_and_then_sends(AsksAhead):
    def send(self, tensor, destination):
        work = super().send(tensor, destination)
        work.wait()
        return work


class sends_a_step_late(Pipeline):
    pending = None

    def send_on(self, microbatch, outputs):
        self.pending = microbatch, outputs

    def flush(self):
        if self.pending:
            microbatch, outputs = self.pending
            self.pending = None
            super().send_on(microbatch, outputs)

    def forward(self, microbatch):
        earlier, self.pending = self.pending, None
        super().forward(microbatch)
        if earlier:
            super().send_on(*earlier)

    def backward(self, microbatch):
        if self.pending and self.pending[0] == microbatch:
            self.flush()
        super().backward(microbatch)
        self.flush()


class waits_for_two_at_once(Pipeline):
    def run(self):
        self.there = {}
        return super().run()

    def receive(self, kind, microbatch):
        if kind == "B":
            return super().receive(kind, microbatch)
        for ahead in (microbatch, microbatch + 1):
            if ahead < len(self.microbatches) and ahead not in self.there:
                self.there[ahead] = super().receive(kind, ahead)
        return self.there.pop(microbatch)


class asks_for_everything_first(Pipeline):
    early, source = "F", -1  # the kind of steps whose messages are asked for, and the stage they come from

    def run(self):
        self.coming = {}
        if not (self.first if self.early == "F" else self.last):
            for kind, microbatch in self.schedule:
                if kind == self.early:
                    buffer = self.buffer(microbatch)
                    work = dist.irecv(buffer, group=self.group, group_src=self.index + self.source)
                    self.coming[microbatch] = buffer, work
        return super().run()

    def receive(self, kind, microbatch):
        if kind != self.early:
            return super().receive(kind, microbatch)
        buffer, work = self.coming.pop(microbatch)
        work.wait()
        return buffer


class asks_for_all_gradients_first(asks_for_everything_first):
    early, source = "B", 1


class always_gpipe(Pipeline):
    def run(self):
        self.schedule = sorted(self.schedule, key=lambda step: (step[0] == "B", step[1]))
        return super().run()


class always_from_the_first(Pipeline):
    def run(self):
        self.turns = {"F": 0, "B": 0}
        return super().run()

    def do(self, kind, microbatch):
        super().do(kind, self.turns[kind])
        self.turns[kind] += 1


class keeps_every_microbatch(Pipeline):
    def take(self, microbatch):
        return self.alive[microbatch]


class keeps_every_handle(Pipeline):
    def run(self):
        self.handles = []
        return super().run()

    def wait(self, work):
        self.handles.append(work)

    def end(self):
        super().end()
        for work in self.handles:
            work.wait()


class keeps_every_graph(Pipeline):
    def take(self, microbatch):
        return self.alive[microbatch]

    def differentiate(self, outputs, gradient):
        if outputs.requires_grad:
            outputs.backward(gradient, retain_graph=True)


class adds_up_losses_with_their_graphs(Pipeline):
    def add_loss(self, loss, samples):
        share = loss * samples / self.samples
        self.loss = self.loss + share
        return share

    def share_loss(self):
        self.loss = float(self.loss)
        return super().share_loss()


class waits_for_gradients_at_the_end(Pipeline):
    def send_back(self, gradient):
        self.gradients.append(self.send(gradient, self.index - 1))


class keeps_copies_of_activations(keeps_every_handle):
    def outgoing(self, outputs):
        return super().outgoing(outputs).clone()

    def send_back(self, gradient):
        for work in self.gradients:
            work.wait()
        self.gradients = [self.send(gradient, self.index - 1)]


class keeps_copies_of_gradients(waits_for_gradients_at_the_end):
    def send_back(self, gradient):
        super().send_back(gradient.clone())


class never_waits_for_gradients(waits_for_gradients_at_the_end):
    def end(self):
        pass


class sums_the_losses(Pipeline):
    def add_loss(self, loss, samples):
        self.loss += loss.item()
        return loss


class scales_the_loss_only(Pipeline):
    def add_loss(self, loss, samples):
        super().add_loss(loss, samples)
        return loss


class all_microbatches_alike(Pipeline):
    def add_loss(self, loss, samples):
        super().add_loss(loss, samples)
        return loss / len(self.microbatches)


class loss_of_the_last_microbatch(Pipeline):
    def add_loss(self, loss, samples):
        self.loss = loss.item()
        return loss * samples / self.samples


class swaps_outputs_and_targets(Pipeline):
    def run(self):
        loss_fn, self.loss_fn = self.loss_fn, lambda outputs, targets: loss_fn(targets, outputs)
        return super().run()


class scales_gradients_again(Pipeline):
    def send_back(self, gradient):
        super().send_back(gradient / len(self.microbatches))


class clears_gradients(Pipeline):
    def differentiate(self, outputs, gradient):
        self.module.zero_grad()
        super().differentiate(outputs, gradient)


class loss_stays(Pipeline):
    def share_loss(self):
        return self.loss


class broadcasts_the_loss(Pipeline):
    def share_loss(self):
        loss = torch.tensor([self.loss], dtype=torch.float64)
        dist.broadcast(loss, group=self.group, group_src=self.size - 1)
        return loss.item()


class returns_a_tensor(Pipeline):
    def share_loss(self):
        return torch.tensor(super().share_loss())


class reads_the_inputs(Pipeline):
    def receive(self, kind, microbatch):
        arrived = super().receive(kind, microbatch)
        return self.microbatches[microbatch][0].clone() if kind == "F" else arrived


class does_not_wait_for_messages(Pipeline):
    def run(self):
        self.forgotten = []
        return super().run()

    def receive(self, kind, microbatch):
        buffer = torch.full_like(self.buffer(microbatch), torch.nan)
        source = self.index - 1 if kind == "F" else self.index + 1
        self.forgotten.append(dist.irecv(buffer, group=self.group, group_src=source))
        return buffer


class sends_what_has_gaps(Pipeline):
    def outgoing(self, outputs):
        return outputs.detach()


class receives_into_gaps(Pipeline):
    def receive(self, kind, microbatch):
        if kind == "F":
            return super().receive(kind, microbatch)
        buffer = torch.empty_like(self.alive[microbatch][1])
        dist.irecv(buffer, group=self.group, group_src=self.index + 1).wait()
        return buffer


class cannot_be_frozen(Pipeline):
    def differentiate(self, outputs, gradient):
        outputs.backward(gradient)


class skips_the_backward_of_frozen_layers(Pipeline):
    def differentiate(self, outputs, gradient):
        if any(parameter.requires_grad for parameter in self.module.parameters()):
            outputs.backward(gradient)


class begins_no_graph(Pipeline):
    def leaf(self, arrived):
        return arrived


class sends_before_the_backward(Pipeline):
    def differentiate(self, outputs, gradient):
        if not self.first:
            self.send_back(self.inputs.grad)
        super().differentiate(outputs, gradient)

    def take(self, microbatch):
        self.inputs, outputs = super().take(microbatch)
        return self.inputs, outputs


class goes_back_without_a_gradient(Pipeline):
    def differentiate(self, outputs, gradient):
        if outputs.requires_grad:
            outputs.backward()


class expects_equal_sizes(Pipeline):
    def buffer(self, microbatch):
        return super().buffer(0)


class receives_as_float32(Pipeline):
    def buffer(self, microbatch):
        return torch.empty(self.microbatches[microbatch][0].shape)


class sends_the_shape_first(Pipeline):
    def run(self):
        self.shapes = []
        return super().run()

    def send(self, tensor, destination):
        self.shapes.append(super().send(torch.tensor(tensor.shape), destination))
        return super().send(tensor, destination)

    def receive(self, kind, microbatch):
        source = self.index - 1 if kind == "F" else self.index + 1
        shape = torch.empty(2, dtype=torch.int64)
        dist.irecv(shape, group=self.group, group_src=source).wait()
        return super().receive(kind, microbatch)

    def end(self):
        super().end()
        for work in self.shapes:
            work.wait()


class sends_padding(Pipeline):
    def outgoing(self, outputs):
        return torch.cat([super().outgoing(outputs), torch.zeros_like(outputs[:1])])

    def receive(self, kind, microbatch):
        if kind == "B":
            return super().receive(kind, microbatch)
        buffer = self.buffer(microbatch)
        padded = torch.cat([buffer, buffer[:1]])
        dist.irecv(padded, group=self.group, group_src=self.index - 1).wait()
        return padded[:-1].clone()


class straight_to_the_first(Pipeline):
    def share_loss(self):
        loss = torch.tensor([self.loss], dtype=torch.float64)
        if self.last:
            for stage in range(self.size - 1):
                dist.send(loss, group=self.group, group_dst=stage)
        else:
            dist.recv(loss, group=self.group, group_src=self.size - 1)
        return loss.item()


class positions_as_ranks(Pipeline):
    def send(self, tensor, destination):
        return dist.isend(tensor, dst=destination, group=self.group)

    def receive(self, kind, microbatch):
        buffer = self.buffer(microbatch)
        source = self.index - 1 if kind == "F" else self.index + 1
        dist.irecv(buffer, src=source, group=self.group).wait()
        return buffer


def calls_torch_s(schedule, stage_module, microbatches, loss_fn, group=None):
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    rank, size = dist.get_rank(group), dist.get_world_size(group)
    inputs, targets = (torch.cat(parts) for parts in zip(*microbatches, strict=True))
    losses = []
    stage = PipelineStage(stage_module, rank, size, inputs.device, group=group)
    Schedule1F1B(stage, len(microbatches), loss_fn).step(inputs, target=targets, losses=losses)
    return sum(map(float, losses)) / len(microbatches)


def takes_a_step_of_sgd(schedule, stage_module, microbatches, loss_fn, group=None):
    loss = Pipeline(schedule, stage_module, microbatches, loss_fn, group=group)
    with torch.no_grad():
        for parameter in stage_module.parameters():
            if parameter.grad is not None:
                parameter -= 0.1 * parameter.grad
    return loss


def takes_steps_off_the_schedule(schedule, stage_module, microbatches, loss_fn, group=None):
    steps = [schedule.pop(0) for _ in range(len(schedule))]
    return Pipeline(steps, stage_module, microbatches, loss_fn, group=group)


class adds_up_losses_of_all_calls(Pipeline):
    losses = []

    def add_loss(self, loss, samples):
        share = super().add_loss(loss, samples)
        self.losses.append(share.item())
        self.loss = sum(self.losses)
        return share


class counts_microbatches_of_all_calls(Pipeline):
    numbers = itertools.count()

    def forward(self, microbatch):
        super().forward(next(self.numbers))


class computes_again(Pipeline):
    def take(self, microbatch):
        inputs, _ = super().take(microbatch)
        outputs = self.module(inputs)
        if self.last:
            samples, targets = len(inputs), self.microbatches[microbatch][1]
            outputs = self.loss_fn(outputs, targets) * samples / self.samples
        return inputs, outputs
