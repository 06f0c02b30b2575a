"""Rescalings that leave a network's function unchanged: found, applied, checked."""

from flatgauge.symmetry.discover import discover as discover
from flatgauge.symmetry.discover import symmetries as symmetries
from flatgauge.symmetry.element import Element as Element
from flatgauge.symmetry.generators import Generator as Generator
from flatgauge.symmetry.generators import VerticalSpace as VerticalSpace
from flatgauge.symmetry.group import Group as Group
from flatgauge.symmetry.interpret import SymmetryWarning as SymmetryWarning
from flatgauge.symmetry.rules import scale_rule as scale_rule
from flatgauge.symmetry.site import Integers as Integers
from flatgauge.symmetry.site import Pin as Pin
from flatgauge.symmetry.site import Site as Site
