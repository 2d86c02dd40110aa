"""Parts: everything that a scenario or a command can swap by name.

A part is found by its registered name, by `module:attribute` (an attribute of a module that Python can import, the
current folder included), or by a name that an installed package provides in the entry-point group `covey.parts`, where
an entry is called `kind.name`, for instance `identification.mine`. Every kind of part has one registry here, which
stores built-in parts as `module:attribute`, so that listing names imports nothing. The interface of a kind is defined
in the module that its registry names as `protocol`.

A part declares in `needs` any inputs beyond the standard ones; callers that cannot provide them raise an error with
`refuse_unmet`.
"""

from __future__ import annotations

import difflib
import sys
import warnings
from collections.abc import Callable, Collection, Mapping
from functools import cache
from importlib import import_module, metadata
from pathlib import Path
from typing import Any, Final

from covey.errors import CoveyError, DataError, PartWarning, PolicyError, ScenarioError
from covey.part_checks import why_not, why_not_callable

#: Entry-point group in which installed packages provide parts.
ENTRY_POINTS: Final = "covey.parts"

#: How a part of one's own is written.
_HOW: Final = "A module is written as in an import, without .py and with dots for folders"

#: Requirements that a part can declare, with their wording in error messages.
NEEDS: Final[Mapping[str, str]] = {
    "losses": "every user's loss on every model",
    "gradients": "every user's gradient at every model",
    "movements": "the last movement of every model",
    "single_uploads": "stations that see every single upload",
    "single_announcements": "stations that see what every single user announces",
    "fresh_steps": "uploads that are the model of a task plus steps and noise of the round alone",
    "released_steps": "the noised upload of every user where its task is worked out",
    "identities": "stations that know every user's task",
    "truth": "the true groups",
    "personal_models": "users that keep and train a model of their own",
    "new_data": "users whose data change between rounds",
    "charge": "an accountant for a charge of its own",
}


class Registry:
    """The parts of one kind, called `kind` in entry points, `words` in messages and `key` in scenarios or commands.

    `builtin` maps names to `module:attribute`; `protocol` is the module that defines the interface of such a part, and
    `interface` the class in it that parts derive from or, if it is a `Protocol`, look like.
    """

    def __init__(
        self,
        kind: str,
        words: str,
        key: str,
        builtin: Mapping[str, str],
        *,
        protocol: str,
        interface: str = "",
        error: type[CoveyError] = ScenarioError,
    ) -> None:
        self.kind, self.words, self.key, self.protocol, self.interface = kind, words, key, protocol, interface
        self._builtin, self.error = dict(builtin), error
        self._registered: dict[str, Any] = {}

    @property
    def builtin(self) -> tuple[str, ...]:
        """Names of the parts that come with covey."""
        return tuple(self._builtin)

    @property
    def names(self) -> tuple[str, ...]:
        """All names: built in, provided by installed packages, registered by this program."""
        return tuple(dict.fromkeys((*self._builtin, *_offered(self.kind), *self._registered)))

    @property
    def choices(self) -> str:
        """All names and the `module:attribute` form, for help texts and descriptions."""
        return f"{', '.join(self.names)}, or your own as module:attribute"

    def register(self, name: str, part: Any) -> None:
        """Make `part` available under `name` in this process; built-in names cannot be taken."""
        if not name or ":" in name or name in self._builtin:
            raise ValueError(
                f"'{name}' cannot be registered as {self.words}; choose a name without ':' other than"
                f" {', '.join(self._builtin)}"
            )
        self._registered[name] = part

    def check(self, name: str, *, also: Collection[str] = (), own: bool = True) -> str:
        """The name, if it is known or has the form `module:attribute`; otherwise an error with a suggestion.

        `also` are further names that the caller accepts; without `own`, `module:attribute` is refused.
        """
        if name in self._builtin or name in also or (own and is_reference(name)):
            return name
        known = (*self.names, *also)
        if name in known:
            return name
        if is_reference(name):
            raise self.error(
                f"the {self.words} '{name}' is custom code, which cannot be chosen here; choose one of"
                f" {', '.join(known)}"
            )
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean '{close[0]}'?" if close else "or give your own as module:attribute"
        if ":" in name and (meant := _as_reference(name)):
            hint = f"did you mean '{meant}'? {_HOW}"
        raise self.error(f"the {self.words} '{name}' is unknown; choose one of {', '.join(known)}; {hint}")

    def get(self, name: str) -> Any:
        """The part of this name, imported if it has to be."""
        self.check(name)
        if name in self._registered:
            return self._registered[name]
        if name in self._builtin:
            return _builtin(self._builtin[name])
        if name in (offered := _offered(self.kind)):
            return self._loaded(name, offered[name].load)
        return self._loaded(name, lambda: _attribute(name))

    def build(self, name: str, *given: Any, passing: tuple[type[Exception], ...] = ()) -> Any:
        """The result of calling the part of this name with `given`, for kinds whose parts are built for every run.

        Whatever a part of others raises becomes the error of its kind, except `passing` and errors raised on purpose.
        """
        part = self.get(name)
        return part(*given) if name in self._builtin else self.made(name, part, *given, passing=passing)

    def made(self, name: str, part: Any, *given: Any, passing: tuple[type[Exception], ...] = ()) -> Any:
        """What a part that others wrote makes of `given`, checked; as `build`."""
        if why := why_not_callable(part, len(given)):
            raise self.refused(name, why)
        try:
            made = part(*given)
        except (Exception, SystemExit) as error:
            if isinstance(error, (CoveyError, *passing)):
                raise
            said = f"{type(error).__name__}: {' '.join(str(error).split())}"
            raise self.refused(name, f"cannot be made ({said})") from error
        self.check_made(name, made)
        return made

    def check_made(self, name: str, made: Any) -> None:
        """Refuse an object that does not have the interface of its kind."""
        if self.interface and (why := why_not(made, f"{self.protocol}:{self.interface}")):
            raise self.refused(name, why)

    def refused(self, name: str, why: str) -> CoveyError:
        """The error for a part that exists but does not have the interface of its kind."""
        return self.error(f"the {self.words} '{name}' {why}; see {self.protocol}")

    def _loaded(self, name: str, load: Callable[[], Any]) -> Any:
        try:
            return load()
        except (Exception, SystemExit) as error:  # importing a module runs its code, which can raise anything
            close = difflib.get_close_matches(name.rpartition(":")[2], _attributes(name), n=1)
            hint = f"; did you mean '{name.partition(':')[0]}:{close[0]}'?" if close else ""
            if ".py:" in name:
                hint = f"; did you mean '{_as_reference(name)}'? {_HOW}"
            raise self.error(
                f"the {self.words} '{name}' cannot be imported ({type(error).__name__}: {error}); give an importable"
                f" module, installed or in the current folder, and an attribute of it{hint}"
            ) from error


