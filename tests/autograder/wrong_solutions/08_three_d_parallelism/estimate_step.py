# ruff: noqa: F821
FAILS_AS = {
    "returns_seconds": ("NO_ESTIMATE", "all its fields"),
    "AsText": ("NOT_A_NUMBER", "a Python float"),
    "RefusesRecompute": ("POSSIBLE_PLAN_REFUSED", "the wrong number of GPUs"),
    "AcceptsAll": ("IMPOSSIBLE_PLAN_ACCEPTED", "must divide"),
    "RefusesWithoutNumbers": ("REFUSED_WITHOUT_NUMBERS", "two numbers"),
    "ForgetsRecompute": ("WRONG_COMPUTE", "one more forward"),
    "RecomputesTheHead": ("WRONG_COMPUTE", "not of the head"),
    "ForgetsBackward": ("WRONG_COMPUTE", "a backward twice"),
    "BubbleOfAll": ("WRONG_BUBBLE_TIME", "(p − 1)/m"),
    "BubbleOfComputing": ("WRONG_BUBBLE_TIME", "tensor-parallel traffic"),
    "TwoAllReduces": ("WRONG_TENSOR_TIME", "4 all-reduces"),
    "OneWay": ("WRONG_PIPELINE_TIME", "there and back"),
    "MessagesWithoutStages": ("WRONG_PIPELINE_TIME", "none with one stage"),
    "GradientsOfAllLayers": ("WRONG_DATA_TIME", "divided by p and t"),
    "ForgetsTheEmbedding": ("WRONG_DATA_TIME", "the embedding by t alone"),
    "AlwaysNvlink": ("ANOTHER_LINK", "a data group spans all"),
    "NetworkForData": ("ANOTHER_LINK", "a data group spans all"),
    "WithoutRing": ("WITHOUT_THE_RING", "2(n − 1) messages of S/n"),
    "FourBytesBetweenTwo": ("WITHOUT_THE_RING", "2 bytes an element"),
    "WithoutLatency": ("WITHOUT_LATENCY", "2(n − 1) messages"),
    "WholeBatch": ("BATCH_NOT_DIVIDED", "sequences"),
    "KeepsTheState": ("STATE_NOT_SHARDED", "ZeRO-1"),
    "AllInFlight": ("ALL_MICROBATCHES_ALIVE", "min(p, m)"),
    "ForgetsTheLayer": ("WRONG_MEMORY", "one layer's in full"),
}


def returns_seconds(model, cluster, plan):
    return Paper(model, cluster, plan).seconds


class AsText(Paper):
    def compute(self):
        return f"{super().compute():.3g} s"

    def bubble(self, compute, tensor):
        return 0.0


class RefusesRecompute(Paper):
    def refuse(self):
        super().refuse()
        if self.plan.recompute:
            raise ValueError("recompute is not supported")


class AcceptsAll(Paper):
    def refuse(self):
        pass


class RefusesWithoutNumbers(Paper):
    def refuse(self):
        try:
            super().refuse()
        except ValueError:
            raise ValueError("something does not divide") from None


class ForgetsRecompute(Paper):
    def passes(self):
        return 3


class RecomputesTheHead(Paper):
    def head(self):
        return super().head() * self.passes() / 3


class ForgetsBackward(Paper):
    def passes(self):
        return super().passes() - 2


class BubbleOfAll(Paper):
    def bubble(self, compute, tensor):
        return (self.p - 1) / (self.m + self.p - 1) * (compute + tensor)


class BubbleOfComputing(Paper):
    def bubble(self, compute, tensor):
        return (self.p - 1) / self.m * compute


class TwoAllReduces(Paper):
    def tensor(self):
        return super().tensor() / 2


class OneWay(Paper):
    def pipeline(self):
        return super().pipeline() / 2


class MessagesWithoutStages(Paper):
    def pipeline(self):
        return self.messages()


class GradientsOfAllLayers(Paper):
    def data(self):
        model = self.model
        parameters = (12 * model.width**2 * model.num_layers + model.vocabulary * model.width) / self.t
        return self.all_reduce(self.d, 2 * parameters, self.cluster.num_gpus)


class ForgetsTheEmbedding(Paper):
    def count(self):
        return 12 * self.model.width**2 * self.layers / self.t


class AlwaysNvlink(Paper):
    def bandwidth(self, span):
        return self.cluster.node_bandwidth


class NetworkForData(Paper):
    def bandwidth(self, span):
        return self.cluster.network_bandwidth if span == self.cluster.num_gpus else super().bandwidth(span)


class WithoutRing(Paper):
    def all_reduce(self, ranks, nbytes, span):
        return 2 * (self.cluster.latency + nbytes / self.bandwidth(span)) if ranks > 1 else 0.0


class FourBytesBetweenTwo(Paper):
    def all_reduce(self, ranks, nbytes, span):
        return super().all_reduce(ranks, 2 * nbytes if ranks == 2 else nbytes, span)


class WithoutLatency(Paper):
    def all_reduce(self, ranks, nbytes, span):
        return 2 * (ranks - 1) / ranks * nbytes / self.bandwidth(span)


class WholeBatch(Paper):
    def sequences(self):
        return self.model.batch


class KeepsTheState(Paper):
    def state(self):
        return 12 * self.parameters


class AllInFlight(Paper):
    def in_flight(self):
        return self.m


class ForgetsTheLayer(Paper):
    def memory(self):
        layer = self.activation * (10 + 24 / self.t)
        return super().memory() - layer if self.plan.recompute else super().memory()


class NamesEachFactor(Paper):  # which is right: no product is written out
    def refuse(self):
        try:
            super().refuse()
        except ValueError:
            model, plan = self.model, self.plan
            raise ValueError(
                f"{self.d} x {self.p} x {self.t} is not {self.cluster.num_gpus}, or of {model.num_layers} "
                f"layers, {model.num_heads} heads and {model.batch} sequences some do not divide: {plan}"
            ) from None
