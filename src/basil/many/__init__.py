"""Many runs at once: comparisons, sweeps and figures, in processes, on a GPU or on a cluster.

A `Case` is one run of one recipe.  cases.py runs each of them once and leaves out what is there;
worker.py is what a process does that runs some of them; processes.py, ray.py and gpu.py say where
they are; round_robin.py runs several in one process.  sweep.py and figures.py make cases.
"""
