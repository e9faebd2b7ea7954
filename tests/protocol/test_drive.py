"""Driving a generator by hand."""

from collections.abc import Generator

from basil.protocol.drive import Driver


def counts(start: int) -> Generator[int, int, str]:
    total = start
    while total < 10:
        total += (yield total) or 1
    return f"{total} in the end"


def test_each_answer_is_handed_over_once_and_the_result_is_kept() -> None:
    driver = Driver(counts(1))
    asked = []
    for number in driver:
        asked.append(number)
        if number < 4:
            driver.answer = 3
    assert asked == [1, 4, 5, 6, 7, 8, 9]
    assert driver.result == "10 in the end"


def test_who_stops_in_between_can_go_on() -> None:
    driver = Driver(counts(8))
    assert next(driver) == 8
    assert list(driver) == [9]
    assert driver.result == "10 in the end"
