"""The model trained by data x pipeline x tensor ranks, for lecture 08: each axis has a group of its own.

One process's losses come out, whatever the mesh. Calls that communicate are marked by their axis.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from .corpus import Corpus, batch
from .model import Config, layers_of, loss, share, transformer

AXES = ("data", "pipeline", "tensor")


class MeshTraining:
    """One rank's part of a training: its share of a stage, and its places in three groups.

    Args:
        config: of the model.
        sizes: of data, pipeline and tensor; their product is the number of ranks.
        microbatches: into which a data-parallel rank's rows are cut.
        learning_rate: of AdamW.

    Raises:
        ValueError: the blocks do not divide into so many stages.
    """

    def __init__(
        self,
        config: Config,
        sizes: tuple[int, int, int],
        microbatches: int = 4,
        learning_rate: float = 3e-3,
        device: str | torch.device = "cpu",
    ) -> None:
        if config.blocks % sizes[1]:
            raise ValueError(f"{config.blocks} blocks do not divide into {sizes[1]} stages.")
        self.config, self.microbatches, self.device = config, microbatches, torch.device(device)
        mesh = init_device_mesh(self.device.type, sizes, mesh_dim_names=AXES)
        self.data, self.pipeline, self.tensor = (mesh[axis].get_group() for axis in AXES)
        self.place = tuple(mesh.get_local_rank(axis) for axis in AXES)
        self.at, self.last = self.place[1], sizes[1] - 1
        self.stage = self._cut(sizes).to(self.device)
        self.optimizer = torch.optim.AdamW(self.stage.parameters(), lr=learning_rate)

    def _cut(self, sizes: tuple[int, int, int]) -> nn.Sequential:
        """Make this rank's share of its stage; the whole model exists for a moment."""
        model = share(
            transformer(self.config), self.config, self.place[2], sizes[2],
            enter=lambda x: _CopyToRanks.apply(x, self.tensor),
            leave=lambda x: _ReduceFromRanks.apply(x, self.tensor),
        )  # fmt: skip
        layers, children = layers_of(self.config, self.at, sizes[1]), list(model.named_children())
        return nn.Sequential(OrderedDict(children[at] for at in layers))

    def step(self, corpus: Corpus, number: int) -> float:
        """Take a step of training; returns the loss of the whole batch, on every rank."""
        inputs, targets = (
            tensor.to(self.device) for tensor in batch(corpus, number, self.place[0], self.data.size())
        )
        self.optimizer.zero_grad()
        of_batch = self._forward_and_backward(inputs, targets)
        gradients = [parameter.grad for parameter in self.stage.parameters() if parameter.grad is not None]
        together = parameters_to_vector(gradients)
        dist.all_reduce(together, group=self.data)  # data: the gradients of a stage, once a step
        vector_to_parameters(together / self.data.size(), gradients)
        self.optimizer.step()
        dist.all_reduce(of_batch, group=self.pipeline)  # the loss: 4 bytes
        dist.all_reduce(of_batch, group=self.data)
        return of_batch.item() / self.data.size()

    def _forward_and_backward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Do GPipe's schedule; returns the loss on the last stage, zero elsewhere."""
        of_rows = torch.zeros((), device=self.device)
        alive: list[tuple[Tensor, Tensor]] = []
        sent: list[tuple[Tensor, dist.Work | None]] = []
        for rows, answers in zip(*(each.chunk(self.microbatches) for each in (inputs, targets)), strict=True):
            x = rows if self.at == 0 else self._receive(rows, self.at - 1).requires_grad_()
            y = self.stage(x)
            if self.at == self.last:
                y = loss(y, answers) / self.microbatches
                of_rows += y.detach()
            else:
                sent.append(self._send(y.detach(), self.at + 1))
            alive.append((x, y))
        for (x, y), rows in zip(alive, inputs.chunk(self.microbatches), strict=True):
            y.backward(None if self.at == self.last else self._receive(rows, self.at + 1))
            if self.at > 0:
                assert x.grad is not None  # it required one
                sent.append(self._send(x.grad, self.at - 1))
        for _, work in sent:
            if work is not None:
                work.wait()
        return of_rows

    def _send(self, tensor: Tensor, stage: int) -> tuple[Tensor, dist.Work | None]:
        """Begin to send along the pipeline; the tensor stays alive with its handle."""
        return tensor, dist.isend(tensor, group=self.pipeline, group_dst=stage)

    def _receive(self, rows: Tensor, stage: int) -> Tensor:
        """Wait for an activation of these rows, or the gradient of one."""
        tensor = torch.empty(*rows.shape, self.config.width, device=self.device)
        dist.recv(tensor, group=self.pipeline, group_src=stage)
        return tensor


class _CopyToRanks(torch.autograd.Function):
    """Megatron's f: an activation goes into all ranks' shares of a layer, and their gradients are summed."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _summed(gradient, ctx.group), None


class _ReduceFromRanks(torch.autograd.Function):
    """Megatron's g: the ranks' partial sums are summed; the gradient passes as it is."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        return _summed(x, group)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


def _summed(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    total = x.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total, group=group)  # tensor: activations, four times a block and microbatch
    return total
