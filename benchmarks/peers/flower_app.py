"""The client of the Flower rounds; its actors import it and cache their data between messages."""

from __future__ import annotations

import functools

import torch
from fedavg import best_task, descend, fill, flat, network, tensors
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@functools.cache
def networks(count: int) -> list[torch.nn.Module]:
    """Networks that messages are loaded into; created once per process."""
    return [network() for _ in range(count)]


held = functools.cache(tensors)


@app.train()
def train(message: Message, context: Context) -> Message:
    """FedAvg's local pass, or IFCA's choice and step when there are several models."""
    torch.set_num_threads(1)
    x, y = held(int(context.node_config["partition-id"]))
    config = message.content["config"]
    tasks, batch = int(config["tasks"]), int(config["batch"])
    if tasks == 1:
        module = networks(1)[0]
        module.load_state_dict(message.content["arrays"].to_torch_state_dict())
        descend(module, x, y, batch)
        answer = {"arrays": ArrayRecord(module.state_dict()), "metrics": MetricRecord({"num-examples": len(y)})}
        return Message(RecordDict(answer), reply_to=message)
    modules = networks(tasks)
    for task, module in enumerate(modules):
        fill(module, message.content["arrays"][str(task)].numpy())
    task = best_task(modules, x, y)
    descend(modules[task], x, y, batch)
    reply = {"arrays": ArrayRecord({"weights": Array(flat(modules[task]))}), "metrics": MetricRecord({"task": task})}
    return Message(RecordDict(reply), reply_to=message)
