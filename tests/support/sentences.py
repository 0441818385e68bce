"""Sentences with a label, for attacks on text."""

from __future__ import annotations

from tests.support.word_models import probabilities

TEXTS = (
    "The film is a good story, slowly told by a great director.",
    "a strange and funny tale of children who run through the city at night",
    "it 's a bad picture , and the actors went through the scenes like sleepers",
    "I loved every minute of it; my heart fell when it ended!",
    "she doesn't laugh , she doesn't dance , she watches the old dogs galore",
    '"Better than the book," he wrote -- and made me want to see it twice.',
    "a well-made , quiet picture with no ideas worth a moment of thought",
    "the mice ran . the hound fell asleep . nobody hated anybody",
    "Big, dull, noisy and never funny: 2 hours and 15 minutes of it",
    "`` a warm job of work '' , as my kid's teacher said",
    "rarely has a movie this slow been this amusing to watch",
    "children of the dark city descend upon an old actor's house",
    "The worse the weather, the better the view from O'Brien's window",
    "make no mistake , this is a terrible , terrible thing to travel for",
    "a",
    "no , not this",
    "funny",
    "an odd thought : the director penned the thing in an instant and it shows",
    "her solid , decent work never really stops the tale from being dull , dull , dull",
    "go to the movies tonight and finish what we began last year in town",
)
# Two of them are wrong from the beginning.
SENTENCES: tuple[tuple[str, int], ...] = tuple(
    (text, int((probabilities(text)[1] > 0.5) ^ (number in (4, 13)))) for number, text in enumerate(TEXTS)
)
