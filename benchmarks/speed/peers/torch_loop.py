"""FedAvg as a plain PyTorch loop over clients, with as many threads as there are cores.

A round's time: for each client, the server's parameters copied into one model, its SGD steps, and its part of the
weighted sum; then the mean.
"""

import time

import torch

from benchmarks.speed.peers.measure import CORES, arguments, report
from benchmarks.speed.peers.torch_models import client_data, network, train
from benchmarks.speed.workloads import WORKLOADS


def main() -> None:
    given = arguments()
    workload = WORKLOADS[given.workload]
    torch.set_num_threads(CORES)
    torch.manual_seed(0)
    data = client_data(workload)
    model = network(workload)
    parameters = list(model.parameters())
    server = [p.detach().clone() for p in parameters]
    seconds, steps = [], []
    for cohort in workload.cohorts(given.warmup + given.rounds):
        start = time.perf_counter()
        taken = 0
        examples = sum(workload.sizes[k] for k in cohort)
        mean = [torch.zeros_like(p) for p in server]
        for k in cohort:
            with torch.no_grad():
                for p, value in zip(parameters, server, strict=True):
                    p.copy_(value)
            taken += train(model, workload, *data[k])
            with torch.no_grad():
                for total, p in zip(mean, parameters, strict=True):
                    total.add_(p, alpha=workload.sizes[k] / examples)
        server = mean
        seconds.append(time.perf_counter() - start)
        steps.append(taken)
    report("torch", ("torch", "numpy"), workload, seconds[given.warmup :], steps[given.warmup :])


if __name__ == "__main__":
    main()
