"""Every public call on every network, in every layout and precision: pair by pair.

All cases run on a GPU with `pytest -m gpu`, or without pytest and with a log by
`PYTHONPATH=src:tests python -m contract.test_gpu_contract cuda`; on a CPU one case of
each call runs with the slow tests (`... cpu few`).
"""

from __future__ import annotations

import sys
import time
import traceback
import warnings
from itertools import combinations

import flatgauge as fg
from contract.calls import CALLS, MET
from contract.subjects import LAYOUTS, NETWORKS, PRECISIONS, Subject

try:
    import pytest
except ImportError:
    pytest = None

Case = tuple[str, str, str, str]


def design() -> list[Case]:
    """Every call on every network; layouts and precisions turn in different steps.

    With three of each, (i + j, i + 2 j) mod 3 takes all nine values, and each factor's
    all three along every row and every column of at least three.
    """
    return [
        (call, network, list(LAYOUTS)[(i + j) % 3], list(PRECISIONS)[(i + 2 * j) % 3])
        for i, call in enumerate(CALLS)
        for j, network in enumerate(NETWORKS)
    ]


def few() -> list[Case]:
    """One case of each call, over all networks, layouts and precisions."""
    cases, width = design(), len(NETWORKS)
    # The dear calls meet the small networks.
    return [cases[i * width + (i + 4) % width] for i in range(len(CALLS))]


def check(case: Case, device: str) -> str:
    """Run one case; a line for the log."""
    call, network, layout, precision = case
    subject = Subject(network, layout, precision, device)
    started, worst = time.perf_counter(), (0.0, "nothing to compare")
    with warnings.catch_warnings():
        # What the discovery of symmetries does not understand, it says in a warning.
        warnings.simplefilter("ignore")
        for claim in CALLS[call](subject):
            share = claim.share(subject.tolerance)
            assert share <= 1, (
                f"{claim.what} is {claim.found}, the truth is {claim.truth}: off by "
                f"{share:.3g} times what it may be"
            )
            worst = max(worst, (share, claim.what))
    subject.check_untouched()
    seconds = time.perf_counter() - started
    label = f"{call:22} {network:9} {layout:7} {precision:8}"
    return f"{label} {seconds:6.2f} s  {worst[0]:8.1e} of the allowance ({worst[1]})"


def test_every_pair_of_factors_is_met():
    factors = (CALLS, NETWORKS, LAYOUTS, PRECISIONS)
    for a, b in combinations(range(4), 2):
        met = {(case[a], case[b]) for case in design()}
        assert met == {(one, other) for one in factors[a] for other in factors[b]}
    assert {case[1] for case in few()} == set(NETWORKS)
    assert len(NETWORKS) >= 6


def test_every_public_name_is_called():
    covered = set(CALLS) | {name for name, call in MET.items() if call in CALLS}
    assert set(fg.__all__) - covered == {"__version__"}


if pytest is not None:

    @pytest.mark.slow
    @pytest.mark.parametrize("case", few(), ids="-".join)
    def test_contract_on_a_cpu(case: Case):
        print(check(case, "cpu"))

    @pytest.mark.gpu
    @pytest.mark.parametrize("case", design(), ids="-".join)
    def test_contract(case: Case):
        print(check(case, "cuda"))


def main(device: str, cases: list[Case]) -> int:
    """One line for each case; the number of those that fail."""
    started, failed = time.perf_counter(), 0
    for case in cases:
        try:
            print("passed", check(case, device), flush=True)
        except Exception:
            failed += 1
            print("FAILED", *case, traceback.format_exc(), flush=True)
    seconds = time.perf_counter() - started
    print(f"{len(cases) - failed} passed, {failed} failed in {seconds:.0f} s")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], few() if sys.argv[2:] == ["few"] else design()) > 0)
