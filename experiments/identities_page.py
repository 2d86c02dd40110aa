"""The page docs/identities.md, from the files in results/identities and results/private_identities alone."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import numpy as np
from private_identities_page import private_section

from covey.evaluation import Estimate, mean_interval
from covey.figures.cells import cells_in
from covey.identification.noisy_max import identity_noise_scale, score_width
from covey.jobs import Record, versions_text
from covey.privacy import epsilon
from covey.scenario import load_scenario

PLACES = {
    "swap2": "K = 2, labels swapped",
    "swap4": "K = 4, labels swapped",
    "swap8": "K = 8, labels swapped",
    "mix4": "K = 4, label mixes of paper_digits",
}
MODES = {
    "raw": "raw",
    "raw_all": "raw on all samples",
    "bounded": "bounded scores without noise",
    "noisy_0.005": "noisy max 0.005",
    "noisy_0.02": "noisy max 0.02",
    "noisy_0.1": "noisy max 0.1",
    "noisy_0.02_seldom": "noisy max 0.02 seldom",
    "release": "from release",
    "release_9": "from release in 9 rounds",
    "oracle": "true groups given",
}
DATA = {"digits": "digits (`paper_digits`)", "cifar10": "CIFAR-10 (`paper`)"}
#: Modes without protection.
UNPROTECTED = ("raw", "raw_all", "bounded")
#: Costs of one announcement shown in the table; the nearest grid points are used.
SHOWN = (0.001, 0.005, 0.02, 0.1, 1.0)
#: Tolerance within which a mean accuracy counts as equal to that of raw identities.
CLOSE = 0.05


class Announcements:
    """Accuracy of single announcements by place, round and samples; arrays are over seeds first."""

    def __init__(self, results: Path) -> None:
        self.records = _records(results, "announcement")
        cells = [{**record.job, **record.values} for record in self.records]
        self.cells = cells
        self.rho = np.array(cells[0]["rho"])
        self.seeds = len({cell["seed"] for cell in cells})
        self.rounds = sorted({row["round"] for row in cells[0]["rows"]})
        first = cells[0]["rows"][0]
        self.users, self.draws = first["users"], first["draws"]

    def sizes(self, place: str) -> list[int]:
        """Samples per user tested at this place."""
        return sorted({row["samples"] for row in self._rows(place)})

    def values(self, place: str, number: int, size: int, key: str) -> np.ndarray:
        """(seeds,) or, for values that depend on rho, (seeds, grid)."""
        rows = [row for row in self._rows(place) if (row["round"], row["samples"]) == (number, size)]
        return np.array([row[key] for row in rows])

    def enough(self, place: str, number: int, size: int) -> float | None:
        """The smallest rho of the grid from which on the mean accuracy is within `CLOSE` of raw; None if none is."""
        near = self.values(place, number, size, "noisy").mean(axis=0) >= self.raw(place, number, size) - CLOSE
        stays = np.logical_and.accumulate(near[::-1])[::-1]
        return float(self.rho[stays.argmax()]) if stays.any() else None

    def raw(self, place: str, number: int, size: int) -> float:
        """Mean accuracy of raw identities."""
        return float(self.values(place, number, size, "raw").mean())

    def largest_gap(self) -> float:
        """Largest difference over all cells between accuracy by noise draws and by the mechanism's formula."""
        rows = [row for cell in self.cells for row in cell["rows"]]
        return float(max(np.abs(np.subtract(row["noisy"], row["expected"])).max() for row in rows))

    def _rows(self, place: str) -> list[dict[str, Any]]:
        return [row for cell in self.cells if cell["place"] == place for row in cell["rows"]]


