"""A page that shows a run, many runs or a ring of peers while they go on: `basil watch`.

It reads what is written anyway, in a process of its own, and changes nothing.
"""
