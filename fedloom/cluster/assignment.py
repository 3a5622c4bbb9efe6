"""Who computes which part of an exchange."""

from collections.abc import Mapping


def assigned(work: Mapping[int, float], pace: Mapping[int, float]) -> dict[int, int]:
    """The worker of each shard: the largest part first, each to the worker that ends soonest with it.

    Args:
        work: steps of each shard's part.
        pace: seconds that each worker takes for a step.
    """
    busy = dict.fromkeys(sorted(pace), 0.0)
    found: dict[int, int] = {}
    for s in sorted(work, key=lambda s: (-work[s], s)):
        ends = {w: busy[w] + work[s] * pace[w] for w in busy}
        found[s] = min(ends, key=lambda w: (ends[w], w))
        busy[found[s]] = ends[found[s]]
    return found


def moves(has: Mapping[int, list[int]], pace: Mapping[int, float], gain: float) -> list[tuple[int, int, int]]:
    """Shards with memories that should move: (shard, from, to), so that all workers take about equally long.

    Args:
        has: the shards of each worker.
        pace: seconds that each worker takes for a step.
        gain: how many times shorter the longest must become, to be worth it; more than 1.
    """
    left = {w: sorted(shards) for w, shards in has.items()}
    found: list[tuple[int, int, int]] = []
    while True:
        longest = max(left, key=lambda w: (len(left[w]) * pace[w], w))
        target = min(left, key=lambda w: ((len(left[w]) + 1) * pace[w], w))
        if len(left[longest]) * pace[longest] < gain * (len(left[target]) + 1) * pace[target] or longest == target:
            return found
        found.append((left[longest].pop(), longest, target))
        left[target].append(found[-1][0])
