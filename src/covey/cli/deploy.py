"""`covey deploy`: prepare devices, start them, and play runs with them."""

from __future__ import annotations

import shlex
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress, TaskID

from covey.cli.common import Overrides, Quiet, free_folder, interruptible, progress_bar, stored_scenario
from covey.cli.mistakes import SUGGEST
from covey.cli.policy_option import POLICY_CHOICES, named_policy
from covey.errors import INTERRUPTED, DeployError, ResumeError
from covey.extras import require_extra
from covey.run_files import DEPLOYMENT
from covey.scenario import load_scenario, load_stored_scenario

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode="rich", suggest_commands=SUGGEST)

Seed = Annotated[int, typer.Option(min=0, help="Seed of everything random in the run.")]
Patience = Annotated[float, typer.Option(min=1.0, help="Seconds that an exchange waits for devices to answer.")]
Authority = Annotated[
    Path | None,
    typer.Option("--ca", help="Certificate of the authority; turns on TLS. Without it nothing is encrypted."),
]
_REPLAY = (
    "privacy.noise is 'replay': whoever has the seed, as the server does, can take all noise off;"
    " set it to 'secure' for privacy"
)


@app.command()
def prepare(
    scenario: Annotated[str, typer.Argument(help="A preset or a TOML file.")],
    out: Annotated[Path, typer.Option(help="Folder for the folders of devices and server.")],
    seed: Seed = 0,
    set_: Overrides = None,
) -> None:
    """Write a folder for every user's device, with its own data, and one for the server.

    Give user-007 to device 7 and to nobody else: it holds data.npz (x, y, test_x, test_y), which may be replaced by the
    device's own arrays of the same kind.
    """
    from covey.deploy.folders import prepare as write_folders

    folders = write_folders(load_scenario(scenario, set_ or []), seed, out)
    Console().print(f"{len(folders)} devices in [bold]{out}[/]: {folders[0].name} to {folders[-1].name}, and server")


@app.command()
def certificates(
    out: Annotated[Path, typer.Option(help="Folder for certificates and keys.")],
    users: Annotated[int, typer.Option(min=1, help="Number of devices that get a key.")],
    host: Annotated[
        list[str] | None, typer.Option(help="Name or address of the server; repeatable. 127.0.0.1 and localhost else.")
    ] = None,
) -> None:
    """Make a test authority, the server's certificate, and a key pair for every device's node.

    For trying out TLS and node authentication; a real deployment brings certificates of its own authority.
    """
    require_extra("masks", "covey deploy certificates")
    from covey.deploy.certificates import make_certificates

    written = make_certificates(out, host or ["127.0.0.1", "localhost"], users)
    Console().print(f"{len(written)} files in [bold]{out}[/]; keep the *.key files secret, each on its own machine")


@app.command()
def server(
    home: Annotated[Path, typer.Option(help="Folder for Flower's own files (FLWR_HOME).")] = Path("flower"),
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 9092,
    authority: Authority = None,
    certificate: Annotated[Path | None, typer.Option(help="The server's certificate.")] = None,
    key: Annotated[Path | None, typer.Option(help="The server's private key.")] = None,
    node_keys: Annotated[
        list[Path] | None, typer.Option("--node-key", help="Public key of a node that may join; repeatable.")
    ] = None,
) -> int:
    """Start the SuperLink, which passes messages between runs and devices, and keep it running until Ctrl-C."""
    require_extra("flower", "covey deploy server")
    from covey.deploy.processes import (
        Started,
        Tls,
        environment,
        reachable,
        register_node,
        superlink_command,
        write_connection,
    )

    tls = _server_tls(Tls, authority, certificate, key)
    if node_keys and tls is None:
        raise DeployError("--node-key needs TLS, or keys could be replayed; give --ca, --certificate and --key too")
    for node_key in node_keys or []:
        if not node_key.is_file():
            raise DeployError(f"'{node_key}' is not there; see covey deploy certificates")
    home = home.resolve()
    at = reachable(host)
    write_connection(home, f"[{at}]:{port}" if ":" in at else f"{at}:{port}", tls)
    console = Console(stderr=True)
    with interruptible(), Started(home / "logs", environment(home)) as started:
        started.start("superlink", superlink_command(host, port, tls, home / "state.db", node_keys=bool(node_keys)))
        started.wait_for_port("superlink", port, 120.0, host)
        for node_key in node_keys or []:
            register_node(started, node_key, 120.0)
        console.print(f"SuperLink on {host}:{port}{'' if tls else ', not encrypted'}; Ctrl-C stops it", highlight=False)
        try:
            while True:
                started.check("superlink")
                time.sleep(1.0)
        except KeyboardInterrupt:
            return 0


