from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import CASES

import flatgauge as fg
from flatgauge.errors import OptionError
from flatgauge.measures.options import Count, Positive, at_least, checked, option_types
from flatgauge.requests import asked_for

WRONG = [
    ("hessian-spectral-norm[tol=abc]", "tol= is 'abc': give a positive number"),
    ("hessian-spectral-norm[tol=-1]", "tol= is -1: give a positive number"),
    ("hessian-spectral-norm[tol=True]", "tol= is True: give a positive number"),
    ("hessian-spectral-norm[tol=None]", "tol= is None: give a positive number"),
    ("hessian-spectral-norm[tol=1e999]", "tol= is inf: give a positive number"),
    ("hessian-spectral-norm[full=maybe]", "full= is 'maybe': give True or False"),
    ("hessian-spectral-norm[full=1]", "full= is 1: give True or False"),
    ("hessian-spectral-norm[max_steps=2.5]", "give a whole number from 1 on"),
    ("hessian-spectral-norm[max_steps=0]", "give a whole number from 1 on"),
    ("riemannian-spectral-norm[metric=3]", "metric= is 3: use 'layer' or 'node'"),
    ("pac-bayes-bound[lam=x]", "lam= is 'x': give a positive number, or None"),
    ("pac-bayes-bound[delta=1.0]", "give a number between 0 and 1"),
]


@pytest.mark.parametrize(("request_", "sentence"), WRONG)
def test_values_of_another_type_or_out_of_range(request_: str, sentence: str):
    with pytest.raises(OptionError) as refused:
        fg.measure(CASES["mlp"].objective(), request_)
    assert sentence in str(refused.value)


def test_every_default_is_of_its_own_type():
    for info in fg.list_measures():
        kinds = option_types(info.function)
        assert kinds.keys() == info.options.keys()
        for name, default in info.options.items():
            assert checked(name, default, kinds[name]) == default


# No value of one of these is one of another's, but for whole numbers as floats.
VALUES = {
    bool: st.booleans(),
    int: st.integers(-5, 5),
    float: st.floats(-5, 5).filter(lambda value: not value.is_integer()),
    str: st.text(max_size=3),
    type(None): st.none(),
}


@given(st.data())
def test_a_value_fits_its_own_type_alone(data):
    kind = data.draw(st.sampled_from([bool, int, float, str]))
    other = data.draw(st.sampled_from(list(VALUES)))
    optional = data.draw(st.booleans())
    value = data.draw(VALUES[other])
    fits = kind is other or (kind, other) == (float, int)
    fits = fits or (optional and value is None)
    annotation = kind | None if optional else kind
    if fits:
        found = checked("x", value, annotation)
        assert found == value
        assert value is None or type(found) is kind
    else:
        with pytest.raises(OptionError, match="x= is"):
            checked("x", value, annotation)


def test_ranges_choices_and_other_numbers():
    assert checked("x", np.int64(3), Count) == 3
    assert type(checked("x", np.float32(0.5), Positive)) is float
    assert checked("x", "a", Literal["a", "b"]) == "a"
    for value, kind in [(2, Annotated[int, at_least(3)]), ("c", Literal["a", "b"])]:
        with pytest.raises(OptionError, match="x= is"):
            checked("x", value, kind)


def test_annotations_that_say_nothing_leave_the_default_to_speak():
    def own(work, *, plain=1, unknown: "Nobody" = "a", free=None):  # noqa: F821
        """Options without types."""

    kinds = option_types(own)
    assert (kinds["plain"], kinds["unknown"]) == (int, str)
    assert checked("free", object, kinds["free"]) is object


def test_requests_come_one_by_one_or_in_lists():
    names = ["hessian-trace", "spectral-norm-product"]
    objective = CASES["mlp"].objective()
    apart, listed = fg.measure(objective, *names), fg.measure(objective, names)
    assert list(apart) == list(listed) == names
    assert asked_for((names, "hessian-trace")) == names
    audit = fg.audit(objective, names, elements=1, sharpen_by=None)
    assert list(audit.report) == names
    rows = fg.compare({"a": objective, "b": objective}, names).comparison_rows
    assert [row.measure for row in rows] == names
