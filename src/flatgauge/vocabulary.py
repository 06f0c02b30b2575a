"""The words that measures, audits, reports and pages share, each with what it says."""

from __future__ import annotations

from enum import Enum, StrEnum


class _Word(StrEnum):
    """A word that is, and looks like, its plain string."""

    def __repr__(self) -> str:
        return repr(self.value)


class _Told(_Word):
    """A word with a sentence, `text`."""

    text: str

    def __new__(cls, word: str, text: str) -> _Told:
        """The string itself, which carries the text."""
        one = str.__new__(cls, word)
        one._value_, one.text = word, text
        return one


class Kind(_Told):
    """A kind of symmetry, equal to its plain string; `text` says what is moved."""

    LAYER_RESCALE = (
        "layer-rescale",
        "Whole weight tensors are multiplied by factors that cancel.",
    )
    NODE_RESCALE = (
        "node-rescale",
        "Single neurons, channels or rows are multiplied by factors that cancel in what "
        "follows them.",
    )
    ATTENTION_GL = (
        "attention-gl",
        "The queries and keys of an attention head, or its values and outputs, are "
        "multiplied by matrices that cancel.",
    )
    PERMUTATION = "permutation", "The neurons of a layer change places."
    SIGN_FLIP = (
        "sign-flip",
        "Neurons behind an odd function, such as tanh, change their sign, and so does "
        "what reads them.",
    )
    FACTOR_GL = (
        "factor-gl",
        "Two matrices that are used as their product only, such as LoRA's, are "
        "multiplied by matrices that cancel.",
    )
    ABSORBED_SHIFT = (
        "absorbed-shift",
        "Something is added that a layer norm subtracts again, or that all scores of a "
        "softmax have in common, as the bias of the keys.",
    )
    STREAM_ROTATION = (
        "stream-rotation",
        "What is written to a residual stream is rotated, and so is what reads it behind "
        "root-mean-square norms with equal gains.",
    )
    OUTPUT_SHIFT = (
        "output-shift",
        "The same number is added to all scores of a sample, which a softmax does not "
        "see.",
    )
    OUTPUT_SCALE = (
        "output-scale",
        "All scores are multiplied by one factor: the predicted class stays, the "
        "probabilities do not.",
    )
    BRANCH_SPLIT = (
        "branch-split",
        "A layer is split in two parallel ones that add up to it.",
    )


class Association(_Told):
    """A statistic of how numbers order networks by a target; `text` says what it is."""

    KENDALL = (
        "kendall",
        "Kendall's τ_b of all networks: of the pairs that tie in neither, the share in "
        "the same order less the share in the opposite one.",
    )
    SPEARMAN = "spearman", "The correlation of the ranks."
    PEARSON = "pearson", "The correlation of the numbers themselves."
    FIXED = (
        "kendall-at-fixed-settings",
        "Kendall's coefficient among networks that share all hyperparameters, a tie "
        "counting as 0: what a measure sees beyond them.",
    )
    GRANULATED = (
        "granulated-kendall",
        "Kendall's coefficient among networks that differ in one hyperparameter alone, "
        "a tie counting as 0; without a name the mean over the hyperparameters.",
    )
    INFORMATION = (
        "conditional-mutual-information",
        "The share of the targets' order that the values' order tells, given the "
        "hyperparameters, none or up to two, that leave it the least.",
    )
    MEAN_ERROR = (
        "sign-error-mean",
        "The share of pairs in the wrong order, a tie counting as half, when networks "
        "are moved from one environment to another: the mean over environments.",
    )
    WORST_ERROR = "sign-error-worst", "The same in the worst environment."


# Those that a network's diagonal group is made of.
RESCALINGS = (Kind.LAYER_RESCALE, Kind.NODE_RESCALE)
# Those that give neurons other names: they change places or signs.
RENAMINGS = (Kind.PERMUTATION, Kind.SIGN_FLIP)


def kind_label(kind: str, exact: bool, adversarial: bool = False) -> str:
    """A kind as it is shown; what holds only up to a normalization's eps says so.

    >>> kind_label(Kind.NODE_RESCALE, exact=False)
    'node-rescale (up to eps)'
    >>> kind_label(Kind.NODE_RESCALE, exact=True, adversarial=True)
    'node-rescale (on purpose)'
    """
    if adversarial:
        return f"{kind} (on purpose)"
    return str(kind) if exact else f"{kind} (up to eps)"


class Verdict(_Word):
    """What an audit says of one measure under one kind of symmetry."""

    HOLDS = "holds"
    MOVES = "moves"
    STAYS = "stays"
    VIOLATED = "claim violated"
    NOT_JUDGED = "not judged"


class Status(Enum):
    """How far a number can be trusted; the value says what to do about it.

    `mark` and `tone` are its sign and its colour on a page.
    """

    mark: str
    tone: str

    EXACT = "Computed exactly, up to rounding.", "✓", "good"
    CONVERGED = "Converged to the requested tolerance.", "✓", "good"
    ESTIMATED = (
        "A random estimate that met its target; quote it with its uncertainty.",
        "≈",
        "good",
    )
    NOT_CONVERGED = (
        "Stopped before the tolerance was met: raise the number of steps or probes, "
        "or ask for less.",
        "✗",
        "bad",
    )
    BIASED = (
        "A random estimate with a known bias that its uncertainty does not cover: "
        "compare such values only when they were computed alike.",
        "!",
        "warn",
    )
    NOT_APPLICABLE = "Not defined for this model, loss or data.", "–", "none"
    FAILED = (
        "Broke off with an error, which the message gives: there is no number, and the "
        "others are not affected.",
        "✗",
        "bad",
    )

    def __new__(cls, text: str, mark: str, tone: str) -> Status:
        """The text is the value; sign and colour come with it."""
        status = object.__new__(cls)
        status._value_, status.mark, status.tone = text, mark, tone
        return status

    @property
    def word(self) -> str:
        """The status as tables name it, such as "not converged"."""
        return self.name.lower().replace("_", " ")

    @property
    def trusted(self) -> bool:
        """Whether the value can be quoted as it stands, with its uncertainty."""
        return self.tone == "good"
