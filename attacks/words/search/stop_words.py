"""Words that recipes leave unchanged: NLTK's list of English stop words (179), and TextFooler's (266).

NLTK's list is from its data until 2024; later releases list 198.
"""

from __future__ import annotations

TEXT = """
i me my myself we our ours ourselves you you're you've you'll you'd your yours yourself yourselves he
him his himself she she's her hers herself it it's its itself they them their theirs themselves what
which who whom this that that'll these those am is are was were be been being have has had having do
does did doing a an the and but if or because as until while of at by for with about against between
into through during before after above below to from up down in out on off over under again further then
once here there when where why how all any both each few more most other some such no nor not only own
same so than too very s t can will just don don't should should've now d ll m o re ve y ain aren aren't
couldn couldn't didn didn't doesn doesn't hadn hadn't hasn hasn't haven haven't isn isn't ma mightn
mightn't mustn mustn't needn needn't shan shan't shouldn shouldn't wasn wasn't weren weren't won won't
wouldn wouldn't
"""
ENGLISH = frozenset(TEXT.split())

# Jin et al. 2020, "Is BERT Really Robust?", exempt other words: their list against NLTK's.
NOT_OF_TEXTFOOLER = """
be because did do does doing each few further had has have having m ma own re should so some very will
"""
ONLY_OF_TEXTFOOLER = """
across afterwards almost alone along already also although among amongst another anyhow anyone anything
anyway anywhere around back beforehand behind beside besides beyond cannot could due either else elsewhere
empty enough even ever everyone everything everywhere except first former formerly hence hereafter hereby
herein hereupon however hundred indeed latter latterly least may meanwhile mine moreover mostly must namely
neither never nevertheless next nobody none noone nothing nowhere one onto others otherwise per please
somehow something sometime somewhere thence thereafter thereby therefore therein thereupon throughout thru
thus toward towards unless upon used whatever whence whenever whereafter whereas whereby wherein whereupon
wherever whether whither whoever whole whose within without would yet
"""
TEXTFOOLER = (ENGLISH - set(NOT_OF_TEXTFOOLER.split())) | set(ONLY_OF_TEXTFOOLER.split())
