"""Two rounds of Basil on four nodes, checked against pencil and paper.

Each node i holds one number a_i; the loss of a model x is f_i(x) = ½ (x − a_i)².  Nobody lies in
the first example.  S = 2, rate ½, so an update halves the distance to the node's own number:

    x ← x − ½ (x − a_i) = ½ (x + a_i).

Ring order 0, 1, 2, 3 with a = (8, 4, 0, 2), x⁰ = 0.

Round 1
  node 0  stores {0}                            takes 0    ->  ½ (0 + 8)     = 4
  node 1  stores {4, 0}:  (4−4)²=0  (0−4)²=16   takes 4    ->  ½ (4 + 4)     = 4
  node 2  stores {4, 4}:  a tie: the nearest    takes n. 1's 4 ->  ½ (4 + 0) = 2
  node 3  stores {2, 4}:  (2−2)²=0  (4−2)²=4    takes 2    ->  ½ (2 + 2)     = 2
Round 2
  node 0  stores {n. 3's 2, n. 2's 2}: tie      takes n. 3's 2 ->  ½ (2 + 8) = 5
  node 1  stores {5, 2}:  (5−4)²=1  (2−4)²=4    takes 5    ->  ½ (5 + 4)     = 4.5
  node 2  stores {4.5, 5}: 20.25, 25            takes 4.5  ->  ½ (4.5 + 0)   = 2.25
  node 3  stores {2.25, 4.5}: 0.0625, 6.25      takes 2.25 ->  ½ (2.25 + 2)  = 2.125

Every number is a short binary fraction, so the program must hit it exactly.
"""

from ring_helpers import Quadratic, simulate_quadratic

A = (8.0, 4.0, 0.0, 2.0)


def test_two_rounds_by_hand() -> None:
    turns = simulate_quadratic(Quadratic(A, x0=0.0), connectivity=2, rounds=2, rate=0.5)
    assert [(t.round, t.node, t.chosen, t.value) for t in turns] == [
        (1, 0, None, 4.0),
        (1, 1, 0, 4.0),
        (1, 2, 1, 2.0),
        (1, 3, 2, 2.0),
        (2, 0, 3, 5.0),
        (2, 1, 0, 4.5),
        (2, 2, 1, 2.25),
        (2, 3, 2, 2.125),
    ]


def test_a_byzantine_node_by_hand() -> None:
    """Node 1 sends 100 in every turn.  It costs its own update, and nothing else.

    Round 1: node 0 -> 4.  Node 1 sends 100.  Node 2 stores {100, 4}: takes 4 -> 2.
    Node 3 stores {2, 100}: takes 2 -> 2.
    Round 2: node 0 stores {2, 2}: takes node 3's -> 5.  Node 1: 100.
    Node 2 stores {100, 5}: takes 5 -> 2.5.  Node 3 stores {2.5, 100}: takes 2.5 -> 2.25.
    """
    turns = simulate_quadratic(
        Quadratic(A, x0=0.0), connectivity=2, rounds=2, rate=0.5, sends={1: 100.0}
    )
    assert [(t.round, t.node, t.chosen, t.value) for t in turns if t.node != 1] == [
        (1, 0, None, 4.0),
        (1, 2, 0, 2.0),
        (1, 3, 2, 2.0),
        (2, 0, 3, 5.0),
        (2, 2, 0, 2.5),
        (2, 3, 2, 2.25),
    ]


def test_virtual_time_by_hand() -> None:
    """Unit costs: an evaluation 1 s, a step 10 s, a link 100 s; S = 2, scored on arrival.

    Node 0 evaluates x⁰ and steps: 11.  Node 1 hears at 111, evaluates it, then x⁰, steps: 123.
    Node 2 has evaluated node 0's model at 111; hears at 223, evaluates, steps: 234.  From then on
    every turn costs link + one evaluation + step = 111: node 3 at 345; round 2 at 456, …, 789.
    """
    times = (1.0, 10.0, 100.0)
    turns = simulate_quadratic(Quadratic(A, x0=0.0), 2, 2, 0.5, times=times)
    assert [t.time for t in turns] == [11, 123, 234, 345, 456, 567, 678, 789]


def test_scored_at_the_turn_as_in_the_paper() -> None:
    """The same, but the S evaluations wait for the turn: node 2 evaluates two models, and so on.

    11; 11 + 100 + 2 + 10 = 123; 123 + 112 = 235; then 112 for every turn.
    """
    times = (1.0, 10.0, 100.0)
    late = simulate_quadratic(Quadratic(A, x0=0.0), 2, 2, 0.5, times=times, on_arrival=False)
    assert [t.time for t in late] == [11, 123, 235, 347, 459, 571, 683, 795]
    early = simulate_quadratic(Quadratic(A, x0=0.0), 2, 2, 0.5, times=times)
    assert [(t.chosen, t.value) for t in late] == [(t.chosen, t.value) for t in early]
