"""What federated data look like: sizes, labels, and how much the clients differ."""

import dataclasses

import numpy as np

from fedloom.data.split import Split

COVER = (0.4, 0.6, 0.8)  # the shares of figure 3 in the FedDyn paper

_CELLS = 2**22  # of the table of labels by clients at a time: never the whole table of a million clients


@dataclasses.dataclass(frozen=True, eq=False)
class Description:
    """Figures of a split. Those by client are arrays with one entry for each; `str()` is a summary of a few lines."""

    sizes: np.ndarray  # training examples of each client
    test_examples: int | None
    labels: np.ndarray | None  # examples of each class, all clients together
    entropy: np.ndarray | None  # of each client's labels, in bits
    distance: np.ndarray | None  # total variation between a client's labels and all labels: 0 alike, near 1 disjoint
    covering: dict[float, np.ndarray] | None  # fewest classes that make up 40, 60, 80% of a client's examples

    validation_examples: int = 0

    def __str__(self) -> str:
        n, q = self.sizes, np.percentile(self.sizes, [0, 25, 50, 75, 100])
        lines = [
            f"{len(n):,} clients, {n.sum():,} training examples"
            + (f", {self.validation_examples:,} validation examples" if self.validation_examples else "")
            + ("" if self.test_examples is None else f", {self.test_examples:,} test examples"),
            f"examples of a client: min {q[0]:g}, quartiles {q[1]:g} {q[2]:g} {q[3]:g}, max {q[4]:g}; "
            f"mean {n.mean():.1f}, std {n.std():.1f}",
        ]
        if self.labels is not None:
            assert self.entropy is not None
            assert self.distance is not None
            assert self.covering is not None
            shown = " ".join(str(c) for c in self.labels[:20]) + (" ..." if len(self.labels) > 20 else "")
            p = self.labels[self.labels > 0] / self.labels.sum()
            lines += [
                f"labels: {shown}",
                f"label entropy of a client: mean {self.entropy.mean():.2f} bits, all together "
                f"{-(p * np.log2(p)).sum():.2f}; distance to all together: mean {self.distance.mean():.2f}",
                "classes that make up "
                + ", ".join(f"{c:.0%}" for c in COVER)
                + " of a client's examples: median "
                + ", ".join(f"{np.median(self.covering[c]):g}" for c in COVER),
            ]
        return "\n".join(lines)


def description(y: np.ndarray, split: Split, classes: int | None, test_examples: int | None) -> Description:
    """Describe the training examples with labels y."""
    if classes is None or np.ndim(y) != 1:
        return Description(split.sizes, test_examples, None, None, None, None)
    labels = np.bincount(np.asarray(y)[split.order], minlength=classes)
    overall = labels / labels.sum()
    entropy, distance = np.empty(split.clients), np.empty(split.clients)
    covering = {share: np.empty(split.clients, int) for share in COVER}
    most = max(_CELLS // classes, 1)
    for start in range(0, split.clients, most):
        block = slice(start, min(start + most, split.clients))
        counts = label_counts(y, split, classes, block)
        p = counts / counts.sum(1, keepdims=True)
        entropy[block] = -np.sum(p * np.log2(np.where(p > 0, p, 1)), axis=1)
        distance[block] = np.abs(p - overall).sum(1) / 2
        largest = np.cumsum(-np.sort(-counts, axis=1), axis=1)
        for share in COVER:  # the first place where the running sum of the largest classes reaches the share
            needed = share * counts.sum(1, keepdims=True) - 1e-9
            covering[share][block] = np.argmax(largest >= needed, axis=1) + 1
    return Description(split.sizes, test_examples, labels, entropy, distance, covering)


def label_counts(y: np.ndarray, split: Split, classes: int, clients: slice = slice(None)) -> np.ndarray:
    """Examples of each class for each client: an array [clients, classes]."""
    first, last, _ = clients.indices(split.clients)
    rows = split.order[split.offsets[first] : split.offsets[last]]
    owner = np.repeat(np.arange(last - first), split.sizes[first:last])
    cells = owner * classes + np.asarray(y)[rows]
    return np.bincount(cells, minlength=(last - first) * classes).reshape(last - first, classes)
