"""The adaptive jitter buffer: packets and `now` in, audio decisions out; numpy and nothing else."""
