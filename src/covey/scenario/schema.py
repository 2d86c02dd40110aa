"""The scenario: one typed, validated, serialisable object that describes a whole run.

Every field has a description with its unit; `docs/scenario.md` is generated from them. Unknown
keys are errors. Task, station, user, block and class numbers start at 0 everywhere.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from covey.parts import (
    AGGREGATIONS,
    ANNOUNCEMENTS,
    CHANNELS,
    DATA_OVER_TIME,
    DATASETS,
    GRADIENT_STRATEGIES,
    LOCAL_TRAININGS,
    LOSSES,
    MOBILITIES,
    MODELS,
    PARTITIONS,
    PATH_LOSSES,
    PERSONALS,
    RULES,
    STARTS,
    TRANSFORMS,
    UPLINKS,
    Registry,
)
from covey.scenario.part_names import PartName

# Every number has a lowest and a highest value. They are far from anything that makes sense, and close enough that
# no formula of a round overflows, divides by zero or allocates for hours.
Positive = Annotated[float, Field(ge=1e-12, le=1e12, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
Metres = Annotated[float, Field(ge=1e-3, le=1e9, allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=1e-9, le=1e9, allow_inf_nan=False)]
Decibels = Annotated[float, Field(ge=-300, le=300, allow_inf_nan=False)]
Degrees = Annotated[float, Field(ge=-1e6, le=1e6, allow_inf_nan=False)]
Hertz = Annotated[float, Field(ge=1, le=1e15, allow_inf_nan=False)]
BitsPerSecond = Annotated[float, Field(ge=1e-3, le=1e15, allow_inf_nan=False)]
ENTRIES = 10**6
#: Numbers of samples and rounds.
Count = Annotated[int, Field(ge=1, le=10**9)]
#: Numbers of what has a place in an array: users, stations, tasks, groups, classes, neurons.
Entries = Annotated[int, Field(ge=1, le=ENTRIES)]
Batch = Annotated[int, Field(ge=0, le=10**9)]
Coordinate = Annotated[float, Field(ge=-1e9, le=1e9, allow_inf_nan=False)]
Point = tuple[Coordinate, Coordinate]
#: Largest number of pairs of a user or a task and a station: one number for each is 8 GB.
PAIRS = 10**9
#: Most memory for matching the users of a station to blocks, which takes 16 + B bytes for each two blocks.
MATCHING_BYTES = 16 * 10**9
#: Rate floors per bandwidth, in bit/s/Hz, that are possible or at least mean something.
SPECTRAL_EFFICIENCIES = (1e-12, 100.0)
#: Keys of the training section that only some local trainings read.
LOCAL_OPTIONS = ("steps", "epochs", "sampling", "optimizer", "momentum", "weight_decay", "proximal")
#: Keys of the data section that have one entry for each group.
BY_GROUP = ("mixes", "rotations", "group_sizes")


def _one_of(registry: Registry) -> str:
    """The built-in names of a part, as descriptions list them."""
    return ", ".join(f"`{name}`" for name in registry.builtin) + ", or your own as `module:attribute`"


def _sections(table: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Sections `network`, `clustering` and `data` of a table, empty where not given."""
    return table.get("network", {}), table.get("clustering", {}), table.get("data", {})


