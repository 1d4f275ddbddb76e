# ruff: noqa: F821
FAILS_AS = {
    "KnowsTheLearningRate": ("ANOTHER_LEARNING_RATE", "model_config.learning_rate"),
    "ReturnsATensor": ("NO_STEP_LOSS", ".item()"),
    "LossOfTheOwnRows": ("LOSS_OF_ONE_PART", "Average the losses"),
    "LossOnTheLastStage": ("LOSS_NOT_EVERYWHERE", "all other stages add a zero"),
    "RoundsTheLoss": ("ROUNDED_LOSS", "Only late digits differ"),
    "LossesSummed": ("WRONG_FIRST_LOSS", "mean over all microbatches"),
    "AnotherSeed": ("WRONG_FIRST_LOSS", "whole_model"),
    "ComputesAllShares": ("WRONG_FIRST_LOSS", "no other part"),
    "DoesNotSumPartialSums": ("WRONG_FIRST_LOSS", "tensor axis"),
    "NoUpdate": ("NOTHING_LEARNED", "mesh.state"),
    "BuildsEachTime": ("NOTHING_LEARNED", "mesh.state"),
    "NeverClears": ("GRADIENTS_PILE_UP", "to None"),
    "SumsOverData": ("SUMMED_OVER_DATA", "divide the sum"),
    "SumsOverMicrobatches": ("SUMMED_OVER_MICROBATCHES", "number of microbatches"),
    "TrainsApart": ("EACH_DATA_RANK_ALONE", "the ranks diverge"),
    "AveragesOverAll": ("MESH_DEADLOCK", "own group"),
    "NoSumInBackward": ("WRONG_LATER_LOSS", "tensor axis"),
    "SumsTwice": ("WRONG_LATER_LOSS", "tensor axis"),
    "GradientOfNoise": ("WRONG_LATER_LOSS", "pipeline"),
    "ReadsEveryStagesTokens": ("DATA_OF_ANOTHER_RANK", "Only the first stage"),
    "ReadsEveryStagesTargets": ("DATA_OF_ANOTHER_RANK", "Only the first stage"),
    "TakesTheBlocksOutput": ("RAISED", ""),
    "SendsToRanks": ("MESH_DEADLOCK or RAISED or NO_SUCH_RANK", ""),
    "LeavesGradientsInFlight": ("NO_WAIT", "Keep every handle"),
    "LeavesReceivesInFlight": ("UNWAITED", "Keep the handles"),
    "HoldsTheWholeModel": ("WHOLE_MODEL_HELD", "this rank's stage"),
    "SynchronizesReplicated": ("TENSOR_BYTES", "the same on all ranks"),
    "AveragesEachMicrobatch": ("DATA_BYTES", "once a step"),
    "SendsTwice": ("PIPELINE_BYTES", "comes back once"),
    "GathersAtRankZero": ("ACROSS_AXES", "within a tensor group"),
}


class ReturnsATensor(Trainer):
    def share_loss(self, loss):
        return torch.tensor(super().share_loss(loss))


class LossOfTheOwnRows(Trainer):
    def share_loss(self, loss):
        dist.all_reduce(loss, group=self.mesh.pipeline_group)
        return loss.item()


class LossOnTheLastStage(Trainer):
    def share_loss(self, loss):
        dist.all_reduce(loss, group=self.mesh.data_group)
        return loss.item() / self.data


class RoundsTheLoss(Trainer):
    def share_loss(self, loss):
        return super().share_loss(loss.float())


class LossesSummed(Trainer):
    def counted(self, loss):
        return loss * self.config.num_microbatches


class AnotherSeed(Trainer):
    def build(self):
        torch.manual_seed(dist.get_rank())
        stage = super().build()
        for parameter in stage.parameters():
            nn.init.normal_(parameter)
        return stage


class ComputesAllShares(Trainer):
    """Each rank of a tensor group has all heads and hidden units, and ignores what it is sent."""

    def shared(self, model):
        for block in model[1:-1]:
            block.leave = self.leave
        return model

    def leave(self, x):
        dist.all_reduce(torch.zeros_like(x), group=self.mesh.tensor_group)
        return x


