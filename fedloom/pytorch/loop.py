"""A user's training loop on one client, with the local problem's terms added to its gradients."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import torch

from fedloom.pytorch.calls import seed_of, seeded, tensors, turn
from fedloom.pytorch.module import flat, inputs

Tree = Any
Train = Callable[[torch.nn.Module, torch.optim.Optimizer, "Batches"], object]


class Batches:
    """The examples of one client: every pass over them is in a new random order, as a shuffling DataLoader has it."""

    def __init__(self, x: Tree, y: Tree, batch_size: int, seed: int):
        self.x, self.y, self.batch_size = x, y, batch_size
        self.rows = len(jax.tree.leaves(y)[0])
        self.generator = torch.Generator().manual_seed(seed)

    def __len__(self) -> int:
        return -(-self.rows // self.batch_size)

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        if self.batch_size >= self.rows:
            yield self.x, self.y
            return
        for places in torch.randperm(self.rows, generator=self.generator).split(self.batch_size):
            yield _at(self.x, places), _at(self.y, places)


def _at(rows: Tree, places: torch.Tensor) -> Tree:
    return rows[places] if isinstance(rows, torch.Tensor) else jax.tree.map(lambda a: a[places], rows)


class Terms:
    """What a local problem adds to F_k, by parameter: <linear, v> + mu/2 |v - anchor|^2."""

    def __init__(self, parameters: list[torch.nn.Parameter], linear: Any, anchor: Any, mu: Any):
        sizes = [p.numel() for p in parameters]

        def parts(vector: np.ndarray | None) -> list[Any]:
            if vector is None:
                return [None] * len(sizes)
            return [v.view(p.shape) for p, v in zip(parameters, tensors(vector).split(sizes), strict=True)]

        self.mu = 0.0 if mu is None else float(mu)
        self.of = list(zip(parameters, parts(linear), parts(anchor), strict=True))
        self.none = linear is None and anchor is None

    def add_to_gradients(self) -> None:
        for p, linear, anchor in () if self.none else self.of:
            if p.grad is None:
                p.grad = torch.zeros_like(p)
            if linear is not None:
                p.grad += linear
            if anchor is not None:
                p.grad += self.mu * (p.detach() - anchor)

    def value(self) -> Any:
        total: Any = 0.0
        for p, linear, anchor in () if self.none else self.of:
            if linear is not None:
                total = total + torch.sum(linear * p.detach())
            if anchor is not None:
                total = total + self.mu / 2 * torch.sum((p.detach() - anchor) ** 2)
        return total


@dataclasses.dataclass
class Spent:
    """What a loop did, by counting its forward passes and its steps."""

    gradients: int = 0  # example gradients: rows of the forward passes that can be differentiated
    steps: int = 0
    lr_sum: float = 0.0


@dataclasses.dataclass(frozen=True)
class Loop:
    """One solve: an optimizer, and a loop over batches that uses it. Equal for equal fields, so programs are shared."""

    total: Any  # a Total, or with a loop of the user's own an InJax
    optimizer: Callable[[Any], torch.optim.Optimizer]
    train: Train | None
    batch_size: int | None

    def __call__(self, out: tuple[np.ndarray, np.ndarray, np.ndarray], given: dict[str, Any]) -> None:
        """Write the new parameters, the number of example gradients, and the sum of the step sizes."""
        w, gradients, lr_sum = out
        host, size = self.total.host, int(given["size"])
        x, y = tensors(jax.tree.map(lambda a: a[:size], (given["x"], given["y"])))
        batches = Batches(x, y, self.batch_size or size, seed_of(given["bits"], 1))
        start = tensors(given["start"])
        with turn, seeded(given["bits"]), torch.enable_grad():
            host.set_mode(True)
            try:
                host.set_values(start)
                terms = Terms(host.parameters, given["linear"], given["anchor"], given["mu"])
                spent = self._train(terms, batches, int(given["epochs"]))
                w[...] = flat(host.parameters)
            finally:
                host.reset_values()
                for p in host.parameters:
                    p.grad = None
        gradients[...], lr_sum[...] = spent.gradients, spent.lr_sum

    def _train(self, terms: Terms, batches: Batches, epochs: int) -> Spent:
        spent, module, optimizer = Spent(), self.total.host.module, self.optimizer(self.total.host.parameters)
        optimizer.register_step_pre_hook(_adding(terms, spent))
        counting = module.register_forward_hook(_counting(spent))
        try:
            if self.train is None:
                self._passes(optimizer, batches, epochs)
            else:
                self.train(module, optimizer, batches)
        finally:
            counting.remove()
        if not spent.steps:
            raise ValueError("TorchLoop: `train` took no step with the optimizer that it was given.")
        return spent

    def _passes(self, optimizer: torch.optim.Optimizer, batches: Batches, epochs: int) -> None:
        for _ in range(epochs):
            for x, y in batches:
                optimizer.zero_grad()
                loss = self.total.loss(self.total.host.module(*inputs(x)), y)
                (loss if self.total.coupled else loss.mean()).backward()
                optimizer.step()


def _adding(terms: Terms, spent: Spent) -> Any:
    """Before each step the terms are added to the gradients, once, or to those of a closure, with its loss."""

    def before_step(optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        spent.steps, spent.lr_sum = spent.steps + 1, spent.lr_sum + float(optimizer.param_groups[0]["lr"])
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        if closure is None:
            terms.add_to_gradients()
            return None

        def evaluated() -> Any:
            loss = closure()
            terms.add_to_gradients()
            return loss + terms.value()

        return (args[0], evaluated), {}

    return before_step


def _counting(spent: Spent) -> Any:
    def after_forward(module: Any, args: tuple[Any, ...], outputs: torch.Tensor) -> None:
        if torch.is_grad_enabled():
            spent.gradients += len(outputs)

    return after_forward


def adds_up(optimizer: Callable[[Any], Any]) -> bool:
    """Is it plain gradient descent, so that v - start is minus the sum of lr times the gradient?"""
    try:
        tried = optimizer([torch.nn.Parameter(torch.zeros(1))])
    except Exception:  # it may need the real parameters, and then it is not known
        return False
    if type(tried) is not torch.optim.SGD or len(tried.param_groups) != 1:
        return False
    return not any(tried.param_groups[0][name] for name in ("momentum", "dampening", "nesterov", "maximize"))
