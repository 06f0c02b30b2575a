"""Shape annotations that cost nothing: jaxtyping where it is installed, else plain types.

The library runs with torch, numpy and scipy alone; its tests install jaxtyping and
check every annotated shape while they run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jaxtyping import Bool as Bool
    from jaxtyping import Float as Float
    from jaxtyping import Int as Int
else:
    try:
        from jaxtyping import Bool, Float, Int
    except ImportError:

        class _Unchecked:
            def __class_getitem__(cls, item):
                return item[0]

        Bool = Float = Int = _Unchecked
