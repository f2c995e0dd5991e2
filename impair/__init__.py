"""Networks on demand: seeded link model, named profiles, UDP relay, trace replay."""
