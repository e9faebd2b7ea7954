"""Docstrings of the code, made ready for Markdown.

They are written for `help()`: examples begin with >>>, and [a][b] is no link.
"""

import re
from typing import Any

import griffe


class Docstrings(griffe.Extension):
    """Examples become code blocks, and brackets stay brackets."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        self.on_object(obj=pkg)

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(text: str) -> str:
    """Lines with >>> as code blocks; outside of them and of `code`, brackets escaped."""
    paragraphs = []
    for paragraph in text.split("\n\n"):
        if paragraph.lstrip().startswith(">>>"):
            paragraphs.append(f"```pycon\n{paragraph}\n```")
        else:
            pieces = re.split(r"(`[^`]*`)", paragraph)
            pieces[::2] = [re.sub(r"\](\s?)([\[(])", r"]\1\\\2", piece) for piece in pieces[::2]]
            paragraphs.append("".join(pieces))
    return "\n\n".join(paragraphs)