class Section(BaseModel):
    """Base of all sections: unknown keys are errors, values cannot be changed after validation."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_values(cls, value: Any, info: ValidationInfo) -> Any:
        """Numbers are not given as true and false, which Python takes for 1 and 0."""
        annotation = cls.model_fields[info.field_name or ""].annotation
        if _holds_truth_value(value) and _is_of_numbers(annotation):
            raise ValueError("it should be a number, not true or false")
        return value


def _holds_truth_value(value: Any) -> bool:
    if isinstance(value, dict):
        value = list(value.values())
    return isinstance(value, bool) or (isinstance(value, (list, tuple)) and any(map(_holds_truth_value, value)))


def _is_of_numbers(annotation: Any) -> bool:
    """Whether a type is a number, or is made of numbers."""
    return annotation in (int, float) or any(_is_of_numbers(part) for part in get_args(annotation))


class Network(Section):
    """Stations, users, tasks and blocks, and where they are."""

    stations: Entries = Field(4, description="Number of base stations, B.")
    users: Entries = Field(12, description="Number of users (devices), U.")
    tasks: Entries = Field(4, description="Number of tasks (models), K; `data.groups` is the number of user groups.")
    blocks: Annotated[int, Field(ge=1, le=10**5)] = Field(
        4, description="Uplink resource blocks, R; every station reuses all of them."
    )
    area_m: tuple[Metres, Metres] = Field((500.0, 500.0), description="Width and height of the area in metres.")
    min_distance_m: Metres = Field(10.0, description="Smallest user-station distance used by the path loss, metres.")
    tasks_per_station: Entries = Field(
        3,
        description=(
            "Tasks each station can run: station b gets b, b+1, ... modulo K, or, where that would leave tasks out,"
            " begins at b x K / B. Ignored when task_sets is given."
        ),
    )
    task_sets: tuple[tuple[Annotated[int, Field(ge=0, lt=ENTRIES)], ...], ...] | None = Field(
        None, description="Tasks of each station, one list per station, e.g. [[0,1],[1,2]]; replaces tasks_per_station."
    )
    station_positions_m: tuple[Point, ...] | None = Field(
        None, description="Station coordinates in metres, one [x, y] per station; random when not given."
    )
    user_positions_m: tuple[Point, ...] | None = Field(
        None, description="Starting coordinates of the users in metres, one [x, y] per user; random when not given."
    )

    @property
    def station_tasks(self) -> tuple[tuple[int, ...], ...]:
        """Tasks of each station, as B tuples of task numbers."""
        if self.task_sets is not None:
            return self.task_sets
        starts = (self._first_task(b) for b in range(self.stations))
        return tuple(tuple(sorted((start + j) % self.tasks for j in range(self._width))) for start in starts)

    @property
    def _width(self) -> int:
        """Number of tasks of every station without task_sets."""
        return min(self.tasks_per_station, self.tasks)

    def _first_task(self, station: int) -> int:
        """Where the tasks of a station begin without task_sets, before they wrap around."""
        # Neighbours share tasks; stations that begin side by side reach the last task only if there are enough of them.
        reached = self.stations + self._width - 1 >= self.tasks
        return station if reached else station * self.tasks // self.stations

    def _missing_task(self) -> int | None:
        """The first task that no station can run, if there is one."""
        if self.task_sets is not None:
            return min(set(range(self.tasks)) - {k for tasks in self.task_sets for k in tasks}, default=None)
        if self.stations * self._width >= self.tasks:
            return None
        ends = ((self._first_task(b) + self._width, self._first_task(b + 1)) for b in range(self.stations))
        return next(end for end, following in ends if end < following)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.tasks > self.users:
            raise ValueError(
                f"there are more tasks ({self.tasks}) than users ({self.users}), but every task starts with at least"
                " one user; lower network.tasks or raise network.users"
            )
        for count, many in ((self.users, "users"), (self.tasks, "tasks")):
            if count * self.stations > PAIRS:
                raise ValueError(
                    f"{count} {many} and {self.stations} stations are {count * self.stations} pairs, more than the"
                    f" {PAIRS} that fit into memory; lower network.{many} or network.stations"
                )
        if self.blocks**2 * (self.stations + 16) > MATCHING_BYTES:
            raise ValueError(
                f"matching users to {self.blocks} blocks of {self.stations} stations would take more than"
                f" {MATCHING_BYTES // 10**9} GB of memory; lower network.blocks to at most"
                f" {math.isqrt(MATCHING_BYTES // (self.stations + 16))}"
            )
        # Checked without the default sets, which would be a list for each station.
        sets = self.task_sets
        if sets is not None and len(sets) != self.stations:
            raise ValueError(
                f"task_sets has {len(sets)} lists for {self.stations} stations; give one list of tasks per station"
            )
        for b, tasks in enumerate(sets or ()):
            wrong = [k for k in tasks if not 0 <= k < self.tasks]
            if wrong:
                raise ValueError(
                    f"task_sets of station {b} names task {wrong[0]}, but tasks are numbered 0 to {self.tasks - 1}"
                )
            if len(set(tasks)) != len(tasks):
                raise ValueError(f"task_sets of station {b} names a task twice; list each task once")
        missing = self._missing_task()
        if missing is not None:
            raise ValueError(
                f"no station can run task {missing}; every task must be in at least one station's set:"
                " raise network.tasks_per_station or add it to network.task_sets"
            )
        for name, points, count in (
            ("station_positions_m", self.station_positions_m, self.stations),
            ("user_positions_m", self.user_positions_m, self.users),
        ):
            if points is None:
                continue
            if len(points) != count:
                raise ValueError(f"{name} has {len(points)} points for {count}; give one [x, y] for each")
            for x, y in points:
                if not (0 <= x <= self.area_m[0] and 0 <= y <= self.area_m[1]):
                    raise ValueError(
                        f"{name} has the point [{x}, {y}], which is outside the area of"
                        f" {self.area_m[0]} x {self.area_m[1]} m; move it or enlarge network.area_m"
                    )
        return self


class Radio(Section):
    """Channel, powers and limits."""

    channel: Annotated[str, PartName(CHANNELS)] = Field(
        "path_loss", description=f"Channel model, which gives the gain of every link: {_one_of(CHANNELS)}."
    )
    path_loss: Annotated[str, PartName(PATH_LOSSES)] = Field(
        "3gpp_macro", description=f"Path loss of the channel `path_loss`: {_one_of(PATH_LOSSES)}."
    )
    carrier_hz: Hertz = Field(2.0e9, description="Carrier frequency in Hz; used by `3gpp_umi`.")
    fading: Literal["none", "rayleigh"] = Field(
        "none", description="Block fading of each user-station link, redrawn every round."
    )
    shadowing_db: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] = Field(
        0.0, description="Standard deviation of log-normal shadowing in dB, drawn once per run; 0 is off."
    )
    uplink: Annotated[str, PartName(UPLINKS)] = Field(
        "ofdma",
        description=(
            "How users share the uplink: `ofdma` (resource blocks, reused by other stations), or an uplink of your own"
            " as `module:attribute`."
        ),
    )
    user_power_dbm: Decibels = Field(30.0, description="Transmit power of a user in dBm, P_i.")
    station_power_dbm: Decibels = Field(38.0, description="Transmit power of a station in dBm, P_S; energy only.")
    block_bandwidth_hz: Hertz = Field(1.0e6, description="Bandwidth of one resource block in Hz, B^U.")
    noise_dbm_per_block: Decibels = Field(-90.0, description="Receiver noise in one resource block, dBm.")
    min_rate_bps: BitsPerSecond = Field(1.0e6, description="Uplink rate floor in bit/s, gamma_T of (11d).")
    downlink_limit_s: Seconds = Field(
        0.01, description="Limit on the sum of broadcast times in seconds, gamma_D of (11c)."
    )
    downlink_rate_bps: BitsPerSecond = Field(1.1e10, description="Broadcast rate of every station in bit/s, c^D.")
    bits_per_weight: Positive = Field(32.0, description="Bits sent per model weight.")
    model_bits: Positive | None = Field(
        None, description="Bits of one model; weights x bits_per_weight when not given."
    )
    loss_probability: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.0, description="Probability that an upload is lost in transit; its release stays charged."
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        # The SINR of a rate is 2^(rate / bandwidth) - 1, which overflows above, and is 0 in floating point below.
        least, most = (efficiency * self.block_bandwidth_hz for efficiency in SPECTRAL_EFFICIENCIES)
        if not least <= self.min_rate_bps <= most:
            raise ValueError(
                f"min_rate_bps is {self.min_rate_bps:g}, but a block of {self.block_bandwidth_hz:g} Hz allows"
                f" {least:g} to {most:g}; change radio.min_rate_bps or radio.block_bandwidth_hz"
            )
        return self


class Mobility(Section):
    """How users move between rounds."""

    model: Annotated[str, PartName(MOBILITIES)] = Field(
        "random_walk", description=f"How users move: {_one_of(MOBILITIES)}."
    )
    speed_m_s: NonNegative = Field(1.4, description="Speed in metres per second.")
    round_s: Seconds = Field(10.0, description="Time between two rounds in seconds, during which users move.")


class Data(Section):
    """The data set, and how it is split over users."""

    name: Annotated[str, PartName(DATASETS)] = Field("digits", description=f"The data set: {_one_of(DATASETS)}.")
    path: str | None = Field(
        None, description="Folder of the data set; the COVEY_DATA folder when not given. Required for `folder`."
    )
    partition: Annotated[str, PartName(PARTITIONS)] = Field(
        "label_mix", description=f"How the data are split over users, and how the groups differ: {_one_of(PARTITIONS)}."
    )
    groups: Entries | None = Field(
        None,
        description=(
            "Number of true groups of users, G, whose data differ. When not given: as many as mixes, rotations or"
            " group_sizes have entries, else K. With more groups than tasks, groups share models; with fewer, tasks are"
            " left over."
        ),
    )
    group_sizes: tuple[Entries, ...] | None = Field(
        None,
        description="Users of each group, one number per group, e.g. [7, 3, 1, 1]; as equal as possible if not given.",
    )
    rotations: tuple[Degrees, ...] | None = Field(
        None,
        description=(
            "Degrees, counter-clockwise, by which the images of each group are turned in `rotation` and `writer`, one"
            " per group, e.g. [0, 15, 90]; 0, 90, 180 and 270 when not given. Angles that are no multiple of 90 take"
            " the nearest pixel, and 0 where there is none."
        ),
    )
    samples_min: Count = Field(200, description="Smallest number of training samples of a user.")
    samples_max: Count = Field(600, description="Largest number of training samples of a user.")
    test_samples: Count = Field(100, description="Held-out test samples of each user, of its own mix.")
    mixes: tuple[dict[str, Positive], ...] | None = Field(
        None,
        description=(
            "Class weights of each group for `label_mix`, one table per group from class number to weight, e.g."
            " [{0 = 4, 1 = 1}, ...]; chosen from the number of classes when not given."
        ),
    )
    concentration: Positive = Field(
        100.0, description="How closely users follow their group's mix: Dirichlet(concentration x mix)."
    )
    dirichlet_alpha: Positive = Field(0.5, description="Concentration of the groups' own mixes for `dirichlet`.")
    transform: Annotated[str, PartName(TRANSFORMS)] = Field(
        "none",
        description=(
            "What models see of a sample: `none` (the sample), `hog` (where its edges are and where they point, for"
            " images; a `softmax` on it learns with far fewer weights, so with far less noise), `hog_fine` (a finer"
            " grid in addition, for little noise), or your own as module:attribute. Computed from each sample alone, it"
            " costs no privacy; delay and energy do not count it."
        ),
    )
    over_time: Annotated[str, PartName(DATA_OVER_TIME)] = Field(
        "constant",
        description="How users' data change between rounds: `constant` (not at all), or your own as module:attribute.",
    )
    noise: NonNegative = Field(1.0, description="Standard deviation of the features of `synthetic`.")
    features: Entries = Field(20, description="Number of features of `synthetic`.")
    classes: Entries = Field(10, description="Number of classes of `synthetic`.")

    @field_validator("mixes", mode="before")
    @classmethod
    def _string_keys(cls, value: object) -> object:
        if isinstance(value, (list, tuple)):
            return tuple({str(k): v for k, v in m.items()} if isinstance(m, dict) else m for m in value)
        return value

    @property
    def group_count(self) -> int | None:
        """Number of groups as far as this section says: `groups`, or the entries of a list by group; else None."""
        listed = (len(getattr(self, key)) for key in BY_GROUP if getattr(self, key) is not None)
        return self.groups if self.groups is not None else next(listed, None)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        self._check_lists()
        if self.samples_max < self.samples_min:
            raise ValueError(
                f"samples_max ({self.samples_max}) is below samples_min ({self.samples_min}); swap or raise it"
            )
        for group, mix in enumerate(self.mixes or ()):
            if not mix:
                raise ValueError(f"mixes of group {group} is empty; give at least one class and its weight")
            for key in mix:
                if not (key.isascii() and key.isdigit() and len(key) <= 9):
                    raise ValueError(
                        f"mixes of group {group} has the class '{key}'; classes are numbers from 0 to 999999999"
                    )
        if self.name == "folder" and self.path is None:
            raise ValueError("data 'folder' needs a path; set data.path to a folder with x.npy and y.npy")
        return self

    def _check_lists(self) -> None:
        """Whether all lists by group are of the same groups."""
        given = {key: len(getattr(self, key)) for key in BY_GROUP if getattr(self, key) is not None}
        for key, entries in given.items():
            if entries == 0:
                raise ValueError(
                    f"{key} is an empty list; give one entry for each group, or put it back with data.{key}=default"
                )
            if self.groups is not None and entries != self.groups:
                raise ValueError(
                    f"{key} has {entries} entries, but there are {self.groups} groups; give one for each group, or put"
                    f" it back with data.{key}=default"
                )
        if len(set(given.values())) > 1:
            words = " and ".join(f"{key} {entries}" for key, entries in given.items())
            raise ValueError(
                f"the lists by group are of different lengths ({words} entries); give each one entry for each group,"
                f" or put those that are not needed back, as data.{next(iter(given))}=default"
            )


class Model(Section):
    """The model every task trains."""

    name: Annotated[str, PartName(MODELS)] = Field("softmax", description=f"The model: {_one_of(MODELS)}.")
    hidden: tuple[Entries, ...] = Field((32,), description="Widths of the hidden layers of `mlp`.")
    channels: tuple[Entries, Entries] = Field((32, 64), description="Channels of the two convolutions of `cnn`.")


class Clustering(Section):
    """How users identify their task."""

    rule: Annotated[str, PartName(RULES)] = Field(
        "gradient_loss",
        description=(
            "`gradient_loss` (similarity of descent direction and model movement, and loss), `loss` (loss only,"
            " IFCA), `printed_sign` (the paper's sign, for comparison), `loss_vectors` (stations cluster users by their"
            " losses on all models, CLoVE), `soft` (tasks drawn from shares, FedEM),"
            " `kmeans` (stations cluster uploaded local models), `kmeans_debiased` (the same, with the noise accounted"
            " for), `mixture` (first uploads grouped by a Gaussian mixture, R-DPCFL), `bipartition` (tasks whose steps"
            " cancel out are split, CFL), `fesem` (uploads go to the nearest model, FeSEM), `oracle` (true groups), or"
            " your own as module:attribute."
        ),
    )
    similarity_weight: Annotated[float, Field(ge=0, le=1)] = Field(
        0.2, description="Weight of the similarity against the loss, lambda of (4)."
    )
    batch: Batch = Field(
        64,
        description=(
            "Samples a user draws to identify its task; 0 takes all of them. Private identities always take all,"
            " because their noise falls with the number of samples."
        ),
    )
    start: Annotated[str, PartName(STARTS)] = Field(
        "random",
        description=(
            "How models begin: `random` (K models and every user's task are drawn, as in the paper), `release` (one"
            " model for all until noised uploads tell the groups apart, then one for each group; nothing is released"
            " beyond what is charged, but who pays how much may change, and with `raw` identities what follows from"
            " announcements is in no epsilon), or your own as module:attribute. It applies to the same rules as"
            " `rescue`; others have their own start."
        ),
    )
    rescue: bool = Field(
        True,
        description=(
            "Whether stations offer a model that nobody uses to part of a task's users, on evidence from noised"
            " uploads. Nothing is released beyond what is charged, but who pays how much may change, and with `raw`"
            " identities what follows from announcements is in no epsilon. `false` is the paper's. It applies only to"
            " rules in which users work out their task, such as `gradient_loss` and `loss`; where stations assign"
            " tasks, as in `loss_vectors` and `kmeans`, none is offered."
        ),
    )
    turns: bool = Field(
        True,
        validate_default=True,
        description=(
            "Whether users of a task that may hold two groups take turns while a model can be offered: those that were"
            " heard most sit out a round, so that stations hear all of them, whatever the policy prefers; at least as"
            " many stay as were served in the last round. It belongs to `rescue` and the start `release`, and applies"
            ' to the same rules; with others, and where stations do not know tasks (`security.mode = "blind"`), nobody'
            " takes turns. With `rescue` off and the start `random` it is `false`: a file that says `true` is read so,"
            " and an override to `true` is refused."
        ),
    )
    max_tasks: Entries | None = Field(
        None,
        description=(
            "Models may grow to this number: where uploads show that two groups share a model, one of them gets a new"
            " one. Makes room for so many tasks (network.tasks), of which first_tasks are used at first. Growth"
            " takes `rescue` or the start `release`, and a rule that they apply to; `bipartition` grows by itself."
        ),
    )
    first_tasks: Entries | None = Field(
        None, description="Models in use at first; others are added where uploads show the need. All if not given."
    )
    announce_every: Count = Field(1, description="Rounds between announcements; users keep their task in between.")
    announce_rounds: Count | None = Field(
        None,
        description=(
            "Users announce in this many first rounds only and then keep their task; in all if not given. No model is"
            " offered that users could not announce: with 1, none is."
        ),
    )

    @field_validator("turns")
    @classmethod
    def _turns_belong_to_offers(cls, value: bool, info: ValidationInfo) -> bool:
        """Nobody takes turns where no model is ever offered or made from groups."""
        # `start` and `rescue` are validated before, in the order of the fields; one that was refused is missing.
        offers = info.data.get("rescue", True) or info.data.get("start") != "random"
        return value and offers


class Training(Section):
    """Rounds, local training and aggregation."""

    rounds: Count = Field(15, description="Rounds of a run, T.")
    learning_rate: Positive = Field(0.03, description="Step size, alpha.")
    clip: Positive = Field(
        3.0, description="Per-sample clipping norm C of a user of mean size; user i clips at C x mean(X) / X_i."
    )
    batch: Batch = Field(0, description="Samples per local step; 0 takes all of them.")
    local: Annotated[str, PartName(LOCAL_TRAININGS)] = Field(
        "step",
        description=(
            "Local training of a user in a round: `step` (one noised step, the paper's), `sgd` (several local steps,"
            " with the keys below), or your own as module:attribute. When not given, it becomes `sgd` as soon as one of"
            " steps, epochs, sampling, optimizer, momentum, weight_decay and proximal is set, or privacy.unit is"
            " `device`."
        ),
    )
    steps: Annotated[int, Field(ge=1, le=10**4)] = Field(
        1, description="`sgd`: local steps of a user in a round, tau; instead of epochs."
    )
    epochs: Annotated[int, Field(ge=1, le=10**4)] | None = Field(
        None,
        description=(
            "`sgd`: passes of a user over its samples in a round, of X_i / batch steps each, rounded down; instead of"
            " steps."
        ),
    )
    sampling: Literal["fixed", "poisson"] = Field(
        "fixed",
        description=(
            "`sgd`: how batches are drawn: `fixed` (batches of a shuffled pass over the samples, without overlap; a new"
            " pass begins when fewer than a batch are left) or `poisson` (each sample is in a step's batch with"
            " probability batch / X_i, independently, so that privacy is amplified; sums are divided by the expected"
            " size)."
        ),
    )
    optimizer: Literal["sgd", "adam"] = Field(
        "sgd", description="`sgd`: optimiser of the local steps; `adam` has decay rates 0.9 and 0.999."
    )
    momentum: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.0,
        description=(
            "`sgd`: momentum of the optimizer `sgd`, as in PyTorch; it starts at 0 in every round and acts from the"
            " second step on."
        ),
    )
    weight_decay: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] = Field(
        0.0,
        description=(
            "`sgd`: weight decay, added to the gradient (weight_decay x weights) or, with the optimizer `adam`, taken"
            " off the weights directly, as in AdamW."
        ),
    )
    proximal: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] = Field(
        0.0,
        description=(
            "`sgd`: weight mu of the proximal term (mu / 2) |w - received model|^2 of FedProx; it acts from the second"
            " step on."
        ),
    )
    loss: Annotated[str, PartName(LOSSES)] = Field(
        "cross_entropy",
        description=(
            "Loss of a sample, by which models are trained and compared: `cross_entropy`, `label_smoothing`"
            " (cross-entropy with a tenth of the target spread over all classes), `focal` (cross-entropy times the"
            " squared probability of all other classes), or your own as module:attribute. Announcements, personal"
            " models, the central reference and the losses in the results use it too."
        ),
    )
    schedule: Literal["constant", "cosine", "step"] = Field(
        "constant",
        description=(
            "Learning rate over the rounds of training.rounds: `constant`, `cosine` (half a cosine from learning_rate"
            " towards 0) or `step` (a tenth of it from half of the rounds on, a hundredth from three quarters on)."
        ),
    )
    aggregation: Annotated[str, PartName(AGGREGATIONS)] = Field(
        "mean",
        description="How uploads become models: `mean` (weighted by samples), or your own as module:attribute.",
    )
    server: Literal["mean", "momentum", "adam", "yogi"] = Field(
        "mean",
        description=(
            "What a task's model makes of its aggregated movement: `mean` (moves by it), or a server optimiser with"
            " memory for each task: `momentum` (FedAvgM), `adam` (FedAdam), `yogi` (FedYogi)."
        ),
    )
    server_rate: Positive = Field(
        1.0,
        description=(
            "Step size of the server, by which the movement is multiplied; with `adam` and `yogi` about how far a"
            " weight moves in a round, 0.01 to 0.1 as a rule."
        ),
    )
    server_momentum: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.9, description="Momentum of the server optimisers `momentum`, `adam` and `yogi`; `mean` has none."
    )
    personal: Annotated[str, PartName(PERSONALS)] = Field(
        "none",
        description=(
            "Model of each user's own, beside that of its task: `none`, `ditto` (trained besides, pulled towards the"
            " received model; it never leaves the device and costs no privacy), `mr_mtl` (local training starts from"
            " it, pulled towards the received model, and makes the upload, charged as usual), or your own as"
            " module:attribute."
        ),
    )
    personal_steps: Count = Field(10, description="`ditto`: local steps of a personal model in a round.")
    personal_batch: Batch = Field(32, description="`ditto`: samples of such a step; 0 takes all of them.")
    personal_rate: Positive = Field(0.1, description="`ditto`: its step size.")
    personal_pull: NonNegative = Field(
        0.1,
        description=(
            "How strongly `ditto` and `mr_mtl` pull a user's own model towards that of its task, lambda; with 0 it is"
            " trained alone."
        ),
    )

    @model_validator(mode="before")
    @classmethod
    def _local_steps(cls, value: Any) -> Any:
        """Keys that only `sgd` has choose it, where no local training is named."""
        if not isinstance(value, dict) or "local" in value:
            return value
        fields = cls.model_fields
        given = any(key in value and value[key] != fields[key].default for key in LOCAL_OPTIONS)
        return {**value, "local": "sgd"} if given else value

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.epochs is not None and self.steps != 1:
            raise ValueError(
                f"steps is {self.steps} and epochs is {self.epochs}, but a round has one or the other; put one back"
                " with training.steps=default or training.epochs=default"
            )
        if self.sampling == "poisson" and self.batch == 0:
            raise ValueError(
                "sampling is 'poisson', but batch is 0, which takes all samples; set training.batch to the expected"
                ' size, or training.sampling = "fixed"'
            )
        if self.momentum > 0 and self.optimizer == "adam":
            raise ValueError(
                f"momentum is {self.momentum:g}, but the optimizer 'adam' has its own; put it back with"
                ' training.momentum=default, or set training.optimizer = "sgd"'
            )
        if self.server == "mean" and self.server_momentum != type(self).model_fields["server_momentum"].default:
            raise ValueError(
                f"server_momentum is {self.server_momentum:g}, but the server 'mean' has none; put it back with"
                ' training.server_momentum=default, or set training.server = "momentum"'
            )
        return self


class Privacy(Section):
    """Noise, accounting and budget."""

    noise: Literal["replay", "secure", "off"] = Field(
        "replay",
        description=(
            "`replay` (seeded, repeatable, so this run itself is not private), `secure` (from the operating"
            " system's cryptographic generator), `off` (no noise, no guarantee)."
        ),
    )
    v_max: Positive = Field(12.0, description="Cap on the data-weighted mean noise variance of a task, V_max of (11e).")
    n_min: NonNegative = Field(100.0, description="Floor on X_i x noise std of every user, N_min of (11f).")
    delta: Annotated[float, Field(ge=1e-300, lt=1)] = Field(1e-5, description="Delta at which epsilon is reported.")
    adjacency: Literal["replace_one", "add_remove"] = Field(
        "replace_one", description="Neighbouring data sets: one sample replaced, or one added or removed."
    )
    target_epsilon: Annotated[float, Field(ge=1e-3, le=1e4, allow_inf_nan=False)] | None = Field(
        None,
        description=(
            "Epsilon that a user who is served in every planned round may end with, in place of v_max: the cap on the"
            " noise is worked out from it before round 1, and shown among the results."
        ),
    )
    unit: Literal["sample", "device"] = Field(
        "sample",
        description=(
            "What `adjacency` replaces, adds or removes: one `sample` of a user (every local step is clipped sample by"
            " sample, noised and charged), or all samples of a `device` (the whole update is clipped and noised once,"
            " and local steps are free)."
        ),
    )
    budget_epsilon: Positive | tuple[Positive, ...] | None = Field(
        None,
        description=(
            "Largest epsilon a user may spend, one number for all or one per user; a release beyond it is refused and"
            " the user sits out."
        ),
    )
    identity: Annotated[str, PartName(ANNOUNCEMENTS)] = Field(
        "raw",
        description=(
            "How a user's task is announced: `raw` (without noise, which no guarantee covers, with"
            " or without masks), `noisy_max` (the best of"
            " bounded scores with Gumbel noise, charged identity_rho each time), `from_release` (computed from the"
            " user's last noised upload, which costs nothing more). For the rule `loss_vectors`: `raw`, `noisy_losses`"
            " (losses on all models, bounded, with Gaussian noise, charged identity_rho) or `noisy_contrasts` (their"
            " differences between models, which need less noise)."
        ),
    )
    identity_rho: Positive = Field(
        0.02, description="Cost of one announcement with noise, in rho; for `noisy_max` that is epsilon^2 / 8."
    )
    loss_bound: Positive = Field(
        3.0,
        description=(
            "Per-sample losses (of `training.loss`) are cut to lie between 0 and this bound in `noisy_max` scores and"
            " in `noisy_losses`."
        ),
    )
    contrast_bound: Positive = Field(
        1.0,
        description="`noisy_contrasts` clips each sample's losses, less their mean over models, to this norm.",
    )

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if self.target_epsilon is not None and "v_max" in self.model_fields_set:
            raise ValueError(
                f"v_max is {self.v_max:g} and target_epsilon {self.target_epsilon:g}, but the target determines the cap"
                " (11e); leave one of the two out"
            )
        if self.noise == "off" and self.budget_epsilon is not None:
            raise ValueError(
                "noise is 'off', so that no upload has a finite epsilon and nobody could be served within"
                " budget_epsilon; set privacy.noise to 'replay' or 'secure', or put the budget back with"
                " privacy.budget_epsilon=default"
            )
        return self


class Security(Section):
    """What stations may see of uploads."""

    mode: Literal["none", "masked", "blind"] = Field(
        "none",
        description=(
            "`none` (stations see every upload and task), `masked` (secure aggregation: stations see neither tasks nor"
            " single uploads, only sums per task over all stations and how many users and samples are in each, and"
            " choose users without knowing their tasks; with `raw` identities no guarantee covers who is in which sum),"
            " `blind` (as masked, but with sums in the clear: to verify that masks change nothing)."
        ),
    )
    threshold: Annotated[float, Field(gt=0.5, le=1)] = Field(
        2 / 3, description="Share of a round's users that must not drop out, or the sums cannot be opened."
    )
    minimum: Annotated[int, Field(ge=2, le=10**9)] = Field(
        2, description="Fewest uploads for which a task's sum is opened; a smaller sum stays closed for the round."
    )


class Reward(Section):
    """Weights of the objective (11) and the reward (27)."""

    leakage_weight: NonNegative = Field(2.0e7, description="Weight of the privacy leakage, gamma.")
    penalty: NonNegative = Field(1.0e3, description="Penalty per squared number of violating users.")


class Compute(Section):
    """Time and energy of computing on a user's device, and how the simulator computes gradients."""

    cycles_per_weight: Positive = Field(
        6.0, description="Processor cycles per model weight, sample and forward-plus-backward pass."
    )
    frequency_hz: Hertz = Field(1.0e9, description="Processor frequency of a user's device in Hz.")
    capacitance: Annotated[float, Field(ge=1e-60, le=1, allow_inf_nan=False)] = Field(
        1.0e-28, description="Effective switched capacitance: energy per cycle is this x f^2."
    )
    gradients: Annotated[str, PartName(GRADIENT_STRATEGIES)] = Field(
        "auto",
        description="Gradient strategy: `compiled` (machine code for some convolutions, needs numba and llvmlite),"
        " `hooks` (for linear and convolutional layers), `one_by_one` (for every model, slow), `auto` (the first of"
        " these that suits the model), or your own as module:attribute. Strategies differ in rounding only.",
    )


