"""What is on the wire: signed manifests, bodies, and proofs that somebody said two things."""
