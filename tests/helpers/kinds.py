"""The kinds of figures by name, for tests over all of them: a new kind is in every one of them."""

from attnviz.domain.kinds import KINDS
from attnviz.errors import UsageError


def _has_a_default(name):
    try:
        KINDS[name].request()
    except UsageError:  # it needs a target
        return False
    return True


ALL = tuple(KINDS)
BY_DEFAULT = tuple(filter(_has_a_default, ALL))
"""Those that need nothing but an image."""

OF_HEADS = tuple(name for name in BY_DEFAULT if hasattr(KINDS[name].request(), "heads"))
OF_CLS = tuple(name for name in BY_DEFAULT if KINDS[name].request().needs_cls)
"""Those that refuse a model without a CLS token."""

SUMMARISED = tuple(name for name, kind in KINDS.items() if kind.summarised)