def _server_tls(kind: Any, authority: Path | None, certificate: Path | None, key: Path | None) -> Any:
    given = (authority, certificate, key)
    if not any(given):
        return None
    missing = [str(path) for path in given if path is not None and not path.is_file()]
    if missing or not all(given):
        what = f"'{missing[0]}' is not there" if missing else "one of them is missing"
        raise DeployError(f"TLS needs --ca, --certificate and --key, but {what}; see covey deploy certificates")
    return kind(*(path.resolve() for path in given if path is not None))


@app.command()
def node(
    folder: Annotated[Path, typer.Argument(help="The device's folder, of covey deploy prepare.")],
    superlink: Annotated[str, typer.Option(help="Address of the SuperLink, host:port.")] = "127.0.0.1:9092",
    authority: Authority = None,
    node_key: Annotated[
        Path | None, typer.Option(help="The node's private key, where the server asks for one.")
    ] = None,
    budget_epsilon: Annotated[
        float | None, typer.Option(min=0.0, help="Largest epsilon that this device may spend, over all runs.")
    ] = None,
    metrics: Annotated[
        bool, typer.Option("--metrics", help="Let losses and accuracies leave this device; nothing protects them.")
    ] = False,
) -> int:
    """Start a device: its worker, which holds data, noise and ledger, and its SuperNode. Ctrl-C stops both."""
    require_extra("flower", "covey deploy node")
    from covey.deploy.device_process import Worker
    from covey.deploy.folders import DeviceFolder
    from covey.deploy.processes import Tls, end_family, environment, free_port, supernode_command

    for path in (authority, node_key):
        if path is not None and not path.is_file():
            raise DeployError(f"'{path}' is not there; see covey deploy certificates")
    opened = DeviceFolder.open(folder)
    tls = None if authority is None else Tls(authority.resolve())
    with interruptible(), Worker(opened, budget_epsilon=budget_epsilon, metrics=metrics) as worker:
        answering = worker.start()
        home = opened.private.resolve() / "flwr"
        home.mkdir(exist_ok=True)
        # Only one process can hold the worker's lock, so that whatever still has this home is a leftover.
        end_family(home)
        command = supernode_command(superlink, free_port(), opened.private, tls, node_key)
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment(home)) as supernode:
            try:
                code = _wait(supernode, answering)
            except KeyboardInterrupt:
                return 0
            finally:
                _end(supernode)
                end_family(home)
        if code is None:
            raise DeployError(f"the worker of user {opened.user} ended, so nobody would answer; start the device again")
        raise DeployError(f"the SuperNode of user {opened.user} ended with code {code}; its messages are above")


def _wait(supernode: subprocess.Popen[bytes], answering: Thread) -> int | None:
    """Wait for the end of a SuperNode or of its worker: the exit code of the SuperNode, None when the worker ended."""
    while answering.is_alive():
        try:
            return supernode.wait(1.0)
        except subprocess.TimeoutExpired:
            continue
    return None


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(10.0)
    except subprocess.TimeoutExpired:
        process.kill()


