"""Homoglyphs: characters that look like others.

Boucher et al. 2022, "Bad Characters: Imperceptible NLP Attacks", section IV. One for each small letter,
digit, hyphen and apostrophe, as in TextAttack 0.3.11; capitals have none.
"""

from __future__ import annotations

PLAIN = "-9876543210'abcdefghijklmnopqrstuvwxyz"
ALIKE = "˗৭Ȣ𝟕бƼᏎƷᒿlO`ɑЬϲԁе𝚏ɡհіϳ𝒌ⅼｍոорԛⲅѕ𝚝սѵԝ×уᴢ"  # noqa: RUF001  what it is for
LOOK_ALIKE = dict(zip(PLAIN, ALIKE, strict=True))
