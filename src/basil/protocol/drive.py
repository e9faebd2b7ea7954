"""Drive a generator: take what it yields, set the answer, and read off what it returns."""

from collections.abc import Generator
from typing import Any, Generic, TypeVar

Y = TypeVar("Y")
R = TypeVar("R")


class Driver(Generic[Y, R]):
    """A protocol, or any other generator, that somebody answers.

    >>> def protocol():
    ...     return (yield "question")
    >>> driver = Driver(protocol())
    >>> for request in driver:
    ...     driver.answer = f"answer to {request}"
    >>> driver.result
    'answer to question'
    """

    def __init__(self, generator: Generator[Y, Any, R]) -> None:
        self.answer: Any = None
        self.result: R
        self._generator = generator

    def __iter__(self) -> "Driver[Y, R]":
        return self

    def __next__(self) -> Y:
        answer, self.answer = self.answer, None  # it may be a model: nobody else is to hold it
        try:
            return self._generator.send(answer)
        except StopIteration as end:
            self.result = end.value
            raise
