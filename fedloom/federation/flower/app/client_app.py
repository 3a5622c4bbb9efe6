"""The client's half, for those who run Flower's own SuperNodes: a messenger to the worker, without JAX.

FedLoom's own node does not run this, nor any other code that comes from the server. Start a SuperNode of Flower with
`--node-config 'socket="/path/of/the/worker.sock"'`.
"""

from fedloom_app.shim import BODY_LIMIT, PATIENCE, answer  # type: ignore[import-not-found]
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

app = ClientApp()


def query(message: Message, context: Context) -> Message:
    own = context.node_config
    limit, patience = int(own.get("limit", BODY_LIMIT)), float(own.get("patience", PATIENCE))
    reply: Message = answer(message, str(own["socket"]), limit, patience)[0]
    return reply


app.query()(query)
