"""Who computes which part of an exchange."""

from collections.abc import Mapping


def assigned(
    work: Mapping[int, float],
    pace: Mapping[int, float],
    home: Mapping[int, int] | None = None,
    move: Mapping[int, float] | None = None,
) -> dict[int, int]:
    """The worker of each shard: the largest part first, each to the worker that ends soonest with it.

    Args:
        work: steps of each shard's part.
        pace: seconds that each worker takes for a step.
        home: the worker that has the memories of each shard; None: there are none.
        move: seconds that it takes to lend the memories for a part to another worker.
    """
    busy = dict.fromkeys(sorted(pace), 0.0)
    found: dict[int, int] = {}
    for s in sorted(work, key=lambda s: (-work[s], s)):

        def end(worker: int, s: int = s) -> tuple[float, bool, int]:
            away = home is not None and home[s] != worker
            return busy[worker] + work[s] * pace[worker] + (move[s] if away and move else 0.0), away, worker

        found[s] = min(busy, key=end)
        busy[found[s]] = end(found[s])[0]
    return found
