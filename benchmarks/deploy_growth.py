"""Scaling costs of a deployment: polls of idle nodes at a SuperLink, and the server's work per upload.

    python benchmarks/deploy_growth.py --out benchmarks/deploy_growth.json

Costs are CPU time, so that other load on the machine matters little.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from covey.deploy.app.wire import Packet, pack, unpack
from covey.deploy.processes import Started, environment, free_port, superlink_command, write_connection
from covey.federated import Upload, admit, aggregate_models

POLLS = 2000


def cpu_s(process: int) -> float:
    """CPU time of a process in seconds."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure_polls(nodes: list[int]) -> list[dict[str, Any]]:
    """CPU time of the SuperLink per poll, by number of connected nodes."""
    from flwr.supernode.fleet_http_connection import http_request_response

    found = []
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        home, port = Path(folder) / "flwr", free_port()
        os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "FLWR_HOME": str(home)}
        write_connection(home, f"127.0.0.1:{port}", None)
        started = stack.enter_context(Started(Path(folder) / "logs", environment(home)))
        link = started.start("superlink", superlink_command("127.0.0.1", port, None, None, node_keys=False))
        started.wait_for_port("superlink", port, 180.0)
        time.sleep(5.0)
        receivers: list[Any] = []
        for count in nodes:
            begun = cpu_s(link.pid)
            joining = count - len(receivers)
            while len(receivers) < count:
                receivers.append(stack.enter_context(http_request_response(f"127.0.0.1:{port}", True))[1])
            joined, clock = cpu_s(link.pid), time.perf_counter()
            for number in range(POLLS):
                receivers[number % count]()
            spent = cpu_s(link.pid) - joined
            resident = Path(f"/proc/{link.pid}/statm").read_text(encoding="utf-8").split()[1]
            found.append({
                "nodes": count,
                "cpu_ms_per_poll": 1e3 * spent / POLLS,
                "wall_ms_per_poll": 1e3 * (time.perf_counter() - clock) / POLLS,
                "cpu_ms_per_join": 1e3 * (joined - begun) / max(1, joining),
                "resident_mb": int(resident) * os.sysconf("SC_PAGE_SIZE") / 1e6,
            })  # fmt: skip
            print(found[-1], flush=True)
    return found


def measure_uploads(users: list[int], lengths: list[int]) -> list[dict[str, Any]]:
    """CPU time of the server per upload: parse, validate and aggregate."""
    found = []
    for length in lengths:
        for count in users:
            if count * length * 4 > 2e9:
                continue
            weights = np.zeros(length, np.float32)
            packet = Packet({"status": "ok", "round": 0}, {"upload/weights": ("float32", (length,), weights.tobytes())})
            content = pack(packet)
            models = np.zeros((4, length), np.float32)
            everyone = np.arange(count)
            began = time.process_time()
            uploads = []
            for user in range(count):
                _, shape, data = unpack(content).arrays["upload/weights"]
                uploads.append(Upload(user, 0, np.frombuffer(data, np.float32).reshape(shape)))
            read = time.process_time()
            intake = admit(uploads, 0, everyone, models, everyone % 4, np.full(count, 1e9))
            let_in = time.process_time()
            aggregate_models(intake.weights, everyone % 4, everyone % 12, np.full(count, 100), models, 12)
            done = time.process_time()
            found.append({
                "users": count, "weights": length,
                "read_ms": 1e3 * (read - began) / count,
                "admit_ms": 1e3 * (let_in - read) / count,
                "aggregate_ms": 1e3 * (done - let_in) / count,
                "upload_mb": len(content) / 1e6,
            })  # fmt: skip
            print(found[-1], flush=True)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 10, 100, 300])
    parser.add_argument("--users", type=int, nargs="+", default=[12, 100, 1000, 10000])
    parser.add_argument("--weights", type=int, nargs="+", default=[650, 552714])
    given = parser.parse_args()
    result = {"polls": measure_polls(given.nodes), "uploads": measure_uploads(given.users, given.weights)}
    given.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
