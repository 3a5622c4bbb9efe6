"""Flower's ClientApp, in a module of its own: Ray's workers import it and keep model and data between messages."""

import functools

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

from benchmarks.speed.peers.torch_models import client_data, network, train
from benchmarks.speed.workloads import WORKLOADS

app = ClientApp()


@functools.cache
def prepared(name: str, threads: int) -> tuple[nn.Module, list[tuple[torch.Tensor, torch.Tensor]]]:
    """Model and data of all clients: once in each worker."""
    torch.set_num_threads(threads)
    return network(WORKLOADS[name]), client_data(WORKLOADS[name])


@app.query()
def which_client(message: Message, context: Context) -> Message:
    """Flower numbers its nodes at random: tell the server which client this one is."""
    record = MetricRecord({"client": int(context.node_config["partition-id"])})
    return Message(RecordDict({"metrics": record}), reply_to=message)


@app.train()
def fit(message: Message, context: Context) -> Message:
    config = message.content["config"]
    workload = WORKLOADS[config["workload"]]
    model, data = prepared(workload.name, config["threads"])
    x, y = data[int(context.node_config["partition-id"])]
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    steps = train(model, workload, x, y)
    metrics = MetricRecord({"num-examples": len(x), "steps": steps})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)
