"""Who takes part: keys, certificates, and the roster that the ring's authority signs."""
