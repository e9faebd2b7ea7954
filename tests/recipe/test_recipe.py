"""What a recipe may say, what it means by saying nothing, and what it is told when it is wrong."""

import tomllib

import pytest

from basil.errors import UserError
from basil.recipe import Event, Recipe, load, parse, shipped
from basil.recipe.read import change

SGD = {"momentum": 0.0, "weight_decay": 0.0, "clip": 0.0}


def parsed(text, source="my.toml"):
    return parse(tomllib.loads(text), source)


def complaint(text):
    """The sentence that this recipe is refused with: one line, and the file in it."""
    with pytest.raises(UserError) as error:
        parsed(text)
    sentence = str(error.value)
    assert "\n" not in sentence
    assert "my.toml" in sentence
    return sentence


# -- what is right ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", shipped())
def test_every_shipped_recipe_can_be_read_by_its_name_and_by_its_path(name):
    assert load(name) == load(shipped()[name])


def test_the_demo_says_what_its_text_says():
    recipe = load("demo")
    assert (recipe.data.dataset, recipe.data.partition) == ("digits", "iid")
    assert (recipe.ring.nodes, recipe.ring.byzantine, recipe.connectivity) == (20, 6, 7)
    assert recipe.learning.options["decay"] == 0.03
    assert recipe.attack.name == "gaussian"
    assert recipe.compare.schemes == ("basil", "basil-published", "r-plain")
    assert {"layer-sign-flip", "rescale"} <= set(recipe.compare.attacks)


def test_an_empty_recipe_is_all_defaults_and_the_options_are_those_of_the_functions():
    recipe = parse({})
    assert recipe.ring == Recipe().ring
    assert recipe.attack.name == "none"
    assert recipe.attack.options == {}
    assert recipe.learning.options == {"hidden": 100, "decay": 0.03, **SGD}  # mlp, inverse, sgd


def test_a_whole_number_will_do_for_a_real_one_and_becomes_one():
    recipe = parsed('[attack]\nname = "gaussian"\nstd = 2\n[learning]\nrate = 1\n')
    assert type(recipe.attack.options["std"]) is float
    assert type(recipe.learning.rate) is float


@pytest.mark.parametrize(
    ("nodes", "byzantine", "connectivity"), [(10, 0, 1), (10, 3, 4), (10, 8, 9), (10, 9, 9)]
)
def test_connectivity_is_one_more_than_the_byzantine_nodes_as_far_as_the_ring_goes(
    nodes, byzantine, connectivity
):
    recipe = parse({"ring": {"nodes": nodes, "byzantine": byzantine}})
    assert recipe.connectivity == connectivity


@pytest.mark.parametrize(
    ("events", "away"),
    [
        ([], 0),
        ([(0, 2, 4)], 1),
        ([(0, 2, 4), (1, 4, 6)], 1),  # the one is back when the other leaves
        ([(0, 2, 4), (1, 3, 6)], 2),
        ([(0, 2, None), (1, 9, None), (2, 5, 6)], 2),  # who does not return is away to the end
        ([(0, 2, 9), (1, 3, 9), (2, 4, 9)], 3),
    ],
)
def test_models_are_sent_as_much_further_as_nodes_are_away_at_once(events, away):
    rows = [
        {"node": node, "leaves": leaves} | ({} if returns is None else {"returns": returns})
        for node, leaves, returns in events
    ]
    ring = {"nodes": 10, "connectivity": 3, "events": rows}
    assert parse({"ring": ring}).reach == 3 + away
    assert parse({"ring": {**ring, "dropouts": 5}}).reach == 3 + 5
    assert parse({"ring": {**ring, "connectivity": 9}}).reach == 9  # nobody is further away


def test_a_second_absence_may_begin_after_a_whole_round():
    text = "[[ring.events]]\nnode=1\nleaves=2\nreturns=4\n[[ring.events]]\nnode=1\nleaves=5\n"
    assert parsed(text).ring.events == (Event(1, 2, 4), Event(1, 5))


