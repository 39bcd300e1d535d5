"""A page for Hugging Face Spaces: type a sentence, choose an attack, see what turns a classifier around.

    pip install gradio
    python examples/app.py path/to/model

`unshaken play` shows the same live on your own machine, without gradio.
"""

from __future__ import annotations

import sys
from typing import Any

import unshaken

ATTACKS = ["pwws", "greedy", "deepwordbug"]


def broken(victim: Any, text: str, attack: str) -> tuple[list[tuple[str, str | None]], str]:
    """The text with its new words marked, and one sentence."""
    if not text.strip():
        return [], "Type a sentence first."
    try:
        result = unshaken.attack(victim, text, attack)
    except unshaken.UnshakenError as error:  # such as a text without a word to change
        return [(text, None)], str(error)
    if result.adversarial is None:
        return [(text, None)], f"Held: {result.queries} texts were tried, and the answer stayed."
    new = {(column, position): after for column, position, _, after in result.swaps}
    counted = "1 word" if len(new) == 1 else f"{len(new)} words"
    words = [(new.get((0, at), word), "new" if (0, at) in new else None) for at, word in enumerate(words_of(text))]
    return [(word + " ", mark) for word, mark in words], f"Turned around with {counted}, {result.queries} tries."


def words_of(text: str) -> list[str]:
    from unshaken.substitutions.words import segment

    return list(segment(text).surfaces)


def app(victim: Any) -> Any:
    import gradio

    return gradio.Interface(
        lambda text, attack: broken(victim, text, attack),
        inputs=[gradio.Textbox(label="Sentence", lines=3), gradio.Dropdown(ATTACKS, value="pwws", label="Attack")],
        outputs=[gradio.HighlightedText(label="What the model read"), gradio.Textbox(label="Outcome")],
        title="unshaken",
        description="Words are swapped for synonyms until the classifier changes its mind.",
    )


if __name__ == "__main__":
    app(unshaken.Victim.from_pretrained(sys.argv[1])).launch()