class Runs:
    """Whole runs of one data set by policy and mode, paired by seed."""

    def __init__(self, results: Path, data: str) -> None:
        self.data = data
        self.cells: dict[tuple[str, str], dict[int, dict[str, Any]]] = {}
        self.records = [record for record in _records(results, "identity_run") if record.job["data"] == data]
        for record in self.records:
            cell = {**record.job, **record.values}
            self.cells.setdefault((cell["policy"], cell["mode"]), {})[cell["seed"]] = cell
        self.policies = sorted({policy for policy, _ in self.cells}, reverse=True)
        self.modes = [mode for mode in MODES if any(found == mode for _, found in self.cells)]

    def seeds(self, policy: str, mode: str) -> list[int]:
        """Common seeds of this mode and `raw`."""
        return sorted(set(self.cells[policy, mode]) & set(self.cells[policy, "raw"]))

    def values(self, policy: str, mode: str, key: str) -> np.ndarray:
        """(n,) the last value of each run."""
        return np.array([_last(self.cells[policy, mode][seed][key]) for seed in self.seeds(policy, mode)])

    def paired(self, policy: str, mode: str, key: str, other: str = "raw") -> np.ndarray:
        """(n,) difference to `other` identities, by seed."""
        ours, theirs = self.cells[policy, mode], self.cells[policy, other]
        return np.array([_last(ours[seed][key]) - _last(theirs[seed][key]) for seed in sorted(set(ours) & set(theirs))])

    def gap(self, policy: str, mode: str, key: str, other: str = "raw") -> Estimate:
        """Mean and interval of `paired`."""
        return mean_interval(self.paired(policy, mode, key, other))


def _last(value: Any) -> Any:
    return value[-1] if isinstance(value, list) else value


def _records(results: Path, kind: str) -> list[Record]:
    """Finished cells of any version; the page lists the versions."""
    return cells_in(results, any_version=True).records(kind)


def _text(paragraph: str) -> list[str]:
    return textwrap.wrap(" ".join(paragraph.split()), 118, break_long_words=False, break_on_hyphens=False)


def _bullets(points: list[str]) -> list[str]:
    lines = []
    for point in points:
        first, *rest = textwrap.wrap(" ".join(point.split()), 116, break_long_words=False, break_on_hyphens=False)
        lines += [f"* {first}", *(f"  {line}" for line in rest)]
    return lines


def _plain(value: Estimate) -> str:
    return f"{value.value:.3f}" + (f" ± {value.half_width:.3f}" if value.n > 1 else "")


def _signed(value: Estimate) -> str:
    return f"{value.value:+.3f}" + (f" ± {value.half_width:.3f}" if value.n > 1 else "")


def _word(value: Estimate) -> str:
    if value.n < 2:
        return "not decided"
    return "higher" if value.low > 0 else "lower" if value.high < 0 else "not decided"


def render_page(results: Path) -> str:
    """The page as Markdown; every number in it is computed here."""
    announced, digits, cifar10 = Announcements(results), Runs(results, "digits"), Runs(results, "cifar10")
    made = versions_text([*announced.records, *digits.records, *cifar10.records])
    return "\n".join(
        [
            "# Private task identities: how good are they?",
            "",
            *_text(
                """Generated by `python experiments/identities.py page` from `results/identities`; `make
                study-identities` repeats the whole study. Not one number here is typed by hand. Versions: """
                + f"{made}."
            ),
            "",
            *_idea(),
            "",
            *_announcement_section(announced),
            "",
            *_runs_section(digits),
            "",
            *_noise_section(digits),
            "",
            *_runs_section(cifar10),
            "",
            "## What works and what does not",
            "",
            *_findings(announced, digits, cifar10),
            "",
            *_caveats(announced, digits, cifar10),
            "",
            *private_section(results.parent / "private_identities"),
            "",
        ]
    )


