# ruff: noqa: F821
FAILS_AS = {
    "Linear": ("RAISED", "Read the line"),
    "PlainBackward": ("NOT_SPLIT", "return None for weight and bias"),
    "ComputesTwice": ("COMPUTED_TWICE", "one matrix multiplication each"),
    "ComputesTwiceInInferenceMode": ("COMPUTED_TWICE", "one matrix multiplication each"),
    "ComputesWhatIsFrozen": ("FROZEN_COMPUTED", "before you multiply"),
    "RoundsToFloat32": ("WRONG_WEIGHT_GRADIENTS", "something is rounded"),
    "LatestFirst": ("WRONG_WEIGHT_GRADIENTS", "with the earliest backward"),
    "InOrderOfForwards": ("WRONG_WEIGHT_GRADIENTS", "with the earliest backward"),
    "AllAtOnce": ("WRONG_WEIGHT_GRADIENTS", "is for one microbatch"),
    "Overwrites": ("WRONG_WEIGHT_GRADIENTS", "adds to existing gradients"),
    "MultipliesTheOtherWay": ("WRONG_INPUT_GRADIENTS", "times the weight"),
    "ForgetsTheBias": ("WRONG_WEIGHT_GRADIENTS", "bias.grad"),
    "SumsTheLastDimension": ("RAISED", "Read the line"),
    "TrainsFrozenWeights": ("WRONG_WEIGHT_GRADIENTS", "weight.grad"),
    "KeepsInputs": ("INPUTS_KEPT", "Free the tensors"),
    "LooksForNothingPending": ("NOTHING_LEFT_TO_DO", "RuntimeError"),
    "AcceptsOneMore": ("NOTHING_LEFT_TO_DO", "RuntimeError"),
    "HangsOnTheOutputs": ("RAISED", "a model's first layer"),
    "ExpectsABias": ("RAISED", "Only a layer without a bias"),
    "NothingPendsWhenFrozen": ("RAISED", "Only a frozen layer"),
    "OneListForAllLayers": ("SHARED_BY_LAYERS", "in __init__"),
    "RegistersMore": ("OTHER_PARAMETERS", "register nothing"),
}


class Linear(nn.Linear):
    pass


class PlainBackward(nn.Linear):
    def backward_weight(self):
        pass


class ComputesTwice(Split):
    def input_gradient(self, gradient, weight):
        gradient.reshape(-1, gradient.shape[-1]).t() @ self.waiting[-1][0].reshape(-1, self.in_features)
        return gradient @ weight


class ComputesTwiceInInferenceMode(Split):
    def next(self):
        inputs, gradient = super().next()
        with torch.inference_mode():
            gradient.reshape(-1, self.out_features).t() @ inputs.reshape(-1, self.in_features)
        return inputs, gradient


class ComputesWhatIsFrozen(Split):
    def backward_weight(self):
        inputs, gradient = self.next()
        gradient = gradient.reshape(-1, self.out_features)
        of_weight, of_bias = gradient.t() @ inputs.reshape(-1, self.in_features), gradient.sum(0)
        for parameter, found in ((self.weight, of_weight), (self.bias, of_bias)):
            if parameter is not None and parameter.requires_grad:
                self.add(parameter, found)


class RoundsToFloat32(Split):
    def add(self, parameter, gradient):
        super().add(parameter, gradient.float().to(gradient.dtype))


class LatestFirst(Split):
    def next(self):
        if not self.waiting:
            raise RuntimeError("no microbatch waits")
        return self.waiting.pop()


class InOrderOfForwards(Split):
    def forward(self, inputs):
        self.came = [*getattr(self, "came", []), inputs]
        return super().forward(inputs)

    def next(self):
        if not self.waiting:
            raise RuntimeError("no microbatch waits")
        _, gradient = self.waiting.pop(0)
        return self.came.pop(0).detach(), gradient


class AllAtOnce(Split):
    def backward_weight(self):
        while self.waiting:
            super().backward_weight()


class Overwrites(Split):
    def add(self, parameter, gradient):
        parameter.grad = gradient


class MultipliesTheOtherWay(Split):
    def input_gradient(self, gradient, weight):
        return gradient @ weight.flip(0)


class ForgetsTheBias(Split):
    def add(self, parameter, gradient):
        if parameter is self.weight:
            super().add(parameter, gradient)


class SumsTheLastDimension(Split):
    def backward_weight(self):
        inputs, gradient = self.next()
        if self.weight.requires_grad:
            self.add(self.weight, gradient.t() @ inputs)
            if self.bias is not None:
                self.add(self.bias, gradient.sum(0))


class TrainsFrozenWeights(Split):
    def backward_weight(self):
        inputs, gradient = self.next()
        gradient = gradient.reshape(-1, self.out_features)
        self.add(self.weight, gradient.t() @ inputs.reshape(-1, self.in_features))
        if self.bias is not None:
            self.add(self.bias, gradient.sum(0))


class KeepsInputs(Split):
    done = 0

    def next(self):
        if self.done == len(self.waiting):
            raise RuntimeError("no microbatch waits")
        self.done += 1
        return self.waiting[self.done - 1]


class LooksForNothingPending(Split):
    def backward_weight(self):
        if not self.waiting:
            raise IndexError("pop from empty list")
        super().backward_weight()


class AcceptsOneMore(Split):
    def backward_weight(self):
        if self.waiting:
            super().backward_weight()


class HangsOnTheOutputs(Split):
    def forward(self, inputs):
        bias = None if self.bias is None else self.bias.detach()
        outputs = nn.functional.linear(inputs, self.weight.detach(), bias)
        if outputs.requires_grad:
            outputs.register_hook(lambda gradient: self.note(inputs.detach(), gradient))
        return outputs


class ExpectsABias(Split):
    def backward_weight(self):
        self.bias.requires_grad_(self.bias.requires_grad)
        super().backward_weight()


class NothingPendsWhenFrozen(Split):
    def note(self, inputs, gradient):
        if self.weight.requires_grad:
            super().note(inputs, gradient)


class OneListForAllLayers(Split):
    every = []

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.waiting = self.every


class RegistersMore(Split):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.weight_gradient = nn.Parameter(torch.zeros_like(self.weight))

    def load_state_dict(self, state):
        return super().load_state_dict(state, strict=False)
