"""FedAvg as a plain PyTorch loop over clients, with as many threads as there are cores.

A round's time: for each client, the server's parameters copied into one model, its SGD steps, and its part of the
weighted sum; then the mean.
"""

import torch

from benchmarks.speed.peers.torch_models import client_data, network, train
from benchmarks.speed.turns import CORES, Turns, arguments, serve
from benchmarks.speed.workloads import WORKLOADS


def main() -> None:
    given = arguments()
    turns = Turns(("torch", "numpy"))
    workload = WORKLOADS[given.workload]
    torch.set_num_threads(CORES)
    torch.manual_seed(0)
    data = client_data(workload)
    model = network(workload)
    parameters = list(model.parameters())
    server = [p.detach().clone() for p in parameters]
    done = 0

    def round_of(cohort: list[int]) -> int:
        nonlocal server
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
        return taken

    def play(rounds: int) -> list[int]:
        nonlocal done
        done += rounds
        return [round_of(workload.cohort_of(t)) for t in range(done - rounds, done)]

    serve(turns, play)


if __name__ == "__main__":
    main()
