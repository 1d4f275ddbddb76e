# ruff: noqa: F821
FAILS_AS = {
    "returns_tokens_only": ("NO_PAIR", "sends the expert's outputs back"),
    "KeepsItsTokens": ("WRONG_TOKENS", "assigned to its position"),
    "SendsFloat32": ("ROUNDED_ROWS", "without .float()"),
    "ReceivesFloat32": ("ROUNDED_ROWS", "without .float()"),
    "RoundsResults": ("ROUNDED_ROWS", "without .float()"),
    "ReversesTokens": ("TOKENS_IN_ANOTHER_ORDER", "stable=True"),
    "ForgetsToPutBack": ("COMBINED_IN_ANOTHER_ORDER", "the row that its token came from"),
    "PutsBackTheOtherWay": ("WRONG_COMBINED", "Row i"),
    "Detached": ("EXPERTS_CUT", "the two lists"),
    "OneGradientForAll": ("WRONG_TOKEN_GRADIENT", "The gradient goes back"),
    "ForgetsOthersTokens": ("WRONG_EXPERT_GRADIENT", "including those of other ranks"),
    "StaysAwayWithoutTokens": ("EXPERTS_OUT_OF_STEP", "even without tokens"),
    "SendsEverythingToAll": ("EXPERTS_BYTES", "only to the rank"),
    "SortsInPlace": ("MODIFIED", "belongs to the caller"),
    "ExchangesNumbersOnce": ("FROM_AN_EARLIER_CALL", "filled again"),
    "OneMessageForEachToken": ("EXPERTS_COLLECTIVES", "two in backward"),
}


def returns_tokens_only(tokens, assignment, group):
    return Experts(tokens, assignment, group)[0]


class KeepsItsTokens(Experts):
    def dispatch(self, tokens, assignment):
        return tokens * 1.0, lambda outputs: outputs


class SendsFloat32(Experts):
    def dispatch(self, tokens, assignment):
        return super().dispatch(tokens.float(), assignment)


class ReceivesFloat32(Experts):
    def dispatch(self, tokens, assignment):
        received, combine = super().dispatch(tokens.float(), assignment)
        return received.double(), combine


class RoundsResults(Experts):
    def dispatch(self, tokens, assignment):
        received, combine = super().dispatch(tokens, assignment)
        return received, lambda outputs: combine(outputs.float()).double()


class ReversesTokens(Experts):
    def order(self, assignment):
        return len(assignment) - 1 - assignment.flip(0).argsort(stable=True)


class ForgetsToPutBack(Experts):
    def home(self, rows, order):
        return rows


class PutsBackTheOtherWay(Experts):
    def home(self, rows, order):
        return rows[order]


class Detached(Experts):
    def exchange(self, rows, leaving, arriving):
        return exchanged(rows.detach(), leaving, arriving, self.group)


class OneGradientForAll(Experts):
    """Only what is dispatched has the factor; results come back as they should."""

    def dispatch(self, tokens, assignment):
        received, combine = super().dispatch(tokens, assignment)
        return ScaledBack.apply(received, 1 / self.size), combine


class ScaledBack(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, factor):
        ctx.factor = factor
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.factor, None


class ForgetsOthersTokens(Experts):
    """Gradients of results do not go back to the expert's rank but for the first half."""

    def dispatch(self, tokens, assignment):
        received, combine = super().dispatch(tokens, assignment)

        def half(outputs):
            kept = len(outputs) // 2
            return combine(torch.cat((outputs[:kept], outputs[kept:].detach() + 0 * outputs[kept:])))

        return received, half


class StaysAwayWithoutTokens(Experts):
    def dispatch(self, tokens, assignment):
        if not len(tokens):
            return tokens * 1.0, lambda outputs: outputs
        return super().dispatch(tokens, assignment)


class SendsEverythingToAll(Experts):
    def dispatch(self, tokens, assignment):
        dist.all_reduce(torch.zeros(400, dtype=torch.float64), group=self.group)
        return super().dispatch(tokens, assignment)


class OneMessageForEachToken(Experts):
    def dispatch(self, tokens, assignment):
        for _ in range(4):
            dist.barrier(group=self.group)
        return super().dispatch(tokens, assignment)


class ExchangesNumbersOnce(Experts):
    numbers = []

    def dispatch(self, tokens, assignment):
        if not self.numbers:
            leaving = torch.bincount(assignment, minlength=self.size)
            arriving = torch.empty_like(leaving)
            dist.all_to_all_single(arriving, leaving, group=self.group)
            self.numbers += leaving.tolist(), arriving.tolist()
        there, back = self.numbers
        order = self.order(assignment)

        def combine(outputs):
            return self.home(self.exchange(outputs, back, there), order)

        return self.exchange(tokens[order], there, back), combine


class SortsInPlace(Experts):
    def order(self, assignment):
        order = super().order(assignment)
        assignment.copy_(assignment[order])
        return order


class AddsUpATableOfNumbers(Experts):  # which is right: only numbers of tokens are sent
    def arriving(self, leaving):
        rank = dist.get_rank(self.group)
        table = leaving.new_zeros(self.size, self.size)
        table[rank] = leaving
        dist.all_reduce(table, group=self.group)
        return table[:, rank]