def _idea() -> list[str]:
    scenario = load_scenario("paper_digits")
    rho, bound, weight = 0.02, scenario.privacy.loss_bound, scenario.clustering.similarity_weight
    width = score_width(weight, bound, replaced=True)
    scale = float(identity_noise_scale(np.array([75]), width, rho)[0])
    return [
        "## The idea",
        "",
        *_text(
            """The task that a user announces is computed from its private samples. Sent as it is (`raw`), it has no
            finite privacy cost: two data sets on either side of a tie are told apart with certainty, in every round.
            Two modes repair that. `noisy_max`: every sample's score of a task is bounded, the user adds Gumbel noise
            to the mean scores and announces the largest; that costs `privacy.identity_rho` each time, as"""
            + f""" rho = epsilon^2 / 8. With the preset `paper_digits` one sample can move a mean score by
            {width:.2f} / X, so
            that the noise has the scale {width:.2f} / (X sqrt(2 rho)): {scale:.3f} nats at X = 75 and rho = {rho:g}.
            Four times the cost, or twice the samples, halves it. `from_release`: the task is computed from the user's
            last noised upload and the broadcast models, which have been paid for, and costs nothing more."""
        ),
        "",
        "```",
        f"covey run paper_digits --identity noisy_max --set privacy.identity_rho={rho:g}",
        f"covey run paper_digits --identity noisy_max --set privacy.identity_rho={rho:g}"
        " --set clustering.announce_every=3 --set clustering.announce_rounds=9",
        "covey run paper_digits --identity from_release",
        "```",
    ]


def _announcement_section(found: Announcements) -> list[str]:
    rounds = " and ".join(map(str, found.rounds))
    grid = [int(np.abs(np.log(found.rho / rho)).argmin()) for rho in SHOWN]
    lines = [
        "## One announcement",
        "",
        "![Share of users who announce their own group's model, by cost](images/identities.png)",
        "",
        *_text(
            f"""How often does a user name its own group's model? Models come from runs of {rounds} rounds on
            digits in which users were given their true groups, with noised uploads as always; then
            {found.users} users with X samples each announce, {found.draws} times with new noise. Labels swapped:
            `data.partition = "label_swap"`, 16 users of 60 to 90 samples train, all or all but one served in every
            round. Label mixes: the preset `paper_digits` as it is, policy `greedy`. All X of a panel meet the
            same models.
            Means over {found.seeds} seeds with 95 % intervals over seeds (bands; faint lines are single seeds); dashed:
            `raw` on the same samples. Eight groups of 300 samples are more than the digits have."""
        ),
        "",
        *_text(
            f"""The noise does what it should: over all cells, the share of right announcements among the draws differs
            from the mechanism's formula (probabilities in proportion to exp(score / scale)) by at most
            {found.largest_gap():.3f}."""
        ),
        "",
        "| groups | round | X | raw | "
        + " | ".join(f"rho {found.rho[i]:.2g}" for i in grid)
        + f" | within {CLOSE:g} of raw from rho |",
        "| --- " * (5 + len(grid)) + "|",
    ]
    for place, title in PLACES.items():
        for number in found.rounds:
            for size in found.sizes(place):
                noisy = found.values(place, number, size, "noisy")
                cells = [_plain(mean_interval(noisy[:, i])) for i in grid]
                raw, enough = mean_interval(found.values(place, number, size, "raw")), found.enough(place, number, size)
                lines.append(
                    f"| {title} | {number} | {size} | {_plain(raw)} | {' | '.join(cells)}"
                    f" | {'none tried' if enough is None else f'{enough:.2g}'} |"
                )
    return [*lines, "", "Chance is 1 / K."]


def _runs_section(runs: Runs) -> list[str]:
    any_cell = next(iter(next(iter(runs.cells.values())).values()))
    lines = [f"## Whole runs: {DATA[runs.data]}", ""]
    if runs.data == "digits":
        lines += [
            "![Paired differences to raw identities, every seed](images/identities_runs.png)",
            "",
            *_text(
                f"""Runs of {len(any_cell["accuracy"])} rounds, paired by seed. Numbers behind `noisy max` are
                `privacy.identity_rho`; seldom: `clustering.announce_every = 3` and `clustering.announce_rounds = 9`;
                in 9 rounds: the latter alone. Accuracy is the test accuracy in the last round of every user on the
                model of its identity. At home: the same models, each user on the one with the least loss on its own
                training samples, a choice that it need not announce and that costs nothing."""
            ),
            "",
        ]
    else:
        lines += [*_text(f"{len(any_cell['accuracy'])} rounds, the same columns."), ""]
    for policy in runs.policies:
        lines += [
            f"Policy `{policy}`:",
            "",
            "| identities | n | accuracy | minus raw | | at home | clustering accuracy | minus raw | |",
            "| --- " * 9 + "|",
        ]
        lines += [_run_row(runs, policy, mode) for mode in runs.modes]
        lines += [""]
    return [*lines, *_cost_table(runs)]


