from __future__ import annotations

import math
import time

import pytest
import torch

from flatgauge.curvature.stopwatch import Stopwatch


def test_the_shortest_counts():
    watch = Stopwatch(torch.device("cpu"))
    assert watch.shortest == math.inf
    for pause, count in ((0.05, 1), (0.03, 30), (0.04, 1)):
        watch.start()
        time.sleep(pause)
        watch.stop(count)
    # Only a lower bound of a pause is certain, and a busy machine makes it much longer.
    assert 0.001 <= watch.shortest < 0.04


@pytest.mark.gpu
def test_work_on_a_gpu_is_timed_without_waiting():
    watch = Stopwatch(torch.device("cuda"))
    matrix = torch.randn(4000, 4000, device="cuda", dtype=torch.float64)
    for _ in range(2):
        torch.cuda.synchronize()
        started = time.perf_counter()
        watch.start()
        for _ in range(20):
            matrix @ matrix
        watch.stop(20)
        launched = time.perf_counter() - started
        torch.cuda.synchronize()
    taken = time.perf_counter() - started
    assert launched < taken / 2
    assert taken / 40 < watch.shortest < taken / 10
