"""`covey privacy`: budget questions, and what a run has spent."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from covey.cli.common import Overrides, Quiet
from covey.errors import ScenarioError
from covey.scenario import PRESETS, Scenario, load_scenario

if TYPE_CHECKING:
    from covey.cli.spending import Answer
    from covey.privacy.accounting import Adjacency, Method
    from covey.privacy.planning import Plan, Releases
    from covey.report.privacy_section import Noise, Wording

DELTA = 1e-5


@dataclass(frozen=True)
class Options:
    """What was given on the command line; None where nothing was."""

    scenario: str | None
    rounds: int | None
    noise_std: float | None
    epsilon: float | None
    delta: float | None
    clip: float | None
    samples: int | None
    on: str | None
    adjacency: str | None
    identity_epsilon: float | None
    identity_rho: float | None
    announcements: int | None
    unit: str | None
    steps: int | None
    sampling_rate: float | None
    seed: int | None
    set: list[str] | None

    def given(self) -> list[str]:
        """Options that were used, as they are typed."""
        used = [name for name, value in vars(self).items() if value is not None]
        return ["SCENARIO" if name == "scenario" else f"--{name.replace('_', '-')}" for name in used]


def privacy(
    scenario: Annotated[
        str | None,
        typer.Argument(
            help=f"A preset ({', '.join(PRESETS)}) or a TOML file that supplies clipping, delta, adjacency, noise and"
            " rounds; the answer is then for the user who can lose most.",
            show_default=False,
        ),
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds in which a user uploads.")] = None,
    noise_std: Annotated[float | None, typer.Option(help="Standard deviation of the noise; see --on.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="Largest epsilon allowed.")] = None,
    delta: Annotated[
        float | None, typer.Option(help="Delta of the guarantee; 1e-5 when not given, unless it is what is asked.")
    ] = None,
    clip: Annotated[
        float | None, typer.Option(help="Norm of a sample's gradient after clipping; 1 when not given.")
    ] = None,
    samples: Annotated[int | None, typer.Option(help="Samples of the user, X; needed for --on mean.")] = None,
    on: Annotated[
        str | None,
        typer.Option(help="Where noise is counted: sum (of clipped gradients, as covey does; default) or mean."),
    ] = None,
    adjacency: Annotated[str | None, typer.Option(help="replace_one (default) or add_remove.")] = None,
    identity_epsilon: Annotated[
        float | None, typer.Option(help="Epsilon of one announced identity by noisy maximum: rho = epsilon^2 / 8.")
    ] = None,
    identity_rho: Annotated[float | None, typer.Option(help="The same cost, given as rho.")] = None,
    announcements: Annotated[
        int | None, typer.Option(help="Identities are announced in the first so many rounds; in all when not given.")
    ] = None,
    unit: Annotated[
        str | None, typer.Option(help="What is protected: a sample (default) or all data of a device.")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Local steps in a round, each with noise of its own; 1.")] = None,
    sampling_rate: Annotated[
        float | None,
        typer.Option(help="Probability of each sample to be in a step's batch (Poisson sampling); 1 for all samples."),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(help="Formula that answers: exact (default), zcdp (default with announcements), simple."),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the scenario's numbers of samples; 0.")] = None,
    set_: Overrides = None,
    run: Annotated[Path | None, typer.Option(help="Folder of a run: what has it spent?")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for privacy.png and privacy.json.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of words and tables.")] = False,
    quiet: Quiet = False,
) -> int:
    """Answer budget questions: of rounds, noise, epsilon and delta, give three and get the fourth.

    Delta is 1e-5 when not given, so two of the others answer the third; all three others answer
    delta. With --run the question is what a finished, interrupted or running run has spent.

    Examples:

      covey privacy --rounds 100 --noise-std 25

      covey privacy --epsilon 2 --noise-std 0.05 --on mean --samples 500

      covey privacy --rounds 50 --epsilon 2 --clip 3 --adjacency add_remove

      covey privacy --rounds 50 --epsilon 4 --identity-rho 0.02 --announcements 5

      covey privacy --rounds 60 --epsilon 4 --steps 10 --sampling-rate 0.1 --adjacency add_remove

      covey privacy quick --rounds 50 --out budget

      covey privacy --run runs/quick-greedy-seed0
    """
    from covey.cli.spending import spent_by
    from covey.privacy.accounting import Method

    options = Options(
        scenario, rounds, noise_std, epsilon, delta, clip, samples, on, adjacency, identity_epsilon, identity_rho,
        announcements, unit, steps, sampling_rate, seed, set_ or None,
    )  # fmt: skip
    formula: Method | None = _choice("--method", method, get_args(Method))
    picture = out is not None
    if run is not None and options.given():
        raise ScenarioError(
            f"--run reads what a run has spent, so that {options.given()[0]} has no meaning; leave it out"
        )
    answer = _planned(options, formula, picture) if run is None else spent_by(run, formula, picture)
    text = json.dumps(answer.record, indent=2, allow_nan=False) + "\n"
    if out is not None:
        _write(answer, text, out)
    if as_json and not quiet:
        typer.echo(text, nl=False)
        return 0
    console = Console(quiet=quiet, highlight=False)
    _show(answer, console)
    if out is not None:
        console.print(f"Results in [bold]{out}[/]", soft_wrap=True)
    return 0


def _write(answer: Answer, text: str, out: Path) -> None:
    """privacy.json (its `text`) and, where there is one, privacy.png."""
    from covey.files import write_atomically
    from covey.report.pictures import png
    from covey.simulation.checkpoint import prepare_folder

    prepare_folder(out, overwrite=True)
    write_atomically(out / "privacy.json", text.encode())
    if answer.figure is not None:
        write_atomically(out / "privacy.png", png(answer.figure))


def _show(answer: Answer, console: Console) -> None:
    """Print the answer, the formulas behind it, and what it holds for and what not."""
    if answer.paste:
        console.print(answer.paste, markup=False, soft_wrap=True)
    console.print(answer.sentence, style="bold", markup=False)
    console.print(answer.table)
    for title, lines in (("This holds as follows:", answer.holds), ("Not covered:", answer.excluded)):
        console.print(title, style="bold")
        bullets = Table.grid(padding=(0, 1))
        for line in lines:
            bullets.add_row("-", Text(line))
        console.print(bullets)


def _planned(options: Options, method: Method | None, picture: bool) -> Answer:
    """The answer to a budget question."""
    from covey.cli.spending import Answer
    from covey.privacy.accounting import Unit
    from covey.privacy.planning import Releases, solve
    from covey.report.privacy_section import (
        Noise,
        Wording,
        answer_sentence,
        assumptions,
        draw_plan,
        formula_table,
        not_covered,
    )

    on: Noise = _choice("--on", options.on, get_args(Noise)) or "sum"
    chosen = None
    if options.scenario is not None:
        _refuse(options, ("clip", "samples"), "is not for a scenario, which has its own; use --set training.clip=..."
                " or --set data.samples_min=...")  # fmt: skip
        _refuse(options, ("unit", "steps", "sampling_rate"), "is not for a scenario, whose local training and"
                " privacy.unit say it; use --set")  # fmt: skip
        chosen = load_scenario(options.scenario, options.set or ())
        releases, wording, noise_std = _of_scenario(chosen, options, on)
    else:
        _refuse(options, ("set", "seed"), "needs a SCENARIO, for example covey privacy quick")
        if options.samples is not None and options.samples < 1:
            raise ScenarioError(f"--samples is {options.samples}; a user has at least 1 sample")
        if on == "mean" and options.samples is None:
            raise ScenarioError("--on mean needs the number of samples that the mean is over; add --samples X")
        identity_rho = _identity_rho(options)
        releases = Releases(
            1.0 if options.clip is None else options.clip, _adjacency(options) or "replace_one",
            identity_rho=identity_rho, announcements=options.announcements,
            unit=_choice("--unit", options.unit, get_args(Unit)) or "sample", steps=options.steps or 1,
            rate=1.0 if options.sampling_rate is None else options.sampling_rate,
        )  # fmt: skip
        wording = Wording(options.samples, on, raw_identities=identity_rho == 0.0)
        noise_std = None
    if options.noise_std is not None:
        noise_std = options.noise_std * (wording.samples or 1) if on == "mean" else options.noise_std
    rounds, noise_std, delta = _three(options, chosen, noise_std)
    if options.announcements is not None and rounds is not None and options.announcements > rounds:
        raise ScenarioError(
            f"there are more announcements ({options.announcements}) than rounds ({rounds}), but a user announces at"
            " most once in a round; lower --announcements"
        )
    try:
        plan = solve(releases, rounds=rounds, noise_std=noise_std, epsilon=options.epsilon, delta=delta, method=method)
    except ScenarioError as error:
        hint = "; if that noise is on the mean gradient, add --on mean"
        meant = on == "sum" and options.samples is not None and "not even one" in str(error)
        raise ScenarioError(f"{error}{hint if meant else ''}") from None
    sentence = answer_sentence(plan, wording)
    holds, excluded = assumptions(plan, wording), not_covered(wording)
    if chosen is not None:
        holds += _advice(plan, chosen)
    paste, no_paste = _to_paste(plan, options, chosen)
    record = {
        "paste": paste,
        "no_paste": no_paste,
        "sentence": sentence,
        "scenario": None if chosen is None else chosen.name,
    } | plan.to_dict()
    record |= {"samples": wording.samples, "holds": holds, "not_covered": excluded}
    figure = draw_plan(plan, wording) if picture else None
    return Answer(sentence, formula_table(plan, wording), holds, excluded, figure, record, paste or no_paste)


def _three(
    options: Options, scenario: Scenario | None, noise_std: float | None
) -> tuple[int | None, float | None, float | None]:
    """Rounds, noise and delta of the question, with exactly one of them and epsilon left open."""
    asked_all = None not in (options.rounds, options.noise_std, options.epsilon)
    if asked_all and options.delta is not None:
        raise ScenarioError(
            "--rounds, --noise-std, --epsilon and --delta are all given, so that nothing is left to ask; leave out the"
            " one that you want to know"
        )
    delta = options.delta
    if delta is None and not asked_all:
        delta = DELTA if scenario is None else scenario.privacy.delta
    rounds = options.rounds
    if scenario is not None:
        if rounds is None and options.epsilon is None:
            rounds = scenario.training.rounds
        if options.rounds is not None and options.epsilon is not None and options.noise_std is None:
            noise_std = None  # the noise is what is asked
    known = [name for name in ("rounds", "noise_std", "epsilon", "delta") if getattr(options, name) is not None]
    if scenario is None and sum(name != "delta" for name in known) < 2:
        got = f"only {' and '.join('--' + name.replace('_', '-') for name in known)}" if known else "none of them"
        raise ScenarioError(
            "give three of --rounds, --noise-std, --epsilon and --delta (1e-5 when left out) to get the fourth, or a"
            f" SCENARIO, or --run FOLDER; {got} was given"
        )
    return rounds, noise_std, delta


def _of_scenario(scenario: Scenario, options: Options, on: Noise) -> tuple[Releases, Wording, float | None]:
    """What the user who can lose most sends in this scenario, how to speak of it, and the noise it adds at least."""
    import numpy as np

    from covey.cli.spending import raw_identities
    from covey.data.dealing import draw_sizes
    from covey.federated import build_training
    from covey.identification import ScoreRule, build_rule
    from covey.privacy.planning import Releases, worst_user
    from covey.privacy.target import least_std
    from covey.report.privacy_section import Wording
    from covey.simulation.target import with_target
    from covey.simulation.world import clipping_norms

    privacy, clustering = scenario.privacy, scenario.clustering
    if privacy.noise == "off":
        raise ScenarioError(
            f"scenario '{options.scenario}' adds no noise (privacy.noise is 'off'), so that no epsilon holds; add --set"
            " privacy.noise=secure"
        )
    seed = options.seed or 0
    sizes = draw_sizes(scenario.data, scenario.network.users, seed)
    scenario = with_target(scenario, sizes)
    privacy = scenario.privacy
    user, clip, noise_std = worst_user(sizes, scenario.training.clip, privacy.v_max, privacy.n_min)
    training, _ = build_training(scenario)
    if privacy.unit == "device":
        # The largest user: noise on an update is not scaled by samples, and its is the least.
        user = int(sizes.argmax())
        free = privacy.n_min <= privacy.v_max**0.5 * sizes.min()
        noise_std = max(privacy.n_min / sizes[user], float(least_std(sizes, privacy.v_max)[user]) if free else 0.0)
        clip = scenario.training.clip * float(sizes.mean())
    told = training.releases(clipping_norms(scenario, sizes)[[user]], np.array([noise_std]), sizes[[user]])
    identity_rho, most, first = _identity_rho(options), options.announcements, 1
    rule = build_rule(scenario)
    announced = rule.announcement.rho if isinstance(rule, ScoreRule) else 0.0
    if identity_rho == 0.0 and announced > 0:
        # covey draws the tasks of the first round, so that announcements begin in the second.
        identity_rho, first = announced, 2
        if clustering.announce_rounds is not None:
            most = sum(rule.announces(number) for number in range(1, clustering.announce_rounds + 1))
    releases = Releases(
        clip, _adjacency(options) or privacy.adjacency, uploads=1 + rule.uploads, identity_rho=identity_rho,
        first_announcement=first, announce_every=clustering.announce_every if first == 2 else 1, announcements=most,
        unit=privacy.unit, steps=int(told.steps[0]), rate=float(told.rate[0]),
    )  # fmt: skip
    kind, beside = ("smallest", "and alone in its task")
    if privacy.unit == "device":
        kind, beside = ("largest", "beside the smaller users that leave it the least noise")
    whom = (
        f"The answer holds for the user of '{scenario.name}' who can lose most: with seed {seed} this is user {user},"
        f" the {kind}, with {sizes[user]} samples, served in every round {beside}, which is when its"
        " noise is least. Everybody else loses as much or less."
    )
    budget = privacy.budget_epsilon[user] if isinstance(privacy.budget_epsilon, tuple) else privacy.budget_epsilon
    return (
        releases,
        Wording(int(sizes[user]), on, whom, budget, identity_rho == 0.0 and raw_identities(scenario)),
        noise_std,
    )


def _to_paste(plan: Plan, options: Options, scenario: Scenario | None) -> tuple[str, str]:
    """Options of `covey run` that give the noise that was asked for, and why there are none, of which one is empty.

    Both are empty where something else was asked.
    """
    if plan.asked != "noise_std":
        return "", ""
    target = ("privacy.target_epsilon", "privacy.v_max")
    texts = [one for one in options.set or () if one.partition("=")[0].strip() not in target]
    try:
        settings = _settings(plan, options)
        texts += [f"{key}={_exact(value)}" for key, value in settings.items()]
        if scenario is None:
            _check_bounds(settings)
        else:
            _check_target(texts, options)
    except ScenarioError as error:
        return "", f"No options of covey run fit this: {error}"
    return " ".join(f"--set {shlex.quote(one)}" for one in texts), ""


def _settings(plan: Plan, options: Options) -> dict[str, object]:
    """Values of scenario keys that a run needs for the plan, beside its scenario and --set."""
    releases = plan.releases
    plain = options.scenario is None
    found: dict[str, object] = {"privacy.target_epsilon": plan.epsilon, "training.rounds": plan.rounds}
    if options.delta not in (None, DELTA) or (options.delta is not None and not plain):
        found["privacy.delta"] = plan.delta
    if plain and releases.unit != "sample":
        found["privacy.unit"] = releases.unit
    if _adjacency(options) is not None and not (plain and releases.adjacency == "replace_one"):
        found["privacy.adjacency"] = releases.adjacency
    if plain and releases.steps > 1:
        found["training.steps"] = releases.steps
    if plain and releases.rate < 1:
        found |= {"training.sampling": "poisson", "training.batch": _batch(releases.rate, options.samples)}
    if _identity_rho(options) > 0 and releases.announced(plan.rounds) > 0:
        found |= {"privacy.identity": "noisy_max", "privacy.identity_rho": releases.identity_rho}
        if releases.announcements is not None:
            found["clustering.announce_rounds"] = releases.announcements
    return found


def _batch(rate: float, samples: int | None) -> int:
    """The largest batch of which each of the user's samples is with at most this probability."""
    if samples is None:
        raise ScenarioError(
            "the sampling rate of a run is training.batch by the user's samples; add --samples X, and the batch is"
            " worked out"
        )
    if rate * samples < 1:
        raise ScenarioError(
            f"a sampling rate of {rate:g} of {samples} samples is less than one sample, the smallest training.batch;"
            f" raise --sampling-rate to at least {1 / samples:.4g}"
        )
    return int(rate * samples * (1 + 1e-12))


