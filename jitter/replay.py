"""`python -m jitter.replay`: a trace of arrivals through the buffer, offline. Nothing imports it."""
