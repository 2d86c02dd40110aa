"""The ClientApp: passes every message of the server to the device's worker, and its answer back.

It computes nothing and holds nothing: data, models, noise and ledger are the worker's. Flower starts a process for
every message, so that this file imports neither torch nor covey.
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