@app.command()
def run(
    folder: Annotated[
        Path | None, typer.Argument(help="The server's folder, of covey deploy prepare: PREPARED/server.")
    ] = None,
    home: Annotated[Path, typer.Option(help="Flower's folder of covey deploy server.")] = Path("flower"),
    policy: Annotated[
        str | None, typer.Option("--policy", "-p", help=f"Who decides whom to serve: {POLICY_CHOICES}; greedy else.")
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Rounds to play; the scenario's own when not given.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the results.")] = None,
    patience: Annotated[
        float | None, typer.Option(min=1.0, help="Seconds that an exchange waits for devices to answer; 60 else.")
    ] = None,
    wait: Annotated[
        float | None, typer.Option(min=1.0, help="Seconds to wait for all devices at the start; 180 else.")
    ] = None,
    metrics: Annotated[
        bool, typer.Option("--metrics", help="Ask devices for losses and accuracies, which nothing protects.")
    ] = False,
    groups: Annotated[
        Path | None, typer.Option(help="CSV of true groups (user,group), for measuring how well users were grouped.")
    ] = None,
    trace: Annotated[Path | None, typer.Option(help="CSV of measured positions or gains; see docs/deploy.md.")] = None,
    measure: Annotated[str | None, typer.Option(help="Function that measures gains, as module:function.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the run that --out holds.")] = False,
    quiet: Quiet = False,
) -> int:
    """Play a run with the devices that are connected to the SuperLink of this machine.

    The run itself is a ServerApp that the SuperLink starts on this machine; Ctrl-C ends it, and --resume goes on after
    the last complete round; --rounds, --patience and --wait may then be changed. Results are those of covey run, and
    incidents.csv.
    """
    require_extra("flower", "covey deploy run")
    from covey.deploy.folders import read_groups, read_seed
    from covey.deploy.processes import Started, environment
    from covey.deploy.runs import follow, new_run
    from covey.deploy.server import Settings
    from covey.radio import channel_and_mobility
    from covey.simulation.checkpoint import CHECKPOINT, check_rounds, read_checkpoint_header

    notes = Console(stderr=True, quiet=quiet)
    if not (home / "config.toml").is_file():
        raise DeployError(
            f"'{home}' is no folder of a SuperLink; start one with covey deploy server, or give its --home"
        )
    if resume:
        if out is None:
            raise ResumeError("--resume needs the folder of the run; add --out FOLDER")
        if folder is not None or policy is not None or metrics or overwrite or any((groups, trace, measure)):
            raise ResumeError(
                "a run that is being resumed keeps its settings; with --resume give only --out, --home, --rounds,"
                " --patience and --wait"
            )
        changed: dict[str, Any] = {"rounds": rounds, "patience_s": patience, "wait_s": wait}
        settings = replace(Settings.read(out), **{name: value for name, value in changed.items() if value is not None})
        scenario = stored_scenario(out)
        if (out / CHECKPOINT).exists():
            check_rounds(scenario, read_checkpoint_header(out), settings.rounds, out)
        settings.write(out)
    else:
        if folder is None:
            raise DeployError("give the server's folder of covey deploy prepare, as in: covey deploy run site/server")
        seed, scenario = read_seed(folder), load_stored_scenario(folder / "scenario.toml")
        policy = policy or "greedy"
        # Mistakes are told here, before devices are waited for.
        channel_and_mobility(scenario, seed, "" if trace is None else str(trace), measure or "")
        if groups is not None:
            read_groups(groups, scenario.network.users, scenario.groups)
        decides = named_policy(policy, scenario, None, notes)
        out = out or free_folder(f"deploy-{scenario.name}-{Path(policy).stem.replace(':', '.')}-seed{seed}", DEPLOYMENT)
        settings = new_run(
            scenario, out, decides, overwrite=overwrite, seed=seed, policy=policy,
            rounds=rounds or scenario.training.rounds, patience_s=patience or 60.0, wait_s=wait or 180.0,
            metrics=metrics, groups=groups, trace=trace, hook=measure or "",
        )  # fmt: skip
    if scenario.privacy.noise == "replay":
        notes.print(_REPLAY, highlight=False, soft_wrap=True)
    home = home.resolve()
    with Started(home / "logs", environment(home)) as started:
        command = f"covey deploy run --resume --home {shlex.quote(str(home))} --out {shlex.quote(str(out))}"
        how = f"what was finished is saved; go on with: {command}"
        return _followed(lambda show: follow(started, out, show), out, settings.rounds, quiet, how)


@app.command()
def demo(
    scenario: Annotated[
        str | None, typer.Argument(help="A preset or a TOML file; five users on digits when not given.")
    ] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds to play.")] = None,
    policy: Annotated[
        str, typer.Option("--policy", "-p", help=f"Who decides whom to serve: {POLICY_CHOICES}.")
    ] = "greedy",
    seed: Seed = 0,
    security: Annotated[str | None, typer.Option(help="none or masked; short for security.mode.")] = None,
    tls: Annotated[bool, typer.Option("--tls", help="Encrypt everything and admit known nodes only.")] = False,
    out: Annotated[Path | None, typer.Option(help="Folder for the results.")] = None,
    patience: Patience = 120.0,
    set_: Overrides = None,
    quiet: Quiet = False,
) -> int:
    """Start a SuperLink and a device for every user on this machine, play a run with them, and stop them all.

    All are separate processes that talk over the loopback interface. The deployment is in the folder `site` beside the
    results: data, ledgers and logs of every device.
    """
    require_extra("flower", "covey deploy demo")
    from covey.deploy.demo import DEMO_OVERRIDES, Site
    from covey.deploy.demo import demo as play_demo
    from covey.deploy.server import check_deployable

    overrides = [*(set_ or ()), *([f"security.mode={security}"] if security is not None else [])]
    chosen = load_scenario(scenario, overrides) if scenario else load_scenario("quick", [*DEMO_OVERRIDES, *overrides])
    check_deployable(chosen)
    decides = named_policy(policy, chosen, None, Console(stderr=True, quiet=quiet))
    out = out or free_folder(f"deploy-{chosen.name}-{Path(policy).stem.replace(':', '.')}-seed{seed}", DEPLOYMENT)
    site = Site((out / "site").resolve(), chosen, seed, tls)
    total = rounds or chosen.training.rounds

    def play(show: Any) -> None:
        play_demo(
            site, out, decides, policy=policy, rounds=rounds, patience_s=patience, on_progress=show,
            say=lambda text: show({"phase": text}),
        )  # fmt: skip

    return _followed(play, out, total, quiet, "everything that was started has been stopped")


def _followed(play: Any, out: Path, total: int, quiet: bool, interrupted: str) -> int:
    """Play with a progress bar; says where the results are, or, after Ctrl-C, what `interrupted` says."""
    notes = Console(stderr=True, quiet=quiet)
    try:
        with interruptible(), progress_bar(notes) as progress:
            bar = progress.add_task("deployment", total=total, now="")
            play(lambda said: _show(progress, bar, said))
    except KeyboardInterrupt:
        notes.print(f"Interrupted; {interrupted}", highlight=False, soft_wrap=True)
        return INTERRUPTED
    Console(quiet=quiet).print(
        f"Results in [bold]{out}[/]: open {out / 'report.html'}", highlight=False, soft_wrap=True
    )
    return 0


def _show(progress: Progress, bar: TaskID, said: dict[str, Any]) -> None:
    now = str(said.get("phase", ""))
    if "joined" in said:
        loss = said.get("loss")
        now = f"served {said['served']}, joined {said['joined']}, {said['seconds']:.0f} s a round"
        now = f"loss {loss:.2f}, {now}" if loss is not None else now
    progress.update(bar, completed=said.get("round", 0), now=now)
