"""The workloads in PyTorch: models, loss, data and a client's local work, for the plain loop, Flower and pfl."""

from itertools import pairwise

import torch
from torch import nn

from benchmarks.speed.workloads import Workload


class CharacterLSTM(nn.Module):
    def __init__(self, characters: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(characters, 8)
        self.lstm = nn.LSTM(8, 256, num_layers=2, batch_first=True)
        self.dense = nn.Linear(256, characters)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden, _ = self.lstm(self.embed(x))
        return self.dense(hidden)


def network(workload: Workload) -> nn.Module:
    """The model of a workload, in training mode."""
    if workload.model == "logistic":
        return nn.Linear(workload.shape[0], workload.classes)
    if workload.model == "mlp":
        sizes = (workload.shape[0], 200, 100)
        hidden = [layer for a, b in pairwise(sizes) for layer in (nn.Linear(a, b), nn.ReLU())]
        return nn.Sequential(*hidden, nn.Linear(sizes[-1], workload.classes))
    if workload.model == "lstm":
        return CharacterLSTM(workload.classes)
    height, width, channels = workload.shape
    flat = 64 * ((height - 4) // 2) * ((width - 4) // 2)
    convolutions = [nn.Conv2d(channels, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2)]
    first, second = ([nn.Dropout(0.25)], [nn.Dropout(0.5)]) if workload.dropout else ([], [])
    dense = [nn.Flatten(), nn.Linear(flat, 128), nn.ReLU()]
    return nn.Sequential(*convolutions, *first, *dense, *second, nn.Linear(128, workload.classes))


def loss(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy; over all characters for the LSTM."""
    logits = model(x)
    return nn.functional.cross_entropy(logits.flatten(0, -2), y.flatten())


def client_data(workload: Workload) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """x and y of each client; images with channels first, as PyTorch wants them."""
    x, y = (torch.from_numpy(values) for values in workload.data())
    if workload.model == "cnn":
        x = x.permute(0, 3, 1, 2).contiguous()
    return list(zip(x.split(workload.sizes), y.long().split(workload.sizes), strict=True))


def train(model: nn.Module, workload: Workload, x: torch.Tensor, y: torch.Tensor) -> int:
    """A client's epochs of SGD on the model, in place; returns the steps taken."""
    optimizer = torch.optim.SGD(model.parameters(), lr=workload.lr)
    steps = 0
    for _ in range(workload.epochs):
        order = torch.randperm(len(x))
        for batch in zip(x[order].split(workload.batch), y[order].split(workload.batch), strict=True):
            optimizer.zero_grad()
            loss(model, *batch).backward()
            optimizer.step()
            steps += 1
    return steps
