"""Whatever a recipe says, it is understood or refused in one short sentence, and at once."""

import datetime

import pytest

from basil.errors import UserError
from basil.recipe import load
from basil.recipe.read import options_of
from basil.recipe.schema import SECTIONS
from basil.recipe.sweep_plan import load_sweep

HUGE = 10**5000  # more digits than Python writes out


def nested(depth, value=0):
    for _ in range(depth):
        value = [value]
    return value


VALUES = {
    "an integer of 5,000 digits": HUGE,
    "a negative one": -HUGE,
    "more than 64 bits": 10**30,
    "more than float32": 1e39,
    "brackets": nested(5000),
    "a date": datetime.date(2020, 1, 1),
    "a name of 5,000 letters": "x" * 5000,
    "a file name of 5,000 letters": "x" * 5000 + ".py:x",
    "a table": {"a": {"b": 1}},
}
KEYS = ["seed", *SECTIONS] + [
    f"{section}.{key}"
    for section, kind in SECTIONS.items()
    for key in [*vars(kind()), *options_of(section, {})]
    if key != "options"
]


def sentence(*described):
    with pytest.raises(UserError) as error:
        load(*described)
    said = str(error.value)
    assert "\n" not in said
    assert len(said) < 1000
    return said


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_no_key_answers_an_extreme_with_more_than_a_sentence(value):
    refused = []
    for key in KEYS:
        try:
            load({}, {key: value})
        except UserError as error:
            refused.append(str(error))
    assert len(refused) > len(KEYS) / 2
    assert all("\n" not in said and len(said) < 1000 for said in refused)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("seed = " + "9" * 5000, "a whole number of thousands of digits"),
        ("seed = 0x" + "f" * 5000, "seed = "),
        ("[time]\nlatency = 0x" + "f" * 5000, "latency = "),
        ("seed = " + "[" * 5000 + "]" * 5000, "nested more than"),
        ("[seed" + ".a" * 5000 + "]\nb = 1", "nested more than"),
        ('like = "' + "x" * 5000 + '"', "there is no such file"),
        ("[learning]\nrate = 1e39", "rate = 1e+39: it must be at most 3.4e38"),
        ("[time]\nlatency = 1e308", "latency = 1e+308: it must be at most 3.4e38"),
        ("[time]\nmegabits = 1e-320", "it must be 1e-30 or more"),
        ("[ring]\nnodes = 1" + "0" * 30, "whole number of 64 bits"),
        ("[learning]\nlocal_steps = 1" + "0" * 30, "whole number of 64 bits"),
    ],
)
def test_a_file_with_extremes_is_refused_in_a_sentence(tmp_path, text, said):
    file = tmp_path / "extreme.toml"
    file.write_text(text)
    assert said in sentence(file)


@pytest.mark.parametrize("value", ["9" * 5000, "[" * 5000 + "]" * 5000])
def test_the_command_line_is_as_patient_as_a_file(value):
    assert "seed = " in sentence("demo", [f"seed={value}"])


def test_a_name_cannot_be_set_in_what_is_no_section(tmp_path):
    file = tmp_path / "flat.toml"
    file.write_text("attack = 5")
    assert "attack is not a section" in sentence(file, ["attack.name=gaussian"])


def test_a_recipe_of_an_endless_name_is_not_there():
    assert "there is no such file" in sentence("x" * 5000)


def test_a_sweep_over_a_date_is_refused():
    with pytest.raises(UserError, match="2020-01-01"):
        load_sweep({"sweep": {"grid": {"attack.name": [datetime.date(2020, 1, 1)]}}})
