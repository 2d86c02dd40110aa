"""The ClientApp: a proxy that forwards every message of the server to the device's worker, and returns its answer.

It is stateless: data, models, noise and ledger are in the worker. Flower starts a process for every message, so this
file imports neither torch nor covey.
"""

from __future__ import annotations

from multiprocessing import AuthenticationError
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from .records import content_of, packet_of
from .wire import Packet, ask

app = ClientApp()


@app.query()
@app.train()
@app.evaluate()
def answer(message: Message, context: Context) -> Message:
    """The worker's answer to a message."""
    try:
        told = ask(Path(str(context.node_config["covey-folder"])), packet_of(message.content))
    except (OSError, EOFError, ValueError, AuthenticationError) as error:
        told = Packet({"status": "failed", "reason": f"the device's worker does not answer ({error})"})
    return Message(content=content_of(told), reply_to=message)