def _run_row(runs: Runs, policy: str, mode: str) -> str:
    def mean(key: str) -> str:
        return _plain(mean_interval(runs.values(policy, mode, key)))

    def gap(key: str) -> str:
        value = runs.gap(policy, mode, key)
        return " | " if mode == "raw" else f"{_signed(value)} | {_word(value)}"

    return (
        f"| {MODES[mode]} | {len(runs.seeds(policy, mode))} | {mean('accuracy')} | {gap('accuracy')}"
        f" | {mean('accuracy_at_home')}"
        f" | {mean('clustering_accuracy')} | {gap('clustering_accuracy')} |"
    )


def _cost_table(runs: Runs) -> list[str]:
    """Largest privacy cost of a user in each mode, mean over seeds."""
    one = next(iter(next(iter(runs.cells.values())).values()))
    about = "What it costs, in the same columns:" if runs.data != "digits" else ""
    lines = [
        *_text(
            about
            or f"""What it costs: epsilon at delta = {one["delta"]:g} of the user who spent most, mean over seeds. As
            reported: exact where all releases are Gaussian, zCDP where identities were announced. By zCDP: for all
            rows, so that they can be compared; uploads alone are the part that `raw` pays too, and differ between
            modes because other users are served. No epsilon covers `raw` identities, here or anywhere."""
        ),
        "",
        "| identities | announced | rho of it | "
        + " | ".join(f"{policy}: reported | by zCDP | uploads alone" for policy in runs.policies)
        + " |",
        "| --- " * (3 + 3 * len(runs.policies)) + "|",
    ]
    for mode in [mode for mode in runs.modes if mode != "bounded"]:
        policy = runs.policies[0]
        times = int(runs.values(policy, mode, "announcements_max").max())
        raw = int(runs.values(policy, mode, "unprotected_max").max())
        rho = f"{runs.values(policy, mode, 'rho_identity_max').mean():.3g}"
        cells = [
            f"{runs.values(policy, mode, 'epsilon_max').mean():.2f} | {_epsilon(runs, policy, mode):.2f}"
            f" | {_epsilon(runs, policy, mode, uploads=True):.2f}"
            for policy in runs.policies
        ]
        what = f"{raw} times, unprotected | not bounded" if raw else f"{times} times | {rho}" if times else "never | 0"
        lines.append(f"| {MODES[mode]} | {what} | {' | '.join(cells)} |")
    return lines


def _epsilon(runs: Runs, policy: str, mode: str, *, uploads: bool = False) -> float:
    """Mean over seeds of the largest epsilon by zCDP, of everything or of uploads alone."""
    if not uploads:
        return float(runs.values(policy, mode, "epsilon_zcdp_max").mean())
    rho, delta = runs.values(policy, mode, "rho_gradient_max"), runs.values(policy, mode, "delta")
    return float(np.mean([epsilon(float(cost), float(at), "zcdp") for cost, at in zip(rho, delta, strict=True)]))


def _findings(announced: Announcements, digits: Runs, cifar10: Runs) -> list[str]:
    return _bullets(
        [
            _in_short(digits),
            *_about_announcements(announced),
            *_about_runs(digits),
            *_about_runs(cifar10),
            _price(digits),
            _price(cifar10),
        ]
    )


def _in_short(runs: Runs) -> str:
    """Modes with a clear loss of accuracy, and the policies under which it occurs."""
    private = [mode for mode in runs.modes if mode.startswith(("noisy", "release"))]
    lost = {
        mode: [policy for policy in runs.policies if _word(runs.gap(policy, mode, "accuracy")) == "lower"]
        for mode in private
    }
    fine = ", ".join(MODES[mode] for mode in private if not lost[mode]) or "none"
    worse = ", ".join(f"{MODES[mode]} (`{'`, `'.join(lost[mode])}`)" for mode in private if lost[mode]) or "none"
    return f"""**In short, {DATA[runs.data]}.** No clear loss of accuracy against raw under any policy tried: {fine}. A
        clear loss: {worse}."""


