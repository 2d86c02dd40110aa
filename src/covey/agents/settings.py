"""Settings of a learner, with a one-line description each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from covey.agents.mixers import MixerName
from covey.errors import ScenarioError
from covey.scenario.load import DEFAULT

Algorithm = Literal["dpvd", "iql", "qmix"]

#: The mixer of each algorithm.
MIXERS: dict[Algorithm, MixerName] = {"iql": "none", "dpvd": "sum", "qmix": "qmix"}

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]


class LearnerSettings(BaseModel):
    """Settings of a learner; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    algorithm: Algorithm = Field("dpvd", description="`dpvd` (sum of stations' values), `iql` (independent), `qmix`.")
    head: Literal["additive", "subset"] = Field(
        "additive", description="`additive`: a value per user, any network size; `subset`: a value per subset of users."
    )
    penalty: Literal["progressive", "fixed"] = Field(
        "progressive", description="M violating users cost M^2 units, or a fixed 5 units if M > 0."
    )
    features: Literal["full", "paper"] = Field(
        "full", description="Features of a user at a station: all that it knows, or tasks and distances only."
    )
    epochs: Count = Field(200, description="Epochs; in each, every network plays one episode.")
    networks: Count = Field(32, description="Networks played in parallel, each with a new layout per epoch.")
    updates: Annotated[int, Field(ge=0)] = Field(30, description="Gradient steps per epoch.")
    batch: Count = Field(96, description="Transitions per gradient step.")
    replay: Annotated[int, Field(ge=0)] = Field(
        8192, description="Replay buffer size in transitions; 0 learns on-policy, from the last epoch only."
    )
    learning_rate: Positive = Field(3e-3, description="Learning rate of Adam; decays linearly to a tenth.")
    discount: Share = Field(0.0, description="Discount factor of the next state's value.")
    target_rate: Annotated[float, Field(gt=0.0, le=1.0)] = Field(
        0.01,
        description="Soft update rate of the target network, which acts and values next states; 1 is no target.",
    )
    double: bool = Field(
        True, description="Double Q-learning: the online network picks the next action, the target values it."
    )
    hidden: Count = Field(64, description="Width of the hidden layers.")
    dueling: bool = Field(True, description="Subset head: dueling network, all subsets share a base value.")
    mask: Literal["owned", "able", "none"] = Field(
        "owned",
        description=(
            "Action mask of a station that decides alone: users of the tasks that it owns in this round (stations take"
            " turns), of all tasks it can run, or all users, as in the paper."
        ),
    )
    epsilon_start: Share = Field(1.0, description="Initial share of exploratory actions.")
    epsilon_end: Share = Field(0.05, description="Final share of exploratory actions.")
    epsilon_share: Positive = Field(0.3, description="Share of all epochs over which exploration decays.")
    exploration: Literal["flip", "uniform"] = Field(
        "flip", description="Explore by flipping one or two users of the greedy action, or by a random subset."
    )
    guarded_share: Share = Field(
        0.5, description="Share of networks whose actions pass the admission guard during training."
    )
    shaping: bool = Field(
        True, description="Reward shaping: learn from the improvement over all rounds left, not from the reward itself."
    )
    split: bool = Field(True, description="Learn gains and violations separately, so that the guard can rank by gains.")
    credit: Literal["marginal", "team"] | None = Field(
        None,
        description=(
            "Credit assignment: gains are learned from each user's marginal gain, which the surrogate provides"
            " (`marginal`; additive head only), or from the team's reward (`team`). Default: marginal for dpvd where"
            " possible."
        ),
    )
    charge: Literal["station", "team"] = Field(
        "station", description="Split: stations learn violations from those charged to them, or from the team's number."
    )
    penalty_weight: Positive = Field(
        0.5,
        description=(
            "Split: price of a violating user when deciding alone, in penalty units. Not split: weight of"
            " log(1 + penalty in units) against the normalised rest of the reward."
        ),
    )
    raw_reward: bool = Field(False, description="Learn from the raw reward, without normalising or compressing it.")
    iql_reward: Literal["shared", "local"] = Field(
        "shared", description="Reward of independent stations: the team's, or their own share of it."
    )
    validate_every: Count = Field(20, description="Epochs between validations, which use separate layouts.")
    validation: Count = Field(128, description="Number of validation layouts.")

    @property
    def marginal(self) -> bool:
        """Whether gains are learned from users' marginal gains, where the rounds provide them."""
        if self.credit is None:
            return self.algorithm == "dpvd" and self._can_be_marginal
        return self.credit == "marginal"

    @property
    def _can_be_marginal(self) -> bool:
        return self.head == "additive" and self.split and self.discount == 0.0 and self.charge == "station"

    @property
    def mixer(self) -> MixerName:
        """The mixer of the algorithm."""
        return MIXERS[self.algorithm]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.raw_reward and self.shaping:
            raise ValueError("raw_reward and shaping exclude each other; set shaping=false to learn from raw rewards")
        if self.raw_reward and self.split:
            raise ValueError("raw_reward and split exclude each other; set split=false to learn from raw rewards")
        if self.credit == "marginal" and not self._can_be_marginal:
            raise ValueError(
                "credit=marginal needs head=additive, split=true, discount=0 and charge=station; use credit=team"
            )
        if self.epsilon_end > self.epsilon_start:
            raise ValueError(
                f"epsilon_end ({self.epsilon_end}) is above epsilon_start ({self.epsilon_start}); lower it"
            )
        return self


#: The paper's own training loop: its state, one on-policy update per epoch, no target network, scaling or mask.
LITERAL: dict[str, object] = {
    "head": "subset",
    "features": "paper",
    "networks": 4,
    "updates": 1,
    "batch": 1_000_000,
    "replay": 0,
    "discount": 1.0,
    "target_rate": 1.0,
    "double": False,
    "dueling": False,
    "mask": "none",
    "exploration": "uniform",
    "guarded_share": 0.0,
    "shaping": False,
    "split": False,
    "credit": "team",
    "raw_reward": True,
}


def learner_settings(given: dict[str, Any], overrides: Sequence[str], *, literal: bool) -> LearnerSettings:
    """Settings from the command's own options, then `key=value` overrides; `literal` starts from the paper's loop."""
    values: dict[str, Any] = {**LITERAL} if literal else {}
    values |= {key: value for key, value in given.items() if value is not None}
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals or not key:
            raise ScenarioError(f"'--learner {override}' is not of the form key=value, for example --learner hidden=32")
        if text.strip() == DEFAULT:
            values.pop(key.strip(), None)
        else:
            values[key.strip()] = text.strip()
    try:
        return LearnerSettings.model_validate(values)
    except ValidationError as error:
        problem = error.errors()[0]
        name = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "extra_forbidden":
            known = ", ".join(LearnerSettings.model_fields)
            raise ScenarioError(f"there is no learner setting '{name}'; the settings are {known}") from None
        message = problem["msg"].removeprefix("Value error, ").replace("Input should", "it should")
        where = f"the learner setting '{name}' is {problem['input']!r}, but " if name else ""
        raise ScenarioError(where + message[:1].lower() + message[1:]) from None
