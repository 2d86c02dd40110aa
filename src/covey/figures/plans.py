"""The cells of every figure.

Methods are learners that differ in one respect: the mixer of the stations' values, or the penalty. Each was tuned
with the same budget: every step size of the scale, with one seed that is used nowhere else; the step size with the
highest greedy reward on validation layouts, stations deciding alone, is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from covey.figures.cells import Cell, scenario_of
from covey.figures.compute import Plan
from covey.figures.kinds import Allocated, Bounded, Optimum, Partitioned, Played, RealRun, Training
from covey.figures.scales import Scale, Settings
from covey.jobs import Store
from covey.scenario import DEFAULT_START

#: Settings of each method. All learn from the team reward only, so that nothing but the method differs.
METHODS: dict[str, Settings] = {
    "dpvd": (("algorithm", "dpvd"), ("credit", "team")),
    "iql": (("algorithm", "iql"), ("credit", "team")),
    "qmix": (("algorithm", "qmix"), ("credit", "team")),
    "iql_local": (("algorithm", "iql"), ("credit", "team"), ("iql_reward", "local")),
    "dpvd_fixed": (("algorithm", "dpvd"), ("credit", "team"), ("penalty", "fixed")),
}
#: The paper's step size.
LITERAL_RATE = 1.5e-3
#: Settings of each method in the paper's own loop.
LITERAL_METHODS: dict[str, Settings] = {
    "dpvd": (("algorithm", "dpvd"),),
    "iql": (("algorithm", "iql"),),
    "qmix": (("algorithm", "qmix"),),
    "dpvd_fixed": (("algorithm", "dpvd"), ("penalty", "fixed")),
}
#: Identification rules of Figs. 7 and 9.
RULES: dict[str, tuple[str, ...]] = {
    "loss": ("clustering.rule=loss",),
    "gradient_loss_0.2": ("clustering.rule=gradient_loss", "clustering.similarity_weight=0.2"),
    "gradient_loss_0.5": ("clustering.rule=gradient_loss", "clustering.similarity_weight=0.5"),
    "printed_sign_0.2": ("clustering.rule=printed_sign", "clustering.similarity_weight=0.2"),
    "kmeans": ("clustering.rule=kmeans",),
    "oracle": ("clustering.rule=oracle",),
}
#: The rule of Figs. 7 and 9 with covey's default start; all other cells have the paper's.
DEFAULT_RULE = "gradient_loss_0.2_default"
RULES[DEFAULT_RULE] = (*RULES["gradient_loss_0.2"], *DEFAULT_START)
#: Exploration over half as many epochs, to see its effect on convergence; and its number of seeds.
SHORT_EXPLORATION: Settings = (("epsilon_share", 0.15),)
SHORT_SEEDS = 3
REFERENCES = ("random", "nearest", "coverage", "greedy", "local_search", "exact")
#: References of Fig. 3; an exact choice takes seconds at this size.
QUICK_REFERENCES = ("random", "nearest", "coverage", "greedy")
#: First held-out layouts: no calibration and no training uses seeds below 1,000.
FIRST_LAYOUT, FIRST_ELSEWHERE = 100, 200
#: A network small enough to enumerate all joint choices: 22 choices for each of two stations.
SMALL = (
    "network.users=6", "network.stations=2", "network.blocks=2", "network.area_m=[350.0, 350.0]",
    "network.task_sets=[[0, 1, 2], [0, 2, 3]]",
)  # fmt: skip


@dataclass(frozen=True)
class Work:
    """A scale with its number of seeds, and the store of finished cells."""

    scale: Scale
    seeds: int
    store: Store

    def rate(self, scenario: str, method: str) -> float | None:
        """The tuned step size of a method, None while trials are missing."""
        trials = self.trials(scenario, method)
        if not all(self.store.has(cell) for cell in trials.values()):
            return None
        return max(trials, key=lambda rate: (self.store[trials[rate]]["validation"]["alone"], -rate))

    def trials(self, scenario: str, method: str) -> dict[float, Training]:
        """The tuning trial of every step size."""
        epochs = (("epochs", self.scale.tuning_epochs), ("validate_every", self.scale.tuning_epochs // 2))
        return {
            rate: Training(
                scenario,
                seed=self.scale.tuning_seed,
                settings=_merged(self.scale.learner, METHODS[method], epochs, (("learning_rate", rate),)),
            )
            for rate in self.scale.rates
        }

    def training(
        self,
        method: str,
        seed: int,
        scenario: str | None = None,
        overrides: tuple[str, ...] = (),
        changes: Settings = (),
    ) -> Training | None:
        """A training with tuned settings, updated with `changes`; None while tuning is unfinished."""
        scenario = scenario or self.scale.scenario
        rate = self.rate(scenario, method)
        if rate is None:
            return None
        settings = _merged(self.scale.learner, METHODS[method], (("learning_rate", rate),), changes)
        return Training(scenario, overrides, seed, settings=settings)

    def literal(self, method: str, seed: int) -> Training:
        """A training in the paper's own loop."""
        epochs = (
            ("learning_rate", LITERAL_RATE),
            ("epochs", self.scale.literal_epochs),
            ("validate_every", self.scale.literal_epochs // 3),
            ("validation", dict(self.scale.learner).get("validation", 128)),
        )
        return Training(self.scale.scenario, seed=seed, settings=_merged(LITERAL_METHODS[method], epochs), literal=True)

    def real_training(self, method: str, seed: int, learning: str) -> Training:
        """A short training on digits, on real rounds or on the surrogate, all else equal."""
        settings = _merged(self.scale.real, METHODS[method], (("learning_rate", 6e-3),))
        return Training("paper_digits", seed=seed, settings=settings, learning=learning)  # type: ignore[arg-type]


def users_of(scenario: str, users: int) -> tuple[str, ...]:
    """Overrides for this number of users; empty for the scenario's own."""
    return () if users == scenario_of(scenario, ()).network.users else (f"network.users={users}",)


def leakage_of(scenario: str, factor: float) -> tuple[str, ...]:
    """Overrides that multiply the scenario's leakage weight by `factor`."""
    own = scenario_of(scenario, ()).reward.leakage_weight
    return () if factor == 1.0 else (f"reward.leakage_weight={own * factor!r}",)


def noise_of(scenario: str, factor: float) -> tuple[str, ...]:
    """Overrides that multiply the noise variance, floor included, by `factor`; 0 turns noise off."""
    if factor == 0.0:
        return ("privacy.noise=off",)
    privacy = scenario_of(scenario, ()).privacy
    return (f"privacy.v_max={privacy.v_max * factor!r}", f"privacy.n_min={privacy.n_min * factor**0.5!r}")


def run_under_noise(rule: str, factor: float, seed: int) -> RealRun:
    """The run of a rule on digits with `factor` times the noise variance of the scenario."""
    return RealRun("paper_digits", (*RULES[rule], *noise_of("paper_digits", factor)), seed)


def site_of_size(users: int, stations: int, blocks: int, side: int) -> tuple[str, ...]:
    """Overrides for a network of this size."""
    sets = [sorted((station + j) % 4 for j in range(3)) for station in range(stations)]
    return (
        f"network.users={users}", f"network.stations={stations}", f"network.blocks={blocks}",
        f"network.area_m=[{side}.0, {side}.0]", f"network.task_sets={sets}",
    )  # fmt: skip


def figure_2(work: Work) -> list[Cell]:
    """One partition."""
    return [Partitioned(work.scale.scenario)]


def figure_3(work: Work) -> list[Cell]:
    """Trainings of all methods, in our loop and in the paper's, evaluated on held-out layouts; and references."""
    scale, cells = work.scale, _tuning(work, ("dpvd", "iql", "qmix", "iql_local"))
    cells += [
        Played(scale.scenario, seed=FIRST_LAYOUT, policy=name, layouts=scale.layouts) for name in QUICK_REFERENCES
    ]
    for seed in range(work.seeds):
        for method in ("dpvd", "iql", "qmix", "iql_local"):
            cells += _judged(work, work.training(method, seed))
        for method in ("dpvd", "iql", "qmix"):
            cells += _judged(work, work.literal(method, seed), ways=("alone",))
    for seed in range(min(work.seeds, SHORT_SEEDS)):
        short = (work.training(method, seed, changes=SHORT_EXPLORATION) for method in ("dpvd", "iql"))
        cells += [trained for trained in short if trained is not None]
    for seed in range(min(work.seeds, scale.real_seeds)):
        for method in ("dpvd", "iql"):
            for learning in ("real", "surrogate"):
                trained = work.real_training(method, seed, learning)
                cells += [trained]
                cells += [
                    RealRun("paper_digits", seed=FIRST_LAYOUT + layout, policy=trained)
                    for layout in range(scale.real_seeds)
                ]
    return cells


def figure_4(work: Work) -> list[Cell]:
    """Real runs over the number of users, each with policies trained for that number; and greedy, which serves most."""
    greedy = [RealRun(work.scale.scenario, seed=seed) for seed in range(work.seeds)]
    return [*_over_users(work, work.scale.scenario, work.scale.users, ("dpvd", "iql", "qmix")), *greedy]


def figure_5(work: Work) -> list[Cell]:
    """Trainings with the progressive and with the fixed penalty, in our loop and in the paper's."""
    cells = _tuning(work, ("dpvd", "dpvd_fixed"))
    for seed in range(work.seeds):
        for method in ("dpvd", "dpvd_fixed"):
            cells += _judged(work, work.training(method, seed))
            cells += _judged(work, work.literal(method, seed), ways=("alone",))
    return cells


def figure_6(work: Work) -> list[Cell]:
    """Both allocations on the selections of two policies, at the scenario's leakage weight and at larger ones."""
    scenario = work.scale.scenario
    return [
        Allocated(scenario, leakage_of(scenario, factor), seed, policy=policy)
        for seed in range(work.seeds)
        for factor in (1.0, 5.0, 50.0)
        for policy in ("greedy", "random")
    ]


def figure_7(work: Work) -> list[Cell]:
    """Runs of all decentralised rules, and of one with covey's start; on digits both weights also without noise."""
    rules = ("loss", "gradient_loss_0.2", "gradient_loss_0.5", "printed_sign_0.2", DEFAULT_RULE)
    runs = [RealRun(work.scale.scenario, RULES[rule], seed) for seed in range(work.seeds) for rule in rules]
    return [*runs, *_under_noise(work, ("gradient_loss_0.2", "gradient_loss_0.5"), (0.0, 1.0))]


def figure_8(work: Work) -> list[Cell]:
    """Real runs over the leakage weight, each with policies trained for it."""
    scale, cells = work.scale, _tuning(work, ("dpvd", "iql"))
    for seed in range(work.seeds):
        for factor in scale.leakage_factors:
            overrides = leakage_of(scale.scenario, factor)
            for method in ("dpvd", "iql"):
                trained = work.training(method, seed, overrides=overrides)
                if trained is not None:
                    cells.append(RealRun(scale.scenario, overrides, FIRST_LAYOUT + seed, policy=trained))
    return cells


def figure_9(work: Work) -> list[Cell]:
    """Our rule, with both starts, and central k-means; on digits also without noise, to isolate its effect."""
    rules = ("gradient_loss_0.2", "kmeans")
    compared = (*rules, DEFAULT_RULE)
    runs = [RealRun(work.scale.scenario, RULES[rule], seed) for seed in range(work.seeds) for rule in compared]
    return [*runs, *_under_noise(work, rules, (0.0, 1.0))]


def figure_10(work: Work) -> list[Cell]:
    """As Fig. 4, on the second data set."""
    return _over_users(work, work.scale.second, work.scale.second_users, ("dpvd", "iql"))


def figure_optimum(work: Work) -> list[Cell]:
    """Every policy against the best of all joint choices in a small network."""
    scale, cells = work.scale, _tuning(work, ("dpvd", "iql", "qmix"))
    for seed in range(work.seeds):
        layout = FIRST_LAYOUT + seed
        cells += [Optimum(scale.scenario, SMALL, layout, policy=name) for name in ("best", *REFERENCES)]
        for method in ("dpvd", "iql", "qmix"):
            trained = work.training(method, seed, overrides=SMALL)
            if trained is not None:
                ways = ("alone", "guarded") if method == "dpvd" else ("alone",)
                cells += [Optimum(scale.scenario, SMALL, layout, policy=trained, way=way) for way in ways]  # type: ignore[arg-type]
    return cells


def figure_transfer(work: Work) -> list[Cell]:
    """Policies trained at one size in networks of other sizes."""
    scale, cells = work.scale, _tuning(work, ("dpvd",))
    for size in scale.sizes:
        overrides = site_of_size(*size)
        layouts = min(scale.layouts, 20) if size[0] <= 100 else 4
        cells += [
            Played(scale.scenario, overrides, FIRST_ELSEWHERE, policy=name, layouts=layouts)
            for name in ("nearest", "coverage", "greedy")
        ]
        for seed in range(work.seeds):
            trained = work.training("dpvd", seed)
            if trained is not None:
                for way in ("alone", "guarded"):
                    cells.append(
                        Played(scale.scenario, overrides, FIRST_ELSEWHERE, policy=trained, way=way, layouts=layouts)
                    )
    return cells


def figure_privacy(work: Work) -> list[Cell]:
    """Digits under increasing noise, with our rule and with true groups."""
    return _under_noise(work, ("gradient_loss_0.2", "oracle"))


def figure_noise(work: Work) -> list[Cell]:
    """Digits under increasing noise, with every rule."""
    return _under_noise(work, ("loss", "gradient_loss_0.2", "gradient_loss_0.5", "printed_sign_0.2", "kmeans"))


def figure_bound(work: Work) -> list[Cell]:
    """Runs on digits compared with the bound."""
    return [Bounded("paper_digits", seed=seed) for seed in range(work.seeds)]


#: All figures by name, in display order.
FIGURES: dict[str, Callable[[Work], list[Cell]]] = {
    "2": figure_2,
    "3": figure_3,
    "4": figure_4,
    "5": figure_5,
    "6": figure_6,
    "7": figure_7,
    "8": figure_8,
    "9": figure_9,
    "10": figure_10,
    "optimum": figure_optimum,
    "transfer": figure_transfer,
    "privacy": figure_privacy,
    "noise": figure_noise,
    "bound": figure_bound,
}


def plan_of(names: list[str], scale: Scale, seeds: int) -> Plan:
    """The cells of these figures, low seeds first, so that an early stop leaves the same number of seeds in all
    figures."""

    def plan(store: Store) -> list[Cell]:
        cells = [cell for name in names for cell in FIGURES[name](Work(scale, seeds, store))]
        return sorted(cells, key=lambda cell: _turn(cell, scale))

    return plan


def _turn(cell: Cell, scale: Scale) -> int:
    """Sort key: tuning trials, on which many cells depend, come first, then seed 0, and so on."""
    if cell.seed == scale.tuning_seed:
        return -1
    policy = getattr(cell, "policy", None)
    seed = policy.seed if isinstance(policy, Cell) else cell.seed
    return seed % FIRST_LAYOUT


def _tuning(work: Work, methods: tuple[str, ...], scenario: str | None = None) -> list[Cell]:
    return [cell for method in methods for cell in work.trials(scenario or work.scale.scenario, method).values()]


def _judged(work: Work, trained: Training | None, ways: tuple[str, ...] = ("alone", "guarded")) -> list[Cell]:
    if trained is None:
        return []
    played = [
        Played(trained.scenario, seed=FIRST_LAYOUT, policy=trained, way=way, layouts=work.scale.layouts)  # type: ignore[arg-type]
        for way in ways
    ]
    return [trained, *played]


def _over_users(work: Work, scenario: str, sizes: tuple[int, ...], methods: tuple[str, ...]) -> list[Cell]:
    """Policies of these methods at these sizes; QMIX only at the largest, where it is compared."""
    cells = _tuning(work, methods, scenario)
    for seed in range(work.seeds):
        for users in sizes:
            overrides = users_of(scenario, users)
            for method in (m for m in methods if m != "qmix" or users == max(sizes)):
                trained = work.training(method, seed, scenario, overrides)
                if trained is not None:
                    cells.append(RealRun(scenario, overrides, FIRST_LAYOUT + seed, policy=trained))
    return cells


def _under_noise(work: Work, rules: tuple[str, ...], factors: tuple[float, ...] | None = None) -> list[Cell]:
    return [
        run_under_noise(rule, factor, seed)
        for seed in range(work.seeds)
        for rule in rules
        for factor in factors or work.scale.noise_factors
    ]


def _merged(*parts: Settings) -> Settings:
    """Merged settings, sorted by key; later parts take precedence."""
    values: dict[str, object] = {}
    for part in parts:
        values |= dict(part)
    return tuple(sorted(values.items()))
