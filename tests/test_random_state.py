"""Models that draw random numbers, to no effect, leave the user's random state as it was."""

from __future__ import annotations

import pytest
import torch
from support.untouched import global_state
from torch import nn

import flatgauge as fg
from flatgauge.vectors import gaussian, generator


class Drawing(nn.Module):
    """Draws as layer drop does, and adds what came in to what comes out."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)
        self.up, self.down, self.head = (
            nn.Linear(4, 6),
            nn.Linear(6, 4),
            nn.Linear(4, 3),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        if torch.rand([]) < 2:
            x = x + self.down(self.up(self.norm(x)).relu())
        return self.head(x)


CALLS = {
    "Objective": lambda o: o.gradient(),
    "Hessian": lambda o: fg.Hessian(o) @ gaussian(o.parameters, generator(0)),
    "measure": fg.measure,
    "audit": lambda o: fg.audit(o, elements=1),
    "symmetries": lambda o: fg.symmetries(o, verify="dimension"),
    "sharpen": lambda o: fg.sharpen(o, 10.0),
    "compare": lambda o: fg.compare({"a": o, "b": o}, "hessian-trace"),
    "landscape": lambda o: fg.landscape(o, points=3),
    "top_eigenvalues": lambda o: fg.top_eigenvalues(o, k=2),
    "spectral_density": fg.spectral_density,
}


@pytest.mark.parametrize("name", CALLS)
def test_the_random_state_is_as_it_was(name):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Drawing().double()
        inputs = torch.randn(8, 4).double()
        before = global_state()
        CALLS[name](fg.Objective(model, [(inputs, torch.arange(8) % 3)]))
        assert global_state() == before
