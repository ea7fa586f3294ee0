"""Which full-text table a text and a query belong to: by words, or by three signs each.

The rule: a sign of a script that puts no space between words decides. A query with one asks the table of signs, in
which all texts with such a sign are; any other query asks the table of words, in which all texts are.
"""

import re

_DENSE = re.compile(
    "["
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f\uaa60-\uaa7f"  # Burmese
    "\u1780-\u17ff"  # Khmer
    "\u0f00-\u0fff"  # Tibetan
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f"  # Japanese syllables
    "\u3100-\u312f\u31a0-\u31bf"  # Bopomofo
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
    "]"
)


def is_dense(text: str) -> bool:
    """Tells whether ``text`` has a sign of a script that puts no space between words."""
    return _DENSE.search(text) is not None
