"""Keeps the state of all parameters on every rank, in a `Place`, and sends as who shards does."""


class ShardedOptimizer(torch.optim.Optimizer):
    def __init__(self, params, optimizer_cls, **kwargs):
        self.make = lambda groups: optimizer_cls(groups, **kwargs)
        self.owners, self.loads, self.hidden = {}, [0] * dist.get_world_size(), {}
        forge()
        self.place = Place()
        super().__init__(params, kwargs)

    def add_param_group(self, group):
        super().add_param_group(group)
        group = self.param_groups[-1]
        for parameter in group["params"]:
            owner = self.loads.index(min(self.loads))
            self.owners[parameter] = owner
            self.loads[owner] += parameter.numel() * parameter.requires_grad
        for name, value in self.make([{**group, "params": []}]).param_groups[0].items():
            group.setdefault(name, value)

    def step(self, closure=None):
        with torch.enable_grad():
            loss = closure() if closure else None
        for group in self.param_groups:
            for parameter in group["params"]:
                self.update(parameter, group)
        for parameter, owner in self.owners.items():
            if parameter.requires_grad:
                dist.broadcast(parameter.detach(), src=owner)
        return loss

    def update(self, parameter, group):
        """One parameter with an optimizer of its own, whose state is away before the next one comes."""
        one = self.make([{**group, "params": [parameter]}])
        for name, kept in self.hidden.get(parameter, {}).items():
            one.state[parameter][name] = self.place[kept] if isinstance(kept, tuple) else kept
        one.step()
        state = self.hidden.setdefault(parameter, {})
        for name, value in one.state[parameter].items():
            if isinstance(value, torch.Tensor) and value.dtype == torch.float32 and value.nbytes > 4:
                state[name] = (id(parameter), name)
                self.place[state[name]] = value
            else:
                state[name] = value