# -- what is wrong: name, value, and what would be right --------------------------------------

WRONG = {
    # unknown names
    "nods = 3": ["'nods'", "there are: seed, data, ring"],
    "[rings]\nnodes = 3": ["'rings'", "'ring'"],
    "[ring]\nnods = 3": ["'nods'", "'nodes'", "[ring]"],
    "[ring]\nqqq = 3": ["'qqq'", "nodes, byzantine, connectivity", "[ring]"],
    '[scheme]\nname = "basill"': ["scheme 'basill'", "'basil'", "[scheme]"],
    '[scheme]\nrule = "lowest_los"': ["rule 'lowest_los'", "'lowest-loss'", "[scheme]"],
    '[attack]\nname = "gausian"': ["attack 'gausian'", "'gaussian'", "[attack]"],
    '[data]\npartition = "shard"': ["partition 'shard'", "'shards'", "[data]"],
    '[data]\ndataset = "minst"': ["data set 'minst'", "'mnist'", "[data]"],
    '[learning]\nmodel = "cifar_cnn"': ["model 'cifar_cnn'", "'cifar-cnn'", "[learning]"],
    '[learning]\nschedule = "cosin"': ["schedule 'cosin'", "'cosine'", "[learning]"],
    # options of something else than what is chosen
    '[attack]\nname = "hidden"\nstd = 1.0': ["'std'", "coordinate", "[attack]"],
    "[attack]\nstd = 1.0": ["'std'", "name, start", "[attack]"],
    "[data]\nbeta = 0.5": ["'beta'", "test_fraction", "[data]"],
    '[learning]\nschedule = "constant"\ndecay = 0.1': ["'decay'", "[learning]"],
    # wrong types
    'seed = "a"': ['seed = "a"', "a whole number"],
    "seed = 1.0": ["seed = 1.0", "a whole number"],
    "seed = true": ["seed = true", "a whole number"],
    "ring = 3": ["ring must be a section", "[ring]"],
    '[ring]\nnodes = "ten"': ['nodes = "ten"', "a whole number", "[ring]"],
    "[ring]\nconnectivity = 1.5": ["connectivity = 1.5", "a whole number", "[ring]"],
    '[learning]\nrate = "fast"': ['rate = "fast"', "a number", "[learning]"],
    "[scheme]\nname = 3": ["name = 3", "a string", "[scheme]"],
    "[record]\nmodels = 1": ["models = 1", "true or false", "[record]"],
    "[record]\nmodels = 1979-05-27": ["models", "1979-05-27", "true or false", "[record]"],
    '[compare]\nschemes = "basil"': ['schemes = "basil"', "a list", "[compare]"],
    '[compare]\nseeds = [1, "2"]': ['seeds = "2"', "a whole number", "[compare]"],
    '[attack]\nname = "gaussian"\nstd = "big"': ['std = "big"', "a number", "[attack]"],
    '[attack]\nname = "garbage"\nkind = 1': ["kind = 1", "a string", "[attack]"],
    # the ring
    "[ring]\nnodes = 1": ["nodes = 1", "at least 2", "[ring]"],
    "[ring]\nnodes = 10\nconnectivity = 12": [
        "connectivity = 12",
        "a ring of 10 nodes has only 9 predecessors",
        "[ring]",
    ],
    "[ring]\nnodes = 10\nconnectivity = 10": ["connectivity = 10", "has only 9 predecessors"],
    "[ring]\nconnectivity = 0": ["connectivity = 0", "at least 1 predecessor", "[ring]"],
    "[ring]\nnodes = 10\nbyzantine = 10": ["byzantine = 10", "at most 9", "[ring]"],
    "[ring]\nbyzantine = -1": ["byzantine = -1", "0 or more", "[ring]"],
    "[ring]\ndropouts = -1": ["dropouts = -1", "0 or more", "[ring]"],
    '[ring]\nplacement = "heap"': ["placement = 'heap'", "random, row, rows, degree", "[ring]"],
    "[ring]\nrow = 0": ["row = 0", "more than 0", "[ring]"],
    '[ring]\nplacement = "rows"\nbyzantine = 3\nconnectivity = 1': [
        "placement = 'rows'",
        "connectivity = 1",
        "[ring]",
    ],
    '[ring]\nplacement = "rows"\nnodes = 10\nbyzantine = 7\nrow = 2': [
        "7 Byzantine nodes in rows of 2 make 4, too many for 3 benign nodes",
        "rows of 3 or more",
        "[ring]",
    ],
    # numbers
    "[learning]\nrate = 0.0": ["rate = 0.0", "more than 0", "[learning]"],
    "[learning]\nrate = -0.1": ["rate = -0.1", "more than 0", "[learning]"],
    "[learning]\nrate = nan": ["rate = nan", "a finite number", "[learning]"],
    "[learning]\nrate = inf": ["rate = inf", "a finite number", "[learning]"],
    "[learning]\ndecay = nan": ["decay = nan", "a finite number", "[learning]"],
    '[attack]\nname = "gaussian"\nstd = inf': ["std = inf", "a finite number", "[attack]"],
    "[learning]\nbatch = 0": ["batch = 0", "more than 0", "[learning]"],
    "[learning]\nlocal_steps = 0": ["local_steps = 0", "more than 0", "[learning]"],
    "[learning]\nlocal_epochs = -1": ["local_epochs = -1", "0 or more", "[learning]"],
    "[scheme]\nrounds = 0": ["rounds = 0", "more than 0", "[scheme]"],
    '[scheme]\nscoring = "late"': ["scoring = 'late'", "arrival or turn", "[scheme]"],
    "[attack]\nstart = 0": ["start = 0", "more than 0", "[attack]"],
    "[time]\nmegabits = 0": ["megabits = 0", "more than 0", "[time]"],
    "[time]\nlatency = -1": ["latency = -1", "0 or more", "[time]"],
    "[time]\nforward = -1": ["forward = -1", "0 or more", "[time]"],
    '[time]\nstep = "measure"': ["step = 'measure'", '"measured"', "[time]"],
    "[record]\nevery = 0": ["every = 0", "more than 0", "[record]"],
    "[record]\ncheckpoint = -1": ["checkpoint = -1", "0 or more", "[record]"],
}


