"""The group of diagonal rescalings that leave a network's function unchanged."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import overload

import numpy as np
import torch
from torch import Tensor, nn

from flatgauge.errors import OptionError, SymmetryError
from flatgauge.isolation import private_copy
from flatgauge.network import unwrapped
from flatgauge.symmetry.dimension import NumericalDimension
from flatgauge.symmetry.element import Element
from flatgauge.symmetry.generators import Generators, VerticalSpace
from flatgauge.symmetry.layout import Layout
from flatgauge.symmetry.site import Pin
from flatgauge.symmetry.solve import Array, Matrix, null_space
from flatgauge.tables import html_table
from flatgauge.vectors import Params, generator
from flatgauge.vocabulary import RESCALINGS, Kind


@dataclass(frozen=True, eq=False, repr=False)
class Group:
    """Rescalings θ → exp(s) θ under which the network computes the same function.

    The exact group is what `dimension` counts and what `random_element` draws from by
    default. The approximate group adds the rescalings that would be exact if the eps of
    the normalization layers were zero.

    Attributes:
        generators: A basis of the approximate group that starts with one of the exact.
        pinned: Places where scales are fixed, with the number of times.
        unsupported: Operators without a rule and their modules, with the number of calls.
        coarse: Places where scales are held together for want of knowledge.
        shifts: Buffers v that move as v + eps, with their eps.
        buffers: Names of the tensors that are no parameters.
        aliases: The first name of every tensor that has several, by its other names.
        batchnorm: The variant of batch normalization that was asked for.
        front_end: "export" or "dispatch": how the network was read.
        rounded: Whether the network computes in less than its parameters' precision.
        branches: Modules whose numbers decide what is computed, as routers do: the group
            is that of the path which the data take, and what they reach.
        error: The relative change of the outputs under a random exact element.
        approximate_error: The same under an element of the approximate group.
        numerical: A count by linear algebra alone, where `verify` asked for it.
    """

    generators: Generators
    pinned: Mapping[Pin, int]
    unsupported: Mapping[tuple[str, str], int]
    coarse: Mapping[Pin, int]
    shifts: Mapping[str, float]
    buffers: frozenset[str]
    aliases: Mapping[str, str]
    batchnorm: str
    front_end: str
    rounded: bool
    branches: tuple[str, ...] = ()
    error: float = math.nan
    approximate_error: float = math.nan
    numerical: NumericalDimension | None = None

    @property
    def dimension(self) -> int:
        """The dimension of the exact group."""
        return self.generators.exact

    @property
    def complete(self) -> bool:
        """Whether these are all diagonal rescalings; else the count says "at least"."""
        return not (self.unsupported or self.coarse or self.branches)

    @property
    def approximate_dimension(self) -> int:
        """The dimension of the group up to the eps of normalization layers."""
        return len(self.generators)

    @property
    def layer_dimension(self) -> int:
        """The dimension of the subgroup that scales whole parameter tensors."""
        return self._layers.shape[1]

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of symmetry that the exact group has elements of."""
        present = (self.layer_dimension > 0, self.dimension > 0)
        return tuple(kind for kind, has in zip(RESCALINGS, present, strict=True) if has)

    def element(self, coordinates: Tensor, kind: str | None = None) -> Element:
        """The element whose log-scales along the generators are given.

        Args:
            coordinates: One number for each generator, or for each exact one.
            kind: "layer-rescale" for coordinates along a basis of the elements that
                scale whole parameter tensors.
        """
        given = coordinates.double().cpu().numpy()
        if kind == Kind.LAYER_RESCALE:
            return self._element(self._layers @ given)
        if given.shape not in ((self.dimension,), (self.approximate_dimension,)):
            raise OptionError(
                f"{given.size} coordinates were given for {self.dimension} exact and "
                f"{self.approximate_dimension} approximate generators: give one each."
            )
        return self._element(self.generators.basis[:, : given.size] @ given)

    def random_element(
        self,
        seed: int = 0,
        spread: float = 0.5,
        kind: str | None = None,
        approximate: bool = False,
        power_of_two: bool = False,
    ) -> Element:
        """Draw an element with log-scales `spread` · N(0, 1) along the generators.

        Args:
            seed: Of the random numbers.
            spread: Their standard deviation.
            kind: "node-rescale" (default: any element) or "layer-rescale" (an element
                that scales whole parameter tensors).
            approximate: Whether to draw from the group up to eps.
            power_of_two: Whether to round every drawn factor to a power of two, with
                which networks without eps or biases compute bit for bit the same.
        """
        if kind not in (None, *RESCALINGS):
            raise OptionError(
                f"there is no kind of symmetry '{kind}' here: choose one of {RESCALINGS}."
            )
        basis = self._basis(kind, approximate)
        draw = torch.randn(
            basis.shape[1], generator=generator(seed), dtype=torch.float64
        )
        coordinates = (spread * draw).numpy()
        if power_of_two:
            coordinates = np.round(coordinates / math.log(2.0)) * math.log(2.0)
        return self._element(basis @ coordinates)

    @overload
    def act(self, model: nn.Module, element: Element) -> nn.Module: ...
    @overload
    def act(self, model: Mapping[str, Tensor], element: Element) -> Params: ...
    def act(
        self, model: nn.Module | Mapping[str, Tensor], element: Element
    ) -> nn.Module | Params:
        """A rescaled copy of a model (without its wrapper), a state dict or a `Params`.

        Raises:
            SymmetryError: if the mapping lacks a tensor that the element moves.
        """
        if isinstance(model, nn.Module):
            twin = private_copy(unwrapped(getattr(model, "_orig_mod", model)))
            tensors = {**dict(twin.named_parameters()), **dict(twin.named_buffers())}
            with torch.no_grad():
                for name in self._complete(tensors, element):
                    tensors[name].copy_(element.apply(name, tensors[name]))
            return twin
        self._complete(model, element)
        return {
            name: element.apply(self.aliases.get(name, name), tensor)
            for name, tensor in model.items()
        }

    def vertical(
        self, params: Params, kind: str | None = None, approximate: bool = False
    ) -> VerticalSpace:
        """The directions e θ of the exact generators that move these parameters alone.

        A Hessian with respect to `params` sees just these: buffers, and parameters that
        `params` leaves out, are held fixed.

        Args:
            params: θ.
            kind: "layer-rescale" for the directions that scale whole tensors only.
            approximate: Whether to take those of the group up to eps.
        """
        known = frozenset(self.aliases.get(name, name) for name in params)
        key = known, kind, approximate
        if key not in self._moving:
            held = sorted(name for name in self._layout.scales if name not in known)
            basis = self._basis(kind, approximate)
            still = null_space(self._layout.moved(held) @ basis)
            self._moving[key] = (basis @ still.matrix).tocsc()
        return VerticalSpace(self._layout, self._moving[key], params)

    def __str__(self) -> str:
        lines = [
            *(f"{name:<18}{exact:>9}{every:>12}" for name, exact, every in self._table),
            f"{'whole tensors':<18}{self.layer_dimension:>9}",
            f"batch norm: {self.batchnorm}; read by {self.front_end}; outputs change by "
            f"{self.error:.1e} (exact), {self.approximate_error:.1e} (up to eps)",
        ]
        if self.numerical is not None:
            lines.append(str(self.numerical))
        reasons = Counter[tuple[str, str]]()
        for pin, count in self.pinned.items():
            reasons[pin.operator, pin.reason] += count
        lines.extend(
            f"fixed by {operator} x {count}: {reason}"
            for (operator, reason), count in reasons.most_common()
        )
        lines.extend(
            f"not understood: {operator} in '{module}' x {count}"
            for (operator, module), count in self.unsupported.items()
        )
        lines.extend(
            f"held together by {place.operator} in '{place.module}' x {count}: "
            f"{place.reason}"
            for place, count in self.coarse.items()
        )
        if self.branches:
            others = f" and {len(self.branches) - 1} more" * (len(self.branches) > 1)
            lines.append(
                "of the path that the data take, and of what they reach on it: numbers "
                f"decide what is computed in '{self.branches[0]}'{others}"
            )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        header, *rows = self._table
        note = f"{self.layer_dimension} of them scale whole tensors."
        return html_table(header, rows, note)

    @property
    def _table(self) -> list[tuple[str, str, str]]:
        """How many generators rescale what, under a header."""
        exact = Counter(self.generators.labels[: self.dimension])
        every = Counter(self.generators.labels)
        total = "all" if self.complete else "all, at least"
        return [
            ("rescalings of", "exact", "up to eps"),
            *((name, str(exact[name]), str(every[name])) for name in sorted(every)),
            (total, str(self.dimension), str(self.approximate_dimension)),
        ]

    @property
    def _layout(self) -> Layout:
        return self.generators.layout

    def _basis(self, kind: str | None, approximate: bool = False) -> Matrix:
        """The elements of one kind, by columns."""
        if kind == Kind.LAYER_RESCALE:
            return self._layers
        count = self.approximate_dimension if approximate else self.dimension
        return self.generators.basis[:, :count]

    @cached_property
    def _layers(self) -> Matrix:
        """The exact elements that scale whole parameter tensors, by columns."""
        names = [name for name in self._layout.scales if name not in self.buffers]
        exact = self._basis(None)
        whole = null_space(self._layout.uneven(names) @ exact)
        return (exact @ whole.matrix).tocsc()

    @cached_property
    def _moving(self) -> dict[tuple[frozenset[str], str | None, bool], Matrix]:
        """What `vertical` has solved: the elements of a kind that move these tensors alone."""
        return {}

    def _element(self, variables: Array) -> Element:
        log_scales = self._layout.log_scales(variables)
        shifts = {k: eps for k, eps in self.shifts.items() if k in log_scales}
        return Element(log_scales, shifts)

    def _complete(
        self, tensors: Mapping[str, Tensor], element: Element
    ) -> Iterable[str]:
        present = {self.aliases.get(name, name) for name in tensors}
        missing = [name for name in element.log_scales if name not in present]
        if missing:
            raise SymmetryError(
                f"the element moves '{missing[0]}', which was not given: pass the model "
                "or its whole state dict, or look for symmetries with "
                "batchnorm='parameters'."
            )
        return element.log_scales