class DoesNotSumPartialSums(Trainer):
    def leave(self, x):
        return x


class NoUpdate(Trainer):
    def update(self):
        pass


class BuildsEachTime(Trainer):
    def step(self, batch):
        self.stage = self.build()
        return super().step(batch)


class NeverClears(Trainer):
    """The gradients are already averaged when the next ones are added, so averaging leaves them alike."""

    def clear(self):
        pass


class SumsOverData(Trainer):
    def synchronize(self):
        for parameter in self.stage.parameters():
            dist.all_reduce(parameter.grad, group=self.mesh.data_group)


class SumsOverMicrobatches(Trainer):
    def scaled(self, loss):
        return loss

    def counted(self, loss):
        return loss / self.config.num_microbatches


class TrainsApart(Trainer):
    def synchronize(self):
        pass


class AveragesOverAll(Trainer):
    """Stages have different parameters, and so different numbers of calls."""

    def synchronize(self):
        for parameter in self.stage.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()


class NoSumInBackward(Trainer):
    def enter(self, x):
        return x


class SumsTwice(Trainer):
    def leave(self, x):
        return CopyToRanks.apply(super().leave(x), self.mesh.tensor_group)


class GradientOfNoise(Trainer):
    def returned(self, gradient):
        return torch.ones_like(gradient)


class ReadsEveryStagesTokens(Trainer):
    def run(self, batch):
        F.embedding(batch[0], torch.zeros(self.config.characters, 1))
        return super().run(batch)


class ReadsEveryStagesTargets(Trainer):
    def run(self, batch):
        F.cross_entropy(torch.zeros(batch[1].numel(), self.config.characters), batch[1].flatten())
        return super().run(batch)


class TakesTheBlocksOutput(Trainer):
    """Without the head, whose scores the loss reads: there are fewer of them than characters."""

    def cut(self, model):
        stage = super().cut(model)
        return stage[:-1] if self.last else stage


class LeavesGradientsInFlight(Trainer):
    def synchronize(self):
        for parameter in self.stage.parameters():
            parameter.grad /= self.data
            dist.all_reduce(parameter.grad, group=self.mesh.data_group, async_op=True)


class LeavesReceivesInFlight(Trainer):
    def receive(self, shape, stage):
        tensor = torch.zeros(*shape, self.config.width, dtype=torch.float64)
        dist.irecv(tensor, group=self.mesh.pipeline_group, group_src=stage)
        return tensor


class SendsToRanks(Trainer):
    """Positions in the group are taken for ranks of the world."""

    def send(self, tensor, stage):
        return tensor, dist.isend(tensor, stage)

    def receive(self, shape, stage):
        tensor = torch.empty(*shape, self.config.width, dtype=torch.float64)
        dist.recv(tensor, stage)
        return tensor


class HoldsTheWholeModel(Trainer):
    def build(self):
        self.whole = whole_model(self.config)
        return super().build()


class SynchronizesReplicated(Trainer):
    def synchronize(self):
        super().synchronize()
        for parameter in self.stage.parameters():
            if parameter.dim() == 1:
                dist.all_reduce(parameter.grad, group=self.mesh.tensor_group)
                parameter.grad /= self.ranks


class AveragesEachMicrobatch(Trainer):
    def synchronize(self):
        super().synchronize()
        super().synchronize()


class SendsTwice(Trainer):
    def send(self, tensor, stage):
        super().send(tensor, stage)[1].wait()
        return super().send(tensor, stage)

    def receive(self, shape, stage):
        super().receive(shape, stage)
        return super().receive(shape, stage)


class GathersAtRankZero(Trainer):
    def synchronize(self):
        super().synchronize()
        numel = max(parameter.numel() for parameter in self.stage.parameters())
        dist.all_reduce(torch.zeros(64 + numel % 2, dtype=torch.float64)[:64])


class KnowsTheLearningRate(Trainer):
    def update(self):
        with torch.no_grad():
            for parameter in self.stage.parameters():
                parameter -= 0.3 * parameter.grad
