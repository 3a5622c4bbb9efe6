"""The server's side of the seam: from the answers of shards to the sums of all. Nothing here knows of Ray."""

import math
from collections.abc import Mapping

import jax
import numpy as np

from fedloom.cluster.shard import Answer
from fedloom.engines.aggregate import ClientReport, Sums


def together(
    answers: Mapping[int, Answer], where: Mapping[int, np.ndarray], room: int
) -> tuple[Sums | None, ClientReport]:
    """The sums, added in the order of shards, and the reports in the order of the cohort."""
    report = ClientReport(
        np.ones(room, bool), np.zeros(room, np.int64), np.full(room, -math.inf), np.zeros(room, np.int64)
    )
    sums: Sums | None = None
    same = all(answer.sums.total is None for answer in answers.values())
    for s in sorted(answers):
        own = answers[s].sums
        if own.total is None and not same:
            own = own._replace(total=own.replies)
        sums = own if sums is None else jax.tree.map(np.add, sums, own)
        for whole, part in zip(report, answers[s].report, strict=True):
            whole[where[s]] = part
    if sums is not None and same:
        sums = sums._replace(total=sums.replies)
    return sums, report
