"""English function words: the closed classes, whose replacement changes grammar or logic instead of wording."""

from __future__ import annotations

from functools import lru_cache


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


AUXILIARIES = _words(
    "am are be been being is was were 's 're 'm had has have having 've 'd get gets getting got gotten"
)

DETERMINERS = _words("a an the this that these those my your his her its our their some any no every each")

FUNCTION_WORDS = (
    AUXILIARIES
    | DETERMINERS
    | _words(
        """
        i me mine myself you yours yourself yourselves he him himself she hers herself it itself we us ours ourselves
        they them theirs themselves one oneself who whom whose which what whoever whatever whichever somebody someone
        something anybody anyone anything nobody none nothing everybody everyone everything
        both either neither all few many much more most less least several such other another own same enough
        about above across after against along amid among amongst around as at before behind below beneath beside
        besides between beyond by despite down during except for from in inside into like near of off on onto out
        outside over past per since through throughout to toward towards under underneath until unto up upon via with
        within without
        and but or nor so yet if because although though unless whereas whether while than lest once
        when where why how whenever wherever however therefore thus hence then there here
        do does did doing done can could may might must shall should will would ought need dare
        not never n't cannot ain't aren't can't couldn't didn't doesn't don't hadn't hasn't haven't isn't mightn't
        mustn't needn't shan't shouldn't wasn't weren't won't wouldn't
        i'm i've i'd i'll you're you've you'd you'll he's he'd he'll she's she'd she'll it's it'd it'll we're we've we'd
        we'll they're they've they'd they'll that's that'll there's there'll here's who's who'd who'll what's what're
        where's when's why's how's let's 'll 'em 'tis 'twas
        too very just only also even still again ever else quite rather almost already
        """
    )
)


@lru_cache(maxsize=1 << 16)
def is_function_word(word: str) -> bool:
    return word.lower().replace("’", "'") in FUNCTION_WORDS
