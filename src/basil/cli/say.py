"""Sentences of a command: broken between words where a terminal is narrow."""

import argparse
import sys
from typing import NoReturn

from basil.text import width, wrapped


def say(sentence: str, hang: int = 0) -> None:
    print(wrapped(sentence, width(), hang), flush=True)


def complain(sentence: str) -> None:
    print(wrapped(sentence, width(sys.stderr)), file=sys.stderr)


def warn(sentence: str) -> None:
    complain(f"warning: {sentence}")


class Parser(argparse.ArgumentParser):
    """Says what was wrong as every other sentence is said."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        complain(f"{self.prog}: error: {message}")
        self.exit(2)
