"""A device that sends NaN in place of its uploads: `python lying_node.py FOLDER SUPERLINK`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

from covey.deploy.app.wire import Packet
from covey.deploy.device_process import Worker
from covey.deploy.folders import DeviceFolder
from covey.deploy.processes import environment, free_port, supernode_command


class LyingWorker(Worker):
    def respond(self, request: Packet) -> Packet:
        answer = super().respond(request)
        if "upload/weights" not in answer.arrays:
            return answer
        kind, shape, _ = answer.arrays["upload/weights"]
        return Packet(answer.header, {"upload/weights": (kind, shape, np.full(shape, np.nan, np.float32).tobytes())})


if __name__ == "__main__":
    folder = DeviceFolder.open(Path(sys.argv[1]))
    with LyingWorker(folder) as worker:
        worker.start()
        home = folder.private / "flwr"
        home.mkdir(exist_ok=True)
        command = supernode_command(sys.argv[2], free_port(), folder.private, None, None)
        sys.exit(subprocess.run(command, env=environment(home), check=False).returncode)