def refuse_unmet(
    key: str,
    name: str,
    needs: Collection[str],
    lacking: Mapping[str, str],
    error: type[CoveyError] = ScenarioError,
) -> None:
    """Raise `error` if a part has a need in `lacking`, which maps unmet needs to the reason why."""
    if isinstance(needs, str):
        raise error(f"{key} is '{name}', whose needs are the text '{needs}'; write needs = frozenset({{'{needs}'}})")
    for need in NEEDS:
        if need in needs and need in lacking:
            raise error(f"{key} is '{name}', which needs {NEEDS[need]}, but {lacking[need]}")
    unknown = sorted(set(needs) - set(NEEDS), key=str)
    if unknown:
        close = difflib.get_close_matches(str(unknown[0]), NEEDS, n=1)
        hint = f"; did you mean '{close[0]}'?" if close else ""
        raise error(f"{key} is '{name}', which needs '{unknown[0]}'; a part can need {', '.join(NEEDS)}{hint}")


def is_reference(name: str) -> bool:
    """Whether a name has the form `module:attribute`."""
    module, colon, attribute = name.partition(":")
    words = [*module.split("."), *attribute.split(".")]
    return bool(colon) and all(word.isidentifier() for word in words)


def _as_reference(name: str) -> str:
    """What was meant by a reference that names a file; empty where that cannot be told."""
    module, _, attribute = name.partition(":")
    words = module.replace("\\", "/").removesuffix(".py").split("/")
    meant = f"{'.'.join(word for word in words if word not in ('', '.'))}:{attribute}"
    return meant if is_reference(meant) else ""


def _attributes(name: str) -> list[str]:
    """Names that the module of a reference has, if it was imported."""
    module = sys.modules.get(name.partition(":")[0])
    return [] if module is None else [word for word in vars(module) if not word.startswith("_")]


def _offered(kind: str) -> dict[str, metadata.EntryPoint]:
    """Entry points of one kind from installed packages, by name."""
    prefix = f"{kind}."
    return {name.removeprefix(prefix): entry for name, entry in _entries().items() if name.startswith(prefix)}


@cache
def _builtin(reference: str) -> Any:
    """A part of covey's own; importing is looked up once, because environments build some at every reset."""
    return _attribute(reference)


