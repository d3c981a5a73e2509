"""Attacks on this very sandbox, as data and as native code: what `sandbridge attack` and the tests run.

Programs are rows of `public.jsonl` and `own.jsonl` (corpus.py), run by player.py. Native code takes the place of a
program that has broken V8 (native.py), in a worker with all its walls (locked.py). siege.py runs everything against a
sandbox of the caller's own kind and says of each attack whether it was held. Nothing is imported here: part of it runs
inside the walls.
"""
