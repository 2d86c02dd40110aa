"""The ServerApp: plays the rounds of the run whose folder the run config names."""

from __future__ import annotations

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Play the run to its end; its folder holds the settings and receives the results."""
    # Imported here because devices download this file too, but do not need it.
    from covey.deploy.server import serve

    serve(grid, str(context.run_config["folder"]), str(context.run_config["token"]))