def _about_announcements(found: Announcements) -> list[str]:
    early, late = found.rounds[0], found.rounds[-1]

    def needs(place: str, number: int, size: int) -> str:
        rho = found.enough(place, number, size)
        return "no rho tried is enough" if rho is None else f"rho {rho:.2g}"

    sizes = ", ".join(f"X = {size}: {needs('swap4', late, size)}" for size in found.sizes("swap4"))
    groups = ", ".join(f"{PLACES[place]}: {needs(place, late, 75)}" for place in PLACES)
    raw = ", ".join(
        f"{PLACES[place]} {found.raw(place, early, 75):.2f} (after round {late}: {found.raw(place, late, 75):.2f})"
        for place in PLACES
    )
    better = ", ".join(
        f"{PLACES[place]} {_signed(value)} ({_word(value)})"
        for place in PLACES
        for value in [mean_interval(found.values(place, early, 75, "bounded") - found.values(place, early, 75, "raw"))]
    )
    return [
        f"""**Samples decide.** To come within {CLOSE:g} of raw after round {late} with {PLACES["swap4"]}, an
        announcement costs {sizes}. The noise falls with 1 / X, so the cost of equal noise falls with its square.""",
        f"""**More groups cost more, clearer groups less.** The same at X = 75: {groups}.""",
        f"""**Noise is not the only limit.** After round {early} raw identities at X = 75 are right for: {raw}. While
        models are still alike, users cannot tell them apart even without noise.""",
        f"""**Bounds and raw.** Right by bounded scores without noise, minus right by raw scores, after round {early}
        at X = 75: {better}.""",
    ]


def _about_runs(runs: Runs) -> list[str]:
    points = []
    for policy in runs.policies:
        for family, title in (("noisy", "`noisy_max`"), ("release", "`from_release`")):
            modes = [mode for mode in runs.modes if mode.startswith(family)]
            told = _sorted_by_word({mode: runs.gap(policy, mode, "accuracy") for mode in modes})
            n = len(runs.seeds(policy, modes[0]))
            point = f"**{title} with `{policy}`, {DATA[runs.data]}, n = {n}.** Accuracy, against raw: {told}."
            if family == "release":
                home = {
                    mode: mean_interval(
                        runs.values(policy, mode, "accuracy_at_home") - runs.values(policy, mode, "accuracy")
                    )
                    for mode in modes
                }
                point += f" Users who choose at home, against the model that they train: {_sorted_by_word(home)}."
            points.append(point)
    return points


def _sorted_by_word(gaps: dict[str, Estimate]) -> str:
    """Differences as text, significant ones first."""
    names = {"higher": "clearly higher with", "lower": "clearly lower with", "not decided": "no clear difference with"}
    told = []
    for word, start in names.items():
        found = [f"{MODES[mode]} ({_signed(gap)})" for mode, gap in gaps.items() if _word(gap) == word]
        if found:
            told.append(f"{start} {', '.join(found)}")
    return "; ".join(told)


def _price(runs: Runs) -> str:
    """Contribution of announcements to epsilon."""
    parts = []
    for policy in runs.policies:
        more = ", ".join(
            f"{MODES[mode]} from {_epsilon(runs, policy, mode, uploads=True):.2f} to {_epsilon(runs, policy, mode):.2f}"
            for mode in runs.modes
            if mode.startswith("noisy")
        )
        parts.append(f"with `{policy}` {more}")
    return f"""**Cost, {DATA[runs.data]}.** Announcing raises the largest epsilon (zCDP) of the uploads:
        {"; ".join(parts)}."""


