"""The option --policy: its help, and how its value becomes a policy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from covey.cli.common import progress_bar
from covey.parts import ALGORITHMS, POLICIES

if TYPE_CHECKING:
    from covey.association import Policy
    from covey.scenario import Scenario

#: What --policy takes, without loading any of it.
POLICY_CHOICES = (
    f"a learned one ({', '.join(ALGORITHMS)}; trained first when there is none), a policy file of `covey train`,"
    f" {POLICIES.choices}"
)


def named_policy(name: str, scenario: Scenario, stored: Path | None, console: Console) -> Policy:
    """What decides: a registered policy, one of one's own, or a learned policy, read from its file or trained now.

    A resumed run uses the learned policy that its folder holds, `stored`, whatever has been trained since.
    """
    from covey.agents.library import is_learned, policy_or_train
    from covey.agents.policy import load_policy
    from covey.association import get_policy

    if not is_learned(name):
        return get_policy(POLICIES.check(name, also=ALGORITHMS))
    if stored is not None:
        return load_policy(stored, scenario)
    if name.endswith(".safetensors"):
        return load_policy(Path(name), scenario)
    with progress_bar(console) as progress:
        bar = progress.add_task(f"training {name}", total=None, visible=False, now="")

        def show(row: dict[str, Any], epochs: int) -> None:
            now = f"reward {row['reward']:,.0f}, violating {row['violating_rounds']:.0%}"
            progress.update(bar, total=epochs, completed=row["epoch"], visible=True, now=now)

        return policy_or_train(name, scenario, show)


def short_name(policy: str) -> str:
    """A policy's name for a folder: of a file, the folder that holds it; of one's own, with a dot for the colon."""
    if policy.endswith(".safetensors"):
        return Path(policy).resolve().parent.name
    return policy.replace(":", ".")