@cache
def _entries() -> dict[str, metadata.EntryPoint]:
    """The usable entry points of the group, cached: the lookup takes milliseconds per installed package."""
    found: dict[str, metadata.EntryPoint] = {}
    registries = {registry.kind: registry for registry in REGISTRIES}
    for entry in metadata.entry_points(group=ENTRY_POINTS):
        kind, dot, name = entry.name.partition(".")
        if not dot or not name:
            why = "is not called kind.name"
        elif kind not in registries:
            close = difflib.get_close_matches(kind, registries, n=1)
            hint = f"did you mean '{close[0]}.{name}'?" if close else f"kinds are {', '.join(registries)}"
            why = f"is of no kind that there is; {hint}"
        elif name in registries[kind].builtin:
            why = f"has the name of covey's own {registries[kind].words}"
        elif entry.name in found and found[entry.name].value != entry.value:
            why = f"has the name of '{found[entry.name].value}' of another package"
        else:
            found[entry.name] = entry
            continue
        origin = f" of {entry.dist.name}" if entry.dist is not None else ""
        warnings.warn(
            f"the entry point '{entry.name} = {entry.value}'{origin} {why}; it is left out", PartWarning, stacklevel=2
        )
    return found


def find_modules_in(folder: Path) -> None:
    """Add a folder to the import path of this process and of worker processes started later."""
    if str(folder) not in sys.path:
        # Appended, so that no file there shadows an installed module.
        sys.path.append(str(folder))


def _attribute(reference: str) -> Any:
    """The attribute that `module:attribute` names; modules of the current folder are found too."""
    module, _, attribute = reference.partition(":")
    find_modules_in(Path.cwd())
    found: Any = import_module(module)
    for name in attribute.split("."):
        found = getattr(found, name)
    return found


