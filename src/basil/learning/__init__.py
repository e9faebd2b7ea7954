"""Networks as flat vectors, and the two computations on them: score and train."""
