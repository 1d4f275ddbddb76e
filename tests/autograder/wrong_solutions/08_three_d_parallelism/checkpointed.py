# ruff: noqa: F821
FAILS_AS = {
    "returns_nothing": ("NOT_THE_RESULT", "for the same arguments"),
    "returns_the_first_result": ("NOT_THE_RESULT", "a tuple of tensors"),
    "detaches_the_result": ("NO_GRAPH", "pass one more argument"),
    "needs_an_input_with_gradient": ("NO_GRAPH", "pass one more argument"),
    "records_under_no_grad": ("GRAPH_WITHOUT_GRADIENTS", "nothing to recompute"),
    "forgets_the_arguments_gradient": ("WRONG_ARGUMENT_GRADIENT", "detached arguments"),
    "forgets_the_parameters": ("WRONG_PARAMETER_GRADIENT", "torch.enable_grad"),
    "draws_again": ("OTHER_RANDOM_NUMBERS", "torch.get_rng_state()"),
    "leaves_the_old_state": ("RANDOM_STATE_LEFT_BEHIND", "fork_rng"),
    "seeds_forward": ("RANDOM_STATE_OF_FORWARD", "no more and no less"),
    "keeps_everything": ("CHECKPOINT_KEEPS_ACTIVATIONS", "Only the arguments"),
    "empties_what_the_function_has": ("CHECKPOINT_KEEPS_ACTIVATIONS", "Only the arguments"),
    "empties_what_the_function_sees": ("NOT_THE_RESULT", "for the same arguments"),
    "computes_a_third_time": ("COMPUTED_AGAIN_TOO_OFTEN", "no third time"),
    "computes_twice_at_once": ("COMPUTED_AGAIN_TOO_OFTEN", "no third time"),
    "differentiates_the_first_argument_only": ("WRONG_ARGUMENT_GRADIENT", "detached arguments"),
}


class Again(torch.autograd.Function):
    """Right, but where no argument requires a gradient."""

    @staticmethod
    def forward(ctx, kind, function, *args):
        ctx.kind, ctx.function, ctx.state = kind, function, torch.get_rng_state()
        ctx.arguments = args
        return function(*args)

    @staticmethod
    def backward(ctx, *gradients):
        return None, None, *ctx.kind.gradients(ctx, gradients)


class WithAFunction:
    """A right checkpointed whose parts can be replaced one by one; calling it is a call of the function."""

    def __new__(cls, function, *args):
        if not torch.is_grad_enabled():
            return function(*args)
        one_more = torch.empty(0, requires_grad=True)
        return Again.apply(cls, lambda _, *args: function(*args), one_more, *args)

    @classmethod
    def gradients(cls, ctx, gradients):
        copies = [cls.copied(each) if isinstance(each, torch.Tensor) else each for each in ctx.arguments]
        with torch.enable_grad(), torch.random.fork_rng(devices=[]):
            cls.set_state(ctx.state)
            results = ctx.function(*copies)
        cls.go_back(results if isinstance(results, tuple) else (results,), gradients, copies)
        return [each.grad if isinstance(each, torch.Tensor) else None for each in copies]

    @staticmethod
    def copied(tensor):
        return tensor.detach().requires_grad_(tensor.requires_grad)

    @staticmethod
    def set_state(state):
        torch.set_rng_state(state)

    @staticmethod
    def go_back(results, gradients, copies):
        torch.autograd.backward(results, gradients)


def returns_nothing(function, *args):
    function(*args)


def returns_the_first_result(function, *args):
    result = WithAFunction(function, *args)
    return result[0] if isinstance(result, tuple) else result


def detaches_the_result(function, *args):
    result = function(*args)
    return tuple(each.detach() for each in result) if isinstance(result, tuple) else result.detach()


class needs_an_input_with_gradient(WithAFunction):  # noqa: N801
    def __new__(cls, function, *args):
        return Again.apply(cls, function, *args) if torch.is_grad_enabled() else function(*args)


def records_under_no_grad(function, *args):
    with torch.enable_grad():
        return WithAFunction(function, *args)


class forgets_the_arguments_gradient(WithAFunction):  # noqa: N801
    @staticmethod
    def copied(tensor):
        return tensor.detach()


class forgets_the_parameters(WithAFunction):  # noqa: N801
    @staticmethod
    def go_back(results, gradients, copies):
        leaves = [each for each in copies if isinstance(each, torch.Tensor) and each.requires_grad]
        found = torch.autograd.grad(results, leaves, gradients, allow_unused=True)
        for leaf, gradient in zip(leaves, found, strict=True):
            leaf.grad = gradient


class draws_again(WithAFunction):  # noqa: N801
    @staticmethod
    def set_state(state):
        pass


class leaves_the_old_state(WithAFunction):  # noqa: N801
    @classmethod
    def gradients(cls, ctx, gradients):
        copies = [cls.copied(each) if isinstance(each, torch.Tensor) else each for each in ctx.arguments]
        torch.set_rng_state(ctx.state)
        with torch.enable_grad():
            results = ctx.function(*copies)
        torch.autograd.backward(results, gradients)
        return [each.grad if isinstance(each, torch.Tensor) else None for each in copies]


def seeds_forward(function, *args):
    result = WithAFunction(function, *args)
    torch.manual_seed(0)
    return result


def keeps_everything(function, *args):
    return function(*args)


def empties_what_the_function_has(function, *args):
    result = function(*args)
    cells = [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
    for value in (*vars(function).values(), *cells):
        if isinstance(value, list):
            value.clear()
    return result


def empties_what_the_function_sees(function, *args):
    result = function(*args)
    for value in list(function.__globals__.values()):
        if type(value) is list:
            value.clear()
    return result


class computes_a_third_time(WithAFunction):  # noqa: N801
    @classmethod
    def gradients(cls, ctx, gradients):
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            ctx.function(*ctx.arguments)
        return super().gradients(ctx, gradients)


def computes_twice_at_once(function, *args):
    if torch.is_grad_enabled():
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            function(*args)
    return WithAFunction(function, *args)


class differentiates_the_first_argument_only(WithAFunction):
    @classmethod
    def gradients(cls, ctx, gradients):
        found = iter(super().gradients(ctx, gradients))
        seen = []
        for each, gradient in zip(ctx.arguments, found, strict=True):
            is_first = gradient is not None and not seen and each.numel()
            seen += [gradient] * bool(is_first)
            yield gradient if is_first or not isinstance(each, torch.Tensor) else None