def _exact(value: object) -> str:
    """A value as it is set; numbers in as few digits as give the same number."""
    from covey.report.privacy_section import short

    if not isinstance(value, float):
        return str(value)
    return short(value) if float(short(value)) == value else repr(value)


def _check_bounds(settings: dict[str, object]) -> None:
    """Raise `ScenarioError` where no scenario takes these values."""
    from covey.scenario.load import scenario_problems

    table: dict[str, dict[str, object]] = {}
    for name, value in settings.items():
        section, _, key = name.partition(".")
        table.setdefault(section, {})[key] = value
    for _, sentence in scenario_problems(table):
        raise ScenarioError(sentence)


def _check_target(overrides: list[str], options: Options) -> None:
    """Raise `ScenarioError` where a run of the scenario with these overrides refuses them."""
    from covey.data.dealing import draw_sizes
    from covey.simulation.target import with_target

    chosen = load_scenario(options.scenario or "", overrides)
    with_target(chosen, draw_sizes(chosen.data, chosen.network.users, options.seed or 0))


def _advice(plan: Plan, scenario: Scenario) -> list[str]:
    """How an answer is put into the scenario."""
    from covey.report.privacy_section import rounded_up, short

    lines = []
    if plan.asked == "noise_std":
        need = plan.noise_std**2
        if need > scenario.privacy.v_max:
            lines.append(
                f"To give every user that much, set privacy.v_max to {rounded_up(need, 5)} (it is"
                f" {short(scenario.privacy.v_max)}): the cap on the noise is always used up."
            )
        else:
            lines.append(f"The scenario's privacy.v_max of {short(scenario.privacy.v_max)} already gives that much.")
    if scenario.privacy.budget_epsilon is not None:
        lines.append("The scenario's budget stops a user before the release that would exceed it, by the zCDP formula.")
    return lines


