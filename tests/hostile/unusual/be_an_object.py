"""Is an object of a class with type parameters and a cached property."""

import abc
import functools
import typing

T = typing.TypeVar("T")


class Step(abc.ABC, typing.Generic[T]):
    @abc.abstractmethod
    def __call__(self, value: T, peer: int) -> T: ...


class Exchange(Step[torch.Tensor]):
    @functools.cached_property
    def me(self):
        return dist.get_rank()

    def __call__(self, value, peer):
        received = torch.empty_like(value)
        for mine in sorted((self.me, peer)):
            dist.send(value, peer) if mine == self.me else dist.recv(received, peer)
        return received


exchange = Exchange()