@pytest.mark.parametrize(("text", "said"), WRONG.items(), ids=[t.split("\n")[-1] for t in WRONG])
def test_what_is_wrong_is_named_with_what_would_be_right(text, said):
    sentence = complaint(text)
    assert [words for words in said if words not in sentence] == [], sentence


def row(node, leaves, returns=None):
    there = "" if returns is None else f", returns = {returns}"
    return f"{{node = {node}, leaves = {leaves}{there}}}"


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([row(10, 2)], "node 10 leaves in round 2: nodes are numbered 0 to 9"),
        ([row(-1, 2)], "node -1 leaves in round 2: nodes are numbered 0 to 9"),
        ([row(3, 0)], "node 3 leaves in round 0: rounds are 1 to 60"),
        ([row(3, 61)], "node 3 leaves in round 61: rounds are 1 to 60"),
        ([row(3, 9, 9)], "node 3 leaves in round 9 and returns in round 9: that must be later"),
        ([row(3, 9, 4)], "node 3 leaves in round 9 and returns in round 4: that must be later"),
        ([row(3, 2, 6), row(3, 4, 8)], "node 3 leaves in round 4 without having been back"),
        ([row(3, 6, 8), row(3, 4, 6)], "node 3 leaves in round 6 without having been back"),
        ([row(3, 2), row(3, 4)], "node 3 leaves in round 4 without having been back"),
        ([row(i, i + 1) for i in range(10)], "in round 10 all 10 nodes are away: one must stay"),
        (["{leaves = 2}"], "events: node is missing"),
        (["{node = 2}"], "events: leaves is missing"),
        (["{node = 2, leavs = 3}"], "unknown key 'leavs': did you mean 'leaves'?"),
        (["{node = 2, leaves = true}"], "events.leaves = true: it must be a whole number"),
        (["3"], "events must be tables [[ring.events]] with node, leaves, returns"),
    ],
)
def test_wrong_events_are_refused(rows, said):
    sentence = complaint(f"[ring]\nnodes = 10\nevents = [{', '.join(rows)}]\n")
    assert said in sentence
    assert sentence.endswith("(my.toml, [ring])")