def _noise_section(runs: Runs) -> list[str]:
    """The effect of noise with the scores unchanged."""
    lines = [
        "### Is it the scores or the noise?",
        "",
        *_text(
            """`noisy_max` differs from `raw` in two ways: its scores are bounded, and it adds noise. Against the same
            bounded scores without noise (which give no guarantee), paired by seed:"""
        ),
        "",
        "| identities | " + " | ".join(f"{p}: accuracy | | {p}: clustering accuracy | " for p in runs.policies) + " |",
        "| --- " * (1 + 4 * len(runs.policies)) + "|",
    ]
    for mode in [mode for mode in runs.modes if mode.startswith("noisy")]:
        cells = [
            f"{_signed(gap)} | {_word(gap)}"
            for policy in runs.policies
            for key in ("accuracy", "clustering_accuracy")
            for gap in [runs.gap(policy, mode, key, "bounded")]
        ]
        lines.append(f"| {MODES[mode]} | {' | '.join(cells)} |")
    told = []
    for policy in runs.policies:
        for key, what in (("accuracy", "Accuracy"), ("clustering_accuracy", "Users in the right group")):
            gaps = {mode: runs.gap(policy, mode, key, "bounded") for mode in runs.modes if mode.startswith("noisy")}
            sure = _sorted_by_word({mode: gap for mode, gap in gaps.items() if _word(gap) != "not decided"})
            told.append(f"{what}, `{policy}`: {sure or 'nothing is sure'}.")
    explains = """A likely reason where noise helps is that it explores: chance sends a user to a model that its own
        scores would not have tried, and it stays if that model suits it."""
    return [*lines, "", *_text(" ".join(told) + (" " + explains if "clearly higher" in " ".join(told) else ""))]


def _caveats(announced: Announcements, digits: Runs, cifar10: Runs) -> list[str]:
    weight, bound = (
        load_scenario("paper_digits").clustering.similarity_weight,
        load_scenario("paper_digits").privacy.loss_bound,
    )
    replaced, added = (score_width(weight, bound, replaced=flag) for flag in (True, False))
    served = ", ".join(
        f"{digits.data} `{policy}` {np.mean([np.mean(c['served']) for c in digits.cells[policy, 'raw'].values()]):.1f}"
        for policy in digits.policies
    )
    compared = sum(len(runs.policies) * (len(runs.modes) - 1) for runs in (digits, cifar10))
    few = ", ".join(f"n = {len(cifar10.seeds(policy, 'raw'))} with `{policy}`" for policy in cifar10.policies)
    spent = [digits.values("greedy", "noisy_0.02", f"rho_{kind}_max").mean() for kind in ("identity", "gradient")]
    share = 100.0 * spent[0] / sum(spent)
    size = load_scenario("paper").clustering.batch
    batch = [
        f"""CIFAR-10: {few}, which is little. Raw identities of `paper` take {size} samples, `noisy_max` always takes
        all of a user's. """
        + (
            "The row of raw identities on all samples tells the two apart."
            if "raw_all" in cifar10.modes
            else "A difference between them may come from that alone."
        )
    ]
    return [
        "## Caveats",
        "",
        *_bullets(
            [
                """`raw` gives no guarantee whatever its accuracy: its epsilon is that of the uploads alone, and anybody
                who sees the identities sees more.""",
                f"""Everything here is for `replace_one`. With `add_remove` the width of a score is {added:.2f} in place
                of {replaced:.2f}, so that an announcement of the same rho has almost the same noise, while an upload
                costs a quarter: announcements are then a larger part of the total.""",
                f"""`from_release` learns a user's task from its uploads, so users who are not served keep the task they
                drew in the first round, and a model that one user moved alone tells that user little. It
                suits policies that serve many users of a task (served per round, raw: {served} of 12).""",
                f"""The presets' noise makes epsilon of the uploads large. Announcing at rho 0.02 in every round is
                {share:.0f} % of the largest rho on digits with `greedy`; with stronger noise on uploads it would be a
                larger part.""",
                """Announcing users of the first section hold digits that partly trained the models, as in a run.""",
                f"""Of {compared} differences to raw in accuracy, about one in twenty would leave its interval by chance
                alone.""",
                """Noise came from seeds so that everything can be repeated; such runs are not private themselves.""",
                *batch,
            ]
        ),
    ]
