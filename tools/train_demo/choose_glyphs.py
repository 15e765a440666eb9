"""Write glyphs.json: which glyphs train and which are held out. Run once; the list is committed."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path

from banks import FONT, GLYPH_LIST, render_glyph
from fontTools.ttLib import TTFont

HELD_OUT = 200
SEED = 0
FLAG_LETTERS = range(0x1F1E6, 0x1F200)
SKIN_TONES = range(0x1F3FB, 0x1F400)
FIRST, LAST = 0x203C, 0x1FAFF
"""Below lie digits and letters, above tags and private code points that double other glyphs."""


def usable_characters(font: Path) -> list[str]:
    """Single code points that show something of their own, in code point order."""
    seen: set[str] = set()
    characters = []
    for code in sorted(TTFont(font).getBestCmap()):
        if not FIRST <= code <= LAST or code in FLAG_LETTERS or code in SKIN_TONES:
            continue
        glyph = render_glyph(chr(code))
        if glyph is None or min(glyph.size) < 16:
            continue
        digest = hashlib.sha256(glyph.tobytes()).hexdigest()
        if digest not in seen:
            seen.add(digest)
            characters.append(chr(code))
    return characters


def main() -> None:
    """Choose the held-out glyphs by seed; write both lists, sorted, as hexadecimal numbers."""
    characters = usable_characters(FONT)
    held_out = set(random.Random(SEED).sample(characters, HELD_OUT))
    lists = {
        "train": [f"{ord(c):X}" for c in characters if c not in held_out],
        "held_out": [f"{ord(c):X}" for c in characters if c in held_out],
    }
    GLYPH_LIST.write_text(json.dumps(lists) + "\n")
    print({name: len(codes) for name, codes in lists.items()})


if __name__ == "__main__":
    main()