# -- files and -s -----------------------------------------------------------------------------


def test_a_file_that_is_not_there_is_named_with_the_nearest_shipped_recipe():
    with pytest.raises(UserError, match=r"recipe 'dmeo': there is no such file.*'demo'"):
        load("dmeo")


@pytest.mark.parametrize("content", [b"[ring\nnodes = 3", b"seed = 1\nseed = 2", b"# \xff"])
def test_a_file_that_is_not_toml_is_named(tmp_path, content):
    (tmp_path / "broken.toml").write_bytes(content)
    with pytest.raises(UserError, match=r"broken\.toml is not valid TOML: "):
        load(tmp_path / "broken.toml")


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("a.b=3", 3),
        ("a.b=-0.5", -0.5),
        ("a.b=true", True),
        ('a.b="x y"', "x y"),
        ("a.b=layer-sign-flip", "layer-sign-flip"),  # no TOML: a string without its quotes
        ("a.b = spaced ", "spaced"),
        ("a.b=x=y", "x=y"),
        ("a.b=", ""),
        ('a.b=["p", "q"]', ["p", "q"]),
        ("a.b=[{node=7,leaves=10,returns=20}]", [{"node": 7, "leaves": 10, "returns": 20}]),
    ],
)
def test_a_value_on_the_command_line_is_toml_or_else_a_string(override, value):
    tree = {"a": {"b": "before", "c": 1}}
    change(tree, [override])
    assert tree == {"a": {"b": value, "c": 1}}
    assert type(tree["a"]["b"]) is type(value)


def test_overrides_reach_every_depth_and_the_last_one_wins():
    recipe = load(
        "demo",
        [
            "seed=5",
            "ring.nodes=8",
            "ring.nodes=9",
            "ring.byzantine=2",
            "ring.events=[{node=7,leaves=10,returns=20}]",
            "attack.name=gaussian",
            "attack.std=3",
            "record.models=false",
            "time.step=measured",
        ],
    )
    assert (recipe.seed, recipe.ring.nodes) == (5, 9)
    assert recipe.ring.events == (Event(7, 10, 20),)
    assert recipe.attack.options == {"std": 3.0}
    assert recipe.record.models is False
    assert recipe.time.step == "measured"


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("ring.nodes", "-s ring.nodes: write it as section.key=value"),
        ("=3", "-s =3: write it as section.key=value"),
        ("seed.x=3", "-s seed.x=3: seed is not a section"),
        (
            "ring.nodes=many",
            'nodes = "many": it must be a whole number (demo.toml with -s, [ring])',
        ),
        ("ring.nods=3", "unknown key 'nods': did you mean 'nodes'? (demo.toml with -s, [ring])"),
    ],
)
def test_a_wrong_override_is_refused(override, said):
    with pytest.raises(UserError) as error:
        load("demo", [override])
    assert said in str(error.value)


