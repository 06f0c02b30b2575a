"""The errors that flatgauge raises on purpose: one sentence, what was wrong, what to do."""


class FlatgaugeError(Exception):
    """Base of every error that flatgauge raises on purpose."""


class ModelError(FlatgaugeError):
    """The model cannot be measured as it is."""


class DataError(FlatgaugeError):
    """The data cannot be read twice, are empty, or do not fit the model."""


class LossError(FlatgaugeError):
    """The loss does not fit the model's outputs or the targets."""


class NonFiniteError(FlatgaugeError):
    """A parameter, a loss or a derivative is NaN or infinite."""


class NotDeterministicError(FlatgaugeError):
    """Two passes over the same data gave different losses."""


class VectorError(FlatgaugeError):
    """A named vector does not have the names, shapes or dtype of its space."""


class OptionError(FlatgaugeError):
    """An unknown name or an option value outside its range."""


class OutOfMemoryError(FlatgaugeError):
    """The device has too little memory, however little is held at a time."""


class ProcessGroupError(FlatgaugeError):
    """A process of several is missing, lost, or does something else than the others."""


class NotConvergedError(FlatgaugeError):
    """Raised instead of returning an unconverged number, where that was asked for."""


class SymmetryError(FlatgaugeError):
    """A symmetry was asked for that the network does not have, or could not be proved."""


class UnlikeWarning(UserWarning):
    """Numbers that were not measured alike are put side by side."""