class Scenario(Section):
    """Everything that defines a run, apart from its seed, policy and number of worker processes."""

    name: Annotated[str, Field(min_length=1)] = Field(
        "custom", description="Name shown in reports and used in folder names."
    )
    description: str = Field("", description="One sentence about the scenario.")
    network: Network = Field(default_factory=Network, description="Stations, users, tasks, blocks.")
    radio: Radio = Field(default_factory=Radio, description="Channel, powers, limits.")
    mobility: Mobility = Field(default_factory=Mobility, description="Movement of users.")
    data: Data = Field(default_factory=Data, description="Data set and partition.")
    model: Model = Field(default_factory=Model, description="Model of every task.")
    clustering: Clustering = Field(default_factory=Clustering, description="Identification rule.")
    training: Training = Field(default_factory=Training, description="Local training.")
    privacy: Privacy = Field(default_factory=Privacy, description="Noise and accounting.")
    security: Security = Field(default_factory=Security, description="What stations may see.")
    reward: Reward = Field(default_factory=Reward, description="Objective and penalty.")
    compute: Compute = Field(default_factory=Compute, description="Device computing.")

    @property
    def first_tasks(self) -> int:
        """Number of models in use at first."""
        return self.clustering.first_tasks or self.network.tasks

    @property
    def groups(self) -> int:
        """Number of true groups of simulated data, G: `data.groups`, or what follows from the other keys."""
        return self.data.group_count or self.network.tasks

    @model_validator(mode="before")
    @classmethod
    def _room_to_grow(cls, value: Any) -> Any:
        """`clustering.max_tasks` above `network.tasks` makes room for so many models, the first of which are used."""
        if not isinstance(value, dict) or not all(isinstance(section, dict) for section in _sections(value)):
            return value
        network, clustering, data = _sections(value)
        most, tasks = clustering.get("max_tasks"), network.get("tasks", Network().tasks)
        if not isinstance(most, int) or not isinstance(tasks, int) or most <= tasks:
            return value
        if isinstance(tasks, bool) or tasks < 1 or most > ENTRIES:
            return value  # refused by the fields themselves
        network, clustering = network | {"tasks": most}, {"first_tasks": tasks} | clustering
        sets = network.get("task_sets")
        if isinstance(sets, (list, tuple)) and all(isinstance(one, (list, tuple)) for one in sets):
            network["task_sets"] = [[*one, *range(tasks, most)] for one in sets]
        if not any(data.get(key) is not None for key in ("groups", "mixes", "rotations", "group_sizes")):
            data = data | {"groups": tasks}
        return value | {"network": network, "clustering": clustering, "data": data}

    @model_validator(mode="before")
    @classmethod
    def _whole_devices(cls, value: Any) -> Any:
        """Privacy of whole devices chooses `sgd`, which clips whole updates, where no local training is named."""
        if not isinstance(value, dict) or not isinstance(value.get("privacy"), dict):
            return value
        training = value.get("training", {})
        if value["privacy"].get("unit") != "device" or not isinstance(training, dict) or "local" in training:
            return value
        return value | {"training": {**training, "local": "sgd"}}

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        first = self.clustering.first_tasks
        if first is not None and first > self.network.tasks:
            raise ValueError(
                f"clustering.first_tasks is {first}, but there are {self.network.tasks} tasks; lower it, or raise"
                " network.tasks or clustering.max_tasks"
            )
        most = self.clustering.max_tasks
        if most is not None and most < self.network.tasks:
            raise ValueError(
                f"clustering.max_tasks is {most}, but network.tasks is {self.network.tasks} already; raise it, lower"
                " network.tasks, or put it back with clustering.max_tasks=default"
            )
        self._check_groups()
        self._check_privacy()
        self._check_sums()
        return self

    def _check_groups(self) -> None:
        groups, users, sizes = self.groups, self.network.users, self.data.group_sizes
        if groups > users:
            raise ValueError(
                f"there are more groups ({groups}) than users ({users}), but every group has at least one user; lower"
                " data.groups (or what has an entry for each group), or raise network.users"
            )
        if sizes is not None and sum(sizes) != users:
            raise ValueError(
                f"data.group_sizes adds up to {sum(sizes)} users, but network.users is {users}; make them equal"
            )

    def _check_privacy(self) -> None:
        budget, users = self.privacy.budget_epsilon, self.network.users
        if isinstance(budget, tuple) and len(budget) != users:
            raise ValueError(
                f"privacy.budget_epsilon has {len(budget)} numbers for {users} users; give one for each, or one for all"
            )
        self._check_batches()
        # No set of users can meet (11e) and (11f) together unless its largest member could alone; other
        # infeasible sets are handled at run time: the floor is kept, and the round is flagged.
        largest, given = self.data.samples_max, self.privacy.target_epsilon is None
        if given and self.privacy.noise != "off" and self.privacy.n_min > math.sqrt(self.privacy.v_max) * largest:
            raise ValueError(
                f"the noise problem is infeasible: no user of at most {largest} samples can add noise of at least"
                f" n_min / samples = {self.privacy.n_min / largest:.4g} while the variance stays below v_max"
                f" = {self.privacy.v_max:g}; raise privacy.v_max to at least"
                f" {(self.privacy.n_min / largest) ** 2:.4g}, lower privacy.n_min to at most"
                f" {math.sqrt(self.privacy.v_max) * largest:.4g}, or give users more samples"
            )

    def _check_sums(self) -> None:
        """Sums that never have enough uploads to be opened would train nothing, and every upload is charged."""
        least, network = self.security.minimum, self.network
        if self.security.mode == "none":
            return
        if least > network.users:
            raise ValueError(
                f"security.minimum is {least}, but there are only {network.users} users, so that no sum would ever be"
                f" opened and nothing trained; lower it to at most {network.users} (it is at least 2), raise"
                ' network.users, or set security.mode = "none"'
            )
        places = network.stations * network.blocks
        if self.radio.uplink == "ofdma" and least > places:
            raise ValueError(
                f"security.minimum is {least}, but {network.stations} stations with {network.blocks} blocks each serve"
                f" at most {places} users in a round, so that no sum would ever be opened and nothing trained; lower"
                ' it, raise network.blocks or network.stations, or set security.mode = "none"'
            )

    def _check_batches(self) -> None:
        """Batches of fixed size are no sums over samples that one sample more leaves as they are."""
        privacy, batch = self.privacy, self.training.batch
        sampled = self.training.sampling == "poisson"
        drawn = 0 < batch < self.data.samples_max
        counts = privacy.noise != "off" and privacy.unit == "sample" and privacy.adjacency == "add_remove"
        if counts and drawn and not sampled:
            raise ValueError(
                f"training.batch is {batch} and privacy.adjacency 'add_remove', but one sample more changes who is in a"
                " batch of fixed size, which moves the sum of its gradients by far more than one clipped gradient; set"
                ' training.batch = 0 (all samples), training.sampling = "poisson", or privacy.adjacency ='
                ' "replace_one"'
            )