def test_naming_another_entry_leaves_the_options_of_the_old_one_behind(tmp_path):
    """demo.toml sets decay, which only `inverse` has; -s must still be able to switch."""
    constant = load("demo", ["learning.schedule=constant"])
    assert constant.learning.options == {"hidden": 100, **SGD}
    # In whichever order: the option that is given belongs to the entry that is named.
    words = ["learning.floor=0.2", "learning.schedule=cosine"]
    assert load("demo", words).learning.options["floor"] == 0.2
    assert load("demo", words[::-1]).learning.options["floor"] == 0.2
    file = tmp_path / "r.toml"
    file.write_text("[attack]\nname = 'gaussian'\nstd = 2.0\n")
    assert load(file, ["attack.name=hidden"]).attack.options == {"coordinate": -1}
    assert load(file, ["attack.name=gaussian"]).attack.options == {"std": 2.0}
    with pytest.raises(UserError, match="did you mean 'cosine'"):
        load("demo", ["learning.schedule=cosin"])
    with pytest.raises(UserError, match="unknown key 'std'"):
        load(file, ["attack.name=hidden", "attack.std=3.0"])


def test_a_recipe_may_be_like_another_and_say_what_differs(tmp_path):
    (tmp_path / "ours.toml").write_text(
        "seed = 5\n[ring]\nnodes = 9\nbyzantine = 2\n[attack]\nname = 'gaussian'\nstd = 2.0\n"
    )
    (tmp_path / "mine.toml").write_text(
        "like = 'ours.toml'\n[ring]\nnodes = 8\n[[ring.events]]\nnode = 1\nleaves = 3\n"
    )
    mine = load(tmp_path / "mine.toml")
    assert (mine.seed, mine.ring.nodes, mine.ring.byzantine) == (5, 8, 2)
    assert mine.ring.events == (Event(node=1, leaves=3),)
    assert mine.attack.options == {"std": 2.0}
    # One may be like one that is like another; a new name leaves the old one's options behind.
    (tmp_path / "third.toml").write_text("like = 'mine.toml'\n[attack]\nname = 'hidden'\n")
    third = load(tmp_path / "third.toml", ["ring.nodes=7"])
    assert (third.seed, third.ring.nodes, third.attack.options) == (5, 7, {"coordinate": -1})
    # Or like one that comes with Basil.
    (tmp_path / "demo-2.toml").write_text("like = 'demo'\n[ring]\nbyzantine = 5\n")
    assert load(tmp_path / "demo-2.toml") == load("demo", ["ring.byzantine=5"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("like = 'mine.toml'", r"like = 'mine.toml': that recipe is like this one"),
        ("like = 'other.toml'", r"like = 'mine.toml': that recipe is like this one \(other.toml"),
        ("like = 3", r"like.*mine.toml"),
        ("like = 'dmeo'", r"recipe 'dmeo': there is no such file.*'demo'"),
        ("like = 'demo'\n[seed]\nof = 3", r"seed must not be a section \(mine.toml"),
        ("like = 'demo'\n[attack]\nname = 'hiden'", r"did you mean 'hidden'.*mine.toml"),
    ],
)
def test_a_wrong_likeness_is_refused(tmp_path, text, said):
    (tmp_path / "mine.toml").write_text(text)
    (tmp_path / "other.toml").write_text("like = 'mine.toml'")
    with pytest.raises(UserError, match=said) as error:
        load(tmp_path / "mine.toml")
    assert "\n" not in str(error.value)


def test_a_recorded_key_that_is_gone_is_read_where_it_did_nothing() -> None:
    assert parse({"sharing": {"alpha": 0.1, "compress": False}}).sharing.alpha == 0.1
    with pytest.raises(UserError, match="unknown key 'compress'"):
        parse({"sharing": {"compress": True}})


def test_an_old_name_works_and_says_the_new_one() -> None:
    old, new, value = "kin", "lineage_ratio", 3.0
    with pytest.warns(FutureWarning, match=rf"scheme\.{old} is now scheme\.{new}$"):
        recipe = parse({"scheme": {"rule": "trust", old: value}})
    assert recipe.scheme.options[new] == value
    with pytest.raises(UserError, match=f"scheme.{old} is now scheme.{new}: give only that one"):
        parse({"scheme": {"rule": "trust", old: value, new: value}})
    with pytest.raises(UserError, match=f"unknown key '{old}'"):  # of another rule
        parse({"scheme": {"rule": "lowest-loss", old: value}})