def _identity_rho(options: Options) -> float:
    if options.identity_epsilon is not None and options.identity_rho is not None:
        raise ScenarioError("--identity-epsilon and --identity-rho say the same thing; give one of them")
    if options.identity_epsilon is not None:
        if not 1e-5 <= options.identity_epsilon <= 1e3:
            raise ScenarioError(
                f"--identity-epsilon is {options.identity_epsilon:g}; it must lie between 1e-5 and 1000"
            )
        return options.identity_epsilon**2 / 8.0
    if options.identity_rho is not None and not options.identity_rho > 0:
        raise ScenarioError(f"--identity-rho is {options.identity_rho:g}; it must be above 0")
    if options.announcements is not None and options.identity_rho is None:
        raise ScenarioError("--announcements needs the cost of one; add --identity-rho or --identity-epsilon")
    return options.identity_rho or 0.0


def _adjacency(options: Options) -> Adjacency | None:
    from covey.privacy.accounting import Adjacency

    chosen: Adjacency | None = _choice("--adjacency", options.adjacency, get_args(Adjacency))
    return chosen


def _refuse(options: Options, names: tuple[str, ...], why: str) -> None:
    for name in names:
        if getattr(options, name) is not None:
            raise ScenarioError(f"--{name} {why}")


def _choice(option: str, value: str | None, allowed: tuple[str, ...]) -> Any:
    if value is not None and value not in allowed:
        raise ScenarioError(f"{option} is '{value}'; it is one of {', '.join(allowed)}")
    return value