POLICIES = Registry(
    "policy",
    "policy",
    "--policy",
    {
        "random": "covey.association.policies:random",
        "nearest": "covey.association.policies:nearest",
        "coverage": "covey.association.policies:coverage",
        "greedy": "covey.association.policies:greedy",
        "local_search": "covey.association.search:local_search",
        "exact": "covey.association.exact_policy:ExactPolicy",
    },
    protocol="covey.association.registry",
    error=PolicyError,
)
#: Training algorithms, accepted as policy names where a trained policy can be looked up or trained.
ALGORITHMS: Final = ("dpvd", "iql", "qmix")
RULES = Registry(
    "identification",
    "identification rule",
    "clustering.rule",
    {
        "gradient_loss": "covey.identification.gradient_loss:GradientLoss",
        "loss": "covey.identification.loss:Loss",
        "printed_sign": "covey.identification.printed_sign:PrintedSign",
        "loss_vectors": "covey.identification.loss_vectors:LossVectors",
        "soft": "covey.identification.soft:Soft",
        "kmeans": "covey.identification.kmeans:KMeans",
        "kmeans_debiased": "covey.identification.kmeans_debiased:KMeansDebiased",
        "mixture": "covey.identification.mixture:Mixture",
        "fesem": "covey.identification.fesem:Fesem",
        "bipartition": "covey.identification.bipartition:Bipartition",
        "oracle": "covey.identification.oracle:Oracle",
    },
    protocol="covey.identification.rule",
    interface="Rule",
)
ANNOUNCEMENTS = Registry(
    "announcement",
    "announcement of identities",
    "privacy.identity",
    {
        "raw": "covey.identification.raw:Raw",
        "noisy_max": "covey.identification.noisy_max:NoisyMax",
        "noisy_losses": "covey.identification.noisy_losses:NoisyLosses",
        "noisy_contrasts": "covey.identification.noisy_contrasts:NoisyContrasts",
        "from_release": "covey.identification.from_release:FromRelease",
    },
    protocol="covey.identification.announcement",
    interface="Announcement",
)
STARTS = Registry(
    "start",
    "start of the models",
    "clustering.start",
    {
        "random": "covey.identification.start:Start",
        "release": "covey.identification.start:ReleaseStart",
    },
    protocol="covey.identification.start",
    interface="Start",
)
UPLINKS = Registry(
    "uplink",
    "uplink",
    "radio.uplink",
    {"ofdma": "covey.uplink.ofdma:Ofdma"},
    protocol="covey.uplink.protocol",
    interface="Uplink",
)
AGGREGATIONS = Registry(
    "aggregation",
    "aggregation",
    "training.aggregation",
    {"mean": "covey.federated.aggregation.mean:Mean"},
    protocol="covey.federated.aggregation.protocol",
    interface="Aggregation",
)
LOCAL_TRAININGS = Registry(
    "training",
    "local training",
    "training.local",
    {"step": "covey.federated.training.step:Step", "sgd": "covey.federated.training.sgd:Sgd"},
    protocol="covey.federated.training.protocol",
    interface="LocalTraining",
)
PERSONALS = Registry(
    "personal",
    "personal model",
    "training.personal",
    {
        "none": "covey.federated.personal.protocol:NoPersonal",
        "ditto": "covey.federated.personal.ditto:Ditto",
        "mr_mtl": "covey.federated.personal.mr_mtl:MrMtl",
    },
    protocol="covey.federated.personal.protocol",
    interface="Personal",
)
LOSSES = Registry(
    "loss",
    "training loss",
    "training.loss",
    {
        "cross_entropy": "covey.federated.losses:cross_entropy",
        "label_smoothing": "covey.federated.losses:label_smoothing",
        "focal": "covey.federated.losses:focal",
    },
    protocol="covey.federated.losses",
)
GRADIENT_STRATEGIES = Registry(
    "gradients",
    "gradient strategy",
    "compute.gradients",
    {
        "auto": "covey.federated.strategies:auto",
        "compiled": "covey.federated.kernels:compiled",
        "hooks": "covey.federated.hook_strategy:Hooked",
        "one_by_one": "covey.federated.one_by_one:OneByOne",
    },
    protocol="covey.federated.strategies",
)
CHANNELS = Registry(
    "channel",
    "channel",
    "radio.channel",
    {"path_loss": "covey.radio.channel:Channel"},
    protocol="covey.radio.channel",
    interface="ChannelModel",
)
PATH_LOSSES = Registry(
    "path_loss",
    "path loss",
    "radio.path_loss",
    {
        "3gpp_macro": "covey.radio.channel:macro_path_loss",
        "3gpp_umi": "covey.radio.channel:micro_path_loss",
        "inverse_square": "covey.radio.channel:inverse_square_path_loss",
    },
    protocol="covey.radio.channel",
)
MOBILITIES = Registry(
    "mobility",
    "mobility model",
    "mobility.model",
    {
        "random_walk": "covey.radio.mobility:build_random_walk",
        "random_waypoint": "covey.radio.mobility:build_random_waypoint",
        "static": "covey.radio.mobility:build_static",
    },
    protocol="covey.radio.mobility",
    interface="MobilityModel",
)
DATASETS = Registry(
    "dataset",
    "data set",
    "data.name",
    {
        "digits": "covey.data.sources.digits:SOURCE",
        "cifar10": "covey.data.sources.cifar10:SOURCE",
        "femnist": "covey.data.sources.femnist:SOURCE",
        "mnist": "covey.data.sources.mnist:SOURCE",
        "fashion_mnist": "covey.data.sources.fashion_mnist:SOURCE",
        "synthetic": "covey.data.sources.synthetic:SOURCE",
        "folder": "covey.data.sources.folder:SOURCE",
    },
    protocol="covey.data.sources.base",
    error=DataError,
)
PARTITIONS = Registry(
    "partition",
    "partition",
    "data.partition",
    {
        "label_mix": "covey.data.partitions:label_mix",
        "label_swap": "covey.data.partitions:label_swap",
        "rotation": "covey.data.partitions:rotation",
        "dirichlet": "covey.data.partitions:dirichlet",
        "writer": "covey.data.partitions:writer",
    },
    protocol="covey.data.partitions",
    error=DataError,
)
TRANSFORMS = Registry(
    "transform",
    "transform of samples",
    "data.transform",
    {
        "none": "covey.data.transforms.protocol:none",
        "hog": "covey.data.transforms.hog:hog",
        "hog_fine": "covey.data.transforms.hog:hog_fine",
    },
    protocol="covey.data.transforms.protocol",
    error=DataError,
)
DATA_OVER_TIME = Registry(
    "data_over_time",
    "change of data over time",
    "data.over_time",
    {"constant": "covey.data.over_time:Constant"},
    protocol="covey.data.over_time",
    interface="DataOverTime",
)
MODELS = Registry(
    "model",
    "model",
    "model.name",
    {
        "cnn": "covey.federated.models:build_cnn",
        "mlp": "covey.federated.models:build_mlp",
        "softmax": "covey.federated.models:build_softmax",
    },
    protocol="covey.federated.models",
)

#: Every registry, in the order of a round.
REGISTRIES: Final = (
    DATASETS, PARTITIONS, TRANSFORMS, DATA_OVER_TIME, MODELS, RULES, STARTS, ANNOUNCEMENTS, POLICIES, UPLINKS, CHANNELS,
    PATH_LOSSES, MOBILITIES, LOCAL_TRAININGS, PERSONALS, LOSSES, GRADIENT_STRATEGIES, AGGREGATIONS,
)  # fmt: skip
